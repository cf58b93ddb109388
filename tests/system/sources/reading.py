"""Reads a source directly, without a node: what it yields, where it would continue, and what it reports."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from tidemill.kernel.clock import Clock, SystemClock
from tidemill.kernel.settings import Settings
from tidemill.sources import Moved, SourceContext


class SourceReading:
    """What a source has delivered so far."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.checkpoints: list[Any] = []
        self.progress: list[Any] = []
        """The checkpoints that came without an event."""
        self.gaps: list[str] = []
        self.task: asyncio.Task[None]
        self.context: SourceContext
        self._changed = asyncio.Event()

    def make_context(self, clock: Clock | None = None) -> SourceContext:
        """Make the context that `start` gets; what the source reports is kept here."""
        return SourceContext("numbers", Settings(), clock or SystemClock(), self.gaps.append)

    def add(self, delivery: Any) -> None:
        """Keep what a source has yielded."""
        if isinstance(delivery, Moved):
            self.progress.append(delivery.checkpoint)
            delivery = []
        for event, checkpoint in delivery if isinstance(delivery, list) else [delivery]:
            self.events.append(event)
            self.checkpoints.append(checkpoint)
        self._changed.set()

    async def until(self, count: int) -> list[Any]:
        """Wait until so many events were delivered, and return them all."""
        await self.until_true(lambda: len(self.events) >= count)
        return self.events

    async def until_true(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition on what was delivered holds; raise the error of the source."""
        async with asyncio.timeout(20):
            while not condition():
                if self.task.done():
                    self.task.result()
                self._changed.clear()
                changed = asyncio.get_running_loop().create_task(self._changed.wait())
                await asyncio.wait([changed, self.task], return_when=asyncio.FIRST_COMPLETED)
                changed.cancel()


@asynccontextmanager
async def reading(source: Any, checkpoint: Any = None, clock: Clock | None = None) -> AsyncIterator[SourceReading]:
    """Read a source in the background; it is connected when this returns."""
    result = SourceReading()
    result.context = result.make_context(clock)
    deliveries = await source.start(checkpoint, context=result.context)

    async def read() -> None:
        try:
            async for delivery in deliveries:
                result.add(delivery)
        finally:
            await deliveries.aclose()

    result.task = asyncio.get_running_loop().create_task(read(), name="reading")
    try:
        yield result
    finally:
        result.task.cancel()
        await asyncio.wait([result.task])
