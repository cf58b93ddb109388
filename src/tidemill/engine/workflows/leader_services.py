"""What runs only in office, for one term: the desk, the scheduler's loop, schedules, triggers, retention."""

from collections.abc import Callable

from tidemill.engine.wakeup import Wakeup
from tidemill.engine.workflows.leader.coordinator import RunCoordinator
from tidemill.engine.workflows.runtime import WorkflowRuntime
from tidemill.engine.workflows.scheduler import Scheduler
from tidemill.engine.workflows.starts.schedules import ScheduleRunner
from tidemill.engine.workflows.starts.starter import RunStarter
from tidemill.engine.workflows.starts.triggers import FindTrigger, TriggerPollers
from tidemill.engine.workflows.versions import WorkflowVersions
from tidemill.engine.workflows.worker.attempts import LocalAttempts


class LeaderServices:
    """A term, with everything that is done in it."""

    def __init__(
        self,
        runtime: WorkflowRuntime,
        coordinator: RunCoordinator,
        versions: WorkflowVersions,
        attempts: LocalAttempts,
        starter: RunStarter,
        find_trigger: FindTrigger,
        wakeup: Wakeup,
    ) -> None:
        admissions = coordinator.slots.admission
        schedules = ScheduleRunner(runtime, versions, starter, admissions)
        self._pollers = TriggerPollers(
            runtime, versions, find_trigger, starter, lambda tenant, name: (tenant, name) in admissions.paused
        )
        self.coordinator = coordinator
        self.scheduler = Scheduler(runtime, versions, coordinator, attempts, schedules, self._pollers, wakeup)
        self._runtime = runtime
        self._attempts = attempts
        self._starter = starter

    async def run(self, on_ready: Callable[[], None]) -> None:
        """Serve until cancelled; `settled_in` is called after the first full pass."""
        self._attempts.attach_coordinator(self.coordinator, self.scheduler.wake)
        self._starter.coordinator = self.coordinator
        self._runtime.metrics.set_gauge("scheduler_leader", 1)
        try:
            await self.scheduler.tick()
            on_ready()
            await self.scheduler.run()
        finally:
            self.close()
            await self._pollers.close()

    def close(self) -> None:
        """Leave everything as it is."""
        self.coordinator.close()
        self._attempts.attach_coordinator(None)
        self._starter.coordinator = None
        self._runtime.metrics.set_gauge("scheduler_leader", 0)
