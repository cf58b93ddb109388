"""Polling accumulators: call the author's function at an interval, with a timeout, and less often while it fails.

A function that raises or hangs disconnects the accumulator until the next good poll. A call that hangs is cancelled, or
left behind on its thread; the function is not called again before that call has returned.
"""

import logging
from typing import Any

from tidemill.engine.graphs.accumulators.accumulator import RunningAccumulator
from tidemill.engine.graphs.accumulators.dead_event_log import locate_error
from tidemill.engine.graphs.accumulators.emit import resolve_receipt
from tidemill.engine.guarded_call import GuardedCall
from tidemill.graphs.definition import Accumulator
from tidemill.graphs.health import AccumulatorHealth
from tidemill.kernel.author_errors import AUTHOR_ERRORS, describe, is_cancelled_here
from tidemill.kernel.backoff import Backoff
from tidemill.telemetry import events
from tidemill.telemetry.logs import FAILURES_PER_REMINDER

logger = logging.getLogger(__name__)


class Polling(RunningAccumulator):
    """Calls the author's function at an interval. A pushed value is the boundary itself."""

    started_health = AccumulatorHealth.LIVE
    has_background_loop = True

    def _apply_definition(self, definition: Accumulator) -> None:
        super()._apply_definition(definition)
        self.is_async = False  # pushes never run the function
        self._failures = 0  # in a row
        self.has_background_loop = definition.every is not None  # a partition gets what another node polls
        every = definition.every or 0.0
        self._backoff = Backoff(every, max(every, self.runtime.settings.backoff_max))
        function = definition.function
        assert function is not None
        self._runs_on_thread = definition.thread and not function.is_async
        self._calls_directly = not self._runs_on_thread and not function.is_async
        call = self._call_async if function.is_async else self._call_function
        self._guarded_call = GuardedCall(f"'{self.name}'", call, self.clock, self.runtime.tasks)

    @property
    def is_on_thread(self) -> bool:
        return self._runs_on_thread and self._in_flight_since is not None

    def process(self, value: Any) -> Any:
        """Return a pushed value unchanged."""
        return value

    async def run_loop(self) -> None:
        while True:
            await self.clock.sleep(self._backoff.delay(max(self._failures, 1)))
            await self._poll()

    async def _poll(self) -> None:
        self._in_flight_since = self.clock.monotonic()
        try:
            with self.runtime.in_flight:
                boundary = await self._call_with_timeout()
        except AUTHOR_ERRORS as error:  # author code: the next poll may succeed
            if is_cancelled_here(error):
                raise
            return self._on_failed(error)
        finally:
            self._in_flight_since = None
        self._on_answered()
        await self.emit_answer(boundary)

    async def emit_answer(self, boundary: Any) -> None:
        """Emit what the function returned."""
        async with self.process_lock:
            await self.wait_for_queue_space()
            if self.rejection() is not None:
                return
            pending = self.emit_or_journal(boundary, boundary)
        await resolve_receipt(pending)

    async def _call_with_timeout(self) -> Any:
        return self._call_function() if self._calls_directly else await self._guarded_call.call(self.definition.timeout)

    def _call_function(self) -> Any:
        return self.call() if self.definition.state is None else self.call(self.state)

    async def _call_async(self) -> Any:
        return await self._call_function()

    def _on_answered(self) -> None:
        if self._failures:
            logger.info(events.POLL_RECOVERED, extra={"accumulator": self.name, "failures": self._failures})
        self._failures = 0
        self.stuck_since = None
        self.set_health(AccumulatorHealth.LIVE)

    def _on_failed(self, error: BaseException) -> None:
        """Disconnect the accumulator; log the first failure in a row, and then every hundredth."""
        self._failures += 1
        if not isinstance(error, TimeoutError):
            self.stuck_since = None  # it does answer
        if self._failures == 1 or self._failures % FAILURES_PER_REMINDER == 0:
            place = locate_error(error, self.definition.function)
            facts = {"accumulator": self.name, "error": repr(error), "failures": self._failures, "place": place}
            logger.warning(events.POLL_FAILED, extra=facts)
        self.set_health(AccumulatorHealth.DISCONNECTED, describe(error))
