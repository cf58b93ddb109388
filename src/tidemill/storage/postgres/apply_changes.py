"""Changes of runs, written together: all their rows are locked, then judged, then written, a table at a time."""

from collections.abc import Iterable, Sequence
from typing import Any

from tidemill.storage.postgres.locked_rows import (
    LeaseClock,
    LockedRows,
    LockedRun,
    LockedTask,
    advisory_lock_id,
    pool_lock_id,
)
from tidemill.storage.postgres.writes import to_columns
from tidemill.storage.queries import Queries
from tidemill.workflows.change import Applied, Change, Refused
from tidemill.workflows.records import TaskKey
from tidemill.workflows.states import TaskState


class ChangeApplier:
    """The work that changes share in a transaction."""

    def __init__(self, queries: Queries, sender_id: str, now: LeaseClock) -> None:
        self._queries = queries
        self._sender_id = sender_id
        self._now = now

    async def __call__(self, connection: Any, changes: Sequence[Change]) -> list[Applied | Refused]:
        """Apply changes one after the other; return what became of each."""
        accounts = await self._lock_rows(connection, changes)
        await self._read_guarded_facts(connection, accounts, changes)
        results = [accounts.apply_change(change) for change in changes]
        await self._write_rows(connection, accounts)
        return results

    async def _lock_rows(self, connection: Any, changes: Sequence[Change]) -> LockedRows:
        """Lock everything that changes are judged by, in the order that everybody keeps to."""
        epochs: dict[str, int] = {}
        if names := {change.fence.name for change in changes if change.fence is not None}:
            epochs = dict(await connection.fetch(self._queries.lock_leases, sorted(names)))
        if keys := {key for change in changes for key in _advisory_lock_ids(change)}:
            await connection.execute(self._queries.lock_keys, sorted(keys))
        tasks = await self._read_tasks(connection, self._queries.lock_task_runs, map(_existing_task_keys, changes))
        rows = await connection.fetch(self._queries.lock_runs, sorted({change.run for change in changes}))
        runs = {run: LockedRun(*values) for run, *values in rows}
        added = await self._read_tasks(connection, self._queries.existing_task_runs, map(_added_task_keys, changes))
        return LockedRows(epochs, runs, added | tasks)

    async def _read_tasks(
        self, connection: Any, statement: str, keys: Iterable[Iterable[TaskKey]]
    ) -> dict[TaskKey, LockedTask]:
        wanted = sorted({key for some in keys for key in some})
        rows = await connection.fetch(statement, *to_columns(wanted)) if wanted else []
        return {TaskKey(*row[:3]): LockedTask(TaskState(row[3]), *row[4:]) for row in rows}

    async def _read_guarded_facts(self, connection: Any, locked: LockedRows, changes: Sequence[Change]) -> None:
        """Read what is guarded by keys, and pauses; this must not be in the statement that locked the keys."""
        created = {(run.tenant, run.workflow) for change in changes if (run := change.new_run) is not None}
        if created:
            rows = await connection.fetch(self._queries.pauses_of_workflows, *to_columns(list(created)))
            locked.paused = {tuple(row) for row in rows}
        fires = [change.fire for change in changes if change.fire is not None]
        slots = {(one.tenant, one.workflow, one.key, one.slot) for one in fires if one.slot is not None}
        digests = {(one.tenant, one.workflow, one.key, one.digest) for one in fires if one.digest is not None}
        pools = {limit[:2] for change in changes for limit in change.pools}
        if slots:
            rows = await connection.fetch(self._queries.fired_slots_of, *to_columns(list(slots)))
            locked.slots = {tuple(row) for row in rows}
        if digests:
            asked = (*to_columns(list(digests)), list(locked.runs))
            for tenant, workflow, key, digest, run in await connection.fetch(self._queries.fired_digests_of, *asked):
                locked.digests[tenant, workflow, key, digest].add(run)
        if pools:
            for tenant, pool, used in await connection.fetch(self._queries.used_slots, *to_columns(list(pools))):
                locked.used_slots[tenant, pool] = used

    async def _write_rows(self, connection: Any, locked: LockedRows) -> None:
        queries, time = self._queries, self._now()
        outputs = [(*key, value) for key, value in locked.outputs.items()]
        for statement, rows, more in (
            (queries.insert_runs, locked.new_runs(), [self._sender_id]),
            (queries.update_runs, locked.changed_runs(), [self._sender_id]),
            (queries.delete_task_runs, locked.deleted_tasks(), []),
            (queries.update_task_runs, locked.changed_tasks(), [time]),
            (queries.insert_task_runs, locked.new_tasks(), [time]),
            (queries.add_attempts, list(locked.attempts.values()), []),
            (queries.delete_outputs, list(locked.cleared_outputs), []),
            (queries.upsert_outputs, outputs, []),
            (queries.add_events, locked.events, []),
            (queries.add_fires, locked.fires, []),
        ):
            if rows:
                await connection.execute(statement, *to_columns(rows), *more)


def _advisory_lock_ids(change: Change) -> Iterable[int]:
    if change.fire is not None:
        yield advisory_lock_id("fire", change.fire.tenant, change.fire.workflow, change.fire.key)
    if change.new_run is not None:  # so that of two with the same id the second is stale, not an error
        yield advisory_lock_id("run", change.run)
    for limit in change.pools:
        yield pool_lock_id(limit.tenant, limit.pool)


def _existing_task_keys(change: Change) -> Iterable[TaskKey]:
    for row in (*change.removed, *(one.expected for one in change.tasks)):
        yield TaskKey(change.run, row.task, row.index)


def _added_task_keys(change: Change) -> Iterable[TaskKey]:
    if change.new_run is None:
        for row in change.added:
            yield TaskKey(change.run, row.task, row.index)
