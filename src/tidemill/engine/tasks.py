"""Tasks with names, owned by the node: started here, stopped here, never forgotten."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Never, TypeVar

from tidemill.kernel.errors import OperationError, TidemillError

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

RECANCEL_INTERVAL = 1.0  # seconds until code that swallowed its cancellation is cancelled again
POLL_INTERVAL = 0.001  # seconds between looks at whether something has ended


class TaskScope:
    """The tasks of one node. All of them end before the node does."""

    def __init__(self) -> None:
        self._group = asyncio.TaskGroup()
        self._running: set[asyncio.Task[Any]] = set()
        self.is_closed = False
        """Whether they are being ended, or have been."""

    async def open(self) -> None:
        """Begin to accept tasks."""
        await self._group.__aenter__()

    def start(self, name: str, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Start a task; its error, if nobody awaits it, is the node's own bug and is logged as such."""

        def ended(_: object) -> None:
            self._running.discard(task)
            work.close()  # for a task that was cancelled before its first step

        task = self._group.create_task(_run_logged(work), name=name)
        self._running.add(task)
        task.add_done_callback(ended)
        return task

    async def run_shielded(self, name: str, work: Coroutine[Any, Any, Result]) -> Result:
        """Wait for work that goes on even if whoever asked for it stops waiting; its errors are theirs."""
        outcome: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        task = self.start(name, _run_into_future(work, outcome))
        task.add_done_callback(lambda _: _fail_unfinished(name, work, outcome))
        return await outcome

    async def close(self, timeout: float = 5.0) -> None:
        """Cancel what still runs and wait for it; what does not give in within so many seconds is left behind."""
        self.is_closed = True
        reminder = min(RECANCEL_INTERVAL, timeout)
        for _ in range(1 + int(timeout / RECANCEL_INTERVAL)):
            if not self._running:
                break
            for task in tuple(self._running):
                task.cancel()
            await asyncio.wait(tuple(self._running), timeout=reminder)
        if self._running:  # the group would wait for them for ever
            names = sorted(task.get_name() for task in self._running)
            logger.error("tasks that swallow their cancellation are left behind", extra={"tasks": names})
            return
        await self._group.__aexit__(None, None, None)

    def __len__(self) -> int:
        return len(self._running)


async def _run_logged(work: Coroutine[Any, Any, Any]) -> Any:
    """Run work so that its failure never takes the node's other tasks with it."""
    try:
        return await work
    except asyncio.CancelledError:
        raise
    except Exception:  # the last line of defence: a bug in one service must not stop the others
        logger.exception("task failed")
        return None


async def _run_into_future(work: Coroutine[Any, Any, Result], outcome: "asyncio.Future[Result]") -> None:
    try:
        result = await work
    except Exception as error:  # whatever it is, it belongs to whoever asked
        if not outcome.done():
            outcome.set_exception(error)
        elif not isinstance(error, TidemillError):
            raise  # nobody waits any more, and it is a bug: it must be logged
    else:
        if not outcome.done():
            outcome.set_result(result)


def _fail_unfinished(name: str, work: Coroutine[Any, Any, Result], outcome: "asyncio.Future[Result]") -> None:
    work.close()
    if not outcome.done():
        outcome.set_exception(OperationError(f"{name}: stopped before it was done"))


async def run_forever(work: Callable[[], Awaitable[None]], on_error: Callable[[Exception], None]) -> Never:
    """Do one round of work after the other until cancelled; what a round raises is told, and the next has its turn.

    A round begins with what it waits for, so that one that fails at once is not repeated at once.
    """
    while True:
        try:
            await work()
        except Exception as error:  # whatever is wrong with a round, a loop of the engine must not die of it
            on_error(error)


async def wait_until(is_done: Callable[[], bool], timeout: float) -> None:
    """Wait until something holds that nobody tells, but no longer than so many seconds: author code may hang."""
    deadline = time.monotonic() + timeout
    while not is_done():
        if time.monotonic() > deadline:
            return
        await asyncio.sleep(POLL_INTERVAL)  # real time: code that runs takes it, whatever the clock says


async def cancel_and_wait(task: "asyncio.Task[Any] | None") -> None:
    """Cancel a task and wait until it is gone."""
    while task is not None and not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=RECANCEL_INTERVAL)
