"""Rows of the failure matrix in which an attempt runs while its node fails, as tests of a fixture `task`.

The other rows do not depend on the executor: they are about stored runs that no attempt belongs to any more, or about a
run that cannot be planned.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.contract.executor_harness import until
from tests.remote.remote_node import TIMEOUT, starts
from tests.service.workflows.faults import breaking
from tidemill.api.handles import AsyncRun
from tidemill.engine.workflows.leader.election import LEASE_NAME
from tidemill.node import Node
from tidemill.workflows.states import RunState


class RunningTask:
    """A node, and a run whose task runs there."""

    def __init__(self, node: Node, run: AsyncRun, folder: Path, reporter: Node | None = None) -> None:
        self.node = node
        self.engine = node._workflows
        self.reporter = reporter or node
        """What writes the result: the node itself, or a worker."""
        self._run = run
        self._folder = folder

    def release(self) -> None:
        """Let the task end."""
        (self._folder / "gate").touch()

    async def check_end(self) -> None:
        """Assert that the run succeeds, and that its task has run once."""
        self.release()
        result = await self._run.wait(timeout=TIMEOUT)
        assert (result.state, result.tasks["work"].output) == (RunState.SUCCESS, 7)
        assert starts(self._folder) == [1]
        for one in {self.node, self.reporter}:
            metrics = one.metrics()
            assert (metrics["agent_lost_tasks_total"], metrics["late_reports_total"]) == (0, 0)


@asynccontextmanager
async def run_task(node: Node, executor: str, folder: Path, reporter: Node | None = None) -> AsyncIterator[RunningTask]:
    """A task that runs on an executor; it is released at the end."""
    run = await node.start(f"on_{executor}", folder=str(folder))
    await until(lambda: starts(folder))
    running = RunningTask(node, run, folder, reporter)
    try:
        yield running
    finally:
        running.release()


async def test_scheduler_crash_mid_tick(task: RunningTask) -> None:
    """F1: phases of the tick raise, and the next tick resumes from the store."""
    with breaking(task.node.store.runs, "list_active", times=3) as calls:
        task.engine.on_remote_change()
        await until(lambda: len(calls) > 3 or task.node.metrics()["scheduler_phase_errors_total"])
        await task.check_end()


async def test_db_hiccup(task: RunningTask) -> None:
    """F5: the result cannot be written at first, and is written once."""
    with breaking(task.reporter.store.runs, "apply", times=2) as calls:
        task.release()
        await until(lambda: len(calls) > 2)
        await task.check_end()


async def test_leader_connection_blip(task: RunningTask) -> None:
    """F8: the leadership is lost and won again; the attempt runs on."""
    coordinator = task.engine.leader.coordinator
    assert coordinator is not None
    task.engine.election.step_down(coordinator.term)
    await until(lambda: task.engine.leader.coordinator not in (None, coordinator))
    await task.check_end()


async def test_leader_overlap(task: RunningTask) -> None:
    """F9, W-8: another node leads for a moment, and this one does not know; the result is written all the same."""
    epoch = await task.node.store.leases.acquire(LEASE_NAME, "another", 1.0, [task.engine.owner.id])
    assert epoch is not None
    await task.check_end()
