"""Changes of runs in memory: checked and written step by step, and taken back as soon as one step is refused."""

from datetime import datetime, timedelta

from msgspec.structs import replace

from tidemill.storage.memory.tables import Tables
from tidemill.storage.memory.times import all_in_utc
from tidemill.workflows.change import Applied, Change, Refused
from tidemill.workflows.records import FireRow, History, OutputRow, RunRow, TaskKey, TaskRow
from tidemill.workflows.states import TaskState


def apply(tables: Tables, change: Change, now: datetime) -> Applied | Refused:
    """Write a change, or nothing at all."""
    mark = tables.mark()
    refused = _write(tables, change, now)
    if refused is not None:
        tables.take_back(mark)
        return refused
    return Applied(tables.runs[change.run].revision)


def _write(tables: Tables, change: Change, now: datetime) -> Refused | None:
    term = None if change.fence is None else tables.leases.get(change.fence.name)
    if change.fence is not None and (term is None or term.epoch != change.fence.epoch):
        return Refused("fenced")
    created = change.created
    if created is not None and (created.tenant, created.workflow) in tables.paused_workflows:
        return Refused("paused")
    if not (_write_run(tables, change) and _write_tasks(tables, change, now)):
        return Refused("stale")
    if change.fire is not None and not _fire(tables, all_in_utc(change.fire)):
        return Refused("fired")
    if any(count_pool(tables, limit.tenant, limit.pool) > limit.slots for limit in change.pools):
        return Refused("full")
    _write_rest(tables, change)
    return None


def _write_run(tables: Tables, change: Change) -> bool:
    stored, found = tables.runs.get(change.run), change.found
    if change.created is not None:
        if stored is not None:
            return False
        stored = replace(all_in_utc(change.created), revision=0, clears=0)
    if stored is None or (found is not None and (stored.state, stored.clears) != (found.state, found.clears)):
        return False
    row = stored if change.row is None else _changed(stored, all_in_utc(change.row))
    put_run(tables, replace(row, revision=stored.revision + 1, clears=stored.clears + change.intervenes))
    return True


def _changed(stored: RunRow, row: RunRow) -> RunRow:
    times = {"started_at": row.started_at, "ended_at": row.ended_at}
    return replace(stored, version=row.version, state=row.state, reason=row.reason, **times)


def _write_tasks(tables: Tables, change: Change, now: datetime) -> bool:
    lease_until = now + timedelta(seconds=change.lease)
    for found in change.removed:
        if not _is_so(tables, change.run, found):
            return False
        _drop_task(tables, TaskKey(change.run, found.task, found.index))
    for one in change.tasks:
        if not _is_so(tables, change.run, one.found, one.unrenewed):
            return False
        put_task(tables, change.run, _leased(one.row, lease_until))
    for row in change.added:
        if TaskKey(change.run, row.task, row.index) in tables.tasks.get(change.run, {}):
            return False
        put_task(tables, change.run, _leased(row, lease_until))
    return True


def _is_so(tables: Tables, run: str, found: TaskRow, unrenewed: datetime | None = None) -> bool:
    stored = tables.tasks.get(run, {}).get(TaskKey(run, found.task, found.index))
    guard = (found.state, found.attempt, found.claimed_by)
    if stored is None or (stored.state, stored.attempt, stored.claimed_by) != guard:
        return False
    return unrenewed is None or stored.lease_until == unrenewed


def _leased(row: TaskRow, lease_until: datetime) -> TaskRow:
    return replace(row, lease_until=lease_until if row.state.is_claimed else None)


def _fire(tables: Tables, fire: FireRow) -> bool:
    source = (fire.tenant, fire.workflow, fire.key)
    if fire.slot is not None:
        if (*source, fire.slot) in tables.slots:
            return False
        tables.put(tables.slots, (*source, fire.slot), fire.run)
    if fire.digest is not None:
        payload = (*source, fire.digest)
        if any(payload in tables.payloads.get(run, ()) for run in tables.active):
            return False
        tables.put(tables.payloads, fire.run, (*tables.payloads.get(fire.run, ()), payload))
    return True


def _write_rest(tables: Tables, change: Change) -> None:
    outputs = tables.outputs.setdefault(change.run, {})
    for key in [key for key in outputs if key.task in change.forgotten]:
        tables.drop(outputs, key)
    for attempt_key, value in change.outputs.items():
        tables.put(outputs, attempt_key.task_key, OutputRow(key=attempt_key.task_key, value=value))
    attempts = tables.attempts.setdefault(change.run, {})
    for attempt in change.attempts:
        if attempt.key not in attempts:
            tables.put(attempts, attempt.key, all_in_utc(attempt))
    if change.history is not None:
        add_history(tables, change.run, change.history)


def put_run(tables: Tables, row: RunRow) -> None:
    """Write a run, and whether it is active."""
    tables.put(tables.runs, row.id, row)
    if row.state.is_terminal:
        tables.drop(tables.active, row.id)
    else:
        tables.put(tables.active, row.id, None)


def put_task(tables: Tables, run: str, row: TaskRow) -> None:
    """Write a task run, and whether it waits to be claimed or is."""
    key = TaskKey(run, row.task, row.index)
    _drop_task(tables, key)
    tables.put(tables.tasks.setdefault(run, {}), key, all_in_utc(row))
    if row.state is TaskState.SCHEDULED:
        tables.put(tables.scheduled, key, None)
    elif row.state.is_claimed:
        tables.put(tables.claimed, key, None)


def _drop_task(tables: Tables, key: TaskKey) -> None:
    tables.drop(tables.tasks.get(key.run, {}), key)
    tables.drop(tables.scheduled, key)
    tables.drop(tables.claimed, key)


def add_history(tables: Tables, run: str, history: History) -> None:
    """Append to the history of a run."""
    told = tables.events.setdefault(run, {})
    for event in history.rows(run):
        tables.put(told, len(told), all_in_utc(event))


def count_pool(tables: Tables, tenant: str, pool: str) -> int:
    """Return how many task runs of a pool are queued or running in a tenant."""
    rows = ((tables.runs[key.run], tables.tasks[key.run][key]) for key in tables.claimed)
    return sum(run.tenant == tenant and row.pool == pool for run, row in rows)
