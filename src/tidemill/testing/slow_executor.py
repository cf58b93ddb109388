"""An executor for tests: as another one, but slow, or killed, when told to."""

from tidemill.engine.workflows.executors.interface import AttemptRequest, Executor
from tidemill.kernel.clock import Clock
from tidemill.workflows.records import AttemptKey


class SlowExecutor(Executor):
    """Stands before an executor and gets in its way."""

    def __init__(self, inner: Executor, clock: Clock) -> None:
        self.name = inner.name
        self.is_immediate = inner.is_immediate
        self._inner = inner
        self._clock = clock
        self._delay = 0.0

    def set_delay(self, seconds: float) -> None:
        """Take this long to accept an attempt."""
        self._delay = seconds
        self.is_immediate = self._inner.is_immediate and not seconds

    def abandon(self) -> None:
        self._inner.abandon()

    async def open(self) -> None:
        await self._inner.open()

    async def close(self, timeout: float) -> None:
        await self._inner.close(timeout)

    def free_slots(self) -> int:
        return self._inner.free_slots()

    async def submit(self, request: AttemptRequest) -> None:
        if self._delay:
            await self._clock.sleep(self._delay)
        await self._inner.submit(request)

    def submit_now(self, request: AttemptRequest) -> None:
        self._inner.submit_now(request)

    def running(self) -> set[AttemptKey]:
        return self._inner.running()

    async def cancel(self, key: AttemptKey, reason: str) -> None:
        await self._inner.cancel(key, reason)
