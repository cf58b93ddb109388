"""Presence: says in the store that this node lives, at every heartbeat.

A node that has the store to itself says nothing: no one could read it.
"""

import logging

from tidemill.engine.tasks import run_forever
from tidemill.engine.workflows.runtime import WorkflowRuntime
from tidemill.kernel.errors import StoreError
from tidemill.telemetry import events

logger = logging.getLogger(__name__)


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
