"""Routing of operations: which node runs a reactor or an accumulator."""

from itertools import chain
from typing import Any, Protocol, TypeAlias

from tidemill.engine.graphs.client.host_operations import HostOperations
from tidemill.engine.graphs.client.keyed_operations import KeyedOperations, PartitionRouter
from tidemill.engine.graphs.client.operations import GraphOperations
from tidemill.engine.graphs.client.part_operations import AnyPartition
from tidemill.engine.graphs.partitions.partitioned import PartitionedReactor
from tidemill.engine.graphs.partitions.relay_sink import is_unsendable, sendable_forms
from tidemill.engine.graphs.scheduler import GraphScheduler
from tidemill.graphs.outcomes import Receipt, Rejection
from tidemill.kernel.errors import RequestError, StoreError
from tidemill.storage.graph_ports import PartKey, PartKind

AnyPart: TypeAlias = AnyPartition | KeyedOperations
"""The operations on a reactor or an accumulator, with keys or without, wherever it runs."""


class AccumulatorFront:
    """An accumulator of a keyed reactor, as the reactors see it whose nodes feed it."""

    is_waiting_for_space = False  # a full partition delays only the events for it

    def __init__(self, keyed: PartitionedReactor, name: str, operations: KeyedOperations) -> None:
        self._partitioner = keyed.partitioners[name]
        self.definition = self._partitioner.accumulator
        self.event_validator = self._partitioner.validator
        self._tenant = keyed.tenant
        self._name = name
        self._operations = operations

    async def push(self, event: Any, encoding: str = "json") -> Receipt:
        """Push an event to the partition of its key."""
        for form in chain([event], sendable_forms(self._partitioner, event, encoding)):
            try:
                return await self._operations.push(self._tenant, self._name, form, encoding)
            except (RequestError, StoreError) as error:
                if not is_unsendable(error):  # no node has answered
                    return Rejection(False, 0, "rejected", str(error))
        raise AssertionError("the last form of an event can be sent")


class OperationRouter(PartitionRouter, Protocol):
    """Finds the node that runs a reactor or an accumulator."""

    def at(self, part: PartKey) -> AnyPart:
        """Return the operations of the node that runs a part."""

    async def owned_names(self, tenant: str, kind: PartKind) -> list[str]:
        """Return the names of a tenant's durable parts that some node runs."""

    async def open(self) -> None:
        """Serve the requests of other nodes from now on."""

    async def close(self) -> None:
        """Take no more links of other nodes."""

    @property
    def is_idle(self) -> bool:
        """Whether no request of another node is being served."""


class LocalRouter(OperationRouter):
    """The router of a node without a store: it runs everything itself."""

    def __init__(
        self, scheduler: GraphScheduler, operations: GraphOperations, router: PartitionRouter | None = None
    ) -> None:
        """`router` lets the operations on keyed reactors reach all hosts."""
        self._loaded = scheduler.loaded
        self._operations = operations
        self._host_operations = HostOperations(scheduler, operations)
        self.keyed = KeyedOperations(scheduler, router or self)
        scheduler.find_front = self._find_front
        relays = scheduler.sharing.relays
        relays.bring, relays.mark_source = self.keyed.bring, self.keyed.mark_source

    def _find_front(self, tenant: str, name: str) -> AccumulatorFront | None:
        keyed = self._loaded.keyed_accumulators.get((tenant, name))
        return None if keyed is None else AccumulatorFront(keyed, name, self.keyed)

    def at(self, part: PartKey) -> GraphOperations | KeyedOperations:
        return self.keyed if self._loaded.is_partitioned(part) else self._operations

    def at_partition(self, part: PartKey) -> GraphOperations:  # noqa: ARG002 - this node runs every part
        """Return the operations of this node."""
        return self._operations

    def at_host(self, host: PartKey) -> HostOperations:  # noqa: ARG002 - as above
        """Return the operations of this node on its share."""
        return self._host_operations

    async def owned_names(self, tenant: str, kind: PartKind) -> list[str]:  # noqa: ARG002 - as above
        return []

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    @property
    def is_idle(self) -> bool:
        return True
