"""Polling accumulators: call the author's function at an interval, with a timeout, and less often while it fails.

A function that raises or hangs disconnects the accumulator until the next good poll. A call that hangs is cancelled, or
left behind on its thread; the function is not called again before that call has returned.
"""

import logging
from typing import Any

from tidemill.engine.graphs.accumulators.accumulator import RunningAccumulator
from tidemill.engine.graphs.accumulators.dead_event_log import locate_error
from tidemill.engine.graphs.accumulators.emit import resolve_receipt
from tidemill.engine.graphs.accumulators.held import Held
from tidemill.engine.graphs.accumulators.ingest import EventIngest
from tidemill.engine.graphs.accumulators.kind import Kind
from tidemill.engine.guarded_call import GuardedCall
from tidemill.graphs.definition import Accumulator
from tidemill.graphs.health import AccumulatorHealth
from tidemill.kernel.author_errors import AUTHOR_ERRORS, describe, is_cancelled_here
from tidemill.kernel.backoff import Backoff
from tidemill.telemetry import events
from tidemill.telemetry.logs import FAILURES_PER_REMINDER

logger = logging.getLogger(__name__)


class Polling(Kind):
    """Calls the author's function at an interval. A pushed value is the boundary itself."""

    started_health = AccumulatorHealth.LIVE
    has_background_loop = True
    accumulator: RunningAccumulator
    intake: EventIngest

    def apply_definition(self, definition: Accumulator) -> None:
        accumulator = self.accumulator
        function = definition.function
        assert function is not None
        accumulator.intake.is_async, accumulator.intake.call = False, _return_pushed  # pushes never run the function
        self._function_call = function.call
        self._failures = 0  # in a row
        self.has_background_loop = definition.every is not None  # a partition gets what another node polls
        every = definition.every or 0.0
        self._backoff = Backoff(every, max(every, accumulator.runtime.settings.backoff_max))
        self._runs_on_thread = definition.thread and not function.is_async
        self._calls_directly = not self._runs_on_thread and not function.is_async
        call = self._call_async if function.is_async else self._call_function
        self._guarded_call = GuardedCall(f"'{accumulator.name}'", call, accumulator.clock, accumulator.runtime.tasks)

    @property
    def is_on_thread(self) -> bool:
        return self._runs_on_thread and self.intake.in_flight_since is not None

    async def run_loop(self) -> None:
        while True:
            await self.intake.clock.sleep(self._backoff.delay(max(self._failures, 1)))
            await self._poll()

    async def _poll(self) -> None:
        self.intake.in_flight_since = self.intake.clock.monotonic()
        try:
            with self.intake.runtime.in_flight:
                boundary = await self._call_with_timeout()
        except AUTHOR_ERRORS as error:  # author code: the next poll may succeed
            if is_cancelled_here(error):
                raise
            return self._on_failed(error)
        finally:
            self.intake.in_flight_since = None
        self._on_answered()
        await self.emit_answer(boundary)

    async def emit_answer(self, boundary: Any) -> None:
        """Emit what the function returned."""
        await self.emit_polled(boundary, self.emitter.held)

    async def emit_polled(self, boundary: Any, held: Held) -> None:
        """Emit what the function returned after what came before it."""
        async with self.intake.process_lock:
            await self.intake.wait_for_queue_space(held)
            if self.intake.rejection(held) is not None:
                return
            pending = self.emit_or_journal(boundary, boundary, held)
        await resolve_receipt(pending)

    async def _call_with_timeout(self) -> Any:
        return (
            self._call_function()
            if self._calls_directly
            else await self._guarded_call.call(self.intake.definition.timeout)
        )

    def _call_function(self) -> Any:
        has_state = self.intake.definition.state is not None
        return self._function_call(self.emitter.held.state) if has_state else self._function_call()

    async def _call_async(self) -> Any:
        return await self._call_function()

    def _on_answered(self) -> None:
        if self._failures:
            logger.info(events.POLL_RECOVERED, extra={"accumulator": self.intake.name, "failures": self._failures})
        self._failures = 0
        self.intake.stuck_since = None
        self.accumulator.set_health(AccumulatorHealth.LIVE)

    def _on_failed(self, error: BaseException) -> None:
        """Disconnect the accumulator; log the first failure in a row, and then every hundredth."""
        self._failures += 1
        if not isinstance(error, TimeoutError):
            self.intake.stuck_since = None  # it does answer
        if self._failures == 1 or self._failures % FAILURES_PER_REMINDER == 0:
            place = locate_error(error, self.intake.definition.function)
            facts = {
                "accumulator": self.intake.name,
                "error": repr(error),
                "failures": self._failures,
                "place": place,
            }
            logger.warning(events.POLL_FAILED, extra=facts | {"failures": self._failures})
        self.accumulator.set_health(AccumulatorHealth.DISCONNECTED, describe(error))


def _return_pushed(value: Any, *_: Any) -> Any:
    """Return a pushed value unchanged: it is the boundary itself."""
    return value
