"""Heartbeats: renew the leases of this node's attempts, and cancel attempts that the node no longer owns.

The node says that it lives, too, unless it has the store to itself: no one could read it.

A node sends heartbeats from its event loop. While author code blocks the loop, the watch of the loop sends them: else
attempts would be started on other nodes although they are running.
"""

import logging

from tidemill.engine.loop_watch import HeldLeases
from tidemill.engine.tasks import run_forever
from tidemill.engine.workflows.runtime import WorkflowRuntime
from tidemill.engine.workflows.worker.attempts import LocalAttempts
from tidemill.kernel.errors import StoreError
from tidemill.storage.store import Store
from tidemill.telemetry import events

logger = logging.getLogger(__name__)


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

    async def run(self) -> None:
        """Renew leases until cancelled, while the node has claimed attempts."""
        await run_forever(self._wait_and_renew, self._on_error)

    @property
    def held(self) -> HeldLeases:
        """The leases of claimed attempts. They have no limit: an attempt lives as long as its code does."""
        interval = self._settings.heartbeat_interval / 2
        return HeldLeases(interval, lambda: bool(self._attempts.claimed), self._renew_on, has_limit=False)

    async def _renew_on(self, store: Store) -> None:
        """Renew the leases on a thread. To copy a dict into a list is atomic: the loop cannot change it meanwhile."""
        claimed = list(self._attempts.claimed)
        await store.runs.renew_leases(self._attempts.owner.id, claimed, self._settings.heartbeat_timeout)

    async def _wait_and_renew(self) -> None:
        await self._attempts.has_claimed.wait()
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
        self._runs = runtime.store.runs
        self._owner = runtime.owner
        self._clock = runtime.clock
        self._interval = runtime.settings.heartbeat_interval
        self._metrics = runtime.metrics
        self.is_writing = False
        """Whether a beat is being written."""
        self.is_registered = False
        """Whether the row of this node is to be kept."""

    async def register(self) -> None:
        """Write the row of this node."""
        self.is_registered = True
        await self._owners.upsert(self._owner)

    async def deregister(self) -> None:
        """Delete the row of this node, unless attempts of it are still claimed."""
        self.is_registered = False
        try:
            if not await self._runs.list_claimed_by([self._owner.id]):
                await self._owners.delete([self._owner.id])
        except StoreError as error:
            logger.warning(events.NODE_DEREGISTER_FAILED, extra={"error": str(error)})

    @property
    def held(self) -> HeldLeases:
        """The row of this node."""
        return HeldLeases(self._interval, lambda: self.is_registered, lambda store: store.owners.upsert(self._owner))

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
