"""The front of a keyed reactor's accumulator: feeds push to it, and it finds the partition."""

from typing import Any

from tidemill.engine.graphs.client.keyed_operations import KeyedOperations
from tidemill.engine.graphs.partitions.partitioned import PartitionedReactor
from tidemill.graphs.result import Receipt
from tidemill.kernel.errors import RequestError


class AccumulatorFront:
    """An accumulator of a keyed reactor, as the reactors see it whose nodes feed it."""

    is_waiting_for_space = False  # a full partition delays only the events for it

    def __init__(self, keyed: PartitionedReactor, name: str, operations: KeyedOperations) -> None:
        partitioner = keyed.partitioners[name]
        self.definition = partitioner.accumulator
        self.event_validator = partitioner.validator
        self.may_accept_later = False
        """Whether the last event that was rejected may be accepted later."""
        self._tenant = keyed.tenant
        self._name = name
        self._operations = operations

    async def push(self, event: Any, encoding: str = "json") -> Receipt:
        """Push an event to the partition of its key."""
        try:
            receipt = await self._operations.push(self._tenant, self._name, event, encoding)
        except RequestError as error:  # no node has answered
            self.may_accept_later = True
            return Receipt(False, 0, "rejected", str(error))
        self.may_accept_later = False
        return receipt
