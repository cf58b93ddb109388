"""Schedules in memory."""

from msgspec.structs import replace

from tidemill.storage.committer import GroupCommitter
from tidemill.storage.memory.tables import Tables, Unit
from tidemill.storage.memory.times import all_in_utc
from tidemill.storage.run_ports import Cursor, Schedules


class MemorySchedules(Schedules):
    """Cursors by schedule, and a set of paused workflows."""

    def __init__(self, tables: Tables, committer: GroupCommitter[Unit]) -> None:
        self._tables = tables
        self._committer = committer

    async def cursor(self, tenant: str, workflow: str, key: str) -> Cursor | None:
        return self._tables.cursors.get((tenant, workflow, key))

    async def move(self, cursor: Cursor) -> None:
        row = all_in_utc(cursor)

        def write(tables: Tables) -> None:
            key = (row.tenant, row.workflow, row.key)
            before = tables.cursors.get(key)
            last = max(row.last, before.last) if before is not None and before.rule == row.rule else row.last
            dropped = row.dropped if before is None else max(row.dropped, before.dropped)
            tables.put(tables.cursors, key, replace(row, last=last, dropped=dropped))

        await self._committer.commit(write)

    async def pause(self, tenant: str, workflow: str, *, paused: bool) -> None:
        def write(tables: Tables) -> None:
            if paused:
                tables.put(tables.paused_workflows, (tenant, workflow), None)
            else:
                tables.drop(tables.paused_workflows, (tenant, workflow))

        await self._committer.commit(write)

    async def paused(self) -> set[tuple[str, str]]:
        return set(self._tables.paused_workflows)
