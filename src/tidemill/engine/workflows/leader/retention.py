"""Retention: runs that ended long ago are deleted, a few at a time."""

from datetime import timedelta

from tidemill.engine.workflows.runtime import WorkflowRuntime

STARTUP_DELAY = 60.0  # seconds before the first look, when a leader has better things to do
PRUNE_INTERVAL = 3600.0  # seconds between looks, once everything is deleted that should be
IDLE_LATENESS_SHARE = 0.01  # of the time that runs are kept: how late they may go where nothing else happens
PRUNE_BATCH_SIZE = 100  # runs that are deleted in one transaction


class Retention:
    """Deletes what is older than the settings allow."""

    def __init__(self, runtime: WorkflowRuntime) -> None:
        self._store = runtime.store
        self._clock = runtime.clock
        self._settings = runtime.settings
        self._metrics = runtime.metrics
        self.next_at = self._clock.monotonic() + STARTUP_DELAY
        """When to look again, on the monotonic clock; it has passed while there is more to delete."""

    @property
    def next_at_if_idle(self) -> float:
        """When to look again if that were the only reason to wake up."""
        shortest = min([self._settings.retention, *self._settings.tenant_retention.values()])
        return self.next_at + max(0.0, IDLE_LATENESS_SHARE * shortest - PRUNE_INTERVAL)

    async def prune(self) -> None:
        """Delete some of what is too old, if it is time to look; with every tick, as long as there is more."""
        if self._clock.monotonic() < self.next_at:
            return
        deleted = [await self._prune_tenant(tenant) for tenant in await self._store.runs.list_tenants()]
        self._metrics.increment("runs_pruned_total", sum(deleted))
        if PRUNE_BATCH_SIZE not in deleted:
            self.next_at = self._clock.monotonic() + PRUNE_INTERVAL

    async def _prune_tenant(self, tenant: str) -> int:
        """Delete some of what is too old of one tenant, so that nobody waits for another one's millions."""
        kept = self._settings.tenant_retention.get(tenant, self._settings.retention)
        return await self._store.runs.prune(tenant, self._clock.now() - timedelta(seconds=kept), PRUNE_BATCH_SIZE)
