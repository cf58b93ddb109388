"""The port of pools."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol


class PoolDemand(NamedTuple):
    """The task runs of a tenant that need a slot of a pool."""

    used: int
    """Those that have one: they are queued or running."""
    waiting: int
    """Those that are scheduled."""


class Pools(Protocol):
    """The sizes of pools, which hold for every process that uses the store."""

    async def set_sizes(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Set the sizes of pools; return the previous size of each pool whose size has changed."""

    async def read_sizes(self) -> dict[str, int]:
        """Return the size of each pool."""

    async def read_demand(self, tenant: str) -> dict[str, PoolDemand]:
        """Return how many task runs of a tenant use each pool, or wait for it; of pools with any."""

    async def delete(self, name: str) -> bool:
        """Delete a pool unless a task run that has not ended names it, of any tenant; return whether it was deleted."""


def changed_sizes(before: Mapping[str, int], sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the previous size of each pool whose size has changed."""
    return {name: before[name] for name, slots in sizes.items() if before.get(name, slots) != slots}
