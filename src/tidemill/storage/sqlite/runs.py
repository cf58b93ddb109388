"""Runs in SQLite."""

import json
import sqlite3
from collections.abc import Callable, Collection
from datetime import datetime
from typing import Any

from tidemill.access.audit import AuditRow
from tidemill.storage.committer import CommitFuture, GroupCommitter
from tidemill.storage.queries import Queries
from tidemill.storage.run_lists import (
    FiredSlot,
    RunPage,
    RunQuery,
    ScheduleName,
    TaskStateCount,
    WorkflowActivity,
    group_fired,
    group_recent,
    group_states,
)
from tidemill.storage.run_overview import (
    EndedCount,
    FailedRuns,
    FirstFailure,
    OverviewQuery,
    RunOverview,
    WaitingTask,
    start_of,
)
from tidemill.storage.sqlite.apply_changes import PreparedChange, PreparedEnd
from tidemill.storage.sqlite.claim_tasks import PreparedClaim
from tidemill.storage.sqlite.database import Database, SqliteTable, SqliteUnit
from tidemill.storage.sqlite.run_lists import build_statements
from tidemill.storage.sqlite.run_rows import (
    decode_attempt,
    decode_events,
    decode_keyed_task,
    decode_numbered_events,
    decode_output,
    decode_run,
    encode_change,
    from_micros,
    from_micros_or_none,
    to_micros,
)
from tidemill.storage.state_sets import ACTIVE_RUNS
from tidemill.storage.workflow_ports import ClaimedTask, ClaimRequest, RunFilter, RunRevision, Runs
from tidemill.workflows.change import Applied, Change, Refused
from tidemill.workflows.records import (
    AttemptKey,
    AttemptRow,
    EventRow,
    NumberedEvent,
    OutputRow,
    RunRecord,
    RunRow,
    TaskKey,
    TaskRow,
)
from tidemill.workflows.states import RunState, TaskState


class SqliteRuns(SqliteTable, Runs):
    """The table `runs`, and the tables of what belongs to a run."""

    def __init__(
        self,
        database: Database,
        committer: GroupCommitter[SqliteUnit],
        queries: Queries,
        now: Callable[[], datetime],
    ) -> None:
        super().__init__(database, committer, queries)
        self._now = now

    def apply(self, change: Change, audit: AuditRow | None = None) -> CommitFuture[Applied | Refused]:
        prepared = PreparedChange(change, encode_change(change, self._now()), self._queries, audit)
        if (call := change.handlers) is None:
            return self._committer.submit(prepared)
        handlers = PreparedChange(call, encode_change(call, self._now()), self._queries, None)
        return self._committer.submit(PreparedEnd(prepared, handlers))

    async def claim(self, claim: ClaimRequest) -> list[ClaimedTask]:
        return await self._write(PreparedClaim(claim, self._queries, self._now()))

    async def renew_leases(self, owner: str, attempts: Collection[AttemptKey], ttl: float) -> set[AttemptKey]:
        until = to_micros(self._now()) + round(ttl * 1_000_000)

        def write(connection: sqlite3.Connection) -> set[AttemptKey]:
            statement = self._queries.renew_task_lease
            return {key for key in attempts if connection.execute(statement, (until, *key, owner)).rowcount}

        return await self._write(write)

    async def list_active(self) -> list[RunRevision]:
        return [RunRevision(*row) for row in await self._fetch_all(self._queries.active_runs)]

    async def load(self, ids: Collection[str]) -> list[RunRecord]:
        values = (json.dumps(list(ids)),)

        def query(connection: sqlite3.Connection) -> tuple[list[Any], list[Any]]:
            runs = connection.execute(self._queries.runs_of, values).fetchall()
            return runs, connection.execute(self._queries.tasks_of, values).fetchall()

        runs, tasks = await self._database.read(query)
        records = {row[0]: RunRecord(decode_run(row), []) for row in runs}
        for key, task in map(decode_keyed_task, tasks):
            records[key.run].tasks.append(task)
        return list(records.values())

    async def find_run(self, run: str) -> RunRow | None:
        rows = await self._fetch_all(self._queries.runs_of, (json.dumps([run]),))
        return decode_run(rows[0]) if rows else None

    async def find_task(self, key: TaskKey) -> TaskRow | None:
        rows = await self._fetch_all(self._queries.task_run, key)
        return decode_keyed_task(rows[0])[1] if rows else None

    async def list_elements(self, first: TaskKey, states: Collection[TaskState], limit: int) -> list[TaskRow]:
        values = {
            "run": first.run,
            "task": first.task,
            "element": max(0, first.element),
            "states": json.dumps(list(states)),
            "limit": limit,
        }
        return [decode_keyed_task(row)[1] for row in await self._fetch_all(self._queries.elements_from, values)]

    async def find(self, run_filter: RunFilter) -> list[RunRow]:
        values = {
            "tenant": run_filter.tenant,
            "workflow": run_filter.workflow,
            "backfill": run_filter.backfill,
            "states": json.dumps([str(state) for state in run_filter.states]),
            "limit": run_filter.limit,
        }
        newest_first = await self._fetch_all(self._select_query(run_filter), values)
        return [decode_run(row) for row in reversed(newest_first)]

    def _select_query(self, run_filter: RunFilter) -> str:
        """Return the statement that reads the fewest runs."""
        if run_filter.is_active_only:
            return self._queries.find_active_runs
        if run_filter.backfill is not None:
            return self._queries.find_runs_of_backfill
        return self._queries.find_runs_of_tenant if run_filter.workflow is None else self._queries.find_runs_of_workflow

    async def list_page(self, query: RunQuery) -> RunPage:
        statements = build_statements(query)

        def read(connection: sqlite3.Connection) -> tuple[list[Any], int]:
            rows = connection.execute(statements.page, statements.values).fetchall()
            (total,) = connection.execute(statements.total, statements.values).fetchone()
            return rows, total

        rows, total = await self._database.read(read)
        runs = [decode_run(columns) for *columns, _ in rows]
        sizes = {run.id: size for run, (*_, size) in zip(runs, rows, strict=True) if size is not None}
        return RunPage(runs, total, sizes)

    async def read_activity(
        self, tenant: str, workflows: Collection[str], *, recent: int = 1
    ) -> dict[str, WorkflowActivity]:
        values = {"tenant": tenant, "workflows": json.dumps(list(workflows)), "recent": recent}

        def read(connection: sqlite3.Connection) -> tuple[dict[str, int], list[Any]]:
            active = dict(connection.execute(self._queries.active_counts, (tenant,)))
            return active, connection.execute(self._queries.newest_runs, values).fetchall()

        active, rows = await self._database.read(read)
        newest = group_recent(map(decode_run, rows))
        return {name: WorkflowActivity(active.get(name, 0), newest.get(name, [])) for name in workflows}

    async def read_overview(self, query: OverviewQuery) -> RunOverview:
        tenant = query.tenant

        def read(connection: sqlite3.Connection) -> RunOverview:
            def fetch(statement: str, *values: Any) -> list[Any]:
                return connection.execute(statement, (tenant, *values)).fetchall()

            queries = self._queries
            oldest = [row for state in ACTIVE_RUNS for row in fetch(queries.oldest_active_runs, state, query.oldest)]
            counts = {one: fetch(queries.ended_counts, *map(_to_start, (one, one + 1))) for one in query.hours}
            return RunOverview(
                active={RunState(state): number for state, number in fetch(queries.active_states)},
                oldest=sorted(map(decode_run, oldest), key=lambda row: (row.created_at, row.id)),
                ended=[EndedCount(one, RunState(state), n) for one, states in counts.items() for state, n in states],
                failed=[_decode_failed(*row) for row in fetch(queries.unresolved_runs)],
            )

        return await self._database.read(read)

    async def read_first_failures(self, runs: Collection[str]) -> dict[str, FirstFailure]:
        rows = await self._fetch_all(self._queries.first_failures, (json.dumps(list(runs)),))
        return {run: FirstFailure(task, reason) for run, task, reason in rows}

    async def list_started_by(self, tenant: str, ids: Collection[str]) -> list[tuple[str, str]]:
        return [
            (by, run)
            for by, run in await self._fetch_all(self._queries.runs_started_by, (tenant, json.dumps(list(ids))))
        ]

    async def list_waiting(self, tenant: str, scheduled: datetime, deferred: datetime, limit: int) -> list[WaitingTask]:
        times = {"scheduled": to_micros(scheduled), "deferred": to_micros(deferred)}
        rows = await self._fetch_all(self._queries.waiting_tasks, {"tenant": tenant, "limit": limit, **times})
        return [_decode_waiting(*row) for row in rows]

    async def count_task_states(self, runs: Collection[str]) -> list[TaskStateCount]:
        rows = await self._fetch_all(self._queries.task_state_counts, (json.dumps(list(runs)),))
        return [_decode_count(*row) for row in rows]

    async def count_backfill_states(self, backfills: Collection[str]) -> dict[str, dict[RunState, int]]:
        return group_states(await self._fetch_all(self._queries.backfill_states, (json.dumps(list(backfills)),)))

    async def list_lease_expired(self, limit: int) -> list[tuple[TaskKey, TaskRow]]:
        rows = await self._fetch_all(self._queries.expired_tasks, (to_micros(self._now()), limit))
        return [decode_keyed_task(row) for row in rows]

    async def list_claimed_by(self, owners: Collection[str]) -> list[tuple[TaskKey, TaskRow]]:
        rows = await self._fetch_all(self._queries.claimed_tasks, (json.dumps(list(owners)),))
        return [decode_keyed_task(row) for row in rows]

    async def count_claims(self) -> dict[str, int]:
        return dict(await self._fetch_all(self._queries.claim_counts))

    async def list_orphans(self, before: datetime, limit: int) -> list[str]:
        at = to_micros(before)
        return [run for (run,) in await self._fetch_all(self._queries.orphans, (at, at, limit))]

    async def read_outputs(self, run: str, tasks: Collection[str]) -> list[OutputRow]:
        rows = await self._fetch_all(self._queries.outputs_of, (run, json.dumps(list(tasks))))
        return [decode_output(row) for row in rows]

    async def read_attempts(self, run: str) -> list[AttemptRow]:
        return [decode_attempt(row) for row in await self._fetch_all(self._queries.attempts_of, (run, run))]

    async def read_events(self, run: str) -> list[EventRow]:
        rows = await self._fetch_all(self._queries.events_of, (run,))
        return [event for row in rows for event in decode_events(row)]

    async def read_events_after(self, number: int, limit: int) -> list[NumberedEvent]:
        rows = await self._fetch_all(self._queries.events_after, (number, limit))
        return [event for row in rows for event in decode_numbered_events(row, number)]

    async def last_event_number(self) -> int:
        ((number,),) = await self._fetch_all(self._queries.last_event)
        return int(number)

    async def read_fired_slots(
        self, tenant: str, workflow: str, key: str, start: datetime, end: datetime
    ) -> set[datetime]:
        values = (tenant, workflow, key, to_micros(start), to_micros(end))
        return {from_micros(slot) for (slot,) in await self._fetch_all(self._queries.fired_slots, values)}

    async def list_fired_slots(
        self, tenant: str, schedules: Collection[ScheduleName], start: datetime, end: datetime, limit: int
    ) -> dict[ScheduleName, list[FiredSlot]]:
        values = {
            "schedules": json.dumps(list(schedules)),
            "tenant": tenant,
            "start": to_micros(start),
            "end": to_micros(end),
            "limit": limit,
        }
        rows = await self._fetch_all(self._queries.fired_slots_with_runs, values)
        return group_fired(schedules, ((*key, from_micros(slot), run, state) for *key, slot, run, state in rows))

    async def find_fired(self, tenant: str, workflow: str, key: str, slot: datetime) -> str | None:
        rows = await self._fetch_all(self._queries.fired_run, (tenant, workflow, key, to_micros(slot)))
        return rows[0][0] if rows else None

    async def list_tenants(self) -> list[str]:
        return [tenant for (tenant,) in await self._fetch_all(self._queries.tenants)]

    async def dismiss(self, tenant: str, runs: Collection[str], at: datetime) -> int:
        values = [(to_micros(at), run, tenant) for run in runs]

        def write(connection: sqlite3.Connection) -> int:
            return connection.executemany(self._queries.dismiss_run, values).rowcount if values else 0

        return await self._write(write)

    async def prune(self, tenant: str, before: datetime, limit: int) -> int:
        queries, oldest = self._queries, (tenant, to_micros(before), limit)
        deletions = [
            queries.delete_run,
            queries.delete_tasks,
            queries.delete_attempts,
            queries.delete_events,
            queries.delete_notes,
            queries.delete_logs,
            queries.delete_steps,
            queries.delete_waits,
            queries.delete_fires,
        ]

        def write(connection: sqlite3.Connection) -> int:
            runs = connection.execute(queries.ended_runs, oldest).fetchall()
            for deletion in deletions:
                connection.executemany(deletion, runs)
            return len(runs)

        return await self._write(write)


def _to_start(hour: int) -> int:
    return to_micros(start_of(hour))


def _decode_count(
    run: str, task: str, state: str, number: int, mapped: int, tries: int, started_at: int | None, ended_at: int | None
) -> TaskStateCount:
    times = from_micros_or_none(started_at), from_micros_or_none(ended_at)
    return TaskStateCount(run, task, TaskState(state), number, bool(mapped), tries, *times)


def _decode_waiting(
    run: str, workflow: str, version: str, task: str, state: str, pool: str | None, executor: str, since: int
) -> WaitingTask:
    return WaitingTask(run, workflow, version, task, TaskState(state), pool, executor, from_micros(since))


def _decode_failed(workflow: str, run: str, ended_at: int, reason: str, number: int, _sequence: int) -> FailedRuns:
    return FailedRuns(workflow, run, from_micros(ended_at), reason, number)
