"""Faults of both engines: accumulators that lose their source, runs whose changes raise, ends as of a kill."""

from collections.abc import Iterable
from functools import partial
from typing import Any

from tidemill.engine.graphs.accumulators.accumulator import RunningAccumulator
from tidemill.engine.graphs.scheduler import GraphScheduler
from tidemill.engine.workflows.engine import WorkflowEngine
from tidemill.engine.workflows.leader.active_runs import ActiveRun, RunRequest
from tidemill.engine.workflows.leader.coordinator import RunCoordinator
from tidemill.graphs.health import AccumulatorHealth
from tidemill.graphs.keys import PartitionId


class Disconnector:
    """Disconnects accumulators of one node from their sources, and reconnects them.

    The accumulators named in `at_start` start disconnected, in every tenant.
    """

    def __init__(self, at_start: Iterable[str] = ()) -> None:
        self._at_start = frozenset(at_start)
        self._is_disconnected: dict[tuple[str, str], bool] = {}

    def filter_health(self, tenant: str, name: str, health: AccumulatorHealth) -> AccumulatorHealth:
        """Return the health that an accumulator gets: not one of a live connection while it is disconnected."""
        declared = _declared(name)
        is_disconnected = self._is_disconnected.get((tenant, declared), declared in self._at_start)
        return AccumulatorHealth.DISCONNECTED if is_disconnected and health.is_healthy else health

    def disconnect(self, accumulators: Iterable[RunningAccumulator]) -> None:
        """Disconnect an accumulator, or all partitions of one, from its source."""
        for one in accumulators:
            self._is_disconnected[one.tenant, _declared(one.name)] = True
            if one.health is not AccumulatorHealth.FAILED:
                one.set_health(AccumulatorHealth.DISCONNECTED)

    def reconnect(self, accumulators: Iterable[RunningAccumulator]) -> None:
        """Reconnect an accumulator, or all partitions of one, to its source."""
        for one in accumulators:
            self._is_disconnected[one.tenant, _declared(one.name)] = False
            if one.intake.down_reason is None:
                one.set_health(one.kind.started_health)


def _declared(name: str) -> str:
    """Return the name of an accumulator without the number of its partition."""
    partition = PartitionId.parse(name)
    return name if partition is None else partition.name


def crash_graphs(scheduler: GraphScheduler) -> None:
    """Leave all graphs as a kill of the process would: nothing fires, nothing is delivered, handles fail."""
    scheduler.loaded.is_closed = True
    for reactor in scheduler.loaded.reactors:
        reactor.stop_firing()
    for one in scheduler.loaded.accumulators:
        one.redirect_handles(partial(scheduler.loaded.accumulator, one.tenant, one.name))


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
    for executor in engine.executors.values():
        await executor.close(timeout)
    engine.client.watcher.close()
