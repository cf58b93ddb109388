"""The audit of a whole store: reads its rows, and returns findings.

The checks change nothing and need only rows, so that a command, a test or a service can run them.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import get_args

import msgspec

from tidemill.engine.audit_findings import (
    Finding,
    format_count,
    format_time,
    format_timespan,
    note_finding,
    problem_finding,
)
from tidemill.engine.graphs.audit.journals import JournalAudit
from tidemill.engine.graphs.audit.parts import CLOCK_SKEW_TOLERANCE, audit_consistency, audit_history
from tidemill.engine.graphs.checkpoints.dead_letter_store import decode_payload
from tidemill.engine.graphs.checkpoints.double_writes import find_double_writes, group_by_journal, is_double_write
from tidemill.engine.graphs.checkpoints.part_history import PartHistory, read_histories
from tidemill.engine.graphs.durability.checksums import is_key_intact
from tidemill.engine.graphs.durability.journal_blocks import JournalEntry, unpack_blocks
from tidemill.graphs.keys import decode_key
from tidemill.graphs.partitions import declared_name
from tidemill.storage.graph_ports import JournalKey, PartKey, PartKind, SnapshotPart
from tidemill.storage.store import Store
from tidemill.storage.tables.graphs import StoredDeadLetter, StoredRecovery

ORPHAN_AGE_LIMIT = timedelta(days=7)  # age from which dead letters of an unknown component are reported

PAUSED_SILENCE_LIMIT = timedelta(days=1)  # time without a snapshot from which a paused reactor is reported

_TWO_NODES_ADVICE = "Two nodes have run it at the same time: let no older version of Tidemill use this store."

Pause = tuple[str, str]
"""Tenant and reactor."""


class StoreReport(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a store, and the findings of its audit."""

    reactors: int
    accumulators: int
    journal_entries: int
    dead_letters: int
    last_written: datetime | None
    """When the newest snapshot was taken."""
    findings: list[Finding]
    active_runs: int = 0
    """How many workflow runs have not ended."""

    @property
    def problem_count(self) -> int:
        """How many findings need action."""
        return sum(one.severity == "wrong" for one in self.findings)

    @property
    def summary(self) -> str:
        """The contents, in words."""
        counts = [
            format_count(self.reactors, "reactor"),
            format_count(self.accumulators, "accumulator"),
            format_count(self.journal_entries, "journal entry", "journal entries"),
            format_count(self.dead_letters, "dead letter"),
        ]
        return ", ".join([*counts, format_count(self.active_runs, "active run")] if self.active_runs else counts)


async def audit_store(store: Store, now: datetime) -> StoreReport:
    """Audit a store that is open, perhaps read-only; `now` is the caller's time."""
    parts, blocks = await store.checkpoints.read_all_parts(), await store.checkpoints.read_all_blocks()
    entries = unpack_blocks(blocks)
    dead_letters, pauses = await store.dead_letters.list_all(), await store.pauses.list_paused()
    damage = [problem_finding("database", sentence) for sentence in await store.check_integrity()]
    known = {part.key for part in parts}
    findings = audit_rows(parts, entries, dead_letters, pauses, now)
    findings += await audit_keys(store, [key for key in known if key.kind == "reactor"])
    findings += audit_recoveries(await store.recoveries.list_by_action("restored"))
    return StoreReport(
        reactors=_count_declared(known, "reactor"),
        accumulators=_count_declared(known, "accumulator"),
        journal_entries=len(entries),
        dead_letters=len(dead_letters),
        last_written=max((part.taken_at for part in parts), default=None),
        findings=[*damage, *_sort(findings)],
    )


def _count_declared(parts: Iterable[PartKey], kind: PartKind) -> int:
    """Count reactors or accumulators as pages do: the partitions of one are one."""
    return len({(part.tenant, declared_name(part.name)) for part in parts if part.kind == kind})


def audit_rows(
    parts: Sequence[SnapshotPart],
    entries: Sequence[JournalEntry],
    dead_letters: Sequence[StoredDeadLetter],
    pauses: Sequence[Pause],
    now: datetime,
) -> list[Finding]:
    """Return the findings for the rows of one moment: first problems, then notes, each sorted by subject."""
    histories = read_histories(parts)
    journals: dict[JournalKey, list[JournalEntry]] = {
        JournalKey(key.tenant, key.name): [] for key in histories if key.kind == "accumulator"
    } | group_by_journal(entries)
    findings: list[Finding] = []
    for history in histories.values():
        findings += audit_history(history, journals, now)
    findings += audit_consistency(histories)
    for key, rows in journals.items():
        findings += JournalAudit(
            key, rows, histories.get(PartKey(key.tenant, "accumulator", key.accumulator))
        ).findings()
    findings += [
        problem_finding(one.subject, f"{one.sign}.", one.meaning, _TWO_NODES_ADVICE)
        for one in find_double_writes(histories, journals)
    ]
    findings += _audit_dead_letters(dead_letters, histories, now)
    findings += _audit_pauses(pauses, histories, now)
    return _sort(findings)


def _sort(findings: list[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda one: (one.severity == "note", one.subject))


def _audit_dead_letters(
    dead_letters: Sequence[StoredDeadLetter], histories: Mapping[PartKey, PartHistory], now: datetime
) -> Iterator[Finding]:
    orphaned: dict[str, list[StoredDeadLetter]] = defaultdict(list)
    for row in dead_letters:
        subject = f"{row.owner} {row.tenant}/{row.source}"
        yield from _audit_dead_letter(row, subject, now)
        if PartKey(row.tenant, row.owner, row.source) not in histories:
            orphaned[subject].append(row)
    for subject, rows in orphaned.items():
        age = now - max(row.at for row in rows)
        if age > ORPHAN_AGE_LIMIT:
            yield note_finding(
                subject,
                f"{format_count(len(rows), 'dead letter')} of it, the newest {format_timespan(age)} "
                "old, and nothing else of it",
                "is stored.",
                "They are shown again when something of that name is loaded; if it was renamed, they stay.",
            )


def _audit_dead_letter(dead_letter: StoredDeadLetter, subject: str, now: datetime) -> Iterator[Finding]:
    if dead_letter.owner not in get_args(PartKind):
        yield problem_finding(
            subject,
            f"dead letter {dead_letter.id} belongs to nothing of a known kind.",
            "No one will ever see it. Restore a backup, or delete it from the table dead_letters.",
        )
    try:
        decode_payload(dead_letter)
    except msgspec.DecodeError as error:
        yield problem_finding(
            subject,
            f"dead letter {dead_letter.id} of {format_time(dead_letter.at)} cannot be read ({error}).",
            "It cannot be replayed; a node that starts leaves it where it is, and reports it.",
            "Restore a backup, or delete it from the table dead_letters.",
        )
    if dead_letter.at > now + CLOCK_SKEW_TOLERANCE:
        yield problem_finding(
            subject,
            f"dead letter {dead_letter.id} is of {format_time(dead_letter.at)}, "
            f"{format_timespan(dead_letter.at - now)} from now.",
            "A clock is wrong; dead letters may be in the wrong order. Set the clock of the node, or of this machine.",
        )


def _audit_pauses(
    pauses: Sequence[Pause], histories: Mapping[PartKey, PartHistory], now: datetime
) -> Iterator[Finding]:
    for tenant, reactor in pauses:
        history = histories.get(PartKey(tenant, "reactor", reactor))
        if history is None:
            yield note_finding(
                f"reactor {tenant}/{reactor}",
                "it is paused, and nothing else is stored of it.",
                "If it is still declared, it does not fire until it is resumed; otherwise this is a leftover.",
            )
        elif (age := now - history.generations[0].part.taken_at) > PAUSED_SILENCE_LIMIT:
            yield note_finding(
                history.subject,
                f"it is paused, and its newest snapshot is {format_timespan(age)} old.",
                "It does not fire until it is resumed.",
            )


KEYS_PER_PAGE = 1000


async def audit_keys(store: Store, reactors: Iterable[PartKey]) -> list[Finding]:
    """Check the snapshots of all keys, page by page: there may be millions."""
    findings = []
    for reactor in sorted(reactors):
        damaged = await _find_damaged(store, reactor)
        if damaged:
            subject = f"reactor {reactor.tenant}/{reactor.name}"
            counted = format_count(len(damaged), "key has", "keys have")
            findings.append(
                problem_finding(
                    subject,
                    f"{counted} a damaged snapshot, such as {decode_key(damaged[0])!r}.",
                    "A key without an intact one starts empty; another continues from its newest intact one.",
                    "Check the disk, and restore a backup if these keys matter.",
                )
            )
    return findings


async def _find_damaged(store: Store, reactor: PartKey) -> list[bytes]:
    damaged: dict[bytes, None] = {}
    after = b""
    while keys := await store.key_snapshots.list_keys(reactor, after, KEYS_PER_PAGE):
        after = keys[-1]
        rows = await store.key_snapshots.read(reactor, keys)
        damaged |= dict.fromkeys(row.key for row in rows if not is_key_intact(row))
    return list(damaged)


def audit_recoveries(restored: Sequence[StoredRecovery]) -> Iterator[Finding]:
    """Yield a finding for each component and reason of incomplete restores, with the time of the newest."""
    newest = {(one.tenant, one.component, one.name, one.reason): one for one in restored}
    for one in newest.values():
        subject = f"{one.component} {one.tenant}/{one.name}"
        restored_at = f"It was restored so at {format_time(one.at)}"
        if is_double_write(one.reason):
            advice = "compare it with its sources, and restore a backup if that matters."
            yield problem_finding(subject, f"{one.reason}.", f"{restored_at}:", advice)
        else:
            yield note_finding(subject, f"{one.reason}.", f"{restored_at}.")
