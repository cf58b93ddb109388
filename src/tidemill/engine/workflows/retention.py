"""Retention: runs that ended long ago are deleted, a few at a time."""

from datetime import timedelta

from tidemill.engine.workflows.environment import Environment

SETTLING = 60.0  # seconds before the first look, when a leader has better things to do
EVERY = 3600.0  # seconds between looks, once everything is deleted that should be
LATE = 0.01  # of the time that runs are kept: how late they may go where nothing else happens
BATCH = 100  # runs that are deleted in one transaction


class Retention:
    """Deletes what is older than the settings allow."""

    def __init__(self, environment: Environment) -> None:
        self._store = environment.store
        self._clock = environment.clock
        self._settings = environment.settings
        self._figures = environment.figures
        self.next = self._clock.monotonic() + SETTLING
        """When to look again, on the monotonic clock; it has passed while there is more to delete."""

    @property
    def next_if_idle(self) -> float:
        """When to look again if that were the only reason to wake up."""
        shortest = min([self._settings.retention, *self._settings.tenant_retention.values()])
        return self.next + max(0.0, LATE * shortest - EVERY)

    async def prune(self) -> None:
        """Delete some of what is too old, if it is time to look; with every tick, as long as there is more."""
        if self._clock.monotonic() < self.next:
            return
        deleted = [await self._prune(tenant) for tenant in await self._store.runs.tenants()]
        self._figures.count("runs_pruned_total", sum(deleted))
        if BATCH not in deleted:
            self.next = self._clock.monotonic() + EVERY

    async def _prune(self, tenant: str) -> int:
        """Delete some of what is too old of one tenant, so that nobody waits for another one's millions."""
        kept = self._settings.tenant_retention.get(tenant, self._settings.retention)
        return await self._store.runs.prune(tenant, self._clock.now() - timedelta(seconds=kept), BATCH)
