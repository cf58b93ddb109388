"""Reads the stored state of reactors and accumulators that are about to start."""

from collections.abc import Collection, Iterable, Sequence

import msgspec

from tidemill.engine.graphs.accumulators.accumulator import RunningAccumulator
from tidemill.engine.graphs.checkpoints.key_restore import StoredKeys, read_stored_keys
from tidemill.engine.graphs.durability.backend import DurabilityBackend
from tidemill.engine.graphs.durability.journal_blocks import JournalEntry, unpack_blocks
from tidemill.engine.graphs.partitions.partitioned import PartitionedReactor
from tidemill.engine.graphs.reactors.reactor import RunningReactor
from tidemill.engine.graphs.staging import ManagedGraph
from tidemill.graphs.keys import MAX_PARTITIONS
from tidemill.graphs.snapshot import UNREADABLE_ERRORS, KeyedJournalRecord, ReactorPart
from tidemill.kernel.errors import OperationError
from tidemill.storage.graph_ports import PartKey, SnapshotPart
from tidemill.storage.store import Store
from tidemill.storage.tables.graphs import StoredDeadLetter

Component = RunningReactor | RunningAccumulator

SINGLE_LOOKUP_LIMIT = 8
"""Components whose dead letters and pauses are read one by one; for more, all are read in one query."""


class StoredState(msgspec.Struct, frozen=True, kw_only=True):
    """The stored state of some reactors and accumulators."""

    parts: dict[PartKey, list[SnapshotPart]]
    """Every generation, newest moment first."""
    entries: list[JournalEntry]
    """Of the accumulators that feed a durable reactor, by position."""
    dead_letters: dict[PartKey, list[StoredDeadLetter]]
    paused: frozenset[PartKey]
    newest_position: int
    """The highest position in the store; read only if some accumulator starts empty, else 0."""
    read_positions: dict[RunningAccumulator, int]
    """The position up to which each accumulator's journal was read."""
    keys: dict[PartKey, StoredKeys] = {}
    """Of keyed reactors."""

    @property
    def newest_moment(self) -> int:
        """The moment of the newest snapshot, which another node may have taken; 0 if there is none."""
        return max((part.moment for generations in self.parts.values() for part in generations), default=0)

    @property
    def is_stale(self) -> bool:
        """Whether an accumulator has advanced since its journal was read."""
        return any(one.emitter.position > position for one, position in self.read_positions.items())


async def read_fresh_state(
    store: Store, added: Sequence[ManagedGraph], starting: Sequence[RunningAccumulator]
) -> StoredState:
    """Read the stored state again until no accumulator has advanced meanwhile; callers quiesce them first."""
    while (state := await read_state(store, added, starting)).is_stale:  # a dead batch may still be released
        pass
    return state


async def read_state(
    store: Store, added: Sequence[ManagedGraph], starting: Sequence[RunningAccumulator]
) -> StoredState:
    """Read the stored state of reactors, and of those of their accumulators that start with them.

    The journals are read last: running accumulators know all that happens afterwards.
    """
    reactors = [managed.reactor for managed in added]
    components: list[Component] = [*reactors, *starting]
    keys = [part_key(one) for one in components]
    parts: dict[PartKey, list[SnapshotPart]] = {}
    for part in await store.checkpoints.read_parts(keys):
        parts.setdefault(part.key, []).append(part)
    dead_letters = await _read_dead_letters(store, keys)
    paused = await _read_pauses(store, reactors)
    durable = durable_accumulators(added)
    some_start_empty = not set(starting).issubset(durable)
    newest = (await store.checkpoints.read_high_water_marks()).position if some_start_empty else 0
    read_positions = {one: one.emitter.position for one in durable}
    journals = {one.emitter.journal_writer.key: one for one in durable}
    entries = unpack_blocks(await store.checkpoints.read_blocks(sorted(journals)))
    for entry in entries:
        one = journals[entry.key]
        read_positions[one] = max(read_positions[one], entry.position)
    return StoredState(
        parts=parts,
        entries=entries,
        dead_letters=dead_letters,
        paused=paused,
        newest_position=newest,
        read_positions=read_positions,
        keys=await _read_keys(store, reactors, parts, entries),
    )


async def _read_keys(
    store: Store,
    reactors: Iterable[RunningReactor],
    parts: dict[PartKey, list[SnapshotPart]],
    entries: Iterable[JournalEntry],
) -> dict[PartKey, StoredKeys]:
    """Read the stored keys of keyed reactors: those that unfinished firings and journal entries name come first."""
    named: dict[str, dict[bytes, None]] = {}
    keyed = [one for one in reactors if one.definition.is_keyed and one.durability.is_durable]
    for entry in entries if keyed else ():
        if (key := _key_of(entry)) is not None:
            named.setdefault(entry.key.accumulator, {})[key] = None
    stored: dict[PartKey, StoredKeys] = {}
    for reactor in keyed:
        part = part_key(reactor)
        wanted = dict.fromkeys(key for one in reactor.definition.accumulators for key in named.get(one.name, ()))
        wanted |= dict.fromkeys(key for one in parts.get(part, ()) for key in _keys_of_firings(one))
        stored[part] = await read_stored_keys(store, part, list(wanted))
    return stored


def _key_of(entry: JournalEntry) -> bytes | None:
    try:
        return msgspec.msgpack.decode(entry.payload, type=KeyedJournalRecord).key or None
    except UNREADABLE_ERRORS:  # it is damaged, and is reported when it is replayed
        return None


def _keys_of_firings(part: SnapshotPart) -> list[bytes]:
    try:
        firings = msgspec.msgpack.decode(part.payload, type=ReactorPart).firings
    except msgspec.DecodeError:  # it is damaged, and another generation is used
        return []
    return [one.key for one in firings if one.key is not None]


async def check_partition_counts(
    store: Store | None, reactors: Collection[PartitionedReactor], durability: DurabilityBackend
) -> None:
    """Refuse to start keyed reactors whose stored keys are those of another number of partitions.

    What a running version has not stored yet counts as well: it is written first.
    """
    durable = [one for one in reactors if durability.policy_for(one.definition).is_durable]
    if store is not None and durable:
        await durability.write()
        for keyed in durable:
            await _check_partition_count(store, keyed)


async def _check_partition_count(store: Store, keyed: PartitionedReactor) -> None:
    stored, declared = await _stored_partition_count(store, keyed), keyed.definition.partitions
    if stored not in (0, declared):
        message = (
            f"the store holds the keys of reactor '{keyed.name}' in {stored} partitions, and the reactor has "
            f"{declared} now: keys would lose their state. Declare partitions={stored} again; to start empty, give the "
            "reactor and its accumulators other names"
        )
        raise OperationError(message)


async def _stored_partition_count(store: Store, keyed: PartitionedReactor) -> int:
    """Return the number of partitions that the newest stored one names; 0 if there is none.

    The older number may have been larger, and a partition without changes may have stored nothing: all are read.
    """
    partitions = [keyed.reactor_part(number) for number in range(MAX_PARTITIONS)]
    for part in await store.checkpoints.read_parts(partitions):
        try:
            return msgspec.msgpack.decode(part.payload, type=ReactorPart).partitions
        except msgspec.DecodeError:  # it is damaged, and is reported when it is restored
            continue
    return 0


def part_key(component: Component) -> PartKey:
    """Return the key of a component's part of the checkpoint."""
    return PartKey(component.tenant, component.component, component.name)


def durable_accumulators(added: Iterable[ManagedGraph]) -> list[RunningAccumulator]:
    """Return the accumulators that feed a durable reactor; only their state is restored."""
    durable = (managed.accumulators for managed in added if managed.reactor.durability.is_durable)
    return list(dict.fromkeys(one for accumulators in durable for one in accumulators))


async def _read_dead_letters(store: Store, keys: Sequence[PartKey]) -> dict[PartKey, list[StoredDeadLetter]]:
    if len(keys) <= SINGLE_LOOKUP_LIMIT:
        return {key: await store.dead_letters.for_source(*key) for key in keys}
    by_key: dict[PartKey, list[StoredDeadLetter]] = {key: [] for key in keys}
    for row in await store.dead_letters.list_all():
        key = PartKey(row.tenant, row.owner, row.source)
        if key in by_key:
            by_key[key].append(row)
    return by_key


async def _read_pauses(store: Store, reactors: Sequence[RunningReactor]) -> frozenset[PartKey]:
    if len(reactors) <= SINGLE_LOOKUP_LIMIT:
        paused = [one for one in reactors if await store.pauses.is_paused(one.tenant, one.definition.declared_name)]
        return frozenset(part_key(one) for one in paused)
    all_paused = set(await store.pauses.list_paused())
    return frozenset(part_key(one) for one in reactors if (one.tenant, one.definition.declared_name) in all_paused)
