"""Tables of the workflow engine in SQLite that differ from those in PostgreSQL: notes, owners."""

import json
import sqlite3
from collections.abc import Callable, Collection
from datetime import datetime
from typing import Any

from tidemill.storage.committer import GroupCommitter
from tidemill.storage.queries import Queries
from tidemill.storage.sqlite.database import Database, SqliteTable, SqliteUnit
from tidemill.storage.sqlite.run_rows import from_micros, to_micros
from tidemill.storage.workflow_ports import NodeBeat, NodeRow, Notes, Owners, RunNote


class SqliteNotes(SqliteTable, Notes):
    """The table `notes`."""

    async def upsert(self, note: RunNote) -> None:
        row = (note.run, note.task, note.text, to_micros(note.at))

        def write(connection: sqlite3.Connection) -> None:
            connection.execute(self._queries.delete_note, row[:2])
            if note.text:
                connection.execute(self._queries.add_note, row)

        await self._write(write)

    async def for_run(self, run: str) -> list[RunNote]:
        rows = await self._fetch_all(self._queries.notes_of, (run,))
        return [RunNote(run, task, text, from_micros(at)) for run, task, text, at in rows]

    async def for_runs(self, runs: Collection[str]) -> dict[str, str]:
        return dict(await self._fetch_all(self._queries.notes_on_runs, (json.dumps(list(runs)),)))


class SqliteOwners(SqliteTable, Owners):
    """The table `owners`."""

    def __init__(
        self,
        database: Database,
        committer: GroupCommitter[SqliteUnit],
        queries: Queries,
        now: Callable[[], datetime],
    ) -> None:
        super().__init__(database, committer, queries)
        self._now = now

    async def upsert(self, owner: NodeRow) -> None:
        process = (owner.id, owner.host, owner.boot, owner.pid, owner.started, to_micros(owner.at))
        labels, beat_at = json.dumps(owner.labels), to_micros(self._now())
        row = (*process, owner.kind, owner.name, labels, owner.concurrency, beat_at)
        await self._execute_many(self._queries.upsert_owner, [row])

    async def list_all(self) -> list[NodeRow]:
        return [beat.owner for beat in await self.list_beats()]

    async def list_beats(self) -> list[NodeBeat]:
        rows, now = await self._fetch_all(self._queries.all_owners), self._now()
        return [_decode_beat(row, now) for row in rows]

    async def delete(self, ids: Collection[str]) -> None:
        rows = [(one,) for one in ids]

        def write(connection: sqlite3.Connection) -> None:
            connection.executemany(self._queries.delete_owner, rows)
            connection.executemany(self._queries.delete_loaded_versions_of, rows)

        await self._write(write)


def _decode_beat(row: Any, now: datetime) -> NodeBeat:
    id_, host, boot, pid, started, at, kind, name, labels, concurrency, beat_at = row
    owner = NodeRow(
        id=id_,
        host=host,
        boot=boot,
        pid=pid,
        started=started,
        at=from_micros(at),
        kind=kind,
        name=name,
        labels=tuple(json.loads(labels)),
        concurrency=concurrency,
    )
    return NodeBeat(owner, from_micros(beat_at), (to_micros(now) - beat_at) / 1_000_000)
