"""Two nodes on one file: one that plans and one that does not, and tasks that wait for the test."""

import asyncio
from collections.abc import Awaitable, Callable

import tidemill as tm

SETTINGS = {"tick_interval": "20ms", "lease_ttl": "300ms"}
PATIENCE = 10.0  # seconds; without a heartbeat, attempts are given up after 90

Pair = tuple[tm.Node, tm.Node]


class Gates:
    """A task for each name, which notes that it runs and ends when it is let go."""

    def __init__(self, *names: str) -> None:
        self.began = {name: asyncio.Event() for name in names}
        self.opened = {name: asyncio.Event() for name in names}
        self.flow = tm.Workflow("flow")
        for name in names:
            self._add(name)

    def _add(self, name: str) -> None:
        async def task() -> str:
            self.began[name].set()
            await self.opened[name].wait()
            return name

        task.__name__ = task.__qualname__ = name
        self.flow.task(task)

    def open(self) -> None:
        """Let all go."""
        for gate in self.opened.values():
            gate.set()


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(PATIENCE):
        while not await is_so():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.005)
