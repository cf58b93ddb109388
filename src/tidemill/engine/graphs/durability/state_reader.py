"""Reading what the store holds of reactors and accumulators that are about to come up."""

from collections.abc import Iterable, Sequence

import msgspec

from tidemill.engine.graphs.accumulators.accumulator import RunningAccumulator
from tidemill.engine.graphs.reactors.reactor import RunningReactor
from tidemill.engine.graphs.staging import ManagedGraph
from tidemill.storage.graph_ports import JournalEntry, PartKey, SnapshotPart, StoredDeadLetter
from tidemill.storage.store import Store

Component = RunningReactor | RunningAccumulator

SINGLE_LOOKUP_LIMIT = 8  # things of which letters and pauses are asked one by one; of more, all at once


class StoredState(msgspec.Struct, frozen=True, kw_only=True):
    """What the store holds of some reactors and accumulators."""

    parts: dict[PartKey, list[SnapshotPart]]
    """Every generation, newest moment first."""
    entries: list[JournalEntry]
    """Of the accumulators that feed a reactor which is kept."""
    dead_letters: dict[PartKey, list[StoredDeadLetter]]
    paused: frozenset[PartKey]
    newest_position: int
    """A position that nothing in the store is beyond; read only if some accumulator begins anew, else 0."""
    read_positions: dict[RunningAccumulator, int]
    """Up to where the journal of each was certainly read."""

    @property
    def is_stale(self) -> bool:
        """Whether something has happened to an accumulator since its journal was read."""
        return any(one.position > position for one, position in self.read_positions.items())


async def read_state(
    store: Store, added: Sequence[ManagedGraph], starting: Sequence[RunningAccumulator]
) -> StoredState:
    """Read everything that is stored of reactors, and of those of their accumulators that come up with them.

    The journals come last: whatever happens while they are read, or after it, the running accumulators know.
    """
    reactors = [managed.reactor for managed in added]
    things: list[Component] = [*reactors, *starting]
    keys = [part_key(one) for one in things]
    parts: dict[PartKey, list[SnapshotPart]] = {}
    for part in await store.checkpoints.read_parts(keys):
        parts.setdefault(part.key, []).append(part)
    letters = await _read_dead_letters(store, keys)
    paused = await _read_pauses(store, reactors)
    kept = durable_accumulators(added)
    begins_anew = not set(starting).issubset(kept)
    newest = (await store.checkpoints.read_high_water_marks()).position if begins_anew else 0
    reached = {one: one.position for one in kept}
    journals = {one.journal_key: one for one in kept}
    entries = await store.checkpoints.read_entries(sorted(journals))
    for entry in entries:
        one = journals[entry.key]
        reached[one] = max(reached[one], entry.position)
    return StoredState(
        parts=parts,
        entries=entries,
        dead_letters=letters,
        paused=paused,
        newest_position=newest,
        read_positions=reached,
    )


def part_key(component: Component) -> PartKey:
    """Return under which key a part of the checkpoint is stored."""
    return PartKey(component.tenant, component.component, component.name)


def durable_accumulators(added: Iterable[ManagedGraph]) -> list[RunningAccumulator]:
    """Return the accumulators that feed a reactor which is kept; of others nothing is to be read back."""
    kept = (managed.accumulators for managed in added if managed.reactor.is_durable)
    return list(dict.fromkeys(one for accumulators in kept for one in accumulators))


async def _read_dead_letters(store: Store, keys: Sequence[PartKey]) -> dict[PartKey, list[StoredDeadLetter]]:
    if len(keys) <= SINGLE_LOOKUP_LIMIT:
        return {key: await store.dead_letters.for_source(*key) for key in keys}
    found: dict[PartKey, list[StoredDeadLetter]] = {key: [] for key in keys}
    for letter in await store.dead_letters.list_all():
        key = PartKey(letter.tenant, letter.owner, letter.source)
        if key in found:
            found[key].append(letter)
    return found


async def _read_pauses(store: Store, reactors: Sequence[RunningReactor]) -> frozenset[PartKey]:
    if len(reactors) <= SINGLE_LOOKUP_LIMIT:
        asked = [one for one in reactors if await store.pauses.is_paused(one.tenant, one.name)]
        return frozenset(part_key(one) for one in asked)
    return frozenset(PartKey(tenant, "reactor", name) for tenant, name in await store.pauses.list_paused())
