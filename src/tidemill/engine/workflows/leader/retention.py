"""Retention: deletes runs that ended long ago, in small batches."""

from datetime import datetime, timedelta
from typing import NamedTuple

from tidemill.engine.workflows.runtime import WorkflowRuntime
from tidemill.kernel.clock import StepDetector

STARTUP_DELAY = 60.0  # seconds before the first pass: a new leader has more urgent work
PRUNE_INTERVAL = 3600.0  # seconds between passes, once nothing is left to delete
IDLE_LATENESS_SHARE = 0.01  # of the retention time: how late runs may be deleted on an idle node
PRUNE_BATCH_SIZE = 100  # runs deleted in one transaction


class PrunePass(NamedTuple):
    """A pass over the runs of all tenants."""

    at: datetime
    """When its last batch was deleted."""
    deleted: int
    """How many runs it has deleted."""


class Retention:
    """Deletes runs that are older than the retention of their tenant."""

    def __init__(self, runtime: WorkflowRuntime) -> None:
        self._store = runtime.store
        self._clock = runtime.clock
        self._settings = runtime.settings
        self._metrics = runtime.metrics
        self._steps = StepDetector(runtime.clock)
        self.next_at = self._clock.monotonic() + STARTUP_DELAY
        """When the next pass is due, on the monotonic clock; in the past while there is more to delete."""
        self.last_pass: PrunePass | None = None
        self._has_more = False

    @property
    def next_at_if_idle(self) -> float:
        """When the next pass is due if nothing else wakes the scheduler."""
        shortest = min([self._settings.retention, *self._settings.tenant_retention.values()])
        return self.next_at + max(0.0, IDLE_LATENESS_SHARE * shortest - PRUNE_INTERVAL)

    async def prune(self) -> None:
        """Delete a batch of expired runs of each tenant, if a pass is due; with every tick while there are more."""
        now = self._clock.now()
        if self._steps.check():  # it may have been an accident, and what is deleted is gone
            self.next_at = max(self.next_at, self._clock.monotonic() + PRUNE_INTERVAL)
        if self._clock.monotonic() < self.next_at:
            return
        deleted = [await self._prune_tenant(tenant, now) for tenant in await self._store.runs.list_tenants()]
        self._metrics.increment("runs_pruned_total", sum(deleted))
        before = self.last_pass.deleted if self.last_pass is not None and self._has_more else 0
        self.last_pass = PrunePass(now, before + sum(deleted))
        self._has_more = PRUNE_BATCH_SIZE in deleted
        if not self._has_more:
            self.next_at = self._clock.monotonic() + PRUNE_INTERVAL

    async def _prune_tenant(self, tenant: str, now: datetime) -> int:
        """Delete a batch of one tenant's expired runs, so that no tenant waits for the millions of another."""
        retention = self._settings.tenant_retention.get(tenant, self._settings.retention)
        return await self._store.runs.prune(tenant, now - timedelta(seconds=retention), PRUNE_BATCH_SIZE)
