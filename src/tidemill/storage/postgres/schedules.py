"""Schedules and pauses of workflows in PostgreSQL."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from tidemill.storage.committer import GroupCommitter
from tidemill.storage.postgres.database import Database
from tidemill.storage.postgres.times import check_times
from tidemill.storage.postgres.writes import Rows, Unit, Write, columns
from tidemill.storage.queries import Queries
from tidemill.storage.run_ports import Cursor, ScheduleKey, Schedules
from tidemill.storage.times import check_zone


class PostgresSchedules(Schedules):
    """How far schedules were looked at, and which workflows are paused, in tables.

    Nodes that load the same package write the same rows at the same time: always in the order of their keys.
    """

    def __init__(self, database: Database, committer: GroupCommitter[Unit], queries: Queries) -> None:
        self._database = database
        self._committer = committer
        self._queries = queries

    async def insert(self, cursors: Sequence[Cursor]) -> list[ScheduleKey]:
        check_times(*cursors)
        rows = sorted(map(_row, cursors), key=lambda row: row[:3])

        async def write(connection: Any) -> list[ScheduleKey]:
            inserted = await connection.fetch(self._queries.add_schedules, *columns(rows)) if rows else []
            return [ScheduleKey(*row) for row in inserted]

        inserted: list[ScheduleKey] = await self._committer.commit(write)
        return inserted

    async def arm(self, keys: Sequence[ScheduleKey]) -> None:
        await self._committer.commit(Write((Rows(self._queries.arm_schedule, sorted(keys)),)))

    async def delete(self, keys: Sequence[ScheduleKey]) -> None:
        await self._committer.commit(Write((Rows(self._queries.delete_schedule, sorted(keys)),)))

    async def cursor(self, tenant: str, workflow: str, key: str) -> Cursor | None:
        rows = await self._database.read(self._queries.schedule, tenant, workflow, key)
        return Cursor(**rows[0]) if rows else None

    async def move(self, cursor: Cursor) -> None:
        check_times(cursor)
        await self._committer.commit(Write((Rows(self._queries.move_schedule, [_row(cursor)]),)))

    async def pause(self, tenant: str, workflow: str) -> None:
        await self._committer.commit(Write((Rows(self._queries.pause_workflow, [(tenant, workflow)]),)))

    async def resume(self, tenant: str, workflow: str, at: datetime) -> None:
        check_zone(at)

        async def write(connection: Any) -> None:
            await connection.execute(self._queries.skip_pause, tenant, workflow, at)
            await connection.execute(self._queries.resume_workflow, tenant, workflow)

        await self._committer.commit(write)

    async def paused(self) -> set[tuple[str, str]]:
        return {(tenant, workflow) for tenant, workflow in await self._database.read(self._queries.paused_workflows)}


def _row(one: Cursor) -> tuple[Any, ...]:
    return (*one.schedule, one.rule, one.last, one.dropped, one.armed)
