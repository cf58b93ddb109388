"""Membership: the nodes that host partitions of a keyed reactor, and the partitions that each of them owns.

A node offers to host by owning a part that stands for it, which it renews and releases like any other. So a host that
dies is noticed as the owner of a reactor is, by the same rows and the same clock.
"""

from collections.abc import Mapping, Sequence
from math import inf

import msgspec

from tidemill.engine.graphs.durability.ownership import ReactorOwnership
from tidemill.engine.graphs.partitions.partitioned import PartitionedReactor
from tidemill.engine.registry import Key
from tidemill.kernel.clock import Clock
from tidemill.kernel.settings import Settings
from tidemill.storage.graph_ports import PartKey, PartOwner, PartOwners


class HostId(msgspec.Struct, frozen=True):
    """A node as host of a keyed reactor, and its weight: the part that stands for it is the address of that node.

    As text, `market/1/node-a`, it is the name of that part, and cannot be that of a reactor, which has no slash.
    """

    reactor: str
    weight: int
    host: str

    def __str__(self) -> str:
        return f"{self.reactor}/{self.weight}/{self.host}"

    @classmethod
    def parse(cls, text: str) -> "HostId | None":
        """Read a host from the name of its part; None for the name of anything else."""
        match text.split("/"):
            case [reactor, weight, host]:
                return cls(reactor, int(weight), host)
        return None

    def part(self, tenant: str) -> PartKey:
        """Return the part that its host owns."""
        return PartKey(tenant, "reactor", str(self))


class ClusterView(msgspec.Struct, frozen=True):
    """The hosts of a keyed reactor and the owners of its partitions, as one node sees them."""

    hosts: Mapping[str, int]
    """The weights of the hosts that have been there for long enough."""
    owners: Mapping[int, str | None]
    """The living owner of each partition."""
    parts: Mapping[str, PartKey]
    """The addresses of all living hosts."""
    is_front_free: bool
    """Whether no living node answers for the reactor as a whole."""


class Membership:
    """Reads who takes part, and takes part."""

    def __init__(self, part_owners: PartOwners, ownership: ReactorOwnership, clock: Clock, settings: Settings) -> None:
        self._part_owners = part_owners
        self._ownership = ownership
        self._clock = clock
        self._settle_delay = settings.rebalance_delay
        self._weight = settings.partition_weight
        self._first_seen: dict[Key, dict[PartKey, float]] = {}

    @property
    def host(self) -> str:
        """The id of this node."""
        return self._ownership.owner_id

    async def offer(self, keyed: PartitionedReactor) -> None:
        """Offer to host partitions, unless the weight of this node is 0."""
        if self._weight:
            await self._ownership.acquire([self._own_offer(keyed)])

    async def withdraw(self, keyed: PartitionedReactor) -> None:
        """Take the offer back, so that others assign nothing to this node."""
        self._first_seen.pop(keyed.key, None)
        await self._ownership.release([self._own_offer(keyed)])

    async def view(self, keyed: PartitionedReactor) -> ClusterView:
        """Read the hosts, and the owners of all partitions."""
        offers = await self._offers(keyed)
        front = PartKey(keyed.tenant, "reactor", keyed.name)
        numbers = {keyed.reactor_part(number): number for number in keyed.numbers}
        found = await self._part_owners.owners_of(sorted([front, *offers, *numbers]))
        living = self._living(found)
        settled = self._settled(keyed, [part for part in offers if part in living])
        owners: dict[int, str | None] = dict.fromkeys(keyed.numbers)
        owners |= {numbers[part]: host for part, host in living.items() if part in numbers}
        return ClusterView(
            hosts={offers[part].host: offers[part].weight for part in settled},
            owners=owners,
            parts={offer.host: part for part, offer in offers.items() if part in living},
            is_front_free=front not in living,
        )

    def _own_offer(self, keyed: PartitionedReactor) -> PartKey:
        return HostId(keyed.name, self._weight, self.host).part(keyed.tenant)

    async def _offers(self, keyed: PartitionedReactor) -> dict[PartKey, HostId]:
        names = await self._part_owners.owned_names(keyed.tenant, "reactor")
        offers = (HostId.parse(name) for name in names)
        return {one.part(keyed.tenant): one for one in offers if one is not None and one.reactor == keyed.name}

    def _living(self, owners: Sequence[PartOwner]) -> dict[PartKey, str]:
        """Return the ids of the owners that are alive, by part."""
        abandoned = set(self._ownership.abandoned_among(owners))
        return {one.key: self._ownership.id_of(one) for one in owners if one not in abandoned}

    def _settled(self, keyed: PartitionedReactor, offers: Sequence[PartKey]) -> list[PartKey]:
        """Return the offers that have been there for long enough: partitions do not follow a host that comes and goes.

        Those that this node finds when it looks for the first time, and its own, count at once.
        """
        now, known = self._clock.monotonic(), self._first_seen.get(keyed.key)
        since = now - self._settle_delay if known is None else now
        own = self._own_offer(keyed)
        seen = {one: (known or {}).get(one, -inf if one == own else since) for one in offers}
        self._first_seen[keyed.key] = seen
        return [one for one in offers if now - seen[one] >= self._settle_delay]
