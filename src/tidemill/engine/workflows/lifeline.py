"""The lifeline: heartbeats for a loop that stands still.

A node beats from its event loop. Author code that blocks the loop would silence every attempt of the node with it, and
all of them would be begun elsewhere although they live. So, while anything is held, a thread asks the loop now and then
for a sign of life. When none comes, it beats in place of the loop until one does: on connections of its own, to a store
that it opens for that.

Only attempts are kept alive that way. The office is not: a leader whose loop stands still does not plan, and is
replaced. And a process that is frozen falls silent as a whole: this thread is frozen with it.
"""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from tidemill.engine.workflows.crew import Crew
from tidemill.engine.workflows.environment import Environment
from tidemill.kernel.concurrency import in_own_thread
from tidemill.kernel.errors import StoreError
from tidemill.storage.ports import Store
from tidemill.telemetry import events
from tidemill.workflows.records import AttemptKey

logger = logging.getLogger(__name__)

NAME = "tidemill-lifeline"
_PATIENCE = 5.0
"""Seconds for anything that the store is asked: its own deadlines do not cover a commit of which nobody knows."""


class Lifeline:
    """A thread that beats while the loop does not."""

    def __init__(self, environment: Environment, crew: Crew, make_store: Callable[[], Store]) -> None:
        self._owner = environment.owner.id
        self._figures = environment.figures
        self._held = crew.held
        self._make_store = make_store
        self._lease = environment.settings.heartbeat_timeout
        self._pause = environment.settings.heartbeat_interval / 2  # for the loop to answer in, and before it is asked
        self._has_turned = threading.Event()
        self._is_closed = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to watch the running loop, unless that has begun: as a daemon, which keeps no process alive."""
        if self._thread is None and not self._is_closed.is_set():
            self._loop = asyncio.get_running_loop()
            self._thread = threading.Thread(target=self._watch, name=NAME, daemon=True)
            self._thread.start()

    async def close(self, patience: float) -> None:
        """Beat no more, and wait until the thread has ended, but not for longer than so many seconds."""
        self._is_closed.set()
        self._has_turned.set()
        if self._thread is not None:
            await in_own_thread(f"{NAME}: end", self._thread.join, patience)

    # -- on the thread

    def _watch(self) -> None:
        while not self._is_closed.wait(self._pause) and not self._loop.is_closed():
            try:
                if self._attempts() and self._stands_still():
                    self._stand_in()
            except Exception as error:  # whatever is wrong with a round, the next has its turn
                self._failed(error)

    def _attempts(self) -> list[AttemptKey]:
        """Return what is held: to copy a dict into a list is one step, in which the loop changes nothing."""
        return list(self._held)

    def _stands_still(self) -> bool:
        """Ask the loop for a sign of life. One that does not even run has been left, and so have its attempts."""
        self._has_turned.clear()
        if not self._tell(self._has_turned.set) or not self._loop.is_running():
            return False
        return not self._has_turned.wait(self._pause) and self._loop.is_running()

    def _stand_in(self) -> None:
        """Beat until the loop turns again."""
        is_said = False
        with asyncio.Runner() as runner:
            store = self._make_store()
            try:
                runner.run(_in_time(store.open()))
                while not self._has_turned.is_set() and (held := self._attempts()):
                    runner.run(_in_time(store.runs.beat(self._owner, held, self._lease)))
                    if not self._has_turned.wait(self._pause) and not is_said:
                        is_said = self._say()
            finally:
                runner.run(_in_time(store.close()))

    def _say(self) -> bool:
        """Say what the loop is at: it has been at it for a whole interval, for half of which it was asked in vain."""
        task = asyncio.current_task(self._loop)
        said = {"task": "a callback" if task is None else task.get_name(), "seconds": 2 * self._pause}
        logger.warning(events.LOOP_BLOCKED, extra=said)
        return True

    def _failed(self, error: Exception) -> None:
        is_expected = isinstance(error, StoreError | TimeoutError)
        self._tell(lambda: self._figures.count("heartbeat_errors_total"))
        logger.warning(events.HEARTBEAT_FAILED, exc_info=None if is_expected else error, extra={"error": str(error)})

    def _tell(self, news: Callable[[], None]) -> bool:
        """Have something called on the loop when it turns again; False if it never will."""
        try:
            self._loop.call_soon_threadsafe(news)
        except RuntimeError:  # it was closed meanwhile
            return False
        return True


async def _in_time(work: Awaitable[Any]) -> Any:
    async with asyncio.timeout(_PATIENCE):  # real time: the store's own patience
        return await work
