"""Claims: scheduled task runs are given away, without waiting for those that others are about to give away.

Claims have a transaction of their own. They lock task runs out of order, skipping what is locked, and then wait for
runs; a transaction that has locked runs already must not do that.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import msgspec

from tidemill.storage.postgres.applying import Now, pool_key
from tidemill.storage.postgres.run_rows import history_columns, keyed_task_of, run_of
from tidemill.storage.postgres.writes import columns
from tidemill.storage.queries import Queries
from tidemill.storage.run_ports import Claim, Claimed
from tidemill.workflows.change import task_event
from tidemill.workflows.records import History, RunRow, TaskKey, TaskRow
from tidemill.workflows.states import TaskState

PAGE = 500  # task runs that are looked at in one go

Given = list[tuple[TaskKey, TaskRow]]


class Rooms(msgspec.Struct):
    """How many more may be given: by executor, and by pool of a tenant."""

    executors: Counter[str]
    pools: dict[tuple[str, str], int]

    @property
    def open_executors(self) -> list[str]:
        """Executors that can take some."""
        return [executor for executor, room in self.executors.items() if room > 0]

    @property
    def open_pools(self) -> list[tuple[str, str]]:
        """Pools that have a place."""
        return [pool for pool, room in self.pools.items() if room > 0]

    def take(self, tenant: str, pool: str | None, executor: str) -> bool:
        """Take a place for one, if there is one."""
        if self.executors[executor] <= 0 or (pool is not None and self.pools[tenant, pool] <= 0):
            return False
        self.executors[executor] -= 1
        if pool is not None:
            self.pools[tenant, pool] -= 1
        return True


class Claiming:
    """The work that claims share in a transaction."""

    def __init__(self, queries: Queries, sender: str, now: Now) -> None:
        self._queries = queries
        self._sender = sender
        self._now = now

    async def __call__(self, connection: Any, claims: Sequence[Claim]) -> list[list[Claimed]]:
        """Serve claims one after the other; return what each of them gets."""
        used = await self._used(connection, claims)
        given = [await self._give(connection, claim, used) for claim in claims]
        runs = await self._record(connection, claims, given)
        return [[Claimed(runs[key.run], row) for key, row in some] for some in given]

    async def _used(self, connection: Any, claims: Sequence[Claim]) -> dict[tuple[str, str], int]:
        """Lock the pools that something waits for; return how many places of them are taken."""
        names = sorted({pool for claim in claims for pool in claim.pools})
        wanted = await connection.fetch(self._queries.wanted_pools, names) if names else []
        if not wanted:
            return {}
        pools = [(tenant, pool) for tenant, pool in wanted]
        await connection.execute(self._queries.lock_keys, sorted({pool_key(*pool) for pool in pools}))
        used = dict.fromkeys(pools, 0)
        for tenant, pool, taken in await connection.fetch(self._queries.used_slots, *columns(pools)):
            used[tenant, pool] = taken
        return used

    async def _give(self, connection: Any, claim: Claim, used: dict[tuple[str, str], int]) -> Given:
        """Pick in order; where an executor or a pool is full in the middle of it, look again without that."""
        sizes = {pool: claim.pools[pool[1]] - taken for pool, taken in used.items() if pool[1] in claim.pools}
        rooms, given = Rooms(Counter(claim.executors), sizes), Given()
        while claim.loaded and rooms.open_executors:
            limit = min(PAGE, sum(rooms.executors[executor] for executor in rooms.open_executors))
            rows = await self._pick(connection, claim, rooms, limit)
            picked = [row[:3] for row in rows if rooms.take(*row[3:])]
            if picked:
                given += await self._queue(connection, claim, picked)
            if len(rows) < limit:
                break
        for pool, size in sizes.items():  # what this claim took is taken for the next one of the transaction
            used[pool] = claim.pools[pool[1]] - size
        return given

    async def _pick(self, connection: Any, claim: Claim, rooms: Rooms, limit: int) -> list[tuple[Any, ...]]:
        pools = rooms.open_pools
        rows = await connection.fetch(
            self._queries.pick_task_runs,
            rooms.open_executors,
            None if claim.queues is None else list(claim.queues),
            [tenant for tenant, _ in pools],
            [pool for _, pool in pools],
            *columns([tuple(loaded) for loaded in claim.loaded]),
            limit,
        )
        return [tuple(row) for row in rows]

    async def _queue(self, connection: Any, claim: Claim, picked: Sequence[tuple[Any, ...]]) -> Given:
        what = (claim.owner, claim.lease, claim.at, self._now())
        rows = await connection.fetch(self._queries.claim_task_runs, *columns(picked), *what)
        queued = dict(map(keyed_task_of, rows))
        return [(TaskKey(*key), queued[TaskKey(*key)]) for key in picked]

    async def _record(self, connection: Any, claims: Sequence[Claim], given: Sequence[Given]) -> dict[str, RunRow]:
        """Write events of all that is given, and count it in its runs."""
        new = [(key, row, claim) for claim, some in zip(claims, given, strict=True) for key, row in some]
        if not new:
            return {}
        changes: defaultdict[str, int] = defaultdict(int)
        for claim_runs in ({key.run for key, _ in some} for some in given):
            for run in claim_runs:
                changes[run] += 1
        rows = await connection.fetch(self._queries.touch_runs, *columns(list(changes.items())), self._sender)
        events = [columns for key, row, claim in new for columns in history_columns(key.run, _history(row, claim))]
        await connection.execute(self._queries.add_events, *columns(events))
        return {row["id"]: run_of(row) for row in rows}


def _history(row: TaskRow, claim: Claim) -> History:
    return History(claim.at, claim.owner, [task_event(row, TaskState.SCHEDULED, TaskState.QUEUED)])
