"""Schedules in memory."""

from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from tidemill.storage.committer import GroupCommitter
from tidemill.storage.memory.tables import Tables, Unit
from tidemill.storage.memory.times import all_in_utc, in_utc
from tidemill.storage.run_ports import Cursor, ScheduleKey, Schedules


class MemorySchedules(Schedules):
    """Cursors by schedule, and a set of paused workflows."""

    def __init__(self, tables: Tables, committer: GroupCommitter[Unit]) -> None:
        self._tables = tables
        self._committer = committer

    async def insert(self, cursors: Sequence[Cursor]) -> list[ScheduleKey]:
        rows = sorted(map(all_in_utc, cursors), key=lambda row: row.schedule)

        def write(tables: Tables) -> list[ScheduleKey]:
            inserted = []
            for row in rows:
                if row.schedule not in tables.cursors:
                    tables.put(tables.cursors, row.schedule, row)
                    inserted.append(row.schedule)
            return inserted

        inserted: list[ScheduleKey] = await self._committer.commit(write)
        return inserted

    async def arm(self, keys: Sequence[ScheduleKey]) -> None:
        def write(tables: Tables) -> None:
            for key in keys:
                if key in tables.cursors:
                    tables.put(tables.cursors, key, replace(tables.cursors[key], armed=True))

        await self._committer.commit(write)

    async def delete(self, keys: Sequence[ScheduleKey]) -> None:
        def write(tables: Tables) -> None:
            for key in keys:
                tables.drop(tables.cursors, key)

        await self._committer.commit(write)

    async def cursor(self, tenant: str, workflow: str, key: str) -> Cursor | None:
        return self._tables.cursors.get(ScheduleKey(tenant, workflow, key))

    async def move(self, cursor: Cursor) -> None:
        row = all_in_utc(cursor)

        def write(tables: Tables) -> None:
            before = tables.cursors.get(row.schedule)
            tables.put(tables.cursors, row.schedule, row if before is None else _moved(before, row))

        await self._committer.commit(write)

    async def pause(self, tenant: str, workflow: str) -> None:
        await self._committer.commit(lambda tables: tables.put(tables.paused_workflows, (tenant, workflow), None))

    async def resume(self, tenant: str, workflow: str, at: datetime) -> None:
        moment = in_utc(at)

        def write(tables: Tables) -> None:
            if (tenant, workflow) not in tables.paused_workflows:
                return
            tables.drop(tables.paused_workflows, (tenant, workflow))
            for key, cursor in list(tables.cursors.items()):
                if key[:2] == (tenant, workflow):
                    tables.put(tables.cursors, key, replace(cursor, last=max(cursor.last, moment)))

        await self._committer.commit(write)

    async def paused(self) -> set[tuple[str, str]]:
        return set(self._tables.paused_workflows)


def _moved(before: Cursor, row: Cursor) -> Cursor:
    """Return a cursor as it is after a move: what has happened stays so, and so does whether it is armed."""
    last = max(row.last, before.last) if before.rule == row.rule else row.last
    return replace(row, last=last, dropped=max(row.dropped, before.dropped), armed=before.armed)
