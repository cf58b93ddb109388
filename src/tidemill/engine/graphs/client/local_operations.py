"""The operations of this node by part: on reactors, on its share of a keyed reactor, and on whole keyed reactors."""

from typing import Any

from tidemill.engine.graphs.client.accumulator_front import AccumulatorFront
from tidemill.engine.graphs.client.host_operations import HostOperations
from tidemill.engine.graphs.client.keyed_operations import KeyedOperations
from tidemill.engine.graphs.client.operations import GraphOperations
from tidemill.engine.graphs.client.routing import NodeOperationsByPart, OperationRouter
from tidemill.engine.graphs.partitions.membership import HostOffer
from tidemill.engine.graphs.scheduler import GraphScheduler
from tidemill.storage.graph_ports import PartKey


class LocalOperations(NodeOperationsByPart):
    """Finds the operations for a part."""

    keyed: KeyedOperations

    def __init__(self, scheduler: GraphScheduler, operations: GraphOperations) -> None:
        self._scheduler = scheduler
        self._operations = operations
        self._host_operations = HostOperations(scheduler, operations)

    def connect(self, router: OperationRouter) -> None:
        """Let the operations on keyed reactors reach all hosts."""
        self.keyed = KeyedOperations(self._scheduler, router)
        self._scheduler.find_front = self._find_front
        relays = self._scheduler.sharing.relays
        relays.bring, relays.mark_source = self.keyed.relay, self.keyed.mark_source

    def _find_front(self, tenant: str, name: str) -> AccumulatorFront | None:
        keyed = self._scheduler.keyed_accumulators.get((tenant, name))
        return None if keyed is None else AccumulatorFront(keyed, name, self.keyed)

    def for_part(self, part: PartKey) -> Any:
        if HostOffer.parse(part.name) is not None:
            return self._host_operations
        if self._scheduler.is_partitioned(part):
            return self.keyed
        return self._operations
