"""Finds the signs of two nodes that ran one reactor at the same time: numbers of one kind that were given twice.

Stores that older versions of Tidemill wrote may have them. The audit reports them, and so does a restore, because the
next two snapshots erase them.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from tidemill.engine.audit_findings import format_count, format_numbers
from tidemill.engine.graphs.checkpoints.part_history import Generation, PartHistory, accumulators_named_in
from tidemill.engine.graphs.durability.journal_blocks import JournalEntry
from tidemill.graphs.snapshot import AccumulatorPart, ReactorPart
from tidemill.storage.graph_ports import JournalKey, PartKey

_TWO_NODES = "two nodes have run it at the same time"

Histories = Mapping[PartKey, PartHistory]
Journals = Mapping[JournalKey, Sequence[JournalEntry]]


class DoubleWrite(msgspec.Struct, frozen=True):
    """A sign that two nodes wrote the state of one reactor or accumulator."""

    key: PartKey
    sign: str
    meaning: str
    """What the next start makes of it."""

    @property
    def subject(self) -> str:
        """The name of the component in findings."""
        return f"{self.key.kind} {self.key.tenant}/{self.key.name}"

    @property
    def reason(self) -> str:
        """The sign as the reason of a recovery."""
        return f"{_TWO_NODES}: {self.sign}; events may have been lost or processed twice"


def is_double_write(reason: str) -> bool:
    """Return whether this is the reason of a recovery from a double write."""
    return reason.startswith(_TWO_NODES)


def group_by_journal(entries: Iterable[JournalEntry]) -> dict[JournalKey, list[JournalEntry]]:
    """Group journal entries by accumulator."""
    journals: dict[JournalKey, list[JournalEntry]] = {}
    for entry in entries:
        journals.setdefault(entry.key, []).append(entry)
    return journals


def find_double_writes(histories: Histories, journals: Journals) -> Iterator[DoubleWrite]:
    """Yield every sign of a double write."""
    for history in histories.values():
        if not history.damaged and len(history.generations) == 2:
            yield from _check_generations(history, *history.generations)
        yield from _check_contents(history, journals)
        used = history.restore_candidate
        if used is not None and isinstance(used.content, ReactorPart):
            yield from _check_moment(history.key, used, histories)
            yield from _check_order(history.key, used.content, journals)
    for journal, entries in journals.items():
        yield from _check_repeats(PartKey(journal.tenant, "accumulator", journal.accumulator), entries)


def _check_generations(history: PartHistory, newest: Generation, older: Generation) -> Iterator[DoubleWrite]:
    """Compare the numbers of two generations: both of them grow with each write."""
    number, before = newest.part.generation, older.part.generation
    meaning = f"The next start uses {newest.title}, which may not be the newest state."
    if number != before + 1:
        sign = f"generation {number} was written last, after generation {before}, and does not follow it"
        yield DoubleWrite(history.key, sign, meaning)
    elif newest.part.moment == older.part.moment:
        yield DoubleWrite(history.key, f"generations {before} and {number} were written at one moment", meaning)


def _check_contents(history: PartHistory, journals: Journals) -> Iterator[DoubleWrite]:
    """Compare the contents of two generations, and the journal with the older one."""
    match history.journal_span:
        case (AccumulatorPart() as older, AccumulatorPart() as newest):
            entries = journals.get(JournalKey(history.key.tenant, history.key.name), ())
            yield from _check_positions(history.key, older, newest, [entry.position for entry in entries])
        case (ReactorPart() as older, ReactorPart() as newest):
            if newest.series == older.series and newest.number < older.number:
                sign = f"its newest snapshot is at firing {newest.number}, behind the one before it ({older.number})"
                yield DoubleWrite(history.key, sign, "After the next start, numbers of firings are given again.")


def _check_positions(
    key: PartKey, older: AccumulatorPart, newest: AccumulatorPart, positions: list[int]
) -> Iterator[DoubleWrite]:
    """Check that the journal starts after the older snapshot, and that the newest one is further."""
    if newest.position < older.position:
        sign = f"its newest snapshot is at journal position {newest.position}, behind the one before it"
        yield DoubleWrite(key, f"{sign} ({older.position})", "The next start may leave out entries.")
    elif stale := [at for at in positions if at <= older.position]:
        sign = f"entries {format_numbers(stale)} of its journal lie before its older snapshot (position "
        lost = f"{format_count(len(stale), 'acknowledged event')} would be lost"
        meaning = f"The next start does not read them: if they are newer than the snapshots, {lost}."
        yield DoubleWrite(key, f"{sign}{older.position})", meaning)


def _check_moment(key: PartKey, used: Generation, histories: Histories) -> Iterator[DoubleWrite]:
    """Compare a reactor with its accumulators at the moment of its snapshot: none of them is ahead of it."""
    for name in sorted(accumulators_named_in(used.content)):
        history = histories.get(PartKey(key.tenant, "accumulator", name))
        for one in history.intact if history is not None else ():
            if one.part.moment != used.part.moment or not isinstance(one.content, AccumulatorPart):
                continue
            if one.content.position > used.content.position:
                sign = f"it has seen the journal up to {used.content.position}, and accumulator {key.tenant}/{name}"
                sign += f", written at the same moment, is at {one.content.position}"
                yield DoubleWrite(key, sign, "The next start delivers the entries in between to it once more.")


def _check_order(key: PartKey, content: ReactorPart, journals: Journals) -> Iterator[DoubleWrite]:
    """Find positions that two accumulators of one reactor share: then the order of their events is unknown."""
    taken: dict[int, str] = {}
    for name in sorted(accumulators_named_in(content)):
        for entry in journals.get(JournalKey(key.tenant, name), ()):
            if (other := taken.setdefault(entry.position, name)) != name:
                sign = f"journal position {entry.position} is taken by '{other}' and by '{name}'"
                yield DoubleWrite(key, sign, "The next start reads both, perhaps in the wrong order.")
                break


def _check_repeats(key: PartKey, entries: Sequence[JournalEntry]) -> Iterator[DoubleWrite]:
    """Find positions that two blocks of one journal share; in a damaged block, the positions may be what is wrong."""
    counts = Counter(entry.position for entry in entries if entry.is_intact)
    if repeated := sorted(at for at, count in counts.items() if count > 1):
        name = "position" if len(repeated) == 1 else "positions"
        sign = f"{name} {format_numbers(repeated)} of its journal {'is' if len(repeated) == 1 else 'are'} taken twice"
        meaning = "The next start applies every entry that its snapshot does not hold, perhaps in the wrong order."
        yield DoubleWrite(key, sign, meaning)
