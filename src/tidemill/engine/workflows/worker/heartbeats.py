"""Heartbeats: renew the leases of this node's attempts, and cancel attempts that the node no longer owns.

The node says that it lives, too, unless it has the store to itself: no one could read it.

A node sends heartbeats from its event loop. Author code that blocks the loop would silence every attempt of the node,
and all of them would be started on other nodes although they are running. So, while the node has claimed attempts, a
thread checks from time to time whether the loop responds. If it does not, the thread sends the heartbeats until it
does: on its own connections, to a store that it opens for that.

Only attempts are kept alive that way. The leadership is not: a leader whose loop is blocked does not plan, and is
replaced. And a process that is frozen falls silent as a whole: this thread is frozen with it.
"""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from tidemill.engine.tasks import run_forever
from tidemill.engine.workflows.runtime import WorkflowRuntime
from tidemill.engine.workflows.worker.attempts import LocalAttempts
from tidemill.kernel.concurrency import call_in_new_thread
from tidemill.kernel.errors import StoreError
from tidemill.storage.store import Store
from tidemill.telemetry import events
from tidemill.workflows.records import AttemptKey

logger = logging.getLogger(__name__)

THREAD_NAME = "tidemill-heartbeats"
_STORE_TIMEOUT = 5.0
"""Seconds for each store call: the store's own deadlines do not cover a commit whose outcome is unknown."""


class HeartbeatThread:
    """A thread that renews leases while the event loop is blocked."""

    def __init__(self, runtime: WorkflowRuntime, attempts: LocalAttempts, make_store: Callable[[], Store]) -> None:
        self._owner = runtime.owner.id
        self._metrics = runtime.metrics
        self._claimed = attempts.claimed
        self.make_store = make_store
        self._lease = runtime.settings.heartbeat_timeout
        self._half_interval = runtime.settings.heartbeat_interval / 2
        """Seconds between checks of the loop, and for the loop to respond to one."""
        self._loop_responded = threading.Event()
        self._is_closed = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Watch the running loop, in a daemon thread, which keeps no process alive; does nothing if it is started."""
        if self._thread is None and not self._is_closed.is_set():
            self._loop = asyncio.get_running_loop()
            self._thread = threading.Thread(target=self._watch, name=THREAD_NAME, daemon=True)
            self._thread.start()

    async def close(self, timeout: float) -> None:
        """Stop the thread, and wait up to `timeout` seconds for it to end."""
        self._is_closed.set()
        self._loop_responded.set()
        if self._thread is not None:
            await call_in_new_thread(f"{THREAD_NAME}: end", self._thread.join, timeout)

    # -- on the thread

    def _watch(self) -> None:
        while not self._is_closed.wait(self._half_interval) and not self._loop.is_closed():
            try:
                if self.claimed_keys() and self._is_loop_blocked():
                    self._renew_until_responsive()
            except Exception as error:  # a failed check does not end the thread
                self._on_error(error)

    def claimed_keys(self) -> list[AttemptKey]:
        """Return the claimed attempts. Copying a dict into a list is atomic, so the loop cannot change it meanwhile."""
        return list(self._claimed)

    def _is_loop_blocked(self) -> bool:
        """Return whether the loop does not respond. A loop that has been stopped, with its attempts, is not blocked."""
        self._loop_responded.clear()
        if not self.call_on_loop(self._loop_responded.set) or not self._loop.is_running():
            return False
        return not self._loop_responded.wait(self._half_interval) and self._loop.is_running()

    def _renew_until_responsive(self) -> None:
        """Renew leases until the loop responds."""
        is_logged = False
        with asyncio.Runner() as runner:
            store = self.make_store()
            try:
                runner.run(_with_timeout(store.open()))
                while not self._loop_responded.is_set() and (claimed := self.claimed_keys()):
                    runner.run(_with_timeout(store.runs.renew_leases(self._owner, claimed, self._lease)))
                    if not self._loop_responded.wait(self._half_interval) and not is_logged:
                        self._log_blocked()
                        is_logged = True
            finally:
                runner.run(_with_timeout(store.close()))

    def _log_blocked(self) -> None:
        """Log which task blocks the loop; by now it has done so for a whole heartbeat interval."""
        task = asyncio.current_task(self._loop)
        details = {"task": "a callback" if task is None else task.get_name(), "seconds": 2 * self._half_interval}
        logger.warning(events.LOOP_BLOCKED, extra=details)

    def _on_error(self, error: Exception) -> None:
        is_expected = isinstance(error, StoreError | TimeoutError)
        self.call_on_loop(lambda: self._metrics.increment("heartbeat_errors_total"))
        logger.warning(events.HEARTBEAT_FAILED, exc_info=None if is_expected else error, extra={"error": str(error)})

    def call_on_loop(self, callback: Callable[[], None]) -> bool:
        """Schedule a callback on the loop; False if the loop is closed."""
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:  # the loop was closed meanwhile
            return False
        return True


async def _with_timeout(work: Awaitable[Any]) -> Any:
    async with asyncio.timeout(_STORE_TIMEOUT):  # real time: the store is outside the injected clock
        return await work


class Heartbeats:
    """Renews the leases of all attempts of this node."""

    def __init__(self, runtime: WorkflowRuntime, attempts: LocalAttempts) -> None:
        self._store = runtime.store
        self._attempts = attempts
        self._clock = runtime.clock
        self._settings = runtime.settings
        self._metrics = runtime.metrics
        self.is_renewing = False
        """Whether leases are being renewed."""
        make_store = runtime.make_heartbeat_store
        self.thread = None if make_store is None else HeartbeatThread(runtime, attempts, make_store)

    async def run(self) -> None:
        """Renew leases until cancelled, while the node has claimed attempts."""
        await run_forever(self._wait_and_renew, self._on_error)

    async def close(self, timeout: float) -> None:
        """Stop the heartbeat thread."""
        if self.thread is not None:
            await self.thread.close(timeout)

    async def _wait_and_renew(self) -> None:
        await self._attempts.has_claimed.wait()
        if self.thread is not None:
            self.thread.start()
        await self._clock.sleep(self._settings.heartbeat_interval)
        self.is_renewing = True
        try:
            await self.renew_leases()
        finally:
            self.is_renewing = False

    def _on_error(self, error: Exception) -> None:
        traceback = None if isinstance(error, StoreError) else error
        self._metrics.increment("heartbeat_errors_total")
        logger.warning(events.HEARTBEAT_FAILED, exc_info=traceback, extra={"error": str(error)})

    async def renew_leases(self) -> None:
        """Renew the leases of attempts that will still report, and cancel those that this node no longer owns."""
        tracked = self._attempts.kept_alive()
        if tracked:
            owner, timeout = self._attempts.owner.id, self._settings.heartbeat_timeout
            renewed = await self._store.runs.renew_leases(owner, tracked, timeout)
            for executor in self._attempts.executors.values():
                executor.on_leases_renewed()
            await self._attempts.stop(tracked - renewed)


class Presence:
    """Keeps the row of this node among the nodes of the store."""

    def __init__(self, runtime: WorkflowRuntime) -> None:
        self._owners = runtime.store.owners
        self._owner = runtime.owner
        self._clock = runtime.clock
        self._interval = runtime.settings.heartbeat_interval
        self._metrics = runtime.metrics
        self.is_writing = False
        """Whether a beat is being written."""

    async def register(self) -> None:
        """Write the row of this node."""
        await self._owners.upsert(self._owner)

    async def run(self) -> None:
        """Beat until cancelled."""
        await run_forever(self._wait_and_beat, self._on_error)

    async def _wait_and_beat(self) -> None:
        await self._clock.sleep(self._interval)
        self.is_writing = True
        try:
            await self.register()
        finally:
            self.is_writing = False

    def _on_error(self, error: Exception) -> None:
        traceback = None if isinstance(error, StoreError) else error
        self._metrics.increment("heartbeat_errors_total")
        logger.warning(events.HEARTBEAT_FAILED, exc_info=traceback, extra={"error": str(error)})
