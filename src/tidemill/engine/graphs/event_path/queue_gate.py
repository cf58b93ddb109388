"""The room in a reactor's queue, and those who wait for it."""

import asyncio

from tidemill.graphs.definition import Overflow
from tidemill.graphs.inputs import Inputs


class QueueGate:
    """Whether a boundary may come now, must wait, or is turned away. The latest strategy always has room."""

    def __init__(self, inputs: Inputs, overflow: Overflow) -> None:
        self._inputs = inputs
        self._overflow = overflow
        self._is_closed = False
        self._reserved = 0  # for boundaries whose commit is on its way
        self._freed = asyncio.Event()

    @property
    def capacity(self) -> int:
        """How many boundaries the queue takes."""
        return self._inputs.capacity

    @property
    def overflow(self) -> Overflow:
        """What becomes of a boundary when the queue is full."""
        return self._overflow

    @overflow.setter
    def overflow(self, overflow: Overflow) -> None:
        self._overflow = overflow
        self.wake_waiters()  # the new version may have more capacity

    @property
    def is_blocked(self) -> bool:
        """Whether pushers must wait."""
        return self._is_full and self._overflow == "block" and not self._is_closed

    @property
    def rejects(self) -> bool:
        """Whether a push is turned away."""
        return self._is_full and self._overflow == "reject"

    @property
    def _is_full(self) -> bool:
        inputs = self._inputs
        return inputs.is_sequential and len(inputs.queue) + self._reserved >= inputs.capacity

    def reserve(self, delta: int) -> None:
        """Keep room (+1) for a boundary that is being committed, or give it back (-1)."""
        self._reserved += delta
        if delta < 0:
            self.wake_waiters()

    async def wait(self) -> None:
        """Return when there is room again, or never will be."""
        while self.is_blocked:
            self._freed.clear()
            await self._freed.wait()

    def wake_waiters(self) -> None:
        """Let those who wait look again."""
        self._freed.set()

    def close(self) -> None:
        """Let nobody wait any more: the reactor is about to end."""
        self._is_closed = True
        self.wake_waiters()
