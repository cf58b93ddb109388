"""Audits journals: their entries, and how they connect to the snapshots."""

from collections.abc import Iterator, Sequence

from tidemill.engine.audit_findings import Finding, format_count, format_numbers, note_finding, problem_finding
from tidemill.engine.graphs.audit.parts import DecodedEntry, decode_entry
from tidemill.engine.graphs.checkpoints.part_history import PartHistory
from tidemill.engine.graphs.durability.journal_blocks import JournalEntry
from tidemill.graphs.snapshot import AccumulatorPart, JournalRecord
from tidemill.storage.graph_ports import JournalKey

JOURNAL_LENGTH_LIMIT = 50_000
"""Entries of one accumulator: a few seconds of the fastest stream, and snapshots are written five times a second."""


class JournalAudit:
    """Audits one accumulator's journal against its snapshots."""

    def __init__(self, key: JournalKey, entries: Sequence[JournalEntry], history: PartHistory | None) -> None:
        self._subject = f"accumulator {key.tenant}/{key.accumulator}"
        self._entries = entries
        self._history = history
        used = history.restore_candidate if history is not None else None
        self._position: int = used.content.position if used is not None and used.content is not None else 0
        self._records = [(entry.position, decode_entry(entry)) for entry in entries]

    def findings(self) -> Iterator[Finding]:
        """Yield all findings."""
        yield from self._unusable_entries([at for at, record in self._records if record is None], "damaged")
        unreadable = [at for at, record in self._records if isinstance(record, str)]
        yield from self._unusable_entries(unreadable, "intact, but cannot be read by this version of Tidemill")
        if self._history is None:
            yield from self._without_snapshot()
        elif (span := self._history.journal_span) is not None:
            older, newest = span
            assert isinstance(older, AccumulatorPart)
            assert isinstance(newest, AccumulatorPart)
            yield from self._check_snapshots_join(older, newest)
        yield from self._check_length()

    def _unusable_entries(self, positions: list[int], what: str) -> Iterator[Finding]:
        if not positions:
            return
        needed = [at for at in positions if at > self._position]
        name = "entry" if len(positions) == 1 else "entries"
        meaning = "The newest snapshot holds all of that already: nothing is lost unless it is damaged too."
        if needed:
            events = format_count(len(needed), "acknowledged event")
            meaning = f"The next start leaves out {format_numbers(needed)}: {events} of it would be lost."
        yield problem_finding(
            self._subject,
            f"{name} {format_numbers(positions)} of its journal {'is' if len(positions) == 1 else 'are'} {what}.",
            meaning,
            "A node that is running has them in memory: let it run until it has written its next two snapshots.",
            "Check the disk, and restore a backup if that matters.",
        )

    def _without_snapshot(self) -> Iterator[Finding]:
        count = format_count(len(self._entries), "journal entry", "journal entries")
        verb = "waits" if len(self._entries) == 1 else "wait"
        yield note_finding(
            self._subject,
            f"{count} {verb} for it, and no snapshot of it is stored.",
            'The next start reads them, if a reactor with durability="boundary" still declares it;',
            "if it is no longer declared, they stay.",
        )

    def _check_snapshots_join(self, older: AccumulatorPart, newest: AccumulatorPart) -> Iterator[Finding]:
        """Compare the journal with the two snapshots: it must have every entry between them."""
        between = [record for at, record in self._records if older.position < at <= newest.position]
        if missing := self._describe_missing(older, newest, between):
            yield problem_finding(
                self._subject,
                f"{missing} between its two snapshots, positions {older.position} to {newest.position}.",
                "The next start uses the newest snapshot and loses nothing. Should that be damaged, they could not be",
                "brought back. The next two snapshots of a running node repair it; find out who deleted rows.",
            )

    def _describe_missing(self, older: AccumulatorPart, newest: AccumulatorPart, between: list[DecodedEntry]) -> str:
        """Describe the missing entries between the two snapshots; "" if none is known to be missing."""
        emitted = sum(_is_boundary(record) for record in between)
        was_journaled = older.position or not older.sequence  # else it became journaled between the snapshots
        # The journal of a window has values and no boundaries: then none is counted, and nothing is known.
        lacking = newest.sequence - older.sequence - emitted if emitted and was_journaled else 0
        if lacking > 0:
            return f"{format_count(lacking, 'journal entry', 'journal entries')} missing"
        if newest.position > older.position and all(at != newest.position for at, _ in self._records):
            return f"entry {newest.position} of its journal is missing"
        return ""

    def _check_length(self) -> Iterator[Finding]:
        waiting = sum(at > self._position for at, _ in self._records)
        if waiting > JOURNAL_LENGTH_LIMIT:
            yield problem_finding(
                self._subject,
                f"its journal has {waiting:,} entries after its newest snapshot.",
                "Nothing is lost, but no snapshots are written, and the next start has to read all of them.",
                "See whether a node runs that declares it, and what its log says of checkpoints.",
            )


def _is_boundary(record: DecodedEntry) -> bool:
    """Return whether an entry counts in the sequence; a damaged one may, so it does."""
    return not isinstance(record, JournalRecord) or record.kind == "boundary"
