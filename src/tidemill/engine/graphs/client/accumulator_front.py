"""The front of a keyed reactor's accumulator: feeds push to it, and it finds the partition."""

from itertools import chain
from typing import Any

from tidemill.engine.graphs.client.keyed_operations import KeyedOperations
from tidemill.engine.graphs.partitions.partitioned import PartitionedReactor
from tidemill.engine.graphs.partitions.unsendable import is_unsendable, sendable_forms
from tidemill.graphs.outcomes import Receipt, Rejection
from tidemill.kernel.errors import RequestError, StoreError


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
