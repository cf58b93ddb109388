"""Failed changes of runs: retried if the store failed, else the run is quarantined, and its reports are kept."""

import logging
from collections.abc import Callable, Collection

from tidemill.engine.workflows.leader.active_runs import ActiveRun, RunRequest, reject_requests
from tidemill.engine.workflows.leader.slots import SlotAllocator
from tidemill.engine.workflows.runtime import WorkflowRuntime
from tidemill.engine.workflows.worker.attempts import LocalAttempts
from tidemill.kernel.backoff import Backoff
from tidemill.kernel.errors import StoreError
from tidemill.telemetry import events
from tidemill.workflows.records import AttemptKey, RunRow, TaskError, TaskRow
from tidemill.workflows.states import TaskState

logger = logging.getLogger(__name__)

_QUARANTINE_BACKOFF = Backoff(1.0, 60.0)


class LeadershipLostError(StoreError):
    """This node no longer leads."""

    def __init__(self) -> None:
        super().__init__("its run is no longer coordinated here")


def log_retry(run: RunRow, row: TaskRow, attempt: AttemptKey, error: TaskError) -> None:
    """Log a failed attempt that is retried, with the error that only the attempt's own record would show."""
    if row.state is TaskState.UP_FOR_RETRY and row.wake_at is not None and row.since is not None:
        fields = {"workflow": run.workflow, "attempt": str(attempt), "reason": str(error), "place": error.place}
        logger.info(events.TASK_RETRY_SCHEDULED, extra=fields | {"delay": (row.wake_at - row.since).total_seconds()})


class ChangeFailures:
    """Decides what follows from a change that raised; `replan` retries a quarantined run."""

    def __init__(
        self, runtime: WorkflowRuntime, attempts: LocalAttempts, slots: SlotAllocator, replan: Callable[[str], None]
    ) -> None:
        self._clock = runtime.clock
        self._tasks = runtime.tasks
        self._metrics = runtime.metrics
        self._attempts = attempts
        self._slots = slots
        self._replan = replan

    def handle(self, active: ActiveRun, requests: list[RunRequest], error: Exception) -> None:
        """Handle the error of a change that was made for some requests."""
        if self._tasks.is_closed:
            reject_requests(requests, error)
        elif not isinstance(error, StoreError):
            self._quarantine(active, requests, error)
        else:
            reject_requests([request for request in requests if request.fail_fast], error)
            active.requests = [request for request in requests if not request.fail_fast] + active.requests
            active.is_stale = active.store_failed = True
            active.failures += 1
            logger.warning(events.RUN_CHANGE_FAILED, extra={"run": active.run.id, "error": str(error)})

    def _quarantine(self, active: ActiveRun, requests: list[RunRequest], error: Exception) -> None:
        """Set a run aside with the reason, write its reports without a plan, and retry it later."""
        active.failures += 1
        active.quarantine_reason = reason = f"{type(error).__name__}: {error}"
        active.is_stale = True
        self._slots.release_grants(active)
        self._slots.admission.quarantined.add(active.run.id)
        self._metrics.increment("run_errors_total")
        logger.error(events.RUN_QUARANTINED, exc_info=error, extra={"run": active.run.id, "reason": reason})
        reject_requests(requests, error)
        self.report_without_plan(requests)
        if not active.is_retry_scheduled:
            active.is_retry_scheduled = True
            self._tasks.start(f"run: {active.run.id}: retry", self._retry_quarantined(active))

    async def _retry_quarantined(self, active: ActiveRun) -> None:
        await self._clock.sleep(_QUARANTINE_BACKOFF.delay(active.failures))
        active.is_retry_scheduled = False
        self._slots.admission.quarantined.discard(active.run.id)
        self._replan(active.run.id)

    def drop(self, requests: Collection[RunRequest], error: Exception) -> None:
        """Reject requests that are no longer processed; their reports are written without a plan."""
        reject_requests(requests, error)
        if not self._tasks.is_closed:
            self.report_without_plan(requests)

    def report_without_plan(self, requests: Collection[RunRequest]) -> None:
        """Write the reports of some requests without a plan. A caller that waits for its request writes its own."""
        for request in requests:
            if request.report is not None and request.future is None:
                self._attempts.report_to_store(*request.report)
