"""Audits snapshots: each by itself, and those that were written together."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from tidemill.engine.audit_findings import Finding, format_count, format_time, format_timespan, problem_finding
from tidemill.engine.graphs.checkpoints.checksums import is_entry_intact, is_part_intact
from tidemill.graphs.snapshot import AccumulatorPart, JournalRecord, ReactorPart
from tidemill.storage.graph_ports import JournalEntry, JournalKey, PartKey, SnapshotPart

Content = ReactorPart | AccumulatorPart
_CONTENT_TYPES: dict[str, type[Content]] = {"reactor": ReactorPart, "accumulator": AccumulatorPart}


class Generation(msgspec.Struct, frozen=True):
    """One stored generation: whether its checksum is right, and its content if that can be read."""

    part: SnapshotPart
    is_intact: bool
    content: Any = None
    read_error: str = ""
    """Why it cannot be read although it is intact."""

    @classmethod
    def from_part(cls, part: SnapshotPart) -> "Generation":
        """Check and decode a part."""
        if not is_part_intact(part):
            return cls(part, is_intact=False)
        try:
            return cls(
                part, is_intact=True, content=msgspec.msgpack.decode(part.payload, type=_CONTENT_TYPES[part.key.kind])
            )
        except KeyError:
            return cls(part, is_intact=True, read_error=f"nothing of the kind '{part.key.kind}' is known")
        except msgspec.DecodeError as error:
            return cls(part, is_intact=True, read_error=str(error))


class PartHistory(msgspec.Struct, frozen=True):
    """All stored generations of one reactor or accumulator, newest moment first."""

    key: PartKey
    generations: list[Generation]

    @property
    def subject(self) -> str:
        """The name of the component in findings."""
        return f"{self.key.kind} {self.key.tenant}/{self.key.name}"

    @property
    def intact(self) -> list[Generation]:
        """The generations whose checksums are right."""
        return [one for one in self.generations if one.is_intact]

    @property
    def damaged(self) -> list[Generation]:
        """The generations whose checksums are wrong."""
        return [one for one in self.generations if not one.is_intact]

    @property
    def restore_candidate(self) -> Generation | None:
        """The generation that the next start restores."""
        return next(iter(self.intact), None)

    @property
    def journal_span(self) -> "tuple[Content, Content] | None":
        """The contents of the older and the newest generation, between which the journal must be complete.

        Before the first generation there was nothing. None if a generation is missing, which is a finding of its own.
        """
        contents = [one.content for one in self.generations]
        if None in contents:
            return None
        numbers = [one.part.generation for one in self.generations]
        if numbers == [1] and isinstance(contents[0], AccumulatorPart):
            return AccumulatorPart(sequence=0, position=0), contents[0]
        return (contents[1], contents[0]) if len(numbers) == 2 and numbers[0] == numbers[1] + 1 else None


def read_histories(parts: Iterable[SnapshotPart]) -> dict[PartKey, PartHistory]:
    """Group stored parts by component, and decode them."""
    histories: dict[PartKey, PartHistory] = {}
    for part in sorted(parts, key=lambda part: (part.key, -part.moment, -part.generation)):
        histories.setdefault(part.key, PartHistory(part.key, [])).generations.append(Generation.from_part(part))
    return histories


def decode_entry(entry: JournalEntry) -> JournalRecord | str | None:
    """Return the record of a journal entry, the reason why it cannot be read, or None if it is damaged."""
    if not is_entry_intact(entry):
        return None
    try:
        return msgspec.msgpack.decode(entry.payload, type=JournalRecord)
    except msgspec.DecodeError as error:
        return str(error)


CLOCK_SKEW_TOLERANCE = timedelta(minutes=1)  # by which clocks may differ
EARLIEST_SNAPSHOT = datetime(2020, 1, 1, tzinfo=UTC)  # before the first Tidemill: no snapshot is older
GENERATIONS_KEPT = 2  # generations of each part

_DISK_ADVICE = "Check the disk, and restore a backup if that matters."
_ONE_NODE_ADVICE = "Make sure that only one node uses this store."

Journals = Mapping[JournalKey, Sequence[JournalEntry]]


def audit_history(history: PartHistory, journals: Journals, now: datetime) -> Iterator[Finding]:
    """Yield the findings for all generations of one reactor or accumulator."""
    if history.damaged:
        yield _damage_finding(history, journals)
    else:
        yield from _check_numbering(history)
    if history.restore_candidate is not None and history.restore_candidate.read_error:
        yield _unreadable_finding(history, history.restore_candidate)
    for one in history.generations:
        yield from _check_time(history, one, now)


def _describe_generation(one: Generation) -> str:
    return f"generation {one.part.generation} of {format_time(one.part.taken_at)}"


def _damage_finding(history: PartHistory, journals: Journals) -> Finding:
    which = " and ".join(map(_describe_generation, history.damaged))
    used = history.restore_candidate
    if used is None:
        return problem_finding(
            history.subject,
            f"its snapshot is damaged ({which}) and there is no other.",
            f"At the next start it is empty{_describe_journal_recovery(history, 0, journals)}.",
            _DISK_ADVICE,
        )
    if used.part.moment > history.damaged[0].part.moment:
        return problem_finding(
            history.subject,
            f"its older snapshot is damaged ({which}); the newest, {_describe_generation(used)}, is intact.",
            "The next start uses that one, and nothing is lost; the next snapshot replaces the damaged one.",
            "Check the disk.",
        )
    lost = format_timespan(history.damaged[0].part.taken_at - used.part.taken_at)
    position = used.content.position if used.content is not None else 0
    return problem_finding(
        history.subject,
        f"its newest snapshot is damaged ({which}).",
        f"The next start uses {_describe_generation(used)} instead, and what was written together with it "
        "steps back too:",
        f"what happened in the {lost} between them is lost{_describe_journal_recovery(history, position, journals)}.",
        "A node that is running has it all in memory: let it run, its next two snapshots replace the damaged one.",
        _DISK_ADVICE,
    )


def _describe_journal_recovery(history: PartHistory, position: int, journals: Journals) -> str:
    """Describe how much of an accumulator the journal restores."""
    entries = journals.get(JournalKey(history.key.tenant, history.key.name), ())
    count = sum(entry.position > position for entry in entries) if history.key.kind == "accumulator" else 0
    return f", save for what {format_count(count, 'journal entry', 'journal entries')} bring back" if count else ""


def _unreadable_finding(history: PartHistory, used: Generation) -> Finding:
    return problem_finding(
        history.subject,
        f"{_describe_generation(used)} is intact, but this version of Tidemill cannot read it ({used.read_error}).",
        "At the next start it is empty. Run the version that wrote it.",
    )


def _check_numbering(history: PartHistory) -> Iterator[Finding]:
    """Check the numbers of intact generations."""
    numbers = [one.part.generation for one in history.generations]
    newest = history.generations[0]
    if len(numbers) > GENERATIONS_KEPT:
        yield problem_finding(
            history.subject,
            f"{len(numbers)} generations are stored, and never more than {GENERATIONS_KEPT} are written.",
            f"The next start uses {_describe_generation(newest)}. Rows were copied into this store: restore a backup.",
        )
    elif len(numbers) == 1 and numbers[0] != 1:
        yield problem_finding(
            history.subject,
            f"only {_describe_generation(newest)} is stored, and the one before it is missing.",
            "The next start uses it and nothing is lost, but should it be damaged, there is nothing to fall back on.",
            "The next snapshot of a running node repairs that; find out who deleted rows of this store.",
        )
    elif len(numbers) == GENERATIONS_KEPT and numbers[0] != numbers[1] + 1:
        yield problem_finding(
            history.subject,
            f"generation {numbers[0]} was written last, after generation {numbers[1]}, and does not follow it.",
            f"The next start uses {_describe_generation(newest)}, which may not be the newest state. "
            f"{_ONE_NODE_ADVICE}",
        )


def _check_time(history: PartHistory, one: Generation, now: datetime) -> Iterator[Finding]:
    taken_at = one.part.taken_at
    if taken_at > now + CLOCK_SKEW_TOLERANCE:
        problem = (
            f"generation {one.part.generation} was taken at {format_time(taken_at)}, "
            f"{format_timespan(taken_at - now)} from now."
        )
    elif taken_at < EARLIEST_SNAPSHOT:
        problem = f"generation {one.part.generation} was taken at {format_time(taken_at)}, before there was a Tidemill."
    else:
        return
    yield problem_finding(
        history.subject,
        problem,
        "A clock is wrong, or the row was changed. It is used all the same, and nothing is lost;",
        "set the clock of the node, or of this machine.",
    )


# -- consistency of parts written together


def audit_consistency(histories: Mapping[PartKey, PartHistory]) -> Iterator[Finding]:
    """Compare each reactor with the accumulators that feed it: they are always written at one moment."""
    for history in histories.values():
        used = history.restore_candidate
        if used is not None and isinstance(used.content, ReactorPart):
            for name in sorted(accumulators_named_in(used.content)):
                key = PartKey(history.key.tenant, "accumulator", name)
                yield from _check_pair(history, used, key, histories.get(key))


def accumulators_named_in(content: ReactorPart) -> set[str]:
    """Return the accumulators whose values a reactor's snapshot holds."""
    named = {*content.cache, *content.dirty}
    named.update(name for name, _, _ in content.queue)
    named.update(name for name, _ in content.consumed)
    return named.union(*(firing.inputs for firing in content.firings))


def _check_pair(reactor: PartHistory, used: Generation, key: PartKey, fed_by: PartHistory | None) -> Iterator[Finding]:
    subject = f"accumulator {key.tenant}/{key.name}"
    if fed_by is None:
        yield problem_finding(
            subject,
            f"nothing is stored of it, though {_describe_generation(used)} of {reactor.subject} was written "
            "together with it.",
            "At the next start its numbering, its running state, what it holds and how far its source was read",
            "are lost: a source is read from its beginning. Restore a backup.",
        )
    elif fed_by.generations[0].part.moment < used.part.moment:
        yield problem_finding(
            subject,
            f"its newest snapshot, {_describe_generation(fed_by.generations[0])}, is older than "
            f"{_describe_generation(used)} of {reactor.subject},",
            "which was written together with a newer one.",
            "At the next start it continues from the older one: a source is read again from there, and events of it",
            "that the reactor has seen come twice. Restore a backup.",
        )
    else:
        yield from _check_positions(reactor, used, fed_by)


def _check_positions(reactor: PartHistory, used: Generation, fed_by: PartHistory) -> Iterator[Finding]:
    for one in fed_by.intact:
        if one.part.moment != used.part.moment or not isinstance(one.content, AccumulatorPart):
            continue
        if one.content.position > used.content.position:
            yield problem_finding(
                reactor.subject,
                f"it has seen the journal up to {used.content.position}, and {fed_by.subject}, written at the same",
                f"moment, is at {one.content.position}.",
                "The next start delivers the entries in between to it once more. " + _ONE_NODE_ADVICE,
            )
