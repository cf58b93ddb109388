"""Changes of runs in memory: checked and written step by step, and rolled back when a step is refused."""

from collections.abc import Collection
from datetime import datetime, timedelta

from msgspec.structs import replace

from tidemill.access.audit import AuditRow
from tidemill.storage.memory.tables import DedupKey, Tables, times_to_utc
from tidemill.workflows.change import Applied, Change, RefusalReason, Refused
from tidemill.workflows.records import FireRow, OutputRow, RunEventBatch, RunRow, TaskKey, TaskRow
from tidemill.workflows.states import RunState, TaskState

FIRE_TIMES_LIMIT = 1000  # times of fires about one thing that are remembered


def apply_change(tables: Tables, change: Change, now: datetime, audit: AuditRow | None = None) -> Applied | Refused:
    """Write a change and its entry of the audit log, or nothing at all."""
    savepoint = tables.savepoint()
    refused = _write_change(tables, change, now)
    if refused is not None:
        tables.roll_back_to(savepoint)
        return refused
    if audit is not None:
        tables.put(tables.audit_entries, audit.id, times_to_utc(audit))
    row = tables.runs[change.run]
    return Applied(row.revision, row.sequence if change.new_run is not None else None)


def _write_change(tables: Tables, change: Change, now: datetime) -> Refused | None:
    lease = None if change.fence is None else tables.leases.get(change.fence.name)
    if change.fence is not None and (lease is None or lease.epoch != change.fence.epoch):
        return Refused("fenced")
    new_run = change.new_run
    if new_run is not None and (new_run.tenant, new_run.workflow) in tables.paused_workflows:
        return Refused("paused")
    beginning = new_run or change.expected_run
    if (
        change.passes_over is not None
        and beginning is not None
        and _is_overtaking(tables, beginning, change.passes_over)
    ):
        return Refused("not_next")
    if not (_write_run(tables, change) and _write_tasks(tables, change, now)):
        return Refused("stale")
    if change.fire is not None and (reason := _record_fire(tables, times_to_utc(change.fire))) is not None:
        return Refused(reason)
    if any(count_free_slots(tables, *limit) < 0 for limit in change.pools):
        return Refused("full")
    _write_rest(tables, change)
    return None


def _is_overtaking(tables: Tables, beginning: RunRow, passed_over: Collection[str]) -> bool:
    """Return whether a run would begin before an older one of its workflow; a run without a number is the newest."""
    queued = (row for run in tables.active_runs if (row := tables.runs[run]).state is RunState.QUEUED)
    return any(
        (row.tenant, row.workflow, row.backfill) == (beginning.tenant, beginning.workflow, None)
        and (not beginning.sequence or row.sequence < beginning.sequence)
        and row.id not in passed_over
        for row in queued
    )


def _write_run(tables: Tables, change: Change) -> bool:
    stored, expected = tables.runs.get(change.run), change.expected_run
    if change.new_run is not None:
        if stored is not None:
            return False
        tables.run_sequence += 1
        stored = replace(times_to_utc(change.new_run), revision=0, clears=0, sequence=tables.run_sequence)
    if stored is None:
        return False
    if expected is not None and (stored.state, stored.clears) != (expected.state, expected.clears):
        return False
    row = stored if change.updated_run is None else stored.with_update(times_to_utc(change.updated_run))
    put_run(tables, replace(row, revision=stored.revision + 1, clears=stored.clears + change.is_operator_action))
    return True


def _write_tasks(tables: Tables, change: Change, now: datetime) -> bool:
    lease_until = now + timedelta(seconds=change.lease)
    for row in change.removed:
        if not _is_unchanged(tables, change.run, row):
            return False
        _delete_task(tables, TaskKey(change.run, row.task, row.index))
    for one in change.tasks:
        if not _is_unchanged(tables, change.run, one.expected, one.expired_lease):
            return False
        put_task(tables, change.run, _with_lease(one.updated, lease_until))
    for row in change.added:
        if TaskKey(change.run, row.task, row.index) in tables.tasks.get(change.run, {}):
            return False
        put_task(tables, change.run, _with_lease(row, lease_until))
    return True


def _is_unchanged(tables: Tables, run: str, expected: TaskRow, expired_lease: datetime | None = None) -> bool:
    stored = tables.tasks.get(run, {}).get(TaskKey(run, expected.task, expected.index))
    if stored is None or stored.guard != expected.guard:
        return False
    return expired_lease is None or stored.lease_until == expired_lease


def _with_lease(row: TaskRow, lease_until: datetime) -> TaskRow:
    return replace(row, lease_until=lease_until if row.state.is_claimed else None)


def _record_fire(tables: Tables, fire: FireRow) -> RefusalReason | None:
    """Record a fire; return the reason if it is refused."""
    source = (fire.tenant, fire.workflow, fire.key)
    if fire.slot is not None:
        if (*source, fire.slot) in tables.fired_slots:
            return "fired"
        tables.put(tables.fired_slots, (*source, fire.slot), fire.run)
    if fire.digest is not None:
        payload = (*source, fire.digest)
        if any(payload in tables.fire_digests.get(run, ()) for run in tables.active_runs):
            return "fired"
        tables.put(tables.fire_digests, fire.run, (*tables.fire_digests.get(fire.run, ()), payload))
    if fire.dedup is not None:
        about = (fire.tenant, fire.workflow, fire.dedup)
        if _is_suppressed(tables, about, fire):
            return "suppressed"
        tables.put(tables.fire_dedups, fire.run, about)
        tables.put(tables.fire_times, about, (*tables.fire_times.get(about, ()), fire.at)[-FIRE_TIMES_LIMIT:])
    return None


def _is_suppressed(tables: Tables, about: DedupKey, fire: FireRow) -> bool:
    """Return whether an earlier fire about the same suppresses a fire."""
    if fire.cooldown is None:
        return any(tables.fire_dedups.get(run) == about for run in tables.active_runs)
    return any(abs(time - fire.at) < fire.cooldown for time in tables.fire_times.get(about, ()))


def _write_rest(tables: Tables, change: Change) -> None:
    outputs = tables.outputs.setdefault(change.run, {})
    for key in [key for key in outputs if key.task in change.cleared_outputs]:
        tables.delete(outputs, key)
    for attempt_key, value in change.outputs.items():
        tables.put(outputs, attempt_key.task_key, OutputRow(key=attempt_key.task_key, value=value))
    attempts = tables.attempts.setdefault(change.run, {})
    for attempt in change.attempts:
        if attempt.key not in attempts:
            tables.put(attempts, attempt.key, times_to_utc(attempt))
    if change.history is not None:
        add_history(tables, change.run, change.history)


def put_run(tables: Tables, row: RunRow) -> None:
    """Write a run, and update the index of active runs."""
    tables.put(tables.runs, row.id, row)
    if row.state.is_terminal:
        tables.delete(tables.active_runs, row.id)
    else:
        tables.put(tables.active_runs, row.id, None)


def put_task(tables: Tables, run: str, row: TaskRow) -> None:
    """Write a task run, and update the indexes of scheduled and claimed ones."""
    key = TaskKey(run, row.task, row.index)
    _delete_task(tables, key)
    tables.put(tables.tasks.setdefault(run, {}), key, times_to_utc(row))
    if row.state is TaskState.SCHEDULED:
        tables.put(tables.scheduled_tasks, key, None)
    elif row.state.is_claimed:
        tables.put(tables.claimed_tasks, key, None)


def _delete_task(tables: Tables, key: TaskKey) -> None:
    tables.delete(tables.tasks.get(key.run, {}), key)
    tables.delete(tables.scheduled_tasks, key)
    tables.delete(tables.claimed_tasks, key)


def add_history(tables: Tables, run: str, history: RunEventBatch) -> None:
    """Append events to the history of a run."""
    events = tables.events.setdefault(run, {})
    for event in history.to_rows(run):
        tables.event_number += 1
        tables.put(events, tables.event_number, times_to_utc(event))
        tables.put(tables.runs_of_events, tables.event_number, run)


def count_free_slots(tables: Tables, tenant: str, pool: str, slots: int) -> int:
    """Return how many slots of a pool a tenant has free; it has `slots` in total, unless the store has another size."""
    rows = ((tables.runs[key.run], tables.tasks[key.run][key]) for key in tables.claimed_tasks)
    used = sum(run.tenant == tenant and row.pool == pool for run, row in rows)
    return tables.pools.get(pool, slots) - used
