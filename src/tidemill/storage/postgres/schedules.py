"""Schedules and pauses of workflows in PostgreSQL."""

from tidemill.storage.committer import GroupCommitter
from tidemill.storage.postgres.database import Database
from tidemill.storage.postgres.times import check_times
from tidemill.storage.postgres.writes import Rows, Unit, Write
from tidemill.storage.queries import Queries
from tidemill.storage.run_ports import Cursor


class PostgresSchedules:
    """How far schedules were looked at, and which workflows are paused, in tables."""

    def __init__(self, database: Database, committer: GroupCommitter[Unit], queries: Queries) -> None:
        self._database = database
        self._committer = committer
        self._queries = queries

    async def cursor(self, tenant: str, workflow: str, key: str) -> Cursor | None:
        """Return how far a schedule was looked at; None if never."""
        rows = await self._database.read(self._queries.schedule, tenant, workflow, key)
        return Cursor(**rows[0]) if rows else None

    async def move(self, cursor: Cursor) -> None:
        """Remember how far a schedule was looked at; `last` of the same rule never goes back."""
        check_times(cursor)
        row = (cursor.tenant, cursor.workflow, cursor.key, cursor.rule, cursor.last, cursor.dropped)
        await self._committer.commit(Write((Rows(self._queries.move_schedule, [row]),)))

    async def pause(self, tenant: str, workflow: str, *, paused: bool) -> None:
        """Remember, or forget, that a workflow is paused."""
        statement = self._queries.pause_workflow if paused else self._queries.resume_workflow
        await self._committer.commit(Write((Rows(statement, [(tenant, workflow)]),)))

    async def paused(self) -> set[tuple[str, str]]:
        """Return (tenant, workflow) of every paused workflow."""
        return {(tenant, workflow) for tenant, workflow in await self._database.read(self._queries.paused_workflows)}
