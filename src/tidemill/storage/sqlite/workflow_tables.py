"""Tables of the workflow engine in SQLite: backfills, logs, notes, owners, pools, schedules, versions."""

import json
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from tidemill.kernel.limits import make_storable
from tidemill.storage.backfill_ports import Backfill, BackfillPage, Backfills
from tidemill.storage.committer import GroupCommitter
from tidemill.storage.note_ports import Notes, RunNote
from tidemill.storage.pool_ports import PoolDemand, Pools, changed_sizes
from tidemill.storage.queries import Queries
from tidemill.storage.sqlite.database import Database, SqliteTable, SqliteUnit
from tidemill.storage.sqlite.run_rows import from_micros, from_micros_or_none, to_micros, to_micros_or_none
from tidemill.storage.workflow_ports import (
    LoadedVersion,
    LogChunk,
    Logs,
    Owner,
    OwnerBeat,
    Owners,
    ScheduleCursor,
    ScheduleKey,
    Schedules,
    Versions,
    WorkflowVersion,
)
from tidemill.workflows.records import AttemptKey, TaskKey, VersionKey


class SqliteBackfills(SqliteTable, Backfills):
    """The table `backfills`."""

    async def upsert(self, backfill: Backfill) -> None:
        times = (to_micros(backfill.created_at), to_micros_or_none(backfill.cancelled_at))
        bounds = (to_micros_or_none(backfill.range_start), to_micros_or_none(backfill.range_end))
        row = (backfill.id, backfill.tenant, backfill.workflow, backfill.limit, *times, *bounds)
        await self._execute_many(self._queries.upsert_backfill, [row])

    async def get(self, id: str) -> Backfill | None:
        rows = await self._fetch_all(self._queries.backfill_of, (id,))
        return _decode_backfill(rows[0]) if rows else None

    async def list_page(self, tenant: str, *, after: str | None = None, limit: int = 50) -> BackfillPage:
        rows = await self._fetch_all(self._queries.backfills_of, (tenant, after, after, limit))
        ((total,),) = await self._fetch_all(self._queries.count_backfills, (tenant,))
        return BackfillPage([_decode_backfill(row) for row in rows], total)


def _decode_backfill(row: Any) -> Backfill:
    id_, tenant, workflow, limit, created_at, cancelled_at, start, end = row
    return Backfill(
        id=id_,
        tenant=tenant,
        workflow=workflow,
        limit=limit,
        created_at=from_micros(created_at),
        cancelled_at=from_micros_or_none(cancelled_at),
        range_start=from_micros_or_none(start),
        range_end=from_micros_or_none(end),
    )


class SqliteLogs(SqliteTable, Logs):
    """The table `logs`."""

    async def append(self, chunks: Sequence[LogChunk]) -> None:
        rows = [(*chunk.key, chunk.number, chunk.payload) for chunk in chunks]
        await self._execute_many(self._queries.append_log_chunk, rows)

    async def read(self, key: TaskKey, after: tuple[int, int] = (0, -1), limit: int = 100) -> list[LogChunk]:
        rows = await self._fetch_all(self._queries.log_chunks_of, (*key, *after, limit))
        return [
            LogChunk(key=AttemptKey(run, task, element, attempt), number=number, payload=payload)
            for run, task, element, attempt, number, payload in rows
        ]


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

    async def upsert(self, owner: Owner) -> None:
        process = (owner.id, owner.host, owner.boot, owner.pid, owner.started, to_micros(owner.at))
        labels, beat_at = json.dumps(owner.labels), to_micros(self._now())
        row = (*process, owner.kind, owner.name, labels, owner.concurrency, beat_at)
        await self._execute_many(self._queries.upsert_owner, [row])

    async def list_all(self) -> list[Owner]:
        return [beat.owner for beat in await self.list_beats()]

    async def list_beats(self) -> list[OwnerBeat]:
        rows, now = await self._fetch_all(self._queries.all_owners), self._now()
        return [_decode_beat(row, now) for row in rows]

    async def delete(self, ids: Collection[str]) -> None:
        rows = [(one,) for one in ids]

        def write(connection: sqlite3.Connection) -> None:
            connection.executemany(self._queries.delete_owner, rows)
            connection.executemany(self._queries.delete_loaded_versions_of, rows)

        await self._write(write)


class SqlitePools(SqliteTable, Pools):
    """The table `pools`."""

    async def set_sizes(self, sizes: Mapping[str, int]) -> dict[str, int]:
        def write(connection: sqlite3.Connection) -> dict[str, int]:
            before = dict(connection.execute(self._queries.pool_sizes))
            connection.executemany(self._queries.upsert_pool, list(sizes.items()))
            return changed_sizes(before, sizes)

        return await self._write(write)

    async def read_sizes(self) -> dict[str, int]:
        return dict(await self._fetch_all(self._queries.pool_sizes))

    async def read_demand(self, tenant: str) -> dict[str, PoolDemand]:
        rows = await self._fetch_all(self._queries.pool_usage_of, (tenant, tenant))
        return {pool: PoolDemand(used, waiting) for pool, used, waiting in rows}

    async def delete(self, name: str) -> bool:
        def write(connection: sqlite3.Connection) -> bool:
            (is_needed,) = connection.execute(self._queries.needs_pool, (name,)).fetchone()
            if not is_needed:
                connection.execute(self._queries.delete_pool, (name,))
            return not is_needed

        return await self._write(write)


class SqliteSchedules(SqliteTable, Schedules):
    """The tables `schedules`, `workflow_pauses` and `trigger_pauses`."""

    async def insert_missing(self, cursors: Sequence[ScheduleCursor]) -> list[ScheduleKey]:
        rows = sorted(map(_encode_cursor, cursors), key=lambda row: row[:3])

        def write(connection: sqlite3.Connection) -> list[ScheduleKey]:
            statement = self._queries.add_cursor
            return [ScheduleKey(*row[:3]) for row in rows if connection.execute(statement, row).rowcount]

        return await self._write(write)

    async def arm(self, keys: Sequence[ScheduleKey]) -> None:
        await self._execute_many(self._queries.arm_schedule, keys)

    async def delete(self, keys: Sequence[ScheduleKey]) -> None:
        await self._execute_many(self._queries.delete_schedule, keys)

    async def list_cursors(self, tenant: str) -> list[ScheduleCursor]:
        return [_decode_cursor(row) for row in await self._fetch_all(self._queries.cursors_of, (tenant,))]

    async def get_cursor(self, tenant: str, workflow: str, key: str) -> ScheduleCursor | None:
        rows = await self._fetch_all(self._queries.cursor_of, (tenant, workflow, key))
        return _decode_cursor(rows[0]) if rows else None

    async def advance_cursor(self, cursor: ScheduleCursor) -> None:
        await self._execute_many(self._queries.advance_cursor, [_encode_cursor(cursor)])

    async def pause(self, tenant: str, workflow: str) -> None:
        await self._execute_many(self._queries.pause_workflow, [(tenant, workflow)])

    async def resume(self, tenant: str, workflow: str, at: datetime) -> None:
        resumed_at = to_micros(at)

        def write(connection: sqlite3.Connection) -> None:
            connection.execute(self._queries.skip_pause, (resumed_at, tenant, workflow))
            connection.execute(self._queries.resume_workflow, (tenant, workflow))

        await self._write(write)

    async def list_paused_workflows(self) -> set[tuple[str, str]]:
        return {(tenant, workflow) for tenant, workflow in await self._fetch_all(self._queries.paused_workflows)}

    async def pause_trigger(self, tenant: str, trigger: str) -> None:
        await self._execute_many(self._queries.pause_trigger, [(tenant, trigger)])

    async def resume_trigger(self, tenant: str, trigger: str) -> None:
        await self._execute_many(self._queries.resume_trigger, [(tenant, trigger)])

    async def list_paused_triggers(self) -> set[tuple[str, str]]:
        return {(tenant, trigger) for tenant, trigger in await self._fetch_all(self._queries.paused_triggers)}


def _encode_cursor(cursor: ScheduleCursor) -> tuple[Any, ...]:
    return (*cursor.schedule, cursor.rule, to_micros(cursor.last), cursor.dropped, cursor.armed)


def _decode_cursor(row: Any) -> ScheduleCursor:
    tenant, workflow, key, rule, last, dropped, armed = row
    return ScheduleCursor(
        tenant=tenant,
        workflow=workflow,
        key=key,
        rule=rule,
        last=from_micros(last),
        dropped=dropped,
        armed=bool(armed),
    )


class SqliteVersions(SqliteTable, Versions):
    """The tables `workflow_versions` and `loaded_versions`."""

    async def upsert(self, version: WorkflowVersion, owner: str | None = None) -> None:
        source, tags = make_storable(version.source), json.dumps(version.tags)
        row = (*version.key, version.spec, to_micros(version.seen_at), source, tags)

        def write(connection: sqlite3.Connection) -> None:
            connection.execute(self._queries.upsert_version, row)
            if owner is not None:
                connection.execute(self._queries.retire_versions, (owner, *version.key[:2]))
                connection.execute(self._queries.add_loaded_version, (owner, *version.key))

        await self._write(write)

    async def retire(self, owner: str, tenant: str, workflow: str) -> None:
        await self._execute_many(self._queries.retire_versions, [(owner, tenant, workflow)])

    async def unload(self, owner: str, keys: Collection[VersionKey]) -> None:
        await self._execute_many(self._queries.delete_loaded_version, [(owner, *key) for key in keys])

    async def list_loaded(self) -> list[LoadedVersion]:
        rows = await self._fetch_all(self._queries.loaded_versions)
        return [LoadedVersion(owner, VersionKey(*key), bool(is_current)) for owner, *key, is_current in rows]

    async def get(self, key: VersionKey) -> WorkflowVersion | None:
        rows = await self._fetch_all(self._queries.version_of, tuple(key))
        return _decode_version(key, *rows[0]) if rows else None

    async def for_tenant(self, tenant: str) -> list[WorkflowVersion]:
        rows = await self._fetch_all(self._queries.versions_of, (tenant,))
        return [
            _decode_version(VersionKey(tenant, workflow, version), spec, seen_at, "", tags)
            for workflow, version, spec, seen_at, tags in rows
        ]


def _decode_version(key: VersionKey, spec: bytes, seen_at: int, source: str, tags: str) -> WorkflowVersion:
    loaded_at, words = from_micros(seen_at), tuple(json.loads(tags))
    return WorkflowVersion(key=key, spec=spec, seen_at=loaded_at, source=source, tags=words)


def _decode_beat(row: Any, now: datetime) -> OwnerBeat:
    id_, host, boot, pid, started, at, kind, name, labels, concurrency, beat_at = row
    owner = Owner(
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
    return OwnerBeat(owner, from_micros(beat_at), (to_micros(now) - beat_at) / 1_000_000)
