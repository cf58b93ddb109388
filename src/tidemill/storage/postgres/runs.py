"""Runs in PostgreSQL."""

import asyncio
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from tidemill.access.audit import AuditRow
from tidemill.storage.committer import CommitFuture, GroupCommitter
from tidemill.storage.postgres.apply_changes import AuditedChange, ChangeApplier
from tidemill.storage.postgres.claim_tasks import TaskClaimer
from tidemill.storage.postgres.database import Database, PostgresTable
from tidemill.storage.postgres.errors import check_timezones
from tidemill.storage.postgres.locked_rows import LeaseClock
from tidemill.storage.postgres.run_lists import build_count, build_page
from tidemill.storage.postgres.run_rows import (
    decode_attempt,
    decode_event,
    decode_keyed_task,
    decode_numbered_event,
    decode_output,
    decode_run,
    decode_task,
    written_rows,
)
from tidemill.storage.postgres.writes import PostgresUnit, SharedWork, to_columns
from tidemill.storage.queries import Queries, check_timezone
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
from tidemill.storage.run_overview import EndedCount, FailedRuns, FirstFailure, OverviewQuery, RunOverview, WaitingTask
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

WRITER_POLL_INTERVAL = 0.002  # seconds between checks whether transactions have ended


class PostgresRuns(PostgresTable, Runs):
    """The table `runs`, and the tables of what belongs to a run."""

    def __init__(
        self,
        database: Database,
        committer: GroupCommitter[PostgresUnit],
        claim_committer: GroupCommitter[PostgresUnit],
        queries: Queries,
        sender_id: str,
        now: LeaseClock,
    ) -> None:
        super().__init__(database, committer, queries)
        self._claim_committer = claim_committer
        self._now = now
        self._applier = ChangeApplier(queries, sender_id, now)
        self._claimer = TaskClaimer(queries, sender_id, now)

    def apply(self, change: Change, audit: AuditRow | None = None) -> CommitFuture[Applied | Refused]:
        check_timezones(*written_rows(change))
        return self._committer.submit(SharedWork(self._applier, AuditedChange(change, audit), self._applier.at_once))

    async def claim(self, claim: ClaimRequest) -> list[ClaimedTask]:
        check_timezones(claim)
        if not await self._has_claimable(claim):
            return []
        claimed: list[ClaimedTask] = await self._claim_committer.commit(SharedWork(self._claimer, claim))
        return claimed

    async def _has_claimable(self, claim: ClaimRequest) -> bool:
        """Return whether a claim would find a task run now. A claim itself is a transaction that writes and waits."""
        executors = [name for name, free in claim.executors.items() if free > 0]
        if not executors or not claim.loaded:
            return False
        loaded = to_columns([tuple(version) for version in claim.loaded])
        values = (list(claim.pools), list(claim.pools.values()), executors, *loaded)
        return bool(await self._database.read_value(self._queries.has_claimable, *values))

    async def renew_leases(self, owner: str, attempts: Collection[AttemptKey], ttl: float) -> set[AttemptKey]:
        if not attempts:
            return set()
        keys = to_columns([tuple(key) for key in sorted(attempts)])

        async def renew(connection: Any) -> set[AttemptKey]:
            rows = await connection.fetch(self._queries.renew_leases, owner, *keys, ttl, self._now())
            return {AttemptKey(*row) for row in rows}

        renewed: set[AttemptKey] = await self._committer.commit(renew)
        return renewed

    async def list_active(self) -> list[RunRevision]:
        return [RunRevision(*row) for row in await self._read(self._queries.active_runs)]

    async def load(self, ids: Collection[str]) -> list[RunRecord]:
        run_ids = list(ids)
        runs, rows = await self._database.read_in_snapshot(
            (self._queries.runs, run_ids), (self._queries.task_runs, run_ids)
        )
        tasks: dict[str, list[TaskRow]] = {row["id"]: [] for row in runs}
        for row in rows:
            tasks[row["run"]].append(decode_task(row))
        return [RunRecord(decode_run(row), tasks[row["id"]]) for row in runs]

    async def find_run(self, run: str) -> RunRow | None:
        rows = await self._read(self._queries.runs, [run])
        return decode_run(rows[0]) if rows else None

    async def find_task(self, key: TaskKey) -> TaskRow | None:
        rows = await self._read(self._queries.task_run, *key)
        return decode_task(rows[0]) if rows else None

    async def list_elements(self, first: TaskKey, states: Collection[TaskState], limit: int) -> list[TaskRow]:
        values = (first.run, first.task, max(0, first.element), list(states), limit)
        return [decode_task(row) for row in await self._read(self._queries.elements_from, *values)]

    async def find(self, run_filter: RunFilter) -> list[RunRow]:
        statement, arguments = _select_query(self._queries, run_filter)
        rows = await self._read(statement, run_filter.tenant, list(run_filter.states), run_filter.limit, *arguments)
        return [decode_run(row) for row in reversed(rows)]

    async def list_page(self, query: RunQuery) -> RunPage:
        check_timezones(query)
        rows, counts = await self._database.read_in_snapshot(build_page(query), build_count(query))
        sizes = {row["id"]: row["large_params"] for row in rows if row["large_params"] is not None}
        return RunPage([decode_run(row) for row in rows], counts[0][0], sizes)

    async def read_activity(
        self, tenant: str, workflows: Collection[str], *, recent: int = 1
    ) -> dict[str, WorkflowActivity]:
        counts, rows = await self._database.read_in_snapshot(
            (self._queries.active_counts, tenant), (self._queries.newest_runs, tenant, list(workflows), recent)
        )
        active, newest = dict(counts), group_recent(map(decode_run, rows))
        return {name: WorkflowActivity(active.get(name, 0), newest.get(name, [])) for name in workflows}

    async def read_overview(self, query: OverviewQuery) -> RunOverview:
        queries, tenant = self._queries, query.tenant
        states, oldest, counts, failed = await self._database.read_in_snapshot(
            (queries.active_states, tenant),
            (queries.oldest_active_runs, tenant, list(ACTIVE_RUNS), query.oldest),
            (queries.ended_counts, tenant, list(query.hours)),
            (queries.unresolved_runs, tenant),
        )
        return RunOverview(
            active={RunState(state): number for state, number in states},
            oldest=[decode_run(row) for row in oldest],
            ended=[EndedCount(hour, RunState(state), number) for hour, state, number in counts],
            failed=[FailedRuns(**row) for row in failed],
        )

    async def read_first_failures(self, runs: Collection[str]) -> dict[str, FirstFailure]:
        rows = await self._read(self._queries.first_failures, list(runs))
        return {run: FirstFailure(task, reason) for run, task, reason in rows}

    async def list_started_by(self, tenant: str, ids: Collection[str]) -> list[tuple[str, str]]:
        return [(by, run) for by, run in await self._read(self._queries.runs_started_by, tenant, list(ids))]

    async def list_waiting(self, tenant: str, scheduled: datetime, deferred: datetime, limit: int) -> list[WaitingTask]:
        rows = await self._read(self._queries.waiting_tasks, tenant, scheduled, deferred, limit)
        return [WaitingTask(*row)._replace(state=TaskState(row["state"])) for row in rows]

    async def count_task_states(self, runs: Collection[str]) -> list[TaskStateCount]:
        rows = await self._read(self._queries.task_state_counts, list(runs))
        return [TaskStateCount(run, task, TaskState(state), *rest) for run, task, state, *rest in rows]

    async def count_backfill_states(self, backfills: Collection[str]) -> dict[str, dict[RunState, int]]:
        return group_states(await self._read(self._queries.backfill_states, list(backfills)))

    async def list_lease_expired(self, limit: int) -> list[tuple[TaskKey, TaskRow]]:
        return await self._read_tasks(self._queries.expired_task_runs, self._now(), limit)

    async def list_claimed_by(self, owners: Collection[str]) -> list[tuple[TaskKey, TaskRow]]:
        return await self._read_tasks(self._queries.claimed_task_runs, list(owners))

    async def count_claims(self) -> dict[str, int]:
        return dict(await self._read(self._queries.claim_counts))

    async def list_orphans(self, before: datetime, limit: int) -> list[str]:
        check_timezone(before)
        return [run for (run,) in await self._read(self._queries.orphans, before, limit)]

    async def read_outputs(self, run: str, tasks: Collection[str]) -> list[OutputRow]:
        return [decode_output(row) for row in await self._read(self._queries.outputs, run, list(tasks))]

    async def read_attempts(self, run: str) -> list[AttemptRow]:
        return [decode_attempt(row) for row in await self._read(self._queries.attempts, run)]

    async def read_events(self, run: str) -> list[EventRow]:
        return [decode_event(row) for row in await self._read(self._queries.events, run)]

    async def read_events_after(self, number: int, limit: int) -> list[NumberedEvent]:
        newest = await self._read_newest_number()
        if newest <= number:
            return []
        await self._wait_for_writers()
        rows = await self._read(self._queries.events_after, number, newest, limit)
        return [decode_numbered_event(row) for row in rows]

    async def _wait_for_writers(self) -> None:
        """Wait until all transactions that may have numbered events before now have ended.

        Numbers are given before the commit, so a transaction that is still open may have lower ones than those that can
        be read already.
        """
        writers = set(await self._database.read_value(self._queries.event_writers))
        while writers:
            await asyncio.sleep(WRITER_POLL_INTERVAL)  # real time: that of the database
            writers.intersection_update(await self._database.read_value(self._queries.event_writers))

    async def last_event_number(self) -> int:
        newest = await self._read_newest_number()
        await self._wait_for_writers()
        return newest

    async def _read_newest_number(self) -> int:
        """Return the highest number that was given to an event, even to one that is not committed yet."""
        return int(await self._database.read_value(self._queries.last_event))

    async def read_fired_slots(
        self, tenant: str, workflow: str, key: str, start: datetime, end: datetime
    ) -> set[datetime]:
        check_timezone(start)
        check_timezone(end)
        rows = await self._read(self._queries.fired_slots, tenant, workflow, key, start, end)
        return {slot for (slot,) in rows}

    async def list_fired_slots(
        self, tenant: str, schedules: Collection[ScheduleName], start: datetime, end: datetime, limit: int
    ) -> dict[ScheduleName, list[FiredSlot]]:
        check_timezone(start)
        check_timezone(end)
        workflows, keys = [one.workflow for one in schedules], [one.key for one in schedules]
        rows = await self._read(self._queries.fired_slots_with_runs, tenant, workflows, keys, start, end, limit)
        return group_fired(schedules, rows)

    async def find_fired(self, tenant: str, workflow: str, key: str, slot: datetime) -> str | None:
        check_timezone(slot)
        rows = await self._read(self._queries.fired_run, tenant, workflow, key, slot)
        return rows[0][0] if rows else None

    async def list_tenants(self) -> list[str]:
        return [tenant for (tenant,) in await self._read(self._queries.tenants)]

    async def dismiss(self, tenant: str, runs: Collection[str], at: datetime) -> int:
        check_timezone(at)

        async def write(connection: Any) -> int:
            return len(await connection.fetch(self._queries.dismiss_runs, tenant, list(runs), at))

        dismissed: int = await self._committer.commit(write)
        return dismissed

    async def prune(self, tenant: str, before: datetime, limit: int) -> int:
        check_timezone(before)

        async def delete(connection: Any) -> int:
            picked = {run for (run,) in await connection.fetch(self._queries.pick_ended_runs, tenant, before, limit)}
            picked -= {run for (run,) in await connection.fetch(self._queries.locked_runs, list(picked))}
            await connection.execute(self._queries.delete_runs, list(picked))
            return len(picked)

        pruned: int = await self._committer.commit(delete)
        return pruned

    async def _read_tasks(self, statement: str, *arguments: Any) -> list[tuple[TaskKey, TaskRow]]:
        return [decode_keyed_task(row) for row in await self._read(statement, *arguments)]


def _select_query(queries: Queries, run_filter: RunFilter) -> tuple[str, Sequence[Any]]:
    """Return the statement that finds runs by an index, and its arguments after the first three."""
    if run_filter.backfill is not None:
        return queries.find_runs_of_backfill, (run_filter.backfill, run_filter.workflow)
    if run_filter.is_active_only:
        return queries.find_active_runs, (run_filter.workflow,)
    if run_filter.workflow is not None:
        return queries.find_runs_of_workflow, (run_filter.workflow,)
    return queries.find_runs, ()
