"""The path by partition: the callable that hot loops hold of a keyed reactor's accumulator, which finds the partition.

It knows the handle of the partition for each key that it has seen, so that an event of such a key costs a look into a
dictionary. What it knows ends when a partition stops here, and when the reactor is replaced by a newer version.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from typing import Any, NamedTuple, Protocol

from tidemill.annotations.strict_validation import StrictTypeValidator
from tidemill.annotations.validation import TypeMismatchError, TypeValidator
from tidemill.engine.graphs.push_paths.one_graph import BYTES_TYPES, FastPath
from tidemill.graphs.definition import Accumulator, Reactor
from tidemill.graphs.keys import PLAIN_CLASSES, Key, KeyReader, PartitionId, is_plain_tuple, partition_of
from tidemill.graphs.pushes import PushHandle, PushSummary, ReceiptTally, list_events
from tidemill.kernel.author_errors import AUTHOR_ERRORS
from tidemill.kernel.errors import PushStoppedError, RequestError

MAX_KNOWN_HANDLES = 100_000
"""Keys whose handles are remembered for each accumulator: as many as a node keeps in memory by default."""

MAX_KNOWN_KEYS = 10_000
"""Keys whose partitions are remembered for each accumulator."""

BY_KEY_SOURCE = """
def push(event):
    if event.__class__ {unusual}:
        return push_slow(event)
    try:
        key = {key}
        handle = handles.get(key)
    except AUTHOR_ERRORS:
        return push_slow(event)
    if handle is None or key.__class__ not in PLAIN_CLASSES and not is_plain_tuple(key):
        return push_slow(event)
    return handle(event)
"""

ONE_PARTITION_SOURCE = """
def push(event):
    return handle(event)
"""


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


class KeyedFront(Protocol):
    """A keyed reactor, as handles see it."""

    definition: Reactor
    partitioners: dict[str, EventPartitioner]


class HandledAccumulator(Protocol):
    """An accumulator that runs here, as handles see it."""

    def handle(self) -> PushHandle:
        """Return its own handle."""


class LoadedAccumulators(Protocol):
    """What a node has loaded, as handles see it."""

    @property
    def keyed_accumulators(self) -> Mapping[tuple[str, str], KeyedFront]:
        """The keyed reactor of each of their accumulators."""

    def accumulator(self, tenant: str, name: str) -> HandledAccumulator:
        """Return a running accumulator, or raise RequestError."""

    def find_running(self, tenant: str, name: str) -> HandledAccumulator | None:
        """Return a running accumulator; None if it does not run here."""


class FrontPath(FastPath):
    """The callable that users hold. Events of keys that it does not know yet take `push_routed`."""

    def __init__(self, loaded: LoadedAccumulators, tenant: str, name: str) -> None:
        super().__init__(self.push_routed)
        self._loaded = loaded
        self._tenant = tenant
        self._name = name
        self._handles: dict[Key, PushHandle] = {}

    def push_routed(self, event: Any) -> int | None:
        """Push an event to the partition of its key, and remember the partition's handle."""
        keyed = self._loaded.keyed_accumulators.get((self._tenant, self._name))
        if keyed is None:  # it is no longer loaded, or no longer has a key
            return self._loaded.accumulator(self._tenant, self._name).handle()(event)
        partition, value, key = keyed.partitioners[self._name].route(event)
        handle = self._find_partition(partition).handle()
        if key is not None:
            self._remember(keyed, key, handle)
        return handle(value)

    def _find_partition(self, number: int) -> HandledAccumulator:
        accumulator = self._loaded.find_running(self._tenant, str(PartitionId(self._name, number)))
        if accumulator is None:
            message = f"partition {number} of accumulator '{self._name}' runs on another node"
            raise RequestError(f"{message}: use `await node.push(...)`", code="needs_push", status=409)
        return accumulator

    def handle(self) -> PushHandle:
        """Return the callable that users hold."""
        self.call.many = self.push_many_routed
        return self.call

    def push_many_routed(self, events: Iterable[Any]) -> PushSummary:
        """Push events in order, each to the partition of its key; consecutive ones of a partition go together.

        All partitions are found first, so that nothing is pushed if one of them runs on another node.
        """
        keyed = self._loaded.keyed_accumulators.get((self._tenant, self._name))
        if keyed is None:
            return self._loaded.accumulator(self._tenant, self._name).handle().many(events)
        if keyed.definition.partitions == 1:
            return self._find_partition(0).handle().many(events)
        routed = [keyed.partitioners[self._name].route(event) for event in list_events(events)]
        handles = {number: self._find_partition(number).handle() for number in {one.partition for one in routed}}
        tally = ReceiptTally()
        try:
            for partition, group in groupby(routed, lambda one: one.partition):
                tally.extend(handles[partition].many(one.event for one in group).runs)
        except PushStoppedError as error:
            error.taken += tally.count
            raise
        return PushSummary(tuple(tally.runs))

    # -- what it knows

    def _remember(self, keyed: KeyedFront, key: Key, handle: PushHandle) -> None:
        if keyed.definition.partitions == 1:
            self._open_to_partition(handle)
            return
        if len(self._handles) >= MAX_KNOWN_HANDLES:
            self._handles.clear()
        self._handles[key] = handle
        if not self.is_open:
            self._open_by_key(keyed.partitioners[self._name])

    def forget(self) -> None:
        """Find the partitions again: one of them has stopped here, or the reactor is another one."""
        self._handles.clear()
        self.close()

    def _open_to_partition(self, handle: PushHandle) -> None:
        self._run(ONE_PARTITION_SOURCE, {"handle": handle})

    def _open_by_key(self, partitioner: EventPartitioner) -> None:
        if (unusual := _unusual_class(partitioner.validator)) is None:
            return
        source = BY_KEY_SOURCE.format(unusual=unusual, key=_key_expression(partitioner.read_key))
        namespace = {
            "AUTHOR_ERRORS": AUTHOR_ERRORS,
            "BYTES_TYPES": BYTES_TYPES,
            "PLAIN_CLASSES": PLAIN_CLASSES,
            "expected": partitioner.validator.exact_class,
            "handles": self._handles,
            "is_plain_tuple": is_plain_tuple,
            "read_key": partitioner.read_key.unchecked,
        }
        self._run(source, namespace)

    def _run(self, source: str, namespace: dict[str, Any]) -> None:
        defined: dict[str, Callable[[Any], int | None]] = {}
        exec(source, {}, defined)
        kept = {"push_slow": self.push_routed}  # it also keeps this object alive, as long as the callable is held
        self._switch_to(defined["push"].__code__, namespace | kept)
        self.is_open = True


def _unusual_class(validator: TypeValidator) -> str | None:
    """Return the test for events that must be validated; None if all must."""
    if validator.exact_class is not None:
        return "is not expected"
    return "in BYTES_TYPES" if validator.classes is None else None


def _key_expression(read_key: KeyReader) -> str:
    return "read_key(event)" if read_key.attribute is None else f"event.{read_key.attribute}"
