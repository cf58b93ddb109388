"""Claims in memory: which scheduled task runs an owner gets, and how they are marked as claimed."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from tidemill.storage.memory.apply_changes import add_history, count_free_slots, put_run, put_task
from tidemill.storage.memory.tables import Tables
from tidemill.storage.workflow_ports import ClaimedTask, ClaimRequest, VersionTask
from tidemill.workflows.change import claim_events
from tidemill.workflows.records import RunEventBatch, RunRow, TaskKey, TaskRow
from tidemill.workflows.states import TaskState

_EARLIEST = datetime.min.replace(tzinfo=UTC)


def claim_tasks(tables: Tables, claim: ClaimRequest, now: datetime) -> list[ClaimedTask]:
    """Queue task runs for the owner, and return them."""
    lease_until = now + timedelta(seconds=claim.lease)
    claimed = [(key, _mark_claimed(tables, key, claim, lease_until)) for key in list(_select_tasks(tables, claim))]
    for run in {key.run for key, _ in claimed}:
        put_run(tables, replace(tables.runs[run], revision=tables.runs[run].revision + 1))
    return [ClaimedTask(tables.runs[key.run], row) for key, row in claimed]


def _select_tasks(tables: Tables, claim: ClaimRequest) -> Iterator[TaskKey]:
    """Yield the task runs that executors and pools have free slots for."""
    free_slots = dict(claim.executors)
    free_in_pools: dict[tuple[str, str], int] = {}
    for _, _, key in sorted(_candidates(tables, claim)):
        run, row = tables.runs[key.run], tables.tasks[key.run][key]
        if free_slots[row.executor] <= 0:
            continue
        if row.pool is not None:
            pool = (run.tenant, row.pool)
            if pool not in free_in_pools:
                free_in_pools[pool] = count_free_slots(tables, *pool, claim.pools[row.pool])
            if free_in_pools[pool] <= 0:
                continue
            free_in_pools[pool] -= 1
        free_slots[row.executor] -= 1
        yield key


def _candidates(tables: Tables, claim: ClaimRequest) -> Iterator[tuple[int, datetime, TaskKey]]:
    """Yield the task runs that the owner could run, with their sort keys."""
    for key in tables.scheduled_tasks:
        run, row = tables.runs[key.run], tables.tasks[key.run][key]
        if _matches_claim(claim, run, row) and (run.tenant, run.workflow) not in tables.paused_workflows:
            yield -row.priority, row.since or _EARLIEST, key


def _matches_claim(claim: ClaimRequest, run: RunRow, row: TaskRow) -> bool:
    return (
        row.executor in claim.executors
        and (claim.queues is None or row.queue in claim.queues)
        and (row.pool is None or row.pool in claim.pools)
        and run.version_key in claim.loaded
        and VersionTask(*run.version_key, row.task) not in claim.excluded
    )


def _mark_claimed(tables: Tables, key: TaskKey, claim: ClaimRequest, lease_until: datetime) -> TaskRow:
    """Write the claim of one task run."""
    scheduled = tables.tasks[key.run][key]
    starts_now = scheduled.executor in claim.immediate
    row = replace(
        scheduled,
        state=TaskState.RUNNING if starts_now else TaskState.QUEUED,
        attempt=scheduled.attempt + 1,
        tries=scheduled.tries + 1,
        claimed_by=claim.owner,
        claimed_at=claim.at,
        lease_until=lease_until,
        since=claim.at,
        started_at=claim.at if starts_now else None,
        ended_at=None,
        reason="",
    )
    put_task(tables, key.run, row)
    add_history(tables, key.run, RunEventBatch(claim.at, claim.owner, claim_events(row)))
    return tables.tasks[key.run][key]
