"""An executor for tests: as another one, but slow, or killed, when told to."""

from tidemill.engine.workflows.executors.interface import Executor, Order
from tidemill.kernel.clock import Clock
from tidemill.workflows.records import AttemptKey


class Hindered(Executor):
    """Stands before an executor and gets in its way."""

    def __init__(self, inner: Executor, clock: Clock) -> None:
        self.name = inner.name
        self.is_immediate = inner.is_immediate
        self._inner = inner
        self._clock = clock
        self._delay = 0.0

    def slow_down(self, seconds: float) -> None:
        """Take this long to accept an attempt."""
        self._delay = seconds
        self.is_immediate = self._inner.is_immediate and not seconds

    def abandon(self) -> None:
        self._inner.abandon()

    async def open(self) -> None:
        await self._inner.open()

    async def close(self, patience: float) -> None:
        await self._inner.close(patience)

    def capacity(self) -> int:
        return self._inner.capacity()

    async def submit(self, order: Order) -> None:
        if self._delay:
            await self._clock.sleep(self._delay)
        await self._inner.submit(order)

    def take(self, order: Order) -> None:
        self._inner.take(order)

    def living(self) -> set[AttemptKey]:
        return self._inner.living()

    async def cancel(self, key: AttemptKey, reason: str) -> None:
        await self._inner.cancel(key, reason)
