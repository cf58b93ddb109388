"""Changes of runs, written together: their rows are locked, then judged, then written, one table at a time."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from msgspec.structs import replace

from tidemill.access.audit import AuditRow
from tidemill.storage.postgres.locked_rows import (
    DedupKey,
    DigestKey,
    LeaseClock,
    LockedRows,
    LockedRun,
    LockedTask,
    PoolKey,
    PoolUsage,
    RowBatch,
    SlotKey,
    WorkflowKey,
    advisory_lock_id,
    pool_lock_id,
)
from tidemill.storage.postgres.plain_tables import Inside
from tidemill.storage.postgres.writes import AtOnce, Write, join_statements, to_columns
from tidemill.storage.queries import Queries
from tidemill.storage.tables.access import AUDIT_ROWS
from tidemill.storage.tables.waits import close_waits, read_closed_waits, write_waits
from tidemill.workflows.change import Applied, Change, Refused
from tidemill.workflows.records import TaskKey
from tidemill.workflows.states import TaskState


class AuditedChange(NamedTuple):
    """A change, and the entry of the audit log that is written with it."""

    change: Change
    audit: AuditRow | None


class ChangeApplier:
    """The work that changes share in a transaction."""

    def __init__(self, queries: Queries, sender_id: str, now: LeaseClock) -> None:
        self._queries = queries
        self._sender_id = sender_id
        self._now = now

    async def __call__(self, connection: Any, requests: Sequence[AuditedChange]) -> list[Applied | Refused]:
        """Apply changes one after the other; return the outcome of each."""
        changes = [one.change for one in requests]
        locked = await self._lock_rows(connection, _with_handlers(changes))
        transaction = Inside(connection, self._sender_id)
        locked.closed_waits = await read_closed_waits(transaction, changes)
        results = [locked.apply_change(change) for change in changes]
        for change, result in zip(changes, results, strict=True):
            if change.handlers is not None and isinstance(result, Applied):
                locked.apply_change(change.handlers)
        sequences = await self._write_rows(connection, locked, _audit_columns(requests, results))
        for number, (change, result) in enumerate(zip(changes, results, strict=True)):
            if change.waits is not None and isinstance(result, Applied):
                await close_waits(transaction, change)
                results[number] = replace(result, is_overtaken=await write_waits(transaction, change))
        return _with_sequences(results, changes, sequences)

    def at_once(self, requests: Sequence[AuditedChange]) -> AtOnce | None:
        """Return one statement that applies changes if all rows are as they expect; None if they need to know more.

        The rows that it expects are judged as locked ones are. So are the rows that it finds, if it finds others: by
        `__call__`, in a second attempt.
        """
        changes = _with_handlers([one.change for one in requests])
        if (locked := _expect_rows(changes)) is None:
            return None
        condition = _expected_columns(changes, locked)
        results = [locked.apply_change(change) for change in changes]
        if any(isinstance(result, Refused) for result in results):
            return None
        new_runs = locked.new_runs()
        writes = self._row_writes(locked, _audit_columns(requests, results[: len(requests)]))
        if new_runs:
            writes = [(self._queries.insert_runs, [*to_columns(new_runs), self._sender_id]), *writes]
        return AtOnce(
            (self._queries.change_unless_changed, condition),
            writes,
            lambda rows: _with_sequences(results, changes, _sequences_of(rows))[: len(requests)],
            returns_rows=bool(new_runs),
        )

    async def _lock_rows(self, connection: Any, changes: Sequence[Change]) -> LockedRows:
        """Lock everything that changes are judged by, in the order that every transaction keeps to."""
        leases = sorted({change.fence.name for change in changes if change.fence is not None})
        if lock_ids := {lock_id for change in changes for lock_id in _advisory_lock_ids(change)}:
            if leases:
                await connection.execute(self._queries.lock_leases, leases)
            await connection.execute(self._queries.lock_keys, sorted(lock_ids))
        task_keys, run_ids = _unique_keys(map(_existing_task_keys, changes)), sorted({one.run for one in changes})
        epochs, tasks, runs = await connection.fetchrow(
            self._queries.lock_rows, leases, *to_columns(task_keys, len(TaskKey._fields)), run_ids
        )
        runs = {run: LockedRun(*values) for run, *values in runs}
        added = await self._read_added_tasks(connection, changes)
        # What the advisory locks guard is read last: a statement does not see the changes that its locks waited for.
        paused, oldest_queued = await self._read_gates(connection, changes)
        return LockedRows(
            dict(epochs),
            runs,
            added | _locked_tasks(tasks),
            paused=paused,
            oldest_queued=oldest_queued,
            slots=await self._read_fired_slots(connection, changes),
            digests=await self._read_fired_digests(connection, changes, runs),
            runs_about=await self._read_runs_about(connection, changes, runs),
            times_about=await self._read_times_about(connection, changes),
            pools=await self._read_pools(connection, changes),
        )

    async def _read_added_tasks(self, connection: Any, changes: Sequence[Change]) -> dict[TaskKey, LockedTask]:
        """Return the task runs that changes add although they exist."""
        keys = _unique_keys(map(_added_task_keys, changes))
        return _locked_tasks(
            await connection.fetch(self._queries.existing_task_runs, *to_columns(keys)) if keys else []
        )

    async def _read_gates(
        self, connection: Any, changes: Sequence[Change]
    ) -> tuple[set[WorkflowKey], dict[WorkflowKey, int]]:
        """Return which workflows are paused, and the oldest queued run of each, if a change creates or begins a run.

        Queued runs that changes begin, or that they may pass over, are left out.
        """
        begins = [change for change in changes if change.passes_over is not None]
        runs = [*(change.new_run for change in changes), *(change.expected_run for change in begins)]
        workflows = {(run.tenant, run.workflow) for run in runs if run is not None}
        if not workflows:
            return set(), {}
        left_out = {change.run for change in begins}.union(*(change.passes_over or () for change in begins))
        rows = await connection.fetch(self._queries.workflow_gates, *to_columns(list(workflows)), list(left_out))
        paused = {(tenant, workflow) for tenant, workflow, is_paused, _ in rows if is_paused}
        return paused, {(tenant, workflow): oldest for tenant, workflow, _, oldest in rows if oldest is not None}

    async def _read_fired_slots(self, connection: Any, changes: Sequence[Change]) -> set[SlotKey]:
        fires = [change.fire for change in changes if change.fire is not None]
        slots = {(fire.tenant, fire.workflow, fire.key, fire.slot) for fire in fires if fire.slot is not None}
        return await self._read_set(connection, self._queries.fired_slots_of, slots)

    async def _read_set(self, connection: Any, statement: str, keys: set[Any]) -> set[Any]:
        rows = await connection.fetch(statement, *to_columns(list(keys))) if keys else []
        return {tuple(row) for row in rows}

    async def _read_fired_digests(
        self, connection: Any, changes: Sequence[Change], runs: Iterable[str]
    ) -> defaultdict[DigestKey, set[str]]:
        """Return the runs of the payloads that changes fire: those that are active, or locked here."""
        found: defaultdict[DigestKey, set[str]] = defaultdict(set)
        fires = [change.fire for change in changes if change.fire is not None]
        digests = {(fire.tenant, fire.workflow, fire.key, fire.digest) for fire in fires if fire.digest is not None}
        if digests:
            arguments = (*to_columns(list(digests)), list(runs))
            for *key, run in await connection.fetch(self._queries.fired_digests_of, *arguments):
                tenant, workflow, name, digest = key
                found[tenant, workflow, name, digest].add(run)
        return found

    async def _read_runs_about(
        self, connection: Any, changes: Sequence[Change], runs: Iterable[str]
    ) -> defaultdict[DedupKey, set[str]]:
        """Return the runs of earlier fires about the same: those that are active, or locked here."""
        found: defaultdict[DedupKey, set[str]] = defaultdict(set)
        if about := _dedup_keys(changes):
            arguments = (*to_columns(list(about)), list(runs))
            for tenant, workflow, dedup, run in await connection.fetch(self._queries.runs_about, *arguments):
                found[tenant, workflow, dedup].add(run)
        return found

    async def _read_times_about(
        self, connection: Any, changes: Sequence[Change]
    ) -> defaultdict[DedupKey, list[datetime]]:
        """Return, for each fire with a cooldown, the time of a stored fire about the same within it."""
        asked = [
            (fire.tenant, fire.workflow, fire.dedup, fire.at - fire.cooldown, fire.at + fire.cooldown)
            for change in changes
            if (fire := change.fire) is not None and fire.dedup is not None and fire.cooldown is not None
        ]
        found: defaultdict[DedupKey, list[datetime]] = defaultdict(list)
        if asked:
            for tenant, workflow, dedup, at in await connection.fetch(self._queries.fires_within, *to_columns(asked)):
                found[tenant, workflow, dedup].append(at)
        return found

    async def _read_pools(self, connection: Any, changes: Sequence[Change]) -> defaultdict[PoolKey, PoolUsage]:
        pools: defaultdict[PoolKey, PoolUsage] = defaultdict(PoolUsage)
        if keys := {limit[:2] for change in changes for limit in change.pools}:
            for tenant, pool, *usage in await connection.fetch(self._queries.pool_usage, *to_columns(list(keys))):
                pools[tenant, pool] = PoolUsage(*usage)
        return pools

    async def _write_rows(self, connection: Any, locked: LockedRows, audited: RowBatch) -> dict[str, int]:
        """Write the rows; return the sequence numbers of new runs."""
        queries, rows = self._queries, []
        if new_runs := locked.new_runs():
            rows = await connection.fetch(queries.insert_runs, *to_columns(new_runs), self._sender_id)
        if locked.cleared_outputs:
            await connection.execute(queries.delete_outputs, *to_columns(list(locked.cleared_outputs)))
        if locked.forgotten_steps:
            await connection.execute(queries.forget_steps, *to_columns(list(locked.forgotten_steps)))
        if writes := self._row_writes(locked, audited):
            statement = join_statements(tuple(statement for statement, _ in writes))
            await connection.execute(statement, *(value for _, values in writes for value in values))
        return _sequences_of(rows)

    def _row_writes(self, locked: LockedRows, audited: RowBatch) -> list[Write]:
        """Return the writes that can run as one statement: all but those of new runs and of cleared outputs."""
        queries, time = self._queries, self._now()
        outputs = [(*key, value) for key, value in locked.outputs.items()]
        return [
            (statement, [*to_columns(rows), *arguments])
            for statement, rows, arguments in (
                (queries.update_runs, locked.changed_runs(), [self._sender_id]),
                (queries.delete_task_runs, locked.deleted_tasks(), []),
                (queries.update_task_runs, locked.changed_tasks(), [time]),
                (queries.insert_task_runs, locked.new_tasks(), [time]),
                (queries.add_attempts, list(locked.attempts.values()), []),
                (queries.upsert_outputs, outputs, []),
                (queries.add_events, locked.events, []),
                (queries.add_fires, locked.fires, []),
                (queries.add_audit_entries, audited, []),
            )
            if rows
        ]


def _with_handlers(changes: list[Change]) -> list[Change]:
    """Return changes, and after them those that they call handlers with."""
    called = [change.handlers for change in changes if change.handlers is not None]
    return [*changes, *called] if called else changes


def _audit_columns(requests: Sequence[AuditedChange], results: Sequence[Applied | Refused]) -> RowBatch:
    return [
        tuple(AUDIT_ROWS.values(one.audit).values())
        for one, result in zip(requests, results, strict=True)
        if one.audit is not None and isinstance(result, Applied)
    ]


def _sequences_of(rows: Iterable[Any]) -> dict[str, int]:
    """Return the sequence numbers of new runs."""
    return {run: sequence for run, sequence, _ in rows}


def _with_sequences(
    results: Sequence[Applied | Refused], changes: Sequence[Change], sequences: Mapping[str, int]
) -> list[Applied | Refused]:
    return [
        replace(result, sequence=sequences[change.run])
        if isinstance(result, Applied) and change.run in sequences
        else result
        for result, change in zip(results, changes, strict=True)
    ]


def _expect_rows(changes: Sequence[Change]) -> LockedRows | None:
    """Return the rows as changes have found them; None if these do not say all that the changes are judged by."""
    fences = {change.fence for change in changes if change.fence is not None}
    if len({one.run for one in changes}) < len(changes) or len({one.name for one in fences}) < len(fences):
        return None
    runs: dict[str, LockedRun] = {}
    tasks: dict[TaskKey, LockedTask] = {}
    for change in changes:
        found = change.expected_run
        is_whole = change.new_run is not None or found is not None
        if not is_whole or change.fire or change.pools or change.removed or change.cleared_outputs:
            return None  # forgotten steps come with cleared outputs
        if change.waits is not None or any(one.expired_lease is not None for one in change.tasks):
            return None
        if found is not None:
            runs[change.run] = LockedRun(found.tenant, found.state, found.clears, found.revision)
        for one in change.tasks:
            row = one.expected
            tasks[TaskKey(change.run, row.task, row.index)] = LockedTask.of(row)
    return LockedRows({one.name: one.epoch for one in fences}, runs, tasks)


def _expected_columns(changes: Sequence[Change], expected: LockedRows) -> list[Any]:
    """Return the arguments of `change_unless_changed`."""
    leases, tasks, runs = sorted(expected.epochs), sorted(expected.tasks), sorted(expected.runs)
    begins = [change for change in changes if change.passes_over is not None]
    started = [change.new_run for change in changes if change.new_run is not None]
    starting = [run for change in begins if (run := change.new_run or change.expected_run) is not None]
    left_out = {change.run for change in begins}.union(*(change.passes_over or () for change in begins))
    return [
        leases,
        *to_columns(tasks, len(TaskKey._fields)),
        runs,
        [expected.epochs[name] for name in leases],
        *to_columns([expected.tasks[key][:3] for key in tasks], 3),
        *to_columns([(one.state, one.clears, one.revision) for one in map(expected.runs.__getitem__, runs)], 3),
        *to_columns([(run.tenant, run.workflow) for run in started], 2),
        *to_columns([(run.tenant, run.workflow) for run in starting], 2),
        list(left_out),
    ]


def _advisory_lock_ids(change: Change) -> Iterable[int]:
    if change.fire is not None:
        yield advisory_lock_id("fire", change.fire.tenant, change.fire.workflow, change.fire.key)
        if change.fire.dedup is not None:
            yield advisory_lock_id("dedup", change.fire.tenant, change.fire.workflow, change.fire.dedup)
    if change.new_run is not None:  # so that of two runs with the same id the second is stale, not an error
        yield advisory_lock_id("run", change.run)
    for limit in change.pools:
        yield pool_lock_id(limit.tenant, limit.pool)


def _dedup_keys(changes: Sequence[Change]) -> set[DedupKey]:
    """Return what fires without a cooldown are about."""
    fires = [change.fire for change in changes if change.fire is not None]
    return {
        (fire.tenant, fire.workflow, fire.dedup) for fire in fires if fire.dedup is not None and fire.cooldown is None
    }


def _unique_keys(keys: Iterable[Iterable[TaskKey]]) -> list[TaskKey]:
    return sorted({key for some in keys for key in some})


def _locked_tasks(rows: Iterable[Any]) -> dict[TaskKey, LockedTask]:
    return {TaskKey(*row[:3]): LockedTask(TaskState(row[3]), *row[4:]) for row in rows}


def _existing_task_keys(change: Change) -> Iterable[TaskKey]:
    for row in (*change.removed, *(one.expected for one in change.tasks)):
        yield TaskKey(change.run, row.task, row.index)


def _added_task_keys(change: Change) -> Iterable[TaskKey]:
    if change.new_run is None:
        for row in change.added:
            yield TaskKey(change.run, row.task, row.index)
