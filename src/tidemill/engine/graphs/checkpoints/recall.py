"""Reading what the store holds of reactors and accumulators that are about to come up."""

from collections.abc import Iterable, Sequence

import msgspec

from tidemill.engine.graphs.accumulator import RunningAccumulator
from tidemill.engine.graphs.reactor import RunningReactor
from tidemill.engine.graphs.staging import ManagedGraph
from tidemill.storage.ports import JournalEntry, Part, PartKey, Store, StoredLetter

Thing = RunningReactor | RunningAccumulator

FEW = 8  # things of which letters and pauses are asked one by one; of more, all at once


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """What the store holds of some reactors and accumulators."""

    parts: dict[PartKey, list[Part]]
    """Every generation, newest moment first."""
    entries: list[JournalEntry]
    """Of the accumulators that feed a reactor which is kept."""
    letters: dict[PartKey, list[StoredLetter]]
    paused: frozenset[PartKey]
    newest: int
    """A position that nothing in the store is beyond; read only if some accumulator begins anew, else 0."""
    reached: dict[RunningAccumulator, int]
    """Up to where the journal of each was certainly read."""

    @property
    def is_behind(self) -> bool:
        """Whether something has happened to an accumulator since its journal was read."""
        return any(one.position > position for one, position in self.reached.items())


async def recall(store: Store, fresh: Sequence[ManagedGraph], starting: Sequence[RunningAccumulator]) -> Memory:
    """Read everything that is stored of reactors, and of those of their accumulators that come up with them.

    The journals come last: whatever happens while they are read, or after it, the running accumulators know.
    """
    reactors = [managed.reactor for managed in fresh]
    things: list[Thing] = [*reactors, *starting]
    keys = [key_of(one) for one in things]
    parts: dict[PartKey, list[Part]] = {}
    for part in await store.checkpoints.parts(keys):
        parts.setdefault(part.key, []).append(part)
    letters = await _letters(store, keys)
    paused = await _paused(store, reactors)
    kept = kept_accumulators(fresh)
    begins_anew = not set(starting).issubset(kept)
    newest = (await store.checkpoints.newest()).position if begins_anew else 0
    reached = {one: one.position for one in kept}
    journals = {one.journal_key: one for one in kept}
    entries = await store.checkpoints.entries(sorted(journals))
    for entry in entries:
        one = journals[entry.key]
        reached[one] = max(reached[one], entry.position)
    return Memory(parts=parts, entries=entries, letters=letters, paused=paused, newest=newest, reached=reached)


def key_of(thing: Thing) -> PartKey:
    """Return under which key a part of the checkpoint is stored."""
    return PartKey(thing.tenant, thing.component, thing.name)


def kept_accumulators(fresh: Iterable[ManagedGraph]) -> list[RunningAccumulator]:
    """Return the accumulators that feed a reactor which is kept; of others nothing is to be read back."""
    kept = (managed.accumulators for managed in fresh if managed.reactor.is_kept)
    return list(dict.fromkeys(one for accumulators in kept for one in accumulators))


async def _letters(store: Store, keys: Sequence[PartKey]) -> dict[PartKey, list[StoredLetter]]:
    if len(keys) <= FEW:
        return {key: await store.dead_letters.of(*key) for key in keys}
    found: dict[PartKey, list[StoredLetter]] = {key: [] for key in keys}
    for letter in await store.dead_letters.all_letters():
        key = PartKey(letter.tenant, letter.owner, letter.source)
        if key in found:
            found[key].append(letter)
    return found


async def _paused(store: Store, reactors: Sequence[RunningReactor]) -> frozenset[PartKey]:
    if len(reactors) <= FEW:
        asked = [one for one in reactors if await store.pauses.is_paused(one.tenant, one.name)]
        return frozenset(key_of(one) for one in asked)
    return frozenset(PartKey(tenant, "reactor", name) for tenant, name in await store.pauses.all_paused())
