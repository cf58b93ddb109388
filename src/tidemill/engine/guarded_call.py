"""Calls author callbacks off the caller's path, one in flight each, so that one that hangs blocks no one else.

A coroutine function runs in its own task, any other function on its own thread, never on threads that the engine or
other author code needs. A function is not called again before its last call has returned, so a function that hangs
costs one thread, not one per call.
"""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from tidemill.engine.tasks import TaskScope
from tidemill.kernel.author_errors import AUTHOR_ERRORS, is_cancelled_here
from tidemill.kernel.clock import Clock
from tidemill.kernel.concurrency import call_in_new_thread
from tidemill.kernel.durations import format_duration


class StillRunningError(TimeoutError):
    """The last call has not returned yet."""


class GuardedCall:
    """A function without parameters that is called repeatedly, with at most one call in flight."""

    def __init__(self, name: str, function: Callable[[], Any], clock: Clock, tasks: TaskScope) -> None:
        self._name = name
        self._function = function
        self._is_async = inspect.iscoroutinefunction(function)
        self._clock = clock
        self._tasks = tasks
        self._pending: asyncio.Task[tuple[Any, BaseException | None]] | None = None
        self._called_at = 0.0

    @property
    def pending_seconds(self) -> float | None:
        """For how many seconds the last call has been in flight; None if it has returned."""
        is_pending = self._pending is not None and not self._pending.done()
        return self._clock.monotonic() - self._called_at if is_pending else None

    async def call(self, timeout: float | None = None) -> Any:
        """Return the result, or raise the function's error; TimeoutError after `timeout` seconds.

        Code that continues after a timeout is left behind: neither a thread nor a coroutine that ignores its
        cancellation can be stopped.
        """
        if (seconds := self.pending_seconds) is not None:
            self._cancel_pending()
            since = f"{format_duration(round(seconds, 1))} after it was asked"
            raise StillRunningError(f"{self._name} has not answered yet, {since}: it is not asked again before it has")
        self._called_at = self._clock.monotonic()
        call = self._pending = self._tasks.start(f"{self._name}: call", self._run_function())
        await self._wait_for(call, timeout)
        if not call.done():
            assert timeout is not None
            raise TimeoutError(f"{self._name} did not answer within {timeout:g} s")
        result, error = call.result()
        if error is not None:
            raise error
        return result

    async def _wait_for(self, pending: "asyncio.Task[Any]", timeout: float | None) -> None:
        awaited = {pending}
        if timeout is not None:
            awaited.add(self._tasks.start(f"{self._name}: timeout", self._clock.sleep(timeout)))
        try:
            await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for timer in awaited - {pending}:
                timer.cancel()
            self._cancel_pending()

    def _cancel_pending(self) -> None:
        """Cancel a coroutine in flight. The task that waits for a thread stays, to record when the thread has ended."""
        if self._is_async and self._pending is not None:
            self._pending.cancel()

    async def _run_function(self) -> tuple[Any, BaseException | None]:
        """Return the function's result or its error; an error raised here is one of the engine."""
        try:
            if self._is_async:
                return await self._function(), None
            result = await call_in_new_thread(self._name, self._function)
            return await result if inspect.isawaitable(result) else result, None
        except AUTHOR_ERRORS as error:  # author code: raised in the caller
            if is_cancelled_here(error):
                raise
            return None, error
