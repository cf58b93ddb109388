"""Faults of executors: slow to accept attempts, or killed together with everything they run."""

from collections.abc import Callable, Sequence

from tidemill.engine.workflows.executors.interface import AttemptListener, AttemptRequest, Executor, SlotClass
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import OperationError
from tidemill.telemetry.log_records import LogRecord
from tidemill.workflows.attempt_results import AttemptResult
from tidemill.workflows.records import AttemptKey, VersionKey


class FaultyExecutor(Executor):
    """Wraps an executor that can be slowed down, or killed and replaced by a new one."""

    def __init__(self, build: Callable[[AttemptListener], Executor], listener: AttemptListener, clock: Clock) -> None:
        self._build = build
        self._listener = listener
        self._clock = clock
        self._delay = 0.0
        self._replace()
        self.name = self._inner.name
        self.is_immediate = self._inner.is_immediate

    def _replace(self) -> None:
        self._muteable = _MuteableListener(self._listener)
        self._inner = self._build(self._muteable)

    def set_delay(self, seconds: float) -> None:
        """Take this many seconds to accept each attempt."""
        self._delay = seconds
        self.is_immediate = self._inner.is_immediate and not seconds

    async def kill(self) -> None:
        """End everything that runs, without reports, as if the worker's process had died. New attempts run again."""
        self._muteable.is_muted = True
        killed = self._inner
        self._replace()
        await self._inner.open()
        await killed.close(0.0)

    async def open(self) -> None:
        await self._inner.open()

    async def close(self, timeout: float) -> None:
        await self._inner.close(timeout)

    def free_slots(self) -> int:
        return self._inner.free_slots()

    def slot_class(self, version: VersionKey, task: str) -> SlotClass:
        return self._inner.slot_class(version, task)

    def free_slots_of(self, slot_class: SlotClass) -> int:
        return self._inner.free_slots_of(slot_class)

    def starts_now(self, version: VersionKey) -> bool:
        return not self._delay and self._inner.starts_now(version)

    async def submit(self, request: AttemptRequest) -> None:
        if self._delay:
            await self._clock.sleep(self._delay)
        inner = self._inner
        try:
            await inner.submit(request)
        except OperationError:
            if inner is self._inner:  # a killed executor reports nothing, not even that it rejects an attempt
                raise

    def submit_now(self, request: AttemptRequest) -> None:
        self._inner.submit_now(request)

    def running(self) -> set[AttemptKey]:
        return self._inner.running()

    def on_leases_renewed(self) -> None:
        self._inner.on_leases_renewed()

    async def cancel(self, key: AttemptKey, reason: str) -> None:
        await self._inner.cancel(key, reason)


class _MuteableListener(AttemptListener):
    """Passes the reports of one executor on until it is killed."""

    def __init__(self, listener: AttemptListener) -> None:
        self._listener = listener
        self.is_muted = False

    async def record_start(self, key: AttemptKey) -> bool:
        return not self.is_muted and await self._listener.record_start(key) and not self.is_muted

    def on_log(self, key: AttemptKey, records: Sequence[LogRecord]) -> None:
        if not self.is_muted:
            self._listener.on_log(key, records)

    def on_ended(self, key: AttemptKey, ending: AttemptResult) -> None:
        if not self.is_muted:
            self._listener.on_ended(key, ending)

    def resume_work(self) -> None:
        if not self.is_muted:
            self._listener.resume_work()
