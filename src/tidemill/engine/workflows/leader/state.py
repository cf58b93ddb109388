"""The leader's components of the current term, for the parts of the engine that run on every node."""

from tidemill.engine.workflows.leader.coordinator import RunCoordinator
from tidemill.engine.workflows.leader.scheduler import Scheduler
from tidemill.engine.workflows.notifications import RunNotifier


class LeaderState:
    """The coordinator and the scheduler while this node leads, and None while it does not."""

    def __init__(self, notifier: RunNotifier) -> None:
        self.coordinator: RunCoordinator | None = None
        self.scheduler: Scheduler | None = None
        self.notifier = notifier

    @property
    def is_leading(self) -> bool:
        """Whether this node leads."""
        return self.coordinator is not None

    def begin(self, coordinator: RunCoordinator, scheduler: Scheduler) -> None:
        """Use these until the term ends."""
        self.coordinator, self.scheduler = coordinator, scheduler

    def end(self) -> None:
        """End the term."""
        self.coordinator = self.scheduler = None

    def on_run_changed(self, run: str) -> None:
        """Reload a run that was changed on this node without the coordinator, and notify its waiters."""
        if self.coordinator is not None and run in self.coordinator.active_runs:
            self.coordinator.mark_stale(run)
        elif self.scheduler is not None:
            self.scheduler.on_remote_change()
        self.notifier.notify_changed(run)

    def on_remote_change(self) -> None:
        """Refresh the active runs: another process changed the store."""
        if self.scheduler is not None:
            self.scheduler.on_remote_change()
        self.notifier.notify_all()
