"""The values that reactors keep, in a running version or in the store, and what a newer declaration reads of them.

Nothing is changed: a load that must not lose state, and a check before a release, look here first.
"""

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec

from tidemill.annotations.codec import UnstorableError
from tidemill.engine.graphs.accumulators.emit import AccumulatorCodecs
from tidemill.engine.graphs.checkpoints.capture import accumulator_part, reactor_part
from tidemill.engine.graphs.checkpoints.key_capture import key_part
from tidemill.engine.graphs.checkpoints.named_values import NamedEncoder
from tidemill.engine.graphs.durability.backend import DurabilityBackend
from tidemill.engine.graphs.durability.checksums import is_key_intact, is_part_intact
from tidemill.engine.graphs.durability.journal_blocks import unpack_blocks
from tidemill.engine.graphs.keys.keyed_reactor import KeyedReactor
from tidemill.engine.graphs.reactors.reactor import RunningReactor
from tidemill.engine.graphs.staging import ManagedGraph
from tidemill.engine.graphs.unread_state import UnreadState
from tidemill.graphs.definition import Accumulator, Reactor
from tidemill.graphs.keys import PartitionId, decode_key, encode_key
from tidemill.graphs.partitions import declared_name
from tidemill.graphs.snapshot import (
    UNREADABLE_ERRORS,
    AccumulatorPart,
    KeptValue,
    KeyedJournalRecord,
    KeyPart,
    NamedBoundary,
    ReactorPart,
)
from tidemill.kernel.errors import RequestError
from tidemill.storage.graph_ports import JournalKey, PartKey, SnapshotPart
from tidemill.storage.store import Store

KEYS_PER_PAGE = 1000
SAMPLE_VALUES = 10_000
SAMPLE_SIZE = 16 * 2**20
"""How many values, and how many bytes of them, a process that is not the node's may get."""


Managed = Mapping[tuple[str, str], ManagedGraph]
"""What runs here, by tenant and name."""


class ReactorLayout(NamedTuple):
    """What decides under which names the store keeps a reactor."""

    name: str
    accumulators: tuple[str, ...]
    partitions: int
    """0 for a reactor without keys."""

    @classmethod
    def of_reactor(cls, reactor: Reactor) -> "ReactorLayout":
        """Return the layout of a declared reactor."""
        return cls(reactor.name, reactor.accumulator_names, reactor.partitions if reactor.is_keyed else 0)

    def parts(self) -> "list[ReactorLayout]":
        """Return the layouts of its partitions; of a reactor without keys, its own."""
        if not self.partitions:
            return [self]
        named = range(self.partitions)
        return [
            ReactorLayout(
                str(PartitionId(self.name, number)),
                tuple(str(PartitionId(one, number)) for one in self.accumulators),
                0,
            )
            for number in named
        ]


class KeptValueTrial:
    """Reads kept values as newer declarations do, and collects what they do not read."""

    def __init__(self, reactors: Iterable[Reactor]) -> None:
        self._accumulators = {one.name: one for reactor in reactors for one in reactor.accumulators}
        self._codecs: dict[str, AccumulatorCodecs | None] = {}
        self._unread: dict[str, UnreadState] = {}

    def add(self, value: KeptValue) -> None:
        """Read a value."""
        one = self._accumulators.get(value.accumulator)
        codecs = None if one is None else self._codecs_of(one)
        if one is None or codecs is None:
            return
        unread = self._unread.setdefault(one.name, UnreadState())
        unread.key = None if value.key is None else decode_key(value.key)
        if value.use == "held":
            if value.kind not in ("", one.kind):
                unread.add_unfit("an event that it held", f"it was held by a {value.kind}, and a {one.kind} holds none")
            else:
                unread.read_fitting(codecs.buffered, value.data, "an event that it held")
        elif value.use == "boundary":
            unread.read_fitting(codecs.boundary, value.data, "a boundary of it", one.state_upgrade)
        elif codecs.state is None:
            unread.add_unfit("its running state", "it declares none")
        else:
            unread.read_fitting(codecs.state, value.data, "its running state", one.state_upgrade)

    def _codecs_of(self, accumulator: Accumulator) -> AccumulatorCodecs | None:
        """Return the codecs of an accumulator; None if its values cannot be stored."""
        if accumulator.name not in self._codecs:
            self._codecs[accumulator.name] = None
            with suppress(UnstorableError):
                self._codecs[accumulator.name] = AccumulatorCodecs.for_definition(accumulator)
        return self._codecs[accumulator.name]

    def describe(self) -> list[str]:
        """Return what is not read, in words, by accumulator."""
        found = {name: unread.describe() for name, unread in sorted(self._unread.items())}
        return [f"accumulator '{name}': {reason}" for name, reason in found.items() if reason is not None]


# -- of a running version


def _iter_running_values(reactor: RunningReactor) -> Iterator[KeptValue]:
    """Yield the values of a reactor that runs here, and of the active ones of its keys."""
    with suppress(UnstorableError):  # such values go with their version, wherever they are
        yield from _values_of_reactor(reactor_part(reactor))
        for one in reactor.accumulators:
            yield from _values_of_accumulator(one.name, accumulator_part(one))
        if isinstance(reactor, KeyedReactor):
            encoder = NamedEncoder(reactor.accumulators)
            for state in tuple(reactor.firing_loop.keys.active.values()):
                yield from _values_of_key(encode_key(state.key), key_part(reactor, state, encoder))


# -- of the store


async def _read_stored_values(store: Store, tenant: str, part: ReactorLayout) -> AsyncIterator[KeptValue]:
    """Yield the values that the store has of a reactor, or of one partition of it."""
    for value in await _read_parts(store, tenant, part):
        yield value
    if PartitionId.parse(part.name) is not None:
        async for value in _read_keys(store, PartKey(tenant, "reactor", part.name), set()):
            yield value


async def iter_kept_values(
    store: Store, tenant: str, layout: ReactorLayout, managed: Managed, *, is_durable: bool = True
) -> AsyncIterator[KeptValue]:
    """Yield the values of a reactor: of a version that runs here, and of the store what that does not have."""
    for part in layout.parts():
        running = managed.get((tenant, part.name))
        if running is not None:
            async for value in _read_running_values(store, tenant, running.reactor):
                yield value
        elif is_durable:
            async for value in _read_stored_values(store, tenant, part):
                yield value


async def _read_running_values(store: Store, tenant: str, reactor: RunningReactor) -> AsyncIterator[KeptValue]:
    active: set[bytes] = set()
    for value in _iter_running_values(reactor):
        if value.key is not None:
            active.add(value.key)
        yield value
    if isinstance(reactor, KeyedReactor) and reactor.durability.is_durable:
        async for value in _read_keys(store, PartKey(tenant, "reactor", reactor.name), active):
            yield value


async def sample_kept_values(
    store: Store, tenant: str, layouts: Iterable[ReactorLayout], managed: Managed
) -> tuple[list[KeptValue], bool]:
    """Return kept values of reactors, and whether these are all: of large states it is a part."""
    values: list[KeptValue] = []
    size = 0
    for layout in layouts:
        async for value in iter_kept_values(store, tenant, layout, managed):
            size += len(value.data)
            if len(values) >= SAMPLE_VALUES or size > SAMPLE_SIZE:
                return values, False
            values.append(value)
    return values, True


async def _read_parts(store: Store, tenant: str, layout: ReactorLayout) -> list[KeptValue]:
    """Return what the newest snapshots of a reactor and its accumulators hold, and the journal after them."""
    keys = [PartKey(tenant, "reactor", layout.name), *(PartKey(tenant, "accumulator", n) for n in layout.accumulators)]
    newest: dict[PartKey, SnapshotPart] = {}
    for part in await store.checkpoints.read_parts(keys):
        if is_part_intact(part):
            newest.setdefault(part.key, part)
    values: list[KeptValue] = []
    positions: dict[str, int] = {}
    for key, part in newest.items():
        with suppress(*UNREADABLE_ERRORS):  # another version of Tidemill wrote it: the restore reports that
            if key.kind == "reactor":
                values += _values_of_reactor(msgspec.msgpack.decode(part.payload, type=ReactorPart))
            else:
                content = msgspec.msgpack.decode(part.payload, type=AccumulatorPart)
                positions[key.name] = content.position
                values += _values_of_accumulator(key.name, content)
    journals = [JournalKey(tenant, name) for name in layout.accumulators]
    for entry in unpack_blocks(await store.checkpoints.read_blocks(journals)):
        if entry.is_intact and entry.position > positions.get(entry.key.accumulator, 0):
            with suppress(*UNREADABLE_ERRORS):
                record = msgspec.msgpack.decode(entry.payload, type=KeyedJournalRecord)
                if record.kind != "released":
                    name = declared_name(entry.key.accumulator)
                    values.append(KeptValue(name, record.kind, record.value, record.key or None))
    return values


async def _read_keys(store: Store, reactor: PartKey, known: set[bytes]) -> AsyncIterator[KeptValue]:
    """Yield the values of the stored keys but those that are known."""
    after = b""
    while page := await store.key_snapshots.list_keys(reactor, after, KEYS_PER_PAGE):
        after = page[-1]
        newest = {}
        rows = await store.key_snapshots.read(reactor, [key for key in page if key not in known])
        for row in sorted(filter(is_key_intact, rows), key=lambda one: one.moment):
            newest[row.key] = row
        for row in newest.values():
            with suppress(*UNREADABLE_ERRORS):
                for value in _values_of_key(row.key, msgspec.msgpack.decode(row.payload, type=KeyPart)):
                    yield value


# -- of one part


def _values_of_reactor(part: ReactorPart) -> Iterator[KeptValue]:
    yield from _boundaries([*part.cache.items(), *part.consumed, *((name, data) for name, data, _ in part.queue)])
    for firing in part.firings:
        yield from _boundaries([*firing.inputs.items(), *firing.consumed], firing.key)


def _values_of_accumulator(name: str, part: AccumulatorPart) -> Iterator[KeptValue]:
    """Yield what an accumulator holds; before its first boundary, its state is that of a new one."""
    if part.state is not None and part.sequence and PartitionId.parse(name) is None:
        yield KeptValue(name, "state", part.state)
    yield from (KeptValue(declared_name(name), "held", one, None, part.kind or "") for one in part.held)


def _values_of_key(key: bytes, part: KeyPart) -> Iterator[KeptValue]:
    queued = [(name, data) for name, data, _ in part.queue]
    yield from _boundaries([*part.cache.items(), *part.consumed, *queued], key)
    yield from (KeptValue(declared_name(name), "state", data, key) for name, data in part.states.items())
    for name, (kind, held) in part.held.items():
        yield from (KeptValue(declared_name(name), "held", one, key, kind) for one in held)


def _boundaries(named: Iterable[NamedBoundary], key: bytes | None = None) -> Iterator[KeptValue]:
    yield from (KeptValue(declared_name(name), "boundary", data, key) for name, data in named)


async def find_unread(
    store: Store,
    tenant: str,
    reactors: Sequence[Reactor],
    managed: Managed,
    durability: DurabilityBackend,
) -> list[str]:
    """Return what declared reactors do not read of the state that is kept of them, in words."""
    trial = KeptValueTrial(reactors)
    for reactor in reactors:
        is_durable = durability.policy_for(reactor).is_durable
        layout = ReactorLayout.of_reactor(reactor)
        async for value in iter_kept_values(store, tenant, layout, managed, is_durable=is_durable):
            trial.add(value)
    return trial.describe()


def unread_state_error(package: str, unread: Sequence[str]) -> RequestError:
    """Return the error for a package that does not read all state that is kept of its reactors."""
    message = (
        f"package '{package}' is not loaded, because it does not read state that is kept: {'; '.join(unread)}. "
        "Give the accumulator upgrade=, or lose these values with the setting unread_state='warn'"
    )
    return RequestError(message, code="unread_state", status=409, unread=list(unread))
