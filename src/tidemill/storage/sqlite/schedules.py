"""Schedules in SQLite."""

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from tidemill.storage.queries import Queries
from tidemill.storage.run_ports import Cursor, ScheduleKey, Schedules
from tidemill.storage.sqlite.database import Database
from tidemill.storage.sqlite.times import from_micros, to_micros


class SqliteSchedules(Schedules):
    """The tables `schedules` and `workflow_pauses`."""

    def __init__(self, database: Database, queries: Queries) -> None:
        self._database = database
        self._queries = queries

    async def insert(self, cursors: Sequence[Cursor]) -> list[ScheduleKey]:
        rows = sorted(map(_row, cursors), key=lambda row: row[:3])

        def write(connection: sqlite3.Connection) -> list[ScheduleKey]:
            statement = self._queries.add_cursor
            return [ScheduleKey(*row[:3]) for row in rows if connection.execute(statement, row).rowcount]

        return await self._database.write(write)

    async def arm(self, keys: Sequence[ScheduleKey]) -> None:
        await self._database.write_many(self._queries.arm_schedule, keys)

    async def delete(self, keys: Sequence[ScheduleKey]) -> None:
        await self._database.write_many(self._queries.delete_schedule, keys)

    async def cursor(self, tenant: str, workflow: str, key: str) -> Cursor | None:
        rows = await self._database.rows(self._queries.cursor_of, (tenant, workflow, key))
        return _cursor(rows[0]) if rows else None

    async def move(self, cursor: Cursor) -> None:
        await self._database.write_many(self._queries.move_cursor, [_row(cursor)])

    async def pause(self, tenant: str, workflow: str) -> None:
        await self._database.write_many(self._queries.pause_workflow, [(tenant, workflow)])

    async def resume(self, tenant: str, workflow: str, at: datetime) -> None:
        until = to_micros(at)

        def write(connection: sqlite3.Connection) -> None:
            connection.execute(self._queries.skip_pause, (tenant, workflow, until))
            connection.execute(self._queries.resume_workflow, (tenant, workflow))

        await self._database.write(write)

    async def paused(self) -> set[tuple[str, str]]:
        return {(tenant, workflow) for tenant, workflow in await self._database.rows(self._queries.paused_workflows)}


def _row(one: Cursor) -> tuple[Any, ...]:
    return (*one.schedule, one.rule, to_micros(one.last), one.dropped, one.armed)


def _cursor(row: Any) -> Cursor:
    tenant, workflow, key, rule, last, dropped, armed = row
    return Cursor(
        tenant=tenant,
        workflow=workflow,
        key=key,
        rule=rule,
        last=from_micros(last),
        dropped=dropped,
        armed=bool(armed),
    )
