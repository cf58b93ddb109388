"""The leader's knowledge about why a task has not run: pauses, limits, pools, slots and polls."""

from tidemill.engine.workflows.leader.coordinator import RunCoordinator
from tidemill.engine.workflows.runtime import WorkflowRuntime
from tidemill.engine.workflows.versions import WorkflowVersions
from tidemill.workflows.explain import ExplainContext
from tidemill.workflows.records import RunRecord
from tidemill.workflows.states import RunState


def explain_context(
    coordinator: RunCoordinator, runtime: WorkflowRuntime, versions: WorkflowVersions, record: RunRecord
) -> ExplainContext:
    """Return what the leader knows in addition to the run about why tasks of it have not run, but for `capacity`."""
    run, admission = record.run, coordinator.slots.admission
    active = coordinator.active_runs.get(run.id)
    return ExplainContext(
        now=runtime.clock.now(),
        paused=admission.is_paused(run),
        active_runs=admission.running_count(run.tenant, run.workflow) - (run.state is RunState.RUNNING),
        pool_usage=_pool_usage(coordinator, runtime),
        quarantine_reason=active.quarantine_reason if active is not None else None,
        loaded_versions=[key.version for key in versions.loaded if key[:2] == (run.tenant, run.workflow)],
        poll_intervals=coordinator.deferral_polls.intervals(run.id),
        pending_poll_seconds=coordinator.deferral_polls.pending_seconds(run.id),
    )


def executor_capacity(coordinator: RunCoordinator, executor: str, tenant: str) -> int | None:
    """Return how many slots of an executor are free for a tenant; None if there is no executor of that name."""
    slots = coordinator.slots.executor_slots
    return slots.free_slots_for(executor, tenant) if slots.has_executor(executor) else None


def _pool_usage(coordinator: RunCoordinator, runtime: WorkflowRuntime) -> dict[str, tuple[int, int]]:
    """Return how many slots of each pool are in use, and how many it has."""
    rows = [row for active in coordinator.active_runs.values() for row in active.rows.values()]
    used = [row.pool for row in rows if row.state.is_claimed]
    return {pool: (used.count(pool), size) for pool, size in runtime.pools.sizes.items()}
