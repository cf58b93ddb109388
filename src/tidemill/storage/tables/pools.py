"""The table of pools."""

from collections.abc import Mapping
from typing import NamedTuple

from tidemill.storage.tables.database import Statement, Table, Transaction
from tidemill.storage.tables.declared import of_instance


class PoolDemand(NamedTuple):
    """The task runs of a tenant that need a slot of a pool."""

    used: int
    """Those that have one: they are queued or running."""
    waiting: int
    """Those that are scheduled."""


_LOCK_SIZES = Statement("SELECT name, slots FROM {schema}pools WHERE name {in:names} ORDER BY name {for_update}")
_PUT = Statement("""
    INSERT INTO {schema}pools (name, slots) VALUES (:name, :slots)
    ON CONFLICT (name) DO UPDATE SET slots = excluded.slots
""")
_SIZES = Statement("SELECT name, slots FROM {schema}pools")
# Those that use each pool, and those that wait for it, each by an index.
_DEMAND = Statement("""
    SELECT pool, count(*) FILTER (WHERE is_used = 1), count(*) FILTER (WHERE is_used = 0) FROM (
        SELECT pool, 1 AS is_used FROM {schema}task_runs
        WHERE tenant = :tenant AND pool IS NOT NULL AND state IN {claimed_tasks}
        UNION ALL
        SELECT pool, 0 FROM {schema}task_runs {by_index:task_runs_scheduled}
        WHERE state = {task_scheduled} AND tenant = :tenant AND pool IS NOT NULL
    ) AS needed GROUP BY pool
""")
_IS_NEEDED = Statement("""
    SELECT 1 FROM {schema}runs AS r {by_index:runs_active} JOIN {schema}task_runs AS t ON t.run = r.id
    WHERE r.state IN {active_runs} AND t.pool = :name AND t.state NOT IN {ended_tasks} LIMIT 1
""")
_DELETE = Statement("DELETE FROM {schema}pools WHERE name = :name")


class Pools(Table):
    """The sizes of pools, which hold for every process that uses the store."""

    tables = of_instance("pools")

    async def set_sizes(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Set the sizes of pools; return the previous size of each pool whose size has changed."""
        rows = [{"name": name, "slots": slots} for name, slots in sorted(sizes.items())]

        async def write(transaction: Transaction) -> dict[str, int]:
            before: dict[str, int] = dict(await transaction.fetch(_LOCK_SIZES, names=sorted(sizes)))
            await transaction.execute_many(_PUT, rows)
            return {name: before[name] for name, slots in sizes.items() if before.get(name, slots) != slots}

        return await self._database.transact(write) if sizes else {}

    async def read_sizes(self) -> dict[str, int]:
        """Return the size of each pool."""
        return dict(await self._database.fetch(_SIZES))

    async def read_demand(self, tenant: str) -> dict[str, PoolDemand]:
        """Return how many task runs of a tenant use each pool, or wait for it; of pools with any."""
        rows = await self._database.fetch(_DEMAND, tenant=tenant)
        return {pool: PoolDemand(used, waiting) for pool, used, waiting in rows}

    async def delete(self, name: str) -> bool:
        """Delete a pool unless a task run that has not ended names it, of any tenant; return whether it was deleted."""

        async def write(transaction: Transaction) -> bool:
            await transaction.fetch(_LOCK_SIZES, names=[name])
            if await transaction.fetch(_IS_NEEDED, name=name):
                return False
            await transaction.fetch(_DELETE, name=name)
            return True

        return await self._database.transact(write)
