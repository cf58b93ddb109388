"""Concurrency inside one awaitable call: tasks that fail together, and calls on threads."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from queue import SimpleQueue
from types import TracebackType
from typing import Any, NamedTuple, Self

from tidemill.kernel.author_errors import AUTHOR_ERRORS, is_cancelled_here


class _DeferredAuthorError(Exception):
    """Replaces an error that asyncio would not let end a group; the group raises the original at its end."""


class FirstErrorGroup:
    """A task group whose failure is the first error itself, not a group around it."""

    def __init__(self) -> None:
        self._group = asyncio.TaskGroup()
        self._unstarted: set[Coroutine[Any, Any, Any]] = set()
        self._first_error: BaseException | None = None
        self._first_traceback: TracebackType | None = None
        self._cancellations_before = 0
        """The number of cancellations of the surrounding task before the group was entered."""

    async def __aenter__(self) -> Self:
        task = asyncio.current_task()
        self._cancellations_before = task.cancelling() if task is not None else 0
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._group.__aexit__(kind, error, trace)
        except BaseExceptionGroup as group:
            self._uncancel_own_request()
            first = self._first_error or group.exceptions[0]
            raise first.with_traceback(self._first_traceback or first.__traceback__) from None
        finally:
            for coroutine in self._unstarted:
                coroutine.close()  # one that was cancelled before its first step was never awaited

    def _uncancel_own_request(self) -> None:
        """Undo the group's cancellation of the surrounding task: Python 3.11 leaves it counted."""
        task = asyncio.current_task()
        if task is not None and task.cancelling() > self._cancellations_before:
            task.uncancel()

    def start(self, name: str, coroutine: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Start a task; awaiting it returns its result."""
        self._unstarted.add(coroutine)
        return self._group.create_task(self._run_recording_error(coroutine), name=name)

    async def _run_recording_error(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a task; keep the first error with its traceback, which each task that awaits this one extends."""
        self._unstarted.discard(coroutine)
        try:
            return await coroutine
        except AUTHOR_ERRORS as error:  # author code: raised again, here or at the end of the group
            if is_cancelled_here(error):
                raise
            if self._first_error is None:
                self._first_error, self._first_traceback = error, error.__traceback__
            if isinstance(error, Exception):
                raise
            raise _DeferredAuthorError from None  # SystemExit would end the loop, a cancellation would pass as success


def has_running_loop() -> bool:
    """Return whether the caller runs on an event loop, and so must not block."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def call_in_thread(function: Callable[..., Any], /, *values: Any, **named: Any) -> Any:
    """Call a blocking function on a thread and wait for it without blocking the loop."""
    return await asyncio.to_thread(_translate_stop_iteration, partial(function, *values, **named))


async def call_in_new_thread(name: str, function: Callable[..., Any], /, *values: Any) -> Any:
    """Call a blocking function on a new thread, and wait for it without blocking the loop.

    Such a call neither waits for a thread of a pool nor occupies one, however long it hangs. A caller that stops
    waiting leaves the thread running; it is a daemon, so the process does not wait for it either.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    in_context = partial(copy_context().run, _translate_stop_iteration, partial(function, *values))
    call = _ThreadCall(in_context, (), loop, partial(_resolve_future, future))
    threading.Thread(target=call.run, name=name, daemon=True).start()
    return await future


def _translate_stop_iteration(call: Callable[[], Any]) -> Any:
    """Call a function, and raise RuntimeError for StopIteration, which no future can hold, as coroutines do."""
    try:
        return call()
    except StopIteration as error:
        raise RuntimeError("a function on a thread raised StopIteration") from error


ResultCallback = Callable[[Any, BaseException | None], None]
"""Receives the result of a call and None, or None and its error."""


class WorkerThread:
    """One thread for calls that must not overlap, such as those of a client that is not thread-safe.

    It uses a bare queue and one wake-up of the loop per result: a call costs less than half of `run_in_executor`.
    """

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[_ThreadCall | None] = SimpleQueue()
        self._thread = threading.Thread(target=_run_calls, args=(self._calls,), name=name, daemon=True)
        self._is_closed = False

    async def call(self, function: Callable[..., Any], *values: Any) -> Any:
        """Call a function on the thread, after all earlier calls, even those whose callers stopped waiting."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.submit(partial(_resolve_future, future), function, *values)
        return await future

    def submit(self, on_done: ResultCallback, function: Callable[..., Any], *values: Any) -> None:
        """Call a function on the thread; `on_done` is called on the loop with its result or error."""
        if self._is_closed:
            raise RuntimeError("the thread has been closed")
        if self._thread.ident is None:
            self._thread.start()
        self._calls.put(_ThreadCall(function, values, asyncio.get_running_loop(), on_done))

    def close(self) -> None:
        """Let the thread end after its last call."""
        self._is_closed = True
        self._calls.put(None)


class _ThreadCall(NamedTuple):
    """A queued call and the callback for its result."""

    function: Callable[..., Any]
    values: tuple[Any, ...]
    loop: asyncio.AbstractEventLoop
    on_done: ResultCallback

    def run(self) -> None:
        """Run the call; on the thread."""
        try:
            result, error = self.function(*self.values), None
        except BaseException as raised:  # of any kind: it belongs to the caller
            result, error = None, raised
        with suppress(RuntimeError):  # the loop is closed, and with it the caller
            self.loop.call_soon_threadsafe(self.on_done, result, error)


def _resolve_future(future: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


def _run_calls(calls: "SimpleQueue[_ThreadCall | None]") -> None:
    while (call := calls.get()) is not None:
        call.run()
        del call  # an idle thread holds no value of its last call
