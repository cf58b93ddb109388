"""Faults in the workflow engine: runs whose changes raise, and an engine that ends like a killed process."""

from typing import Any

from tidemill.engine.workflows.engine import WorkflowEngine
from tidemill.engine.workflows.leader.active_runs import ActiveRun, RunRequest
from tidemill.engine.workflows.leader.coordinator import RunCoordinator


class RunFaults:
    """Makes every change of chosen runs raise."""

    def __init__(self, engine: WorkflowEngine) -> None:
        self._engine = engine
        self._broken: set[str] = set()

    def break_run(self, run: str) -> None:
        """Make every change of a run raise during the current term."""
        coordinator = self._engine.leader.coordinator
        if coordinator is None:
            return
        self._broken.add(run)
        if "_submit_change" not in vars(coordinator):
            self._intercept(coordinator)

    def _intercept(self, coordinator: RunCoordinator) -> None:
        submit: Any = coordinator._submit_change

        def submit_unless_broken(active: ActiveRun, requests: list[RunRequest]) -> bool:
            if active.run.id in self._broken:
                raise RuntimeError("broken on purpose")
            return bool(submit(active, requests))

        vars(coordinator)["_submit_change"] = submit_unless_broken

    def repair(self) -> None:
        """End the faults of all runs."""
        self._broken.clear()


async def kill_engine(engine: WorkflowEngine, timeout: float) -> None:
    """End an engine as a killed process would: nothing is reported, handed back or resigned."""
    engine.attempts.claimed.clear()
    if engine.leader.coordinator is not None:
        engine.leader.coordinator.is_closed = True
    await engine.runtime.tasks.close(timeout)
    await engine.heartbeats.close(timeout)
    for executor in engine.executors.values():
        await executor.close(timeout)
    engine.client.close()
