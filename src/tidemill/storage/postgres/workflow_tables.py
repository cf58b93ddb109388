"""Tables of the workflow engine in PostgreSQL that differ from those in SQLite: notes, owners."""

from collections.abc import Collection
from typing import Any

from tidemill.kernel.limits import make_storable
from tidemill.storage.committer import GroupCommitter
from tidemill.storage.postgres.database import Database, PostgresTable
from tidemill.storage.postgres.errors import check_timezones
from tidemill.storage.postgres.locked_rows import LeaseClock
from tidemill.storage.postgres.writes import PostgresUnit, StatementRows
from tidemill.storage.queries import Queries
from tidemill.storage.workflow_ports import NodeBeat, NodeRow, Notes, Owners, RunNote


class PostgresNotes(PostgresTable, Notes):
    """The table `notes`."""

    async def upsert(self, note: RunNote) -> None:
        check_timezones(note)
        key = (note.run, note.task is not None, note.task or "")
        if note.text:
            written = StatementRows(self._queries.upsert_note, [(*key, make_storable(note.text), note.at)])
        else:
            written = StatementRows(self._queries.delete_note, [key])
        await self._write(written)

    async def for_run(self, run: str) -> list[RunNote]:
        rows = await self._read(self._queries.notes, run)
        return [RunNote(run, task if is_of_task else None, text, at) for _, is_of_task, task, text, at in rows]

    async def for_runs(self, runs: Collection[str]) -> dict[str, str]:
        return dict(await self._read(self._queries.notes_on_runs, list(runs)))


class PostgresOwners(PostgresTable, Owners):
    """The table `owners`."""

    def __init__(
        self, database: Database, committer: GroupCommitter[PostgresUnit], queries: Queries, now: LeaseClock
    ) -> None:
        super().__init__(database, committer, queries)
        self._now = now

    async def upsert(self, owner: NodeRow) -> None:
        check_timezones(owner)
        process = (owner.id, owner.host, owner.boot, owner.pid, owner.started, owner.at)
        row = (*process, owner.kind, owner.name, list(owner.labels), owner.concurrency, self._now())
        await self._write(StatementRows(self._queries.upsert_owner, [row]))

    async def list_all(self) -> list[NodeRow]:
        return [beat.owner for beat in await self.list_beats()]

    async def list_beats(self) -> list[NodeBeat]:
        return [_decode_beat(dict(row)) for row in await self._read(self._queries.owners, self._now())]

    async def delete(self, ids: Collection[str]) -> None:
        rows = [(list(ids),)]
        await self._write(
            StatementRows(self._queries.delete_owners, rows),
            StatementRows(self._queries.delete_loaded_versions_of, rows),
        )


def _decode_beat(row: dict[str, Any]) -> NodeBeat:
    at, age = row.pop("beat_at"), row.pop("age")
    return NodeBeat(NodeRow(**row | {"labels": tuple(row["labels"])}), at, age)
