"""Schedules in SQLite."""

from tidemill.storage.queries import Queries
from tidemill.storage.run_ports import Cursor, Schedules
from tidemill.storage.sqlite.database import Database
from tidemill.storage.sqlite.times import from_micros, to_micros


class SqliteSchedules(Schedules):
    """The tables `schedules` and `workflow_pauses`."""

    def __init__(self, database: Database, queries: Queries) -> None:
        self._database = database
        self._queries = queries

    async def cursor(self, tenant: str, workflow: str, key: str) -> Cursor | None:
        rows = await self._database.rows(self._queries.cursor_of, (tenant, workflow, key))
        for tenant_, workflow_, key_, rule, last, dropped in rows:
            return Cursor(
                tenant=tenant_, workflow=workflow_, key=key_, rule=rule, last=from_micros(last), dropped=dropped
            )
        return None

    async def move(self, cursor: Cursor) -> None:
        row = (cursor.tenant, cursor.workflow, cursor.key, cursor.rule, to_micros(cursor.last), cursor.dropped)
        await self._database.write_many(self._queries.move_cursor, [row])

    async def pause(self, tenant: str, workflow: str, *, paused: bool) -> None:
        statement = self._queries.pause_workflow if paused else self._queries.resume_workflow
        await self._database.write_many(statement, [(tenant, workflow)])

    async def paused(self) -> set[tuple[str, str]]:
        return {(tenant, workflow) for tenant, workflow in await self._database.rows(self._queries.paused_workflows)}
