"""Named tasks that a node owns: started here, stopped here, and none is lost; and wake-ups of those that wait."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context, copy_context
from datetime import datetime
from typing import Any, Never, TypeVar

from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import OperationError, TidemillError

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

RECANCEL_INTERVAL = 1.0  # seconds until code that swallowed its cancellation is cancelled again
POLL_INTERVAL = 0.001  # seconds between checks of a condition


class TaskScope:
    """The tasks of one node. All of them end before the node does."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._context = Context()
        self._running: set[asyncio.Task[Any]] = set()
        self.is_closed = False
        """Whether the tasks are being stopped, or have been."""

    async def open(self) -> None:
        """Accept tasks from now on, on the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()

    def start(self, name: str, work: Coroutine[Any, Any, Any], context: Context | None = None) -> "asyncio.Task[Any]":
        """Start a task. An error that it raises is a bug of the node: it is logged, and stops no other task.

        It has the context variables of the scope, not of the caller: it may serve others too, and outlive the caller.
        """
        if self._loop is None:
            work.close()
            raise RuntimeError(f"task '{name}': its scope is not open")
        task = self._loop.create_task(work, name=name, context=context or self._context.copy())
        self._running.add(task)
        task.add_done_callback(self._on_done)
        return task

    def _on_done(self, task: "asyncio.Task[Any]") -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("task failed", exc_info=error, extra={"task": task.get_name()})

    async def run_shielded(self, name: str, work: Coroutine[Any, Any, Result]) -> Result:
        """Wait for work that continues even if the caller is cancelled; its errors are the caller's."""
        outcome: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        task = self.start(name, _run_into_future(work, outcome), copy_context())
        task.add_done_callback(lambda _: _fail_unfinished(name, work, outcome))
        return await outcome

    async def close(self, timeout: float = 5.0) -> None:
        """Cancel the running tasks and wait for them; those that do not end within the timeout are abandoned."""
        self.is_closed = True
        interval = min(RECANCEL_INTERVAL, timeout)
        for _ in range(1 + int(timeout / RECANCEL_INTERVAL)):
            if not self._running:
                break
            for task in tuple(self._running):
                task.cancel()
            await asyncio.wait(tuple(self._running), timeout=interval)
        if self._running:
            names = sorted(task.get_name() for task in self._running)
            logger.error("tasks that swallow their cancellation are left behind", extra={"tasks": names})
        else:
            self._loop = None

    def __len__(self) -> int:
        return len(self._running)

    @property
    def names(self) -> list[str]:
        """The names of the tasks that run."""
        return [task.get_name() for task in self._running]


async def _run_into_future(work: Coroutine[Any, Any, Result], outcome: "asyncio.Future[Result]") -> None:
    try:
        result = await work
    except Exception as error:  # any error belongs to the caller
        if not outcome.done():
            outcome.set_exception(error)
        elif not isinstance(error, TidemillError):
            raise  # the caller was cancelled, and it is a bug: the scope logs it
    else:
        if not outcome.done():
            outcome.set_result(result)


def _fail_unfinished(name: str, work: Coroutine[Any, Any, Result], outcome: "asyncio.Future[Result]") -> None:
    work.close()
    if not outcome.done():
        outcome.set_exception(OperationError(f"{name}: stopped before it was done"))


async def run_forever(work: Callable[[], Awaitable[None]], on_error: Callable[[Exception], None]) -> Never:
    """Run one round of work after the other until cancelled; a round's error is passed to `on_error`.

    A round begins by waiting for its work, so that one that fails immediately is not repeated in a tight loop.
    """
    while True:
        try:
            await work()
        except Exception as error:  # an engine loop must survive any error of one round
            on_error(error)


async def wait_until(is_done: Callable[[], bool], timeout: float) -> None:
    """Poll a condition until it holds, for at most `timeout` seconds: author code may hang."""
    deadline = time.monotonic() + timeout
    while not is_done():
        if time.monotonic() > deadline:
            return
        await asyncio.sleep(POLL_INTERVAL)  # real time: running code takes it, even if the clock is virtual


async def cancel_and_wait(task: "asyncio.Task[Any] | None") -> None:
    """Cancel a task and wait until it has ended."""
    while task is not None and not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=RECANCEL_INTERVAL)


FOREVER = 10 * 365 * 86400.0
"""A timeout in seconds that never passes: no clock sleeps for an infinite time."""


class Wakeup:
    """An event to wait on, with a timeout. A notification before the wait is not lost."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._notified = asyncio.Event()
        self._timers: list[asyncio.Task[None]] = []

    def notify(self) -> None:
        """Wake the waiter, or the next one."""
        self._notified.set()

    @property
    def is_waiting(self) -> bool:
        """Whether a waiter waits, and neither its timeout nor a notification has come."""
        is_asleep = bool(self._timers) and not any(timer.done() for timer in self._timers)
        return is_asleep and not self._notified.is_set()

    async def wait(self, timeout: float, until: datetime | None = None) -> bool:
        """Return True when notified, False after `timeout` seconds or when the wall clock shows `until`."""
        if not self._notified.is_set():
            sleeps: list[Coroutine[Any, Any, None]] = [self._clock.sleep(timeout)]
            if until is not None:
                sleeps.append(self._clock.sleep_until(until))
            async with asyncio.TaskGroup() as group:
                self._timers = [group.create_task(sleep, name="wakeup: timeout") for sleep in sleeps]
                notification = group.create_task(self._notified.wait(), name="wakeup: notification")
                await asyncio.wait((*self._timers, notification), return_when=asyncio.FIRST_COMPLETED)
                for task in (*self._timers, notification):
                    task.cancel()
        self._timers = []
        was_notified = self._notified.is_set()
        self._notified.clear()
        return was_notified
