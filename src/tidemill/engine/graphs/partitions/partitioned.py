"""A keyed reactor on one node: its declaration, its partitions, and the partition of each event."""

from datetime import datetime
from typing import Any, NamedTuple

from tidemill.annotations.strict_validation import StrictTypeValidator
from tidemill.annotations.validation import TypeMismatchError, TypeValidator
from tidemill.engine.graphs.durability.ownership import reactor_part_keys
from tidemill.engine.graphs.keys.keyed_reactor import require_key
from tidemill.engine.registry import Key
from tidemill.graphs.compiler import CompiledGraph
from tidemill.graphs.definition import Accumulator, Reactor
from tidemill.graphs.keys import partition_of
from tidemill.graphs.partitions import PartitionName, partition_reactor
from tidemill.storage.graph_ports import PartKey


class RoutedEvent(NamedTuple):
    """An event, and the partition that takes it."""

    partition: int
    event: Any
    """The validated event; one that is not valid is as it was pushed, and its partition dead-letters it."""
    key: Any = None
    """None if the event is not valid."""


class EventPartitioner:
    """Finds the partition of each event of one accumulator."""

    def __init__(self, reactor: Reactor, accumulator: Accumulator) -> None:
        validator = StrictTypeValidator if accumulator.extra == "forbid" else TypeValidator
        self.accumulator = accumulator
        self.validator = validator(accumulator.event_type)
        self.read_key = reactor.key_reader(accumulator)
        self._partitions = reactor.partitions
        self._known: dict[Any, int] = {}  # the hash is computed in Python: a dictionary is faster

    def route(self, event: Any, encoding: str = "json") -> RoutedEvent:
        """Return the partition of an event. Events without a valid key go to the first one."""
        try:
            if isinstance(event, bytes | bytearray | memoryview):
                value = self.validator.decode(bytes(event), encoding)
            else:
                value = self.validator.validate(event)
            key = self.read_key(value)
            return RoutedEvent(self.partition_of(key), value, key)
        except TypeMismatchError:
            return RoutedEvent(0, event)

    def partition_of(self, key: Any) -> int:
        """Return the partition of a key."""
        number = self._known.get(key)
        if number is None:
            if len(self._known) >= MAX_KNOWN_KEYS:
                self._known.clear()
            number = self._known[key] = partition_of(key, self._partitions)
        return number


MAX_KNOWN_KEYS = 10_000
"""Keys whose partitions are remembered for each accumulator."""


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
        return PartKey(self.tenant, "reactor", str(PartitionName(self.name, number)))

    def part_of_key(self, key: Any) -> PartKey:
        """Return the part of the partition that holds a key that a caller gives, or raise RequestError."""
        return self.reactor_part(partition_of(require_key(self.name, key), self.definition.partitions))

    def accumulator_part(self, accumulator: str, number: int) -> PartKey:
        """Return the part of one partition of an accumulator."""
        return PartKey(self.tenant, "accumulator", str(PartitionName(accumulator, number)))
