"""Questions to author code: put to it beside whoever asks, so that code that does not answer holds up nobody else.

A coroutine function answers in a task of its own, any other function on a thread of its own, never on threads that the
engine, or other author code, needs too. While one has not answered it is not asked again, so a function that hangs
costs one thread, not one for each time.
"""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from tidemill.engine.service import Tasks
from tidemill.kernel.author_errors import AUTHOR_ERRORS, is_cut_off
from tidemill.kernel.clock import Clock
from tidemill.kernel.concurrency import in_own_thread
from tidemill.kernel.durations import written


class UnansweredError(TimeoutError):
    """A question was put before, and is still not answered."""


class Question:
    """A function without parameters that is called again and again; at most one call at a time is under way."""

    def __init__(self, name: str, function: Callable[[], Any], clock: Clock, tasks: Tasks) -> None:
        self._name = name
        self._function = function
        self._is_async = inspect.iscoroutinefunction(function)
        self._clock = clock
        self._tasks = tasks
        self._answer: asyncio.Task[tuple[Any, BaseException | None]] | None = None
        self._asked_at = 0.0

    @property
    def waits(self) -> float | None:
        """For how many seconds an answer has been waited for; None if none is due."""
        is_due = self._answer is not None and not self._answer.done()
        return self._clock.monotonic() - self._asked_at if is_due else None

    async def ask(self, timeout: float | None = None) -> Any:
        """Return the answer, or raise what the function raises; TimeoutError if that takes longer than so many seconds.

        Code that goes on all the same is left behind: a thread cannot be stopped, nor a coroutine that does not heed.
        """
        if (waits := self.waits) is not None:
            self._remind()
            since = f"{written(round(waits, 1))} after it was asked"
            raise UnansweredError(f"{self._name} has not answered yet, {since}: it is not asked again before it has")
        self._asked_at = self._clock.monotonic()
        answer = self._answer = self._tasks.start(f"{self._name}: answer", self._answered())
        await self._wait_for(answer, timeout)
        if not answer.done():
            assert timeout is not None
            raise TimeoutError(f"{self._name} did not answer within {timeout:g} s")
        found, error = answer.result()
        if error is not None:
            raise error
        return found

    async def _wait_for(self, answer: "asyncio.Task[Any]", timeout: float | None) -> None:
        awaited = {answer}
        if timeout is not None:
            awaited.add(self._tasks.start(f"{self._name}: time", self._clock.sleep(timeout)))
        try:
            await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in awaited - {answer}:
                one.cancel()
            self._remind()

    def _remind(self) -> None:
        """Ask a call that is under way to end; who waits for a thread stays, so that it is known when that has."""
        if self._is_async and self._answer is not None:
            self._answer.cancel()

    async def _answered(self) -> tuple[Any, BaseException | None]:
        """Return what the function answers, or raises: an error here would be one of the engine."""
        try:
            if self._is_async:
                return await self._function(), None
            answer = await in_own_thread(self._name, self._function)
            return await answer if inspect.isawaitable(answer) else answer, None
        except AUTHOR_ERRORS as error:  # author code: handed to whoever asked
            if is_cut_off(error):
                raise
            return None, error
