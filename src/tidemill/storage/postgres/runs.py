"""Runs in PostgreSQL."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from tidemill.storage.answers import Answer
from tidemill.storage.committer import GroupCommitter
from tidemill.storage.postgres.applying import Applying, Now
from tidemill.storage.postgres.claiming import Claiming
from tidemill.storage.postgres.database import Database
from tidemill.storage.postgres.run_rows import (
    attempt_of,
    event_of,
    keyed_task_of,
    output_of,
    rows_of,
    run_of,
    task_of,
)
from tidemill.storage.postgres.times import check_times
from tidemill.storage.postgres.writes import Share, Unit, columns
from tidemill.storage.queries import Queries
from tidemill.storage.run_ports import Claim, Claimed, Revision, RunFilter, Runs
from tidemill.storage.times import check_zone
from tidemill.workflows.change import Applied, Change, Refused
from tidemill.workflows.records import AttemptKey, AttemptRow, EventRow, OutputRow, RunRecord, RunRow, TaskKey, TaskRow


class PostgresRuns(Runs):
    """Runs with everything that belongs to them, in tables."""

    def __init__(
        self,
        database: Database,
        committer: GroupCommitter[Unit],
        claims: GroupCommitter[Unit],
        queries: Queries,
        sender: str,
        now: Now,
    ) -> None:
        self._database = database
        self._committer = committer
        self._claims = claims
        self._queries = queries
        self._now = now
        self._applying = Applying(queries, sender, now)
        self._claiming = Claiming(queries, sender, now)

    def apply(self, change: Change) -> Answer[Applied | Refused]:
        check_times(*rows_of(change))
        return self._committer.submit(Share(self._applying, change))

    async def claim(self, claim: Claim) -> list[Claimed]:
        check_times(claim)
        self._committer.fail_if_told()
        claimed: list[Claimed] = await self._claims.commit(Share(self._claiming, claim))
        return claimed

    async def beat(self, owner: str, attempts: Collection[AttemptKey], lease: float) -> set[AttemptKey]:
        if not attempts:
            return set()
        keys = columns([tuple(key) for key in sorted(attempts)])

        async def renew(connection: Any) -> set[AttemptKey]:
            rows = await connection.fetch(self._queries.beat, owner, *keys, lease, self._now())
            return {AttemptKey(*row) for row in rows}

        living: set[AttemptKey] = await self._committer.commit(renew)
        return living

    async def active(self) -> list[Revision]:
        return [Revision(*row) for row in await self._database.read(self._queries.active_runs)]

    async def load(self, ids: Collection[str]) -> list[RunRecord]:
        wanted = list(ids)
        runs, rows = await self._database.read_together((self._queries.runs, wanted), (self._queries.task_runs, wanted))
        tasks: dict[str, list[TaskRow]] = {row["id"]: [] for row in runs}
        for row in rows:
            tasks[row["run"]].append(task_of(row))
        return [RunRecord(run_of(row), tasks[row["id"]]) for row in runs]

    async def find(self, wanted: RunFilter) -> list[RunRow]:
        statement, more = self._search(wanted)
        rows = await self._database.read(statement, wanted.tenant, list(wanted.states), wanted.limit, *more)
        return [run_of(row) for row in reversed(rows)]

    async def overdue(self, limit: int) -> list[tuple[TaskKey, TaskRow]]:
        return await self._tasks(self._queries.overdue_task_runs, self._now(), limit)

    async def claimed(self, owners: Collection[str]) -> list[tuple[TaskKey, TaskRow]]:
        return await self._tasks(self._queries.claimed_task_runs, list(owners))

    async def claimants(self) -> set[str]:
        return {owner for (owner,) in await self._database.read(self._queries.claimants)}

    async def orphans(self, before: datetime, limit: int) -> list[str]:
        check_zone(before)
        return [run for (run,) in await self._database.read(self._queries.orphans, before, limit)]

    async def outputs(self, run: str, tasks: Collection[str]) -> list[OutputRow]:
        return [output_of(row) for row in await self._database.read(self._queries.outputs, run, list(tasks))]

    async def attempts(self, run: str) -> list[AttemptRow]:
        return [attempt_of(row) for row in await self._database.read(self._queries.attempts, run)]

    async def events(self, run: str) -> list[EventRow]:
        return [event_of(row) for row in await self._database.read(self._queries.events, run)]

    async def fired_slots(self, tenant: str, workflow: str, key: str, start: datetime, end: datetime) -> set[datetime]:
        check_zone(start)
        check_zone(end)
        rows = await self._database.read(self._queries.fired_slots, tenant, workflow, key, start, end)
        return {slot for (slot,) in rows}

    async def tenants(self) -> list[str]:
        return [tenant for (tenant,) in await self._database.read(self._queries.tenants)]

    async def prune(self, tenant: str, before: datetime, limit: int) -> int:
        check_zone(before)

        async def delete(connection: Any) -> int:
            picked = {run for (run,) in await connection.fetch(self._queries.pick_ended_runs, tenant, before, limit)}
            picked -= {run for (run,) in await connection.fetch(self._queries.busy_runs, list(picked))}
            await connection.execute(self._queries.delete_runs, list(picked))
            return len(picked)

        pruned: int = await self._committer.commit(delete)
        return pruned

    def _search(self, wanted: RunFilter) -> tuple[str, Sequence[Any]]:
        """Return the statement that finds runs by an index, and its arguments after the first three."""
        if wanted.backfill is not None:
            return self._queries.find_runs_of_backfill, (wanted.backfill, wanted.workflow)
        if wanted.is_of_active:
            return self._queries.find_active_runs, (wanted.workflow,)
        if wanted.workflow is not None:
            return self._queries.find_runs_of_workflow, (wanted.workflow,)
        return self._queries.find_runs, ()

    async def _tasks(self, statement: str, *arguments: Any) -> list[tuple[TaskKey, TaskRow]]:
        return [keyed_task_of(row) for row in await self._database.read(statement, *arguments)]
