"""Audits snapshots: each by itself, and those that were written together."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta

import msgspec

from tidemill.engine.audit_findings import Finding, format_count, format_time, format_timespan, problem_finding
from tidemill.engine.graphs.checkpoints.double_writes import Journals
from tidemill.engine.graphs.checkpoints.part_history import Generation, PartHistory, accumulators_named_in
from tidemill.engine.graphs.durability.journal_blocks import JournalEntry
from tidemill.graphs.snapshot import JournalRecord, ReactorPart
from tidemill.storage.graph_ports import JournalKey, PartKey

DecodedEntry = JournalRecord | str | None
"""The record of a journal entry, the reason why it cannot be read, or None if it is damaged."""


def decode_entry(entry: JournalEntry) -> DecodedEntry:
    """Return the record of a journal entry, the reason why it cannot be read, or None if it is damaged."""
    if not entry.is_intact:
        return None
    try:
        return msgspec.msgpack.decode(entry.payload, type=JournalRecord)
    except msgspec.DecodeError as error:
        return str(error)


CLOCK_SKEW_TOLERANCE = timedelta(minutes=1)  # by which clocks may differ
EARLIEST_SNAPSHOT = datetime(2020, 1, 1, tzinfo=UTC)  # before the first Tidemill: no snapshot is older
GENERATIONS_KEPT = 2  # generations of each part

_DISK_ADVICE = "Check the disk, and restore a backup if that matters."


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


def _damage_finding(history: PartHistory, journals: Journals) -> Finding:
    which = " and ".join(one.title for one in history.damaged)
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
            f"its older snapshot is damaged ({which}); the newest, {used.title}, is intact.",
            "The next start uses that one, and nothing is lost; the next snapshot replaces the damaged one.",
            "Check the disk.",
        )
    lost = format_timespan(history.damaged[0].part.taken_at - used.part.taken_at)
    position = used.content.position if used.content is not None else 0
    return problem_finding(
        history.subject,
        f"its newest snapshot is damaged ({which}).",
        f"The next start uses {used.title} instead, and what was written together with it steps back too:",
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
        f"{used.title} is intact, but this version of Tidemill cannot read it ({used.read_error}).",
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
            f"The next start uses {newest.title}. Rows were copied into this store: restore a backup.",
        )
    elif len(numbers) == 1 and numbers[0] != 1:
        yield problem_finding(
            history.subject,
            f"only {newest.title} is stored, and the one before it is missing.",
            "The next start uses it and nothing is lost, but should it be damaged, there is nothing to fall back on.",
            "The next snapshot of a running node repairs that; find out who deleted rows of this store.",
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


def _check_pair(reactor: PartHistory, used: Generation, key: PartKey, fed_by: PartHistory | None) -> Iterator[Finding]:
    subject = f"accumulator {key.tenant}/{key.name}"
    if fed_by is None:
        yield problem_finding(
            subject,
            f"nothing is stored of it, though {used.title} of {reactor.subject} was written together with it.",
            "At the next start its numbering, its running state, what it holds and how far its source was read",
            "are lost: a source is read from its beginning. Restore a backup.",
        )
    elif fed_by.generations[0].part.moment < used.part.moment:
        yield problem_finding(
            subject,
            f"its newest snapshot, {fed_by.generations[0].title}, is older than {used.title} of {reactor.subject},",
            "which was written together with a newer one.",
            "At the next start it continues from the older one: a source is read again from there, and events of it",
            "that the reactor has seen come twice. Restore a backup.",
        )
