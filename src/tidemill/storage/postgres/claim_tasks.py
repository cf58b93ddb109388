"""Claims in PostgreSQL: which scheduled task runs an owner gets, without waiting for other claims.

Each claim is a separate transaction. They lock task runs out of order, skipping locked ones, and then wait for runs;
a transaction that has locked runs already must not do that.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import msgspec

from tidemill.storage.postgres.locked_rows import LeaseClock, PoolKey, PoolUsage, pool_lock_id
from tidemill.storage.postgres.run_rows import decode_keyed_task, decode_run, encode_history
from tidemill.storage.postgres.writes import to_columns
from tidemill.storage.queries import Queries
from tidemill.storage.workflow_ports import ClaimedTask, ClaimRequest, VersionTask
from tidemill.workflows.records import RunEventBatch, RunRow, TaskKey, TaskRow
from tidemill.workflows.run_draft import claim_events

PICK_PAGE_SIZE = 500  # task runs that one query picks at most

ClaimedRows = list[tuple[TaskKey, TaskRow]]


class ClaimCapacity(msgspec.Struct):
    """The free slots: by executor, and by pool of a tenant."""

    executors: Counter[str]
    pools: dict[PoolKey, int]

    @property
    def free_executors(self) -> list[str]:
        """Executors with a free slot."""
        return [executor for executor, free in self.executors.items() if free > 0]

    @property
    def free_pools(self) -> list[PoolKey]:
        """Pools with a free slot."""
        return [pool for pool, free in self.pools.items() if free > 0]

    def reserve(self, tenant: str, pool: str | None, executor: str) -> bool:
        """Reserve the slots of a task run; return whether they were free."""
        if self.executors[executor] <= 0 or (pool is not None and self.pools[tenant, pool] <= 0):
            return False
        self.executors[executor] -= 1
        if pool is not None:
            self.pools[tenant, pool] -= 1
        return True


class TaskClaimer:
    """The work that claims share in a transaction."""

    def __init__(self, queries: Queries, sender_id: str, now: LeaseClock) -> None:
        self._queries = queries
        self._sender_id = sender_id
        self._now = now

    async def __call__(self, connection: Any, claims: Sequence[ClaimRequest]) -> list[list[ClaimedTask]]:
        """Run claims one after the other; return the claimed task runs of each."""
        pools = await self._lock_pools(connection, claims)
        claimed = [await self._claim_tasks(connection, claim, pools) for claim in claims]
        runs = await self._record_events(connection, claims, claimed)
        return [[ClaimedTask(runs[key.run], row) for key, row in rows] for rows in claimed]

    async def _lock_pools(self, connection: Any, claims: Sequence[ClaimRequest]) -> dict[PoolKey, PoolUsage]:
        """Lock the pools that scheduled task runs wait for; return the usage of each."""
        names = sorted({pool for claim in claims for pool in claim.pools})
        requested = await connection.fetch(self._queries.requested_pools, names) if names else []
        if not requested:
            return {}
        pools = [(tenant, pool) for tenant, pool in requested]
        await connection.execute(self._queries.lock_keys, sorted({pool_lock_id(*pool) for pool in pools}))
        rows = await connection.fetch(self._queries.pool_usage, *to_columns(pools))
        return {(tenant, pool): PoolUsage(*usage) for tenant, pool, *usage in rows}

    async def _claim_tasks(self, connection: Any, claim: ClaimRequest, pools: dict[PoolKey, PoolUsage]) -> ClaimedRows:
        """Claim task runs in order; when an executor or a pool becomes full on the way, query again without it."""
        free = {key: usage.free(claim.pools[key[1]]) for key, usage in pools.items() if key[1] in claim.pools}
        capacity, claimed = ClaimCapacity(Counter(claim.executors), dict(free)), ClaimedRows()
        while claim.loaded and capacity.free_executors:
            limit = min(PICK_PAGE_SIZE, sum(capacity.executors[executor] for executor in capacity.free_executors))
            rows = await self._pick_tasks(connection, claim, capacity, limit)
            picked = [row[:3] for row in rows if capacity.reserve(*row[3:])]
            if picked:
                claimed += await self._mark_claimed(connection, claim, picked)
            if len(rows) < limit:
                break
        for key, left in capacity.pools.items():  # the next claim of the transaction finds these slots used
            pools[key].used += free[key] - left
        return claimed

    async def _pick_tasks(
        self, connection: Any, claim: ClaimRequest, capacity: ClaimCapacity, limit: int
    ) -> list[tuple[Any, ...]]:
        pools = capacity.free_pools
        rows = await connection.fetch(
            self._queries.pick_task_runs,
            capacity.free_executors,
            None if claim.queues is None else list(claim.queues),
            [tenant for tenant, _ in pools],
            [pool for _, pool in pools],
            *to_columns([tuple(loaded) for loaded in claim.loaded]),
            *([getattr(one, field) for one in claim.excluded] for field in VersionTask._fields),
            limit,
        )
        return [tuple(row) for row in rows]

    async def _mark_claimed(
        self, connection: Any, claim: ClaimRequest, picked: Sequence[tuple[Any, ...]]
    ) -> ClaimedRows:
        values = (claim.owner, claim.lease, claim.at, self._now(), list(claim.immediate))
        rows = await connection.fetch(self._queries.claim_task_runs, *to_columns(picked), *values)
        claimed = dict(map(decode_keyed_task, rows))
        return [(TaskKey(*key), claimed[TaskKey(*key)]) for key in picked]

    async def _record_events(
        self, connection: Any, claims: Sequence[ClaimRequest], claimed: Sequence[ClaimedRows]
    ) -> dict[str, RunRow]:
        """Write the events of each claimed task run, and count the claims in the revisions of their runs."""
        new = [(key, row, claim) for claim, rows in zip(claims, claimed, strict=True) for key, row in rows]
        if not new:
            return {}
        changes: defaultdict[str, int] = defaultdict(int)
        for claim_runs in ({key.run for key, _ in rows} for rows in claimed):
            for run in claim_runs:
                changes[run] += 1
        runs = await connection.fetch(self._queries.touch_runs, *to_columns(list(changes.items())), self._sender_id)
        events = [columns for key, row, claim in new for columns in encode_history(key.run, _claim_history(row, claim))]
        await connection.execute(self._queries.add_events, *to_columns(events))
        return {row["id"]: decode_run(row) for row in runs}


def _claim_history(row: TaskRow, claim: ClaimRequest) -> RunEventBatch:
    return RunEventBatch(claim.at, claim.owner, claim_events(row))
