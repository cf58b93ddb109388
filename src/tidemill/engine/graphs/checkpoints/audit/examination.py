"""The audit of a whole store: rows in, findings out; and how the rows are read.

The checks change nothing and need nothing but rows, so that a command, a test or a service can run them.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import get_args

import msgspec

from tidemill.engine.findings import Finding, amount, note, span, when, wrong
from tidemill.engine.graphs.checkpoints.audit.histories import History, read_histories
from tidemill.engine.graphs.checkpoints.audit.journals import JournalAudit, audit_order
from tidemill.engine.graphs.checkpoints.audit.parts import TOLERANCE, audit_history, audit_together
from tidemill.engine.graphs.checkpoints.letters import read_letter
from tidemill.storage.ports import JournalEntry, JournalKey, Part, PartKey, PartKind, Store, StoredLetter

FORGOTTEN = timedelta(days=7)  # after which letters of something unknown are spoken of

SILENT = timedelta(days=1)  # without a snapshot, after which a paused reactor is spoken of

Pause = tuple[str, str]
"""Tenant and reactor."""


class Examination(msgspec.Struct, frozen=True, kw_only=True):
    """What a store holds, and what is wrong with it."""

    reactors: int
    accumulators: int
    journal_entries: int
    dead_letters: int
    last_written: datetime | None
    """When the newest snapshot was taken."""
    findings: list[Finding]
    active_runs: int = 0
    """How many runs of workflows have not ended."""

    @property
    def wrong(self) -> int:
        """How many things somebody should do something about."""
        return sum(one.severity == "wrong" for one in self.findings)

    @property
    def holdings(self) -> str:
        """What is there, in words."""
        held = [
            amount(self.reactors, "reactor"),
            amount(self.accumulators, "accumulator"),
            amount(self.journal_entries, "journal entry", "journal entries"),
            amount(self.dead_letters, "dead letter"),
        ]
        return ", ".join([*held, amount(self.active_runs, "active run")] if self.active_runs else held)


async def examine(store: Store, now: datetime) -> Examination:
    """Read a store that was opened or is looked at, and audit it; `now` is the time of whoever asks."""
    parts, entries = await store.checkpoints.all_parts(), await store.checkpoints.all_entries()
    letters, pauses = await store.dead_letters.all_letters(), await store.pauses.all_paused()
    damage = [wrong("database", sentence) for sentence in await store.problems()]
    known = {part.key for part in parts}
    return Examination(
        reactors=sum(key.kind == "reactor" for key in known),
        accumulators=sum(key.kind == "accumulator" for key in known),
        journal_entries=len(entries),
        dead_letters=len(letters),
        last_written=max((part.taken_at for part in parts), default=None),
        findings=[*damage, *audit(parts, entries, letters, pauses, now)],
    )


def audit(
    parts: Sequence[Part],
    entries: Sequence[JournalEntry],
    letters: Sequence[StoredLetter],
    pauses: Sequence[Pause],
    now: datetime,
) -> list[Finding]:
    """Return what is wrong with rows of one moment: first what is wrong, then notes, each by what it is about."""
    histories = read_histories(parts)
    journals: dict[JournalKey, list[JournalEntry]] = {
        JournalKey(key.tenant, key.name): [] for key in histories if key.kind == "accumulator"
    }
    for entry in entries:
        journals.setdefault(entry.key, []).append(entry)
    found: list[Finding] = []
    for history in histories.values():
        found += audit_history(history, journals, now)
    found += audit_together(histories)
    for key, rows in journals.items():
        found += JournalAudit(key, rows, histories.get(PartKey(key.tenant, "accumulator", key.accumulator))).findings()
    found += audit_order(histories, journals)
    found += _audit_letters(letters, histories, now)
    found += _audit_pauses(pauses, histories, now)
    return sorted(found, key=lambda one: (one.severity == "note", one.subject))


def _audit_letters(
    letters: Sequence[StoredLetter], histories: Mapping[PartKey, History], now: datetime
) -> Iterator[Finding]:
    of_nobody: dict[str, list[StoredLetter]] = defaultdict(list)
    for letter in letters:
        subject = f"{letter.owner} {letter.tenant}/{letter.source}"
        yield from _audit_letter(letter, subject, now)
        if PartKey(letter.tenant, letter.owner, letter.source) not in histories:
            of_nobody[subject].append(letter)
    for subject, forgotten in of_nobody.items():
        age = now - max(letter.at for letter in forgotten)
        if age > FORGOTTEN:
            yield note(
                subject,
                f"{amount(len(forgotten), 'dead letter')} of it, the newest {span(age)} old, and nothing else of it",
                "is stored.",
                "They are shown again when something of that name is loaded; if it was renamed, they stay.",
            )


def _audit_letter(letter: StoredLetter, subject: str, now: datetime) -> Iterator[Finding]:
    if letter.owner not in get_args(PartKind):
        yield wrong(
            subject,
            f"dead letter {letter.id} belongs to nothing of a known kind.",
            "Nobody will ever see it. Restore a backup, or delete it from the table dead_letters.",
        )
    try:
        read_letter(letter)
    except msgspec.DecodeError as error:
        yield wrong(
            subject,
            f"dead letter {letter.id} of {when(letter.at)} cannot be read ({error}).",
            "It cannot be replayed; a node that starts leaves it where it is, and says so.",
            "Restore a backup, or delete it from the table dead_letters.",
        )
    if letter.at > now + TOLERANCE:
        yield wrong(
            subject,
            f"dead letter {letter.id} is of {when(letter.at)}, {span(letter.at - now)} from now.",
            "A clock is wrong; letters may be in the wrong order. Set the clock of the node, or of this machine.",
        )


def _audit_pauses(pauses: Sequence[Pause], histories: Mapping[PartKey, History], now: datetime) -> Iterator[Finding]:
    for tenant, reactor in pauses:
        history = histories.get(PartKey(tenant, "reactor", reactor))
        if history is None:
            yield note(
                f"reactor {tenant}/{reactor}",
                "it is paused, and nothing else is stored of it.",
                "If somebody still declares it, it does not fire until it is resumed; otherwise this is a leftover.",
            )
        elif (age := now - history.generations[0].part.taken_at) > SILENT:
            yield note(
                history.subject,
                f"it is paused, and its newest snapshot is {span(age)} old.",
                "It does not fire until it is resumed.",
            )
