"""Helpers of most workflow tests: start a run, let it run, read the states of its tasks."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import tidemill as tm

START = datetime(2026, 1, 1, tzinfo=UTC)
"""The start of the tests' virtual time."""


async def see_through(node: tm.testing.node, workflow: str, **params: Any) -> tm.RunResult:
    """Start a run, let it do everything that needs no time to pass, and return its state."""
    run = await node.start(workflow, **params)
    await node.settle()
    return await run.state()


async def start_and_pause(node: tm.testing.node, workflow: str, runs: int = 1) -> list[Any]:
    """Start runs, and pause their workflow before any of them begins."""
    admission = node.probe.workflows.coordinator.slots.admission
    admission.paused = {*admission.paused, ("public", workflow)}  # else they would begin when they are created
    started = [await node.start(workflow) for _ in range(runs)]
    await node.pause(workflow)
    return started


def states(result: tm.RunResult) -> dict[str, str]:
    """Return the states of the tasks as text."""
    return {name: str(task.state) for name, task in result.tasks.items()}


class Gate:
    """Makes code wait until the test opens it; counts how many wait, and how many did at most."""

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
