"""Two nodes on one file, a leader and a follower, and tasks that wait for the test."""

import asyncio
from collections.abc import Awaitable, Callable

import tidemill as tm

SETTINGS = {"tick_interval": "20ms", "lease_ttl": "300ms"}
PATIENCE = 10.0  # seconds; without a heartbeat, attempts are lost after 90

Pair = tuple[tm.Node, tm.Node]


class Gates:
    """A task for each name, which records that it runs, and ends when its gate opens."""

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
        """Open all gates."""
        for gate in self.opened.values():
            gate.set()


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(PATIENCE):
        while not await is_so():  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.005)
