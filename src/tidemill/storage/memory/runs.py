"""Runs in memory."""

from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta

from msgspec.structs import replace

from tidemill.storage.answers import Answer
from tidemill.storage.committer import GroupCommitter
from tidemill.storage.memory.changes import apply
from tidemill.storage.memory.claims import give
from tidemill.storage.memory.tables import Tables, Unit
from tidemill.storage.memory.times import all_in_utc, in_utc
from tidemill.storage.run_ports import Claim, Claimed, Revision, RunFilter, Runs
from tidemill.workflows.change import Applied, Change, Refused
from tidemill.workflows.records import (
    AttemptKey,
    AttemptRow,
    EventRow,
    OutputRow,
    RunRecord,
    RunRow,
    TaskKey,
    TaskRow,
    current_attempt,
)
from tidemill.workflows.states import RunState


class MemoryRuns(Runs):
    """Runs by id, and what belongs to them by run."""

    def __init__(self, tables: Tables, committer: GroupCommitter[Unit], now: Callable[[], datetime]) -> None:
        self._tables = tables
        self._committer = committer
        self._now = now

    def apply(self, change: Change) -> Answer[Applied | Refused]:
        return self._committer.submit(lambda tables: apply(tables, change, self._now()))

    async def claim(self, claim: Claim) -> list[Claimed]:
        asked = all_in_utc(claim)
        given: list[Claimed] = await self._committer.commit(lambda tables: give(tables, asked, self._now()))
        return given

    async def beat(self, owner: str, attempts: Collection[AttemptKey], lease: float) -> set[AttemptKey]:
        def write(tables: Tables) -> set[AttemptKey]:
            until, alive = self._now() + timedelta(seconds=lease), set()
            for key in attempts:
                row = tables.tasks.get(key.run, {}).get(key.task_key)
                if row and row.state.is_claimed and (row.attempt, row.claimed_by) == (key.attempt, owner):
                    tables.put(tables.tasks[key.run], key.task_key, replace(row, lease_until=until))
                    alive.add(key)
            return alive

        renewed: set[AttemptKey] = await self._committer.commit(write)
        return renewed

    async def active(self) -> list[Revision]:
        rows = sorted((self._tables.runs[run] for run in self._tables.active), key=_age)
        return [Revision(row.id, row.revision) for row in rows]

    async def load(self, ids: Collection[str]) -> list[RunRecord]:
        tables = self._tables
        return [RunRecord(tables.runs[run], _in_order(tables.tasks.get(run, {}))) for run in ids if run in tables.runs]

    async def find(self, wanted: RunFilter) -> list[RunRow]:
        rows = sorted((row for row in self._tables.runs.values() if _is_wanted(row, wanted)), key=_age)
        return rows[max(len(rows) - wanted.limit, 0) :]

    async def overdue(self, limit: int) -> list[tuple[TaskKey, TaskRow]]:
        now = self._now()
        late = [
            (row.lease_until, key)
            for key, row in self._claimed()
            if row.lease_until is not None and row.lease_until <= now
        ]
        return [(key, self._tables.tasks[key.run][key]) for _, key in sorted(late)[:limit]]

    async def claimed(self, owners: Collection[str]) -> list[tuple[TaskKey, TaskRow]]:
        return sorted(
            ((key, row) for key, row in self._claimed() if row.claimed_by in owners), key=lambda found: found[0]
        )

    async def claimants(self) -> set[str]:
        return {row.claimed_by for _, row in self._claimed() if row.claimed_by is not None}

    def _claimed(self) -> list[tuple[TaskKey, TaskRow]]:
        return [(key, self._tables.tasks[key.run][key]) for key in self._tables.claimed]

    async def orphans(self, before: datetime, limit: int) -> list[str]:
        moment = in_utc(before)
        rows = sorted((self._tables.runs[run] for run in self._tables.active), key=_age)
        return [row.id for row in rows if self._is_orphan(row, moment)][:limit]

    def _is_orphan(self, row: RunRow, before: datetime) -> bool:
        tables = self._tables
        return (
            row.state is RunState.RUNNING
            and row.created_at <= before
            and not any(task.state.is_active for task in tables.tasks.get(row.id, {}).values())
            and all(event.at <= before for event in tables.events.get(row.id, {}).values())
        )

    async def outputs(self, run: str, tasks: Collection[str]) -> list[OutputRow]:
        found = (one for one in self._tables.outputs.get(run, {}).values() if one.key.task in tasks)
        return sorted(found, key=lambda output: output.key)

    async def attempts(self, run: str) -> list[AttemptRow]:
        tables = self._tables
        claimed = [row for row in tables.tasks.get(run, {}).values() if row.state.is_claimed]
        found = [*tables.attempts.get(run, {}).values(), *(current_attempt(run, row) for row in claimed)]
        return sorted(found, key=lambda attempt: attempt.key)

    async def events(self, run: str) -> list[EventRow]:
        history = self._tables.events.get(run, {})
        return [history[number] for number in sorted(history)]

    async def fired_slots(self, tenant: str, workflow: str, key: str, start: datetime, end: datetime) -> set[datetime]:
        source, first, last = (tenant, workflow, key), in_utc(start), in_utc(end)
        return {slot for *of, slot in self._tables.slots if tuple(of) == source and first <= slot <= last}

    async def tenants(self) -> list[str]:
        return sorted({row.tenant for row in self._tables.runs.values()})

    async def prune(self, tenant: str, before: datetime, limit: int) -> int:
        moment = in_utc(before)

        def write(tables: Tables) -> int:
            ended = [
                (row.ended_at, row.id)
                for row in tables.runs.values()
                if row.tenant == tenant and row.id not in tables.active and row.ended_at and row.ended_at < moment
            ]
            for _, run in sorted(ended)[:limit]:
                _forget(tables, run)
            return min(len(ended), limit)

        pruned: int = await self._committer.commit(write)
        return pruned


def _in_order(tasks: Mapping[TaskKey, TaskRow]) -> list[TaskRow]:
    return [tasks[key] for key in sorted(tasks)]


def _age(row: RunRow) -> tuple[datetime, str]:
    return (row.created_at, row.id)


def _is_wanted(row: RunRow, wanted: RunFilter) -> bool:
    return (
        row.tenant == wanted.tenant
        and wanted.workflow in (None, row.workflow)
        and wanted.backfill in (None, row.backfill)
        and (not wanted.states or row.state in wanted.states)
    )


def _forget(tables: Tables, run: str) -> None:
    """Delete a run with all that belongs to it but the slots that were fired."""
    for key in tables.tasks.get(run, {}):
        tables.drop(tables.scheduled, key)
        tables.drop(tables.claimed, key)
    tables.drop(tables.runs, run)
    tables.drop(tables.tasks, run)
    tables.drop(tables.attempts, run)
    tables.drop(tables.outputs, run)
    tables.drop(tables.events, run)
    tables.drop(tables.notes, run)
    tables.drop(tables.logs, run)
    tables.drop(tables.payloads, run)
