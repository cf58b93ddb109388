"""The sizes of pools on this node: those that the store has, which hold for every process on it."""

import logging
from collections.abc import Mapping

from tidemill.storage.tables.pools import Pools
from tidemill.telemetry import events

logger = logging.getLogger(__name__)


class PoolSizes:
    """The slots of each pool, as the store last had them; the store itself decides about each claim.

    `given` are the sizes that this node sets when it starts; `assumed` are those of pools that the store has no size
    of, and are not stored.
    """

    def __init__(
        self, pools: Pools, given: Mapping[str, int] | None = None, assumed: Mapping[str, int] | None = None
    ) -> None:
        self._pools = pools
        self._given = dict(given or {})
        self._assumed = dict(assumed or {})
        self.sizes = self._assumed | self._given

    async def open(self) -> None:
        """Store the sizes that this node was given, and read those of all pools."""
        for name, before in (await self._pools.set_sizes(self._given) if self._given else {}).items():
            _log_resized(name, before, self._given[name])
        self.sizes = self._assumed | await self._pools.read_sizes()

    async def refresh(self) -> None:
        """Read the sizes again: other processes may have changed them."""
        known, self.sizes = self.sizes, self._assumed | await self._pools.read_sizes()
        for name, slots in self.sizes.items():
            if known.get(name, slots) != slots:
                _log_resized(name, known[name], slots)


def _log_resized(name: str, before: int, slots: int) -> None:
    logger.warning(events.POOL_RESIZED, extra={"pool": name, "slots": slots, "before": before})
