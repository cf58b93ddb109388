"""Tables of the workflow engine in PostgreSQL: backfills, logs, notes, owners, pools, schedules, versions."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from tidemill.kernel.limits import make_storable
from tidemill.storage.backfill_ports import Backfill, BackfillPage, Backfills
from tidemill.storage.committer import GroupCommitter
from tidemill.storage.note_ports import Notes, RunNote
from tidemill.storage.pool_ports import PoolDemand, Pools, changed_sizes
from tidemill.storage.postgres.database import Database, PostgresTable
from tidemill.storage.postgres.errors import check_timezones
from tidemill.storage.postgres.locked_rows import LeaseClock
from tidemill.storage.postgres.writes import PostgresUnit, StatementRows, to_columns
from tidemill.storage.queries import Queries, check_timezone
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


class PostgresBackfills(PostgresTable, Backfills):
    """The table `backfills`."""

    async def upsert(self, backfill: Backfill) -> None:
        check_timezones(backfill)
        times = (backfill.created_at, backfill.cancelled_at, backfill.range_start, backfill.range_end)
        row = (backfill.id, backfill.tenant, backfill.workflow, backfill.limit, *times)
        await self._write(StatementRows(self._queries.upsert_backfill, [row]))

    async def get(self, id: str) -> Backfill | None:
        rows = await self._read(self._queries.backfill, id)
        return Backfill(**rows[0]) if rows else None

    async def list_page(self, tenant: str, *, after: str | None = None, limit: int = 50) -> BackfillPage:
        rows, counts = await self._database.read_in_snapshot(
            (self._queries.backfills, tenant, after, limit), (self._queries.count_backfills, tenant)
        )
        return BackfillPage([Backfill(**row) for row in rows], counts[0][0])


class PostgresLogs(PostgresTable, Logs):
    """The table `logs`."""

    async def append(self, chunks: Sequence[LogChunk]) -> None:
        rows = [(*chunk.key, chunk.number, chunk.payload) for chunk in chunks]
        await self._write(StatementRows(self._queries.append_logs, rows, as_arrays=True))

    async def read(self, key: TaskKey, after: tuple[int, int] = (0, -1), limit: int = 100) -> list[LogChunk]:
        rows = await self._read(self._queries.logs, *key, *after, limit)
        return [
            LogChunk(key=AttemptKey(run, task, element, attempt), number=number, payload=payload)
            for run, task, element, attempt, number, payload in rows
        ]


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

    async def upsert(self, owner: Owner) -> None:
        check_timezones(owner)
        process = (owner.id, owner.host, owner.boot, owner.pid, owner.started, owner.at)
        row = (*process, owner.kind, owner.name, list(owner.labels), owner.concurrency, self._now())
        await self._write(StatementRows(self._queries.upsert_owner, [row]))

    async def list_all(self) -> list[Owner]:
        return [beat.owner for beat in await self.list_beats()]

    async def list_beats(self) -> list[OwnerBeat]:
        return [_decode_beat(dict(row)) for row in await self._read(self._queries.owners, self._now())]

    async def delete(self, ids: Collection[str]) -> None:
        rows = [(list(ids),)]
        await self._write(
            StatementRows(self._queries.delete_owners, rows),
            StatementRows(self._queries.delete_loaded_versions_of, rows),
        )


class PostgresPools(PostgresTable, Pools):
    """The table `pools`."""

    async def set_sizes(self, sizes: Mapping[str, int]) -> dict[str, int]:
        async def write(connection: Any) -> dict[str, int]:
            before = dict(await connection.fetch(self._queries.lock_pool_sizes, list(sizes)))
            await connection.execute(self._queries.upsert_pools, *to_columns(sorted(sizes.items())))
            return changed_sizes(before, sizes)

        changed: dict[str, int] = await self._committer.commit(write) if sizes else {}
        return changed

    async def read_sizes(self) -> dict[str, int]:
        return dict(await self._read(self._queries.pool_sizes))

    async def read_demand(self, tenant: str) -> dict[str, PoolDemand]:
        rows = await self._read(self._queries.pool_usage_of, tenant)
        return {pool: PoolDemand(used, waiting) for pool, used, waiting in rows}

    async def delete(self, name: str) -> bool:
        async def write(connection: Any) -> bool:
            await connection.fetch(self._queries.lock_pool_sizes, [name])
            if await connection.fetchval(self._queries.needs_pool, name):
                return False
            await connection.execute(self._queries.delete_pool, name)
            return True

        deleted: bool = await self._committer.commit(write)
        return deleted


class PostgresSchedules(PostgresTable, Schedules):
    """The tables `schedules`, `workflow_pauses` and `trigger_pauses`.

    Nodes that load the same package write the same rows at the same time: always in the order of their keys.
    """

    async def insert_missing(self, cursors: Sequence[ScheduleCursor]) -> list[ScheduleKey]:
        check_timezones(*cursors)
        rows = sorted(map(_encode_cursor, cursors), key=lambda row: row[:3])

        async def write(connection: Any) -> list[ScheduleKey]:
            inserted = await connection.fetch(self._queries.add_schedules, *to_columns(rows)) if rows else []
            return [ScheduleKey(*row) for row in inserted]

        inserted: list[ScheduleKey] = await self._committer.commit(write)
        return inserted

    async def arm(self, keys: Sequence[ScheduleKey]) -> None:
        await self._write(StatementRows(self._queries.arm_schedule, sorted(keys)))

    async def delete(self, keys: Sequence[ScheduleKey]) -> None:
        await self._write(StatementRows(self._queries.delete_schedule, sorted(keys)))

    async def list_cursors(self, tenant: str) -> list[ScheduleCursor]:
        return [ScheduleCursor(**row) for row in await self._read(self._queries.cursors_of, tenant)]

    async def get_cursor(self, tenant: str, workflow: str, key: str) -> ScheduleCursor | None:
        rows = await self._read(self._queries.cursor, tenant, workflow, key)
        return ScheduleCursor(**rows[0]) if rows else None

    async def advance_cursor(self, cursor: ScheduleCursor) -> None:
        check_timezones(cursor)
        await self._write(StatementRows(self._queries.advance_cursor, [_encode_cursor(cursor)]))

    async def pause(self, tenant: str, workflow: str) -> None:
        await self._write(StatementRows(self._queries.pause_workflow, [(tenant, workflow)]))

    async def resume(self, tenant: str, workflow: str, at: datetime) -> None:
        check_timezone(at)

        async def write(connection: Any) -> None:
            await connection.execute(self._queries.skip_pause, tenant, workflow, at)
            await connection.execute(self._queries.resume_workflow, tenant, workflow)

        await self._committer.commit(write)

    async def list_paused_workflows(self) -> set[tuple[str, str]]:
        return {(tenant, workflow) for tenant, workflow in await self._read(self._queries.paused_workflows)}

    async def pause_trigger(self, tenant: str, trigger: str) -> None:
        await self._write(StatementRows(self._queries.pause_trigger, [(tenant, trigger)]))

    async def resume_trigger(self, tenant: str, trigger: str) -> None:
        await self._write(StatementRows(self._queries.resume_trigger, [(tenant, trigger)]))

    async def list_paused_triggers(self) -> set[tuple[str, str]]:
        return {(tenant, trigger) for tenant, trigger in await self._read(self._queries.paused_triggers)}


def _encode_cursor(cursor: ScheduleCursor) -> tuple[Any, ...]:
    return (*cursor.schedule, cursor.rule, cursor.last, cursor.dropped, cursor.armed)


class PostgresVersions(PostgresTable, Versions):
    """The tables `workflow_versions` and `loaded_versions`."""

    async def upsert(self, version: WorkflowVersion, owner: str | None = None) -> None:
        check_timezones(version)
        source, tags = make_storable(version.source), list(version.tags)
        row = (*version.key, version.spec, version.seen_at, source, tags)

        async def write(connection: Any) -> None:
            await connection.execute(self._queries.upsert_version, *row)
            if owner is not None:
                await connection.execute(self._queries.retire_versions, owner, *version.key[:2])
                await connection.execute(self._queries.add_loaded_version, owner, *version.key)

        await self._committer.commit(write)

    async def retire(self, owner: str, tenant: str, workflow: str) -> None:
        await self._write(StatementRows(self._queries.retire_versions, [(owner, tenant, workflow)]))

    async def unload(self, owner: str, keys: Collection[VersionKey]) -> None:
        await self._write(StatementRows(self._queries.delete_loaded_version, [(owner, *key) for key in keys]))

    async def list_loaded(self) -> list[LoadedVersion]:
        rows = await self._read(self._queries.loaded_versions)
        return [LoadedVersion(owner, VersionKey(*key), is_current) for owner, *key, is_current in rows]

    async def get(self, key: VersionKey) -> WorkflowVersion | None:
        rows = await self._read(self._queries.version, *key)
        return _decode_version(key, *rows[0]) if rows else None

    async def for_tenant(self, tenant: str) -> list[WorkflowVersion]:
        rows = await self._read(self._queries.versions, tenant)
        return [
            _decode_version(VersionKey(tenant, workflow, version), spec, seen_at, "", tags)
            for workflow, version, spec, seen_at, tags in rows
        ]


def _decode_version(key: VersionKey, spec: bytes, seen_at: datetime, source: str, tags: list[str]) -> WorkflowVersion:
    return WorkflowVersion(key=key, spec=spec, seen_at=seen_at, source=source, tags=tuple(tags))


def _decode_beat(row: dict[str, Any]) -> OwnerBeat:
    at, age = row.pop("beat_at"), row.pop("age")
    return OwnerBeat(Owner(**row | {"labels": tuple(row["labels"])}), at, age)
