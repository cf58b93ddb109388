"""Questions to author code: put to it beside whoever asks, so that code that does not answer holds up nobody else.

A coroutine function answers in a task of its own, any other function on a thread of its own, never on threads that the
engine, or other author code, needs too. While one has not answered it is not asked again, so a function that hangs
costs one thread, not one for each time.
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
    """A question was put before, and is still not answered."""


class GuardedCall:
    """A function without parameters that is called again and again; at most one call at a time is under way."""

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
        """For how many seconds an answer has been waited for; None if none is due."""
        is_due = self._pending is not None and not self._pending.done()
        return self._clock.monotonic() - self._called_at if is_due else None

    async def call(self, timeout: float | None = None) -> Any:
        """Return the answer, or raise what the function raises; TimeoutError if that takes longer than so many seconds.

        Code that goes on all the same is left behind: a thread cannot be stopped, nor a coroutine that does not heed.
        """
        if (waits := self.pending_seconds) is not None:
            self._cancel_pending()
            since = f"{format_duration(round(waits, 1))} after it was asked"
            raise StillRunningError(f"{self._name} has not answered yet, {since}: it is not asked again before it has")
        self._called_at = self._clock.monotonic()
        answer = self._pending = self._tasks.start(f"{self._name}: answer", self._run_function())
        await self._wait_for(answer, timeout)
        if not answer.done():
            assert timeout is not None
            raise TimeoutError(f"{self._name} did not answer within {timeout:g} s")
        found, error = answer.result()
        if error is not None:
            raise error
        return found

    async def _wait_for(self, pending: "asyncio.Task[Any]", timeout: float | None) -> None:
        awaited = {pending}
        if timeout is not None:
            awaited.add(self._tasks.start(f"{self._name}: time", self._clock.sleep(timeout)))
        try:
            await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in awaited - {pending}:
                one.cancel()
            self._cancel_pending()

    def _cancel_pending(self) -> None:
        """Ask a call that is under way to end; who waits for a thread stays, so that it is known when that has."""
        if self._is_async and self._pending is not None:
            self._pending.cancel()

    async def _run_function(self) -> tuple[Any, BaseException | None]:
        """Return what the function answers, or raises: an error here would be one of the engine."""
        try:
            if self._is_async:
                return await self._function(), None
            answer = await call_in_new_thread(self._name, self._function)
            return await answer if inspect.isawaitable(answer) else answer, None
        except AUTHOR_ERRORS as error:  # author code: handed to whoever asked
            if is_cancelled_here(error):
                raise
            return None, error
