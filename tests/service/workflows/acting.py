"""What most tests of workflows do: start a run, see it through, look at how its tasks stand."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import tidemill as tm

START = datetime(2026, 1, 1, tzinfo=UTC)
"""When the tests' time begins."""


async def see_through(node: tm.testing.node, workflow: str, **params: Any) -> tm.RunResult:
    """Start a run, let it do what it can do without time passing, and return how it stands."""
    run = await node.start(workflow, **params)
    await node.settle()
    return await run.state()


async def start_and_pause(node: tm.testing.node, workflow: str, runs: int = 1) -> list[Any]:
    """Start runs, and pause their workflow before any of them begins."""
    admissions = node.probe.workflows.coordinator.slots.admission
    admissions.paused = {*admissions.paused, ("public", workflow)}  # else they would begin as they are made
    made = [await node.start(workflow) for _ in range(runs)]
    await node.pause(workflow)
    return made


def states(result: tm.RunResult) -> dict[str, str]:
    """Return the tasks' states as words."""
    return {name: str(task.state) for name, task in result.tasks.items()}


class Gate:
    """Code waits at it until the test opens it; knows how many are inside, and how many were at most."""

    def __init__(self) -> None:
        self.entered: list[Any] = []
        self.inside = 0
        self.most = 0
        self.is_open = asyncio.Event()

    async def pass_through(self, who: Any = None) -> None:
        """Wait until the gate is open."""
        self.entered.append(who)
        self.inside += 1
        self.most = max(self.most, self.inside)
        try:
            await self.is_open.wait()
            await asyncio.sleep(0)
        finally:
            self.inside -= 1
