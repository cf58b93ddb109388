"""The shares of tenants in the slots of executors: whose task gets the next slot.

Of the tenants that wait, the one that uses the fewest slots for its weight gets the next one. Among equals it is the
one whose turn has come, so that tenants also take turns where there are fewer slots than tenants. While the tasks of
one tenant wait alone, their own order is all that counts.
"""

from collections.abc import Collection, Iterable, Mapping
from heapq import heappop, heappush
from typing import Any, Generic, TypeVar

from tidemill.workflows.records import VersionKey

ItemT = TypeVar("ItemT", bound=tuple[Any, ...])
DEFAULT_WEIGHT = 1


def moves_to(other: float, other_step: float, own: float, own_step: float, *, has_waited: bool) -> bool:
    """Return whether a slot that a tenant has freed goes to another tenant that waits, and is not kept for its run.

    Shares are slots in use for each unit of weight, and a step is what one slot adds: `own` includes the slot. It moves
    if the other tenant then still has less than its owner had, so that it does not move back with the next task. One
    that `has_waited` for long gets it even if both then only change places.
    """
    return other + other_step < own or (has_waited and other <= own - own_step)


def ask_first(loaded: Collection[VersionKey], used: Mapping[str, int], weights: Mapping[str, int]) -> list[VersionKey]:
    """Return the versions of the tenants with a smaller share of slots than another; none if that is none, or all.

    The store knows which of them have tasks that wait, so the shares of all tenants need not be compared.
    """
    shares = {tenant: number / weights.get(tenant, DEFAULT_WEIGHT) for tenant, number in used.items()}
    largest = max(shares.values(), default=0)
    first = [version for version in loaded if shares.get(version.tenant, 0) < largest]
    return first if len(first) < len(loaded) else []


class FairQueue(Generic[ItemT]):
    """Items of several tenants, in the order in which they get slots. Items of one tenant are compared with `<`."""

    def __init__(self, weights: Mapping[str, int]) -> None:
        self._weights = weights
        self.heaps: dict[str, list[ItemT]] = {}
        """By tenant: its items, as a heap; only tenants that have some."""
        self._turns: dict[str, float] = {}
        """By tenant: how many slots it got while others waited, for its weight; as if it had always waited."""
        self._last_turn = 0.0

    def __len__(self) -> int:
        return sum(map(len, self.heaps.values()))

    def step(self, tenant: str) -> float:
        """Return what one slot adds to the share of a tenant."""
        return 1 / self._weights.get(tenant, DEFAULT_WEIGHT)

    def heads(self) -> Iterable[ItemT]:
        """Return the first item of each tenant."""
        return [heap[0] for heap in self.heaps.values()]

    def push(self, tenant: str, item: ItemT) -> None:
        """Add an item."""
        if (heap := self.heaps.get(tenant)) is None:
            heap = self.heaps[tenant] = []
            self._turns[tenant] = max(self._turns.get(tenant, 0.0), self._last_turn)
        heappush(heap, item)

    def first(self, used: Mapping[str, int]) -> ItemT:
        """Return the next item; `used` are the slots in use by tenant, and may be empty if only one waits."""
        if len(self.heaps) == 1:
            (heap,) = self.heaps.values()
            return heap[0]
        *_, item = min(
            (used.get(tenant, 0) * self.step(tenant), self._turns[tenant], heap[0])
            for tenant, heap in self.heaps.items()
        )
        return item

    def pop(self, tenant: str, *, gets_slot: bool = True) -> ItemT:
        """Remove the first item of a tenant, and return it. It uses a turn of the tenant if it gets a slot."""
        heap = self.heaps[tenant]
        item = heappop(heap)
        if gets_slot and len(self.heaps) > 1:
            self._last_turn = self._turns[tenant]
            self._turns[tenant] += self.step(tenant)
        if not heap:
            del self.heaps[tenant]
            if not self.heaps:
                self._turns, self._last_turn = {}, 0.0
        return item
