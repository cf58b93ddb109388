"""A keyed reactor on one node: its declaration, its partitions, and the partition of each event."""

from datetime import datetime
from typing import Any

from tidemill.engine.graphs.durability.ownership import reactor_part_keys
from tidemill.engine.graphs.keys.keyed_reactor import require_key
from tidemill.engine.graphs.push_paths.by_partition import EventPartitioner
from tidemill.engine.registry import Key
from tidemill.graphs.compiler import CompiledGraph
from tidemill.graphs.definition import Reactor
from tidemill.graphs.keys import PartitionId, partition_of
from tidemill.graphs.partitions import partition_reactor
from tidemill.storage.graph_ports import PartKey


class PartitionedReactor:
    """A keyed reactor that is loaded. Each of its partitions runs on the node that owns it."""

    def __init__(self, definition: Reactor, tenant: str, loaded_at: datetime) -> None:
        self.tenant = tenant
        self.loaded_at = loaded_at
        self.name = definition.name
        self.subscribers: dict[str, CompiledGraph] = {}
        self.definition = definition
        self._partitions: dict[int, Reactor] = {}
        self.partitioners = {one.name: EventPartitioner(definition, one) for one in definition.accumulators}

    @property
    def key(self) -> Key:
        """Its tenant and its name."""
        return self.tenant, self.name

    @property
    def numbers(self) -> range:
        """The numbers of its partitions."""
        return range(self.definition.partitions)

    @property
    def part_keys(self) -> set[PartKey]:
        """The parts of the reactor as a whole: their owner answers the nodes that have not loaded the reactor."""
        return reactor_part_keys(self.tenant, self.definition)

    @property
    def endpoints(self) -> list[str]:
        """The keys under which sockets find the reactor and its accumulators."""
        return [f"reactors/{self.name}", *(f"accumulators/{name}" for name in self.definition.accumulator_names)]

    def partition(self, number: int) -> Reactor:
        """Return the definition of a partition: the same object each time."""
        if number not in self._partitions:
            self._partitions[number] = partition_reactor(self.definition, number)
        return self._partitions[number]

    def partition_keys(self, number: int) -> set[PartKey]:
        """Return the parts of one partition."""
        return reactor_part_keys(self.tenant, self.partition(number))

    def reactor_part(self, number: int) -> PartKey:
        """Return the part of one partition of the reactor."""
        return PartKey(self.tenant, "reactor", str(PartitionId(self.name, number)))

    def part_of_key(self, key: Any) -> PartKey:
        """Return the part of the partition that holds a key that a caller gives, or raise RequestError."""
        return self.reactor_part(partition_of(require_key(self.name, key), self.definition.partitions))

    def accumulator_part(self, accumulator: str, number: int) -> PartKey:
        """Return the part of one partition of an accumulator."""
        return PartKey(self.tenant, "accumulator", str(PartitionId(accumulator, number)))
