"""Heartbeats: as long as an attempt lives here, its lease is renewed; what is no longer ours is stopped.

They come from the loop, and from the lifeline while author code blocks that.
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

THREAD_NAME = "tidemill-lifeline"
_STORE_TIMEOUT = 5.0
"""Seconds for anything that the store is asked: its own deadlines do not cover a commit of which nobody knows."""


class HeartbeatThread:
    """A thread that beats while the loop does not."""

    def __init__(self, runtime: WorkflowRuntime, attempts: LocalAttempts, make_store: Callable[[], Store]) -> None:
        self._owner = runtime.owner.id
        self._metrics = runtime.metrics
        self._claimed = attempts.claimed
        self._make_store = make_store
        self._lease = runtime.settings.heartbeat_timeout
        self._half_interval = (
            runtime.settings.heartbeat_interval / 2
        )  # for the loop to answer in, and before it is asked
        self._loop_responded = threading.Event()
        self._is_closed = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to watch the running loop, unless that has begun: as a daemon, which keeps no process alive."""
        if self._thread is None and not self._is_closed.is_set():
            self._loop = asyncio.get_running_loop()
            self._thread = threading.Thread(target=self._watch, name=THREAD_NAME, daemon=True)
            self._thread.start()

    async def close(self, timeout: float) -> None:
        """Beat no more, and wait until the thread has ended, but not for longer than so many seconds."""
        self._is_closed.set()
        self._loop_responded.set()
        if self._thread is not None:
            await call_in_new_thread(f"{THREAD_NAME}: end", self._thread.join, timeout)

    # -- on the thread

    def _watch(self) -> None:
        while not self._is_closed.wait(self._half_interval) and not self._loop.is_closed():
            try:
                if self._claimed_keys() and self._is_loop_blocked():
                    self._renew_until_responsive()
            except Exception as error:  # whatever is wrong with a round, the next has its turn
                self._on_error(error)

    def _claimed_keys(self) -> list[AttemptKey]:
        """Return what is held: to copy a dict into a list is one step, in which the loop changes nothing."""
        return list(self._claimed)

    def _is_loop_blocked(self) -> bool:
        """Ask the loop for a sign of life. One that does not even run has been left, and so have its attempts."""
        self._loop_responded.clear()
        if not self._call_on_loop(self._loop_responded.set) or not self._loop.is_running():
            return False
        return not self._loop_responded.wait(self._half_interval) and self._loop.is_running()

    def _renew_until_responsive(self) -> None:
        """Beat until the loop turns again."""
        is_said = False
        with asyncio.Runner() as runner:
            store = self._make_store()
            try:
                runner.run(_with_timeout(store.open()))
                while not self._loop_responded.is_set() and (held := self._claimed_keys()):
                    runner.run(_with_timeout(store.runs.renew_leases(self._owner, held, self._lease)))
                    if not self._loop_responded.wait(self._half_interval) and not is_said:
                        is_said = self._log_blocked()
            finally:
                runner.run(_with_timeout(store.close()))

    def _log_blocked(self) -> bool:
        """Say what the loop is at: it has been at it for a whole interval, for half of which it was asked in vain."""
        task = asyncio.current_task(self._loop)
        said = {"task": "a callback" if task is None else task.get_name(), "seconds": 2 * self._half_interval}
        logger.warning(events.LOOP_BLOCKED, extra=said)
        return True

    def _on_error(self, error: Exception) -> None:
        is_expected = isinstance(error, StoreError | TimeoutError)
        self._call_on_loop(lambda: self._metrics.increment("heartbeat_errors_total"))
        logger.warning(events.HEARTBEAT_FAILED, exc_info=None if is_expected else error, extra={"error": str(error)})

    def _call_on_loop(self, callback: Callable[[], None]) -> bool:
        """Have something called on the loop when it turns again; False if it never will."""
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:  # it was closed meanwhile
            return False
        return True


async def _with_timeout(work: Awaitable[Any]) -> Any:
    async with asyncio.timeout(_STORE_TIMEOUT):  # real time: the store's own patience
        return await work


class Heartbeats:
    """Beats for everything that lives on this node."""

    def __init__(self, runtime: WorkflowRuntime, attempts: LocalAttempts) -> None:
        self._store = runtime.store
        self._attempts = attempts
        self._clock = runtime.clock
        self._settings = runtime.settings
        self._metrics = runtime.metrics
        self.is_renewing = False
        """Whether the store is being told what lives here."""
        spare = runtime.make_heartbeat_store
        self._heartbeat_thread = None if spare is None else HeartbeatThread(runtime, attempts, spare)

    async def run(self) -> None:
        """Beat until cancelled, while there is anything to beat for."""
        await run_forever(self._wait_and_renew, self._on_error)

    async def close(self, timeout: float) -> None:
        """Beat no more, from wherever."""
        if self._heartbeat_thread is not None:
            await self._heartbeat_thread.close(timeout)

    async def _wait_and_renew(self) -> None:
        await self._attempts.has_claimed.wait()
        if self._heartbeat_thread is not None:
            self._heartbeat_thread.start()
        await self._clock.sleep(self._settings.heartbeat_interval)
        self.is_renewing = True
        try:
            await self.renew_leases()
        finally:
            self.is_renewing = False

    def _on_error(self, error: Exception) -> None:
        trace = None if isinstance(error, StoreError) else error
        self._metrics.increment("heartbeat_errors_total")
        logger.warning(events.HEARTBEAT_FAILED, exc_info=trace, extra={"error": str(error)})

    async def renew_leases(self) -> None:
        """Renew the leases of what lives, or waits to be handed over, and stop what is not ours any more."""
        living = self._attempts.tracked()
        if living:
            ours = await self._store.runs.renew_leases(
                self._attempts.owner.id, living, self._settings.heartbeat_timeout
            )
            await self._attempts.stop(sorted(living - ours), "no longer wanted")
