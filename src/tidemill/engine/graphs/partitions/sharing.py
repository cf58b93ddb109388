"""Sharing of partitions: which of a keyed reactor's partitions a node runs."""

from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from tidemill.engine.graphs.partitions.membership import ClusterView, HostId
from tidemill.engine.graphs.partitions.partitioned import PartitionedReactor
from tidemill.engine.graphs.partitions.relays import ReaderListener, SourceRelays
from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.engine.registry import Key
from tidemill.storage.graph_ports import PartKey

LOCAL_HOST = "this node"


class LoadedPartitions(Protocol):
    """What the node has loaded, as the sharing of partitions sees it."""

    leaving: set[PartKey]
    """Parts of partitions that this node hands over: they take nothing new."""

    def partitions_of(self, keyed: PartitionedReactor) -> list[Any]:
        """Return the partitions of a keyed reactor that run here, by number."""


class ChangeExclusion(Protocol):
    """Keeps changes of packages from overlapping with a move of partitions."""

    def exclude(self) -> AbstractAsyncContextManager[None]:
        """Keep packages as they are meanwhile."""


class PartitionRunner(Protocol):
    """The graph scheduler, as the sharing of partitions sees it."""

    @property
    def changes(self) -> ChangeExclusion:
        """Keeps changes of packages from overlapping with a move."""

    @property
    def loaded(self) -> LoadedPartitions:
        """What the node has loaded."""

    async def start_partitions(self, keyed: PartitionedReactor, numbers: Iterable[int]) -> None:
        """Start partitions that this node has acquired."""

    async def stop_partition(self, keyed: PartitionedReactor, number: int) -> None:
        """Stop a partition that runs here, write its state, and release it."""


class PartitionSharing(Protocol):
    """Decides which partitions run here."""

    async def join(self, keyed: PartitionedReactor) -> list[int]:
        """Take part in a keyed reactor that is being loaded; return the partitions to start with it."""

    relays: SourceRelays

    def replace(self, newer: PartitionedReactor) -> None:
        """Go on with a newer version of a keyed reactor."""

    def activate(self) -> None:
        """Read sources from now on: everything of a load is there."""

    async def confirm_pause(self, keyed: PartitionedReactor) -> None:
        """Pause or resume the partitions here as the store says: a command may have come while they were restored."""

    async def leave(self, keyed: PartitionedReactor) -> None:
        """Stop the partitions that run here, and take part no more."""

    def wake(self) -> None:
        """Decide again: this node has lost partitions."""

    async def view(self, keyed: PartitionedReactor) -> ClusterView:
        """Return the hosts of a keyed reactor, and the owners of its partitions."""


class OwnPartitions(PartitionSharing):
    """Without a store there are no other nodes: all partitions run here."""

    def __init__(self, runner: PartitionRunner, runtime: GraphRuntime, listener: ReaderListener) -> None:
        self._runner = runner
        self._runtime = runtime
        self.relays = SourceRelays(runtime, listener=listener)
        self._joined: dict[Key, PartitionedReactor] = {}

    async def join(self, keyed: PartitionedReactor) -> list[int]:
        self._joined[keyed.key] = keyed
        return list(keyed.numbers)

    def replace(self, newer: PartitionedReactor) -> None:
        self._joined[newer.key] = newer

    def activate(self) -> None:
        for keyed in self._joined.values():
            self._runtime.tasks.start(f"relays of {keyed.name}: start", self.relays.run_for(keyed))

    async def confirm_pause(self, keyed: PartitionedReactor) -> None:
        pass

    def wake(self) -> None:
        pass

    async def view(self, keyed: PartitionedReactor) -> ClusterView:
        owners = dict.fromkeys(keyed.numbers, LOCAL_HOST)
        part = HostId(keyed.name, 1, LOCAL_HOST).part(keyed.tenant)
        return ClusterView(hosts={LOCAL_HOST: 1}, owners=owners, parts={LOCAL_HOST: part}, is_front_free=False)

    async def leave(self, keyed: PartitionedReactor) -> None:
        self._joined.pop(keyed.key, None)
        await self.relays.stop_for(keyed)
        for number in running_numbers(self._runner.loaded, keyed):
            await self._runner.stop_partition(keyed, number)


def running_numbers(loaded: LoadedPartitions, keyed: PartitionedReactor) -> list[int]:
    """Return the numbers of the partitions that run here."""
    running = {one.reactor.name for one in loaded.partitions_of(keyed)}
    return [number for number in keyed.numbers if keyed.partition(number).name in running]
