"""Tables of the workflow engine in memory: backfills, logs, notes, owners, pools, schedules, versions."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice

from msgspec.structs import replace

from tidemill.storage.backfill_ports import Backfill, BackfillPage, Backfills
from tidemill.storage.committer import GroupCommitter
from tidemill.storage.memory.tables import MemoryTable, MemoryUnit, Tables, times_to_utc, to_utc
from tidemill.storage.note_ports import Notes, RunNote
from tidemill.storage.pool_ports import PoolDemand, Pools, changed_sizes
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
from tidemill.workflows.records import TaskKey, TaskRow, VersionKey
from tidemill.workflows.states import TaskState


class MemoryBackfills(MemoryTable, Backfills):
    """Backfills by id."""

    async def upsert(self, backfill: Backfill) -> None:
        row = times_to_utc(backfill)
        await self._committer.commit(lambda tables: tables.put(tables.backfills, row.id, row))

    async def get(self, id: str) -> Backfill | None:
        return self._tables.backfills.get(id)

    async def list_page(self, tenant: str, *, after: str | None = None, limit: int = 50) -> BackfillPage:
        rows = [row for row in self._tables.backfills.values() if row.tenant == tenant]
        rest = [row for row in rows if after is None or row.id < after]
        return BackfillPage(sorted(rest, key=lambda row: row.id, reverse=True)[:limit], len(rows))


class MemoryLogs(MemoryTable, Logs):
    """Chunks by run, attempt and number."""

    async def append(self, chunks: Sequence[LogChunk]) -> None:
        def write(tables: Tables) -> None:
            for chunk in chunks:
                log = tables.logs.setdefault(chunk.key.run, {})
                if (chunk.key, chunk.number) not in log:
                    tables.put(log, (chunk.key, chunk.number), chunk)

        await self._committer.commit(write)

    async def read(self, key: TaskKey, after: tuple[int, int] = (0, -1), limit: int = 100) -> list[LogChunk]:
        log = self._tables.logs.get(key.run, {})
        chunks = sorted(
            (attempt, number)
            for attempt, number in log
            if attempt.task_key == key and (attempt.attempt, number) > after
        )
        return [log[chunk] for chunk in islice(chunks, limit)]


class MemoryNotes(MemoryTable, Notes):
    """Notes by run and task."""

    async def upsert(self, note: RunNote) -> None:
        row = times_to_utc(note)

        def write(tables: Tables) -> None:
            notes = tables.notes.setdefault(row.run, {})
            if row.text:
                tables.put(notes, row.task, row)
            else:
                tables.delete(notes, row.task)

        await self._committer.commit(write)

    async def for_run(self, run: str) -> list[RunNote]:
        notes = self._tables.notes.get(run, {}).values()
        return sorted(notes, key=lambda note: (note.task is not None, note.task or ""))

    async def for_runs(self, runs: Collection[str]) -> dict[str, str]:
        notes = ((run, self._tables.notes.get(run, {}).get(None)) for run in runs)
        return {run: note.text for run, note in notes if note is not None}


class MemoryOwners(MemoryTable, Owners):
    """Owners by id, each with its last beat."""

    def __init__(self, tables: Tables, committer: GroupCommitter[MemoryUnit], now: Callable[[], datetime]) -> None:
        super().__init__(tables, committer)
        self._now = now

    async def upsert(self, owner: Owner) -> None:
        row = times_to_utc(owner), to_utc(self._now())
        await self._committer.commit(lambda tables: tables.put(tables.owners, owner.id, row))

    async def list_all(self) -> list[Owner]:
        return [beat.owner for beat in await self.list_beats()]

    async def list_beats(self) -> list[OwnerBeat]:
        now, rows = self._now(), sorted(self._tables.owners.values(), key=lambda row: (row[0].at, row[0].id))
        return [OwnerBeat(owner, at, (now - at).total_seconds()) for owner, at in rows]

    async def delete(self, ids: Collection[str]) -> None:
        def write(tables: Tables) -> None:
            for one in ids:
                tables.delete(tables.owners, one)
            for loaded in [key for key in tables.loaded_versions if key[0] in ids]:
                tables.delete(tables.loaded_versions, loaded)

        await self._committer.commit(write)


class MemoryPools(MemoryTable, Pools):
    """Slots by pool."""

    async def set_sizes(self, sizes: Mapping[str, int]) -> dict[str, int]:
        def write(tables: Tables) -> dict[str, int]:
            before = dict(tables.pools)
            for name, slots in sizes.items():
                tables.put(tables.pools, name, slots)
            return changed_sizes(before, sizes)

        changed: dict[str, int] = await self._committer.commit(write)
        return changed

    async def read_sizes(self) -> dict[str, int]:
        return dict(self._tables.pools)

    async def read_demand(self, tenant: str) -> dict[str, PoolDemand]:
        rows = [(row, row.pool) for row in self._task_rows(tenant) if row.pool is not None]
        used = Counter(pool for row, pool in rows if row.state.is_claimed)
        waiting = Counter(pool for row, pool in rows if row.state is TaskState.SCHEDULED)
        return {pool: PoolDemand(used[pool], waiting[pool]) for pool in used.keys() | waiting.keys()}

    async def delete(self, name: str) -> bool:
        def write(tables: Tables) -> bool:
            is_needed = any(row.pool == name and not row.state.is_terminal for row in self._task_rows(None))
            if not is_needed:
                tables.delete(tables.pools, name)
            return not is_needed

        deleted: bool = await self._committer.commit(write)
        return deleted

    def _task_rows(self, tenant: str | None) -> Iterator[TaskRow]:
        """Yield the task runs of active runs, of one tenant or of all."""
        for run in self._tables.active_runs:
            if tenant in (None, self._tables.runs[run].tenant):
                yield from self._tables.tasks.get(run, {}).values()


class MemorySchedules(MemoryTable, Schedules):
    """Cursors by schedule, and a set of paused workflows."""

    async def insert_missing(self, cursors: Sequence[ScheduleCursor]) -> list[ScheduleKey]:
        rows = sorted(map(times_to_utc, cursors), key=lambda row: row.schedule)

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
                tables.delete(tables.cursors, key)

        await self._committer.commit(write)

    async def list_cursors(self, tenant: str) -> list[ScheduleCursor]:
        return [cursor for key, cursor in sorted(self._tables.cursors.items()) if key.tenant == tenant]

    async def get_cursor(self, tenant: str, workflow: str, key: str) -> ScheduleCursor | None:
        return self._tables.cursors.get(ScheduleKey(tenant, workflow, key))

    async def advance_cursor(self, cursor: ScheduleCursor) -> None:
        row = times_to_utc(cursor)

        def write(tables: Tables) -> None:
            before = tables.cursors.get(row.schedule)
            tables.put(tables.cursors, row.schedule, row if before is None else _advanced_cursor(before, row))

        await self._committer.commit(write)

    async def pause(self, tenant: str, workflow: str) -> None:
        await self._committer.commit(lambda tables: tables.put(tables.paused_workflows, (tenant, workflow), None))

    async def resume(self, tenant: str, workflow: str, at: datetime) -> None:
        resumed_at = to_utc(at)

        def write(tables: Tables) -> None:
            if (tenant, workflow) not in tables.paused_workflows:
                return
            tables.delete(tables.paused_workflows, (tenant, workflow))
            for key, cursor in list(tables.cursors.items()):
                if key[:2] == (tenant, workflow):
                    tables.put(tables.cursors, key, replace(cursor, last=max(cursor.last, resumed_at)))

        await self._committer.commit(write)

    async def list_paused_workflows(self) -> set[tuple[str, str]]:
        return set(self._tables.paused_workflows)

    async def pause_trigger(self, tenant: str, trigger: str) -> None:
        await self._committer.commit(lambda tables: tables.put(tables.paused_triggers, (tenant, trigger), None))

    async def resume_trigger(self, tenant: str, trigger: str) -> None:
        await self._committer.commit(lambda tables: tables.delete(tables.paused_triggers, (tenant, trigger)))

    async def list_paused_triggers(self) -> set[tuple[str, str]]:
        return set(self._tables.paused_triggers)


def _advanced_cursor(before: ScheduleCursor, row: ScheduleCursor) -> ScheduleCursor:
    """Return a cursor after an advance: neither `last` nor `dropped` goes back, and `armed` stays."""
    last = max(row.last, before.last) if before.rule == row.rule else row.last
    return replace(row, last=last, dropped=max(row.dropped, before.dropped), armed=before.armed)


class MemoryVersions(MemoryTable, Versions):
    """Versions by key."""

    async def upsert(self, version: WorkflowVersion, owner: str | None = None) -> None:
        row = times_to_utc(version)

        def write(tables: Tables) -> None:
            known = tables.versions.get(row.key, row)
            seen_at, source = max(known.seen_at, row.seen_at), known.source or row.source
            tables.put(tables.versions, row.key, replace(known, seen_at=seen_at, source=source, tags=row.tags))
            if owner is not None:
                _retire_versions(tables, owner, *row.key[:2])
                tables.put(tables.loaded_versions, (owner, row.key), True)

        await self._committer.commit(write)

    async def retire(self, owner: str, tenant: str, workflow: str) -> None:
        await self._committer.commit(lambda tables: _retire_versions(tables, owner, tenant, workflow))

    async def unload(self, owner: str, keys: Collection[VersionKey]) -> None:
        def write(tables: Tables) -> None:
            for key in keys:
                tables.delete(tables.loaded_versions, (owner, key))

        await self._committer.commit(write)

    async def list_loaded(self) -> list[LoadedVersion]:
        return sorted(LoadedVersion(*key, is_current) for key, is_current in self._tables.loaded_versions.items())

    async def get(self, key: VersionKey) -> WorkflowVersion | None:
        return self._tables.versions.get(key)

    async def for_tenant(self, tenant: str) -> list[WorkflowVersion]:
        rows = [replace(row, source="") for row in self._tables.versions.values() if row.key.tenant == tenant]
        return sorted(rows, key=lambda row: (row.key.workflow, row.seen_at, row.key.version))


def _retire_versions(tables: Tables, owner: str, tenant: str, workflow: str) -> None:
    for loaded in [one for one in tables.loaded_versions if (one[0], *one[1][:2]) == (owner, tenant, workflow)]:
        tables.put(tables.loaded_versions, loaded, False)
