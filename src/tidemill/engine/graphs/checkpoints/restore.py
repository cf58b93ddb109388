"""Reading back what outlived the process, and filling reactors and accumulators with it before they start.

Of each part the newest generation that is intact counts. If one is damaged, the parts that were written with it step
back together to the moment before, so that an offset never says more than its reactor has seen. Then the journal brings
everything up to the last acknowledged event. Whatever could not be read is said aloud: a reactor never starts empty in
silence.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from tidemill.annotations.admission import MisfitError
from tidemill.annotations.codec import Codec
from tidemill.engine.graphs.accumulator import RunningAccumulator
from tidemill.engine.graphs.checkpoints.capture import circles
from tidemill.engine.graphs.checkpoints.letters import StoredContent, event_letters, firing_letters, read_letter
from tidemill.engine.graphs.checkpoints.sealing import is_entry_intact, is_intact
from tidemill.engine.graphs.firing import Due
from tidemill.engine.graphs.firing_log import Series
from tidemill.engine.graphs.reactor import RunningReactor
from tidemill.engine.graphs.staging import ManagedGraph
from tidemill.graphs.inputs import Entry, Taken
from tidemill.graphs.snapshot import AccumulatorPart, JournalRecord, Named, ReactorPart, StoredFiring
from tidemill.storage.ports import JournalEntry, Part, PartKey, Store, StoredLetter

Content = TypeVar("Content", ReactorPart, AccumulatorPart)
Thing = RunningReactor | RunningAccumulator


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """What the store holds of some reactors and accumulators."""

    parts: list[Part]
    entries: list[JournalEntry]
    letters: dict[PartKey, list[StoredLetter]]
    paused: frozenset[PartKey]


async def recall(store: Store, fresh: Iterable[ManagedGraph], accumulators: Sequence[RunningAccumulator]) -> Memory:
    """Read everything that is stored of reactors, and of those of their accumulators that are to be restored too."""
    reactors = [managed.reactor for managed in fresh]
    things: list[Thing] = [*reactors, *accumulators]
    journals = {one.journal_key for managed in fresh for one in managed.accumulators}
    checkpoints, letters = store.checkpoints, store.dead_letters
    return Memory(
        parts=await checkpoints.parts([_key(one) for one in things if _is_kept(one)]),
        entries=await checkpoints.entries(sorted(journals)),
        letters={_key(one): await letters.of(one.tenant, one.component, one.name) for one in things},
        paused=frozenset([_key(one) for one in reactors if await store.pauses.is_paused(one.tenant, one.name)]),
    )


def _key(thing: Thing) -> PartKey:
    return PartKey(thing.tenant, thing.component, thing.name)


def _is_kept(thing: Thing) -> bool:
    return isinstance(thing, RunningAccumulator) or thing.is_kept


class Restoration:
    """Fills reactors and accumulators that were not started yet with what the store holds of them."""

    def __init__(
        self, memory: Memory, reactors: Sequence[RunningReactor], accumulators: Sequence[RunningAccumulator]
    ) -> None:
        self._memory = memory
        self._reactors = reactors
        self._accumulators = accumulators
        self._positions: dict[Thing, int] = {}
        self._unsure: set[RunningReactor] = set()  # whose windows may hold something else than they did
        self.complaints: list[tuple[Thing, str]] = []
        """What could not be restored, and whose it was."""

    def run(self) -> None:
        """Restore everything."""
        chosen = self._choose()
        for one in self._accumulators:
            self._restore_accumulator(one, chosen.get(_key(one)))
        for reactor in self._reactors:
            self._restore_reactor(reactor, chosen.get(_key(reactor)))
        self._read_journal()
        self._restore_the_rest()
        self._begin_series(chosen)

    def _begin_series(self, chosen: dict[PartKey, Part]) -> None:
        """Let firings have new ids where the journal may not lead to the inputs that they had before."""
        for reactor in self._reactors:
            part = chosen.get(_key(reactor))
            is_other = part is not None and part.digest != reactor.schema_digest
            if is_other or self.complaints or reactor in self._unsure:
                reactor.wheel.begin_series()

    @property
    def position(self) -> int:
        """The highest position that was met; what is appended from now on must come after it."""
        entries = (entry.position for entry in self._memory.entries)
        return max((*self._positions.values(), *entries), default=0)

    # -- which generation counts

    def _choose(self) -> dict[PartKey, Part]:
        """Choose, circle by circle, the newest intact generations of one moment."""
        chosen: dict[PartKey, Part] = {}
        for circle in circles(self._reactors):
            chosen |= self._choose_of([*circle.reactors, *circle.accumulators])
        return chosen

    def _choose_of(self, circle: Sequence[Thing]) -> dict[PartKey, Part]:
        intact: dict[PartKey, list[Part]] = {}
        limit = float("inf")
        for thing in circle:
            if thing not in self._reactors and thing not in self._accumulators:
                continue  # it runs already
            stored = [part for part in self._memory.parts if part.key == _key(thing)]
            sound = [part for part in stored if is_intact(part)]
            intact[_key(thing)] = sound
            if sound != stored:
                limit = min(limit, self._complain_of_damage(thing, stored, sound))
        return {key: _not_after(limit, parts) for key, parts in intact.items() if parts}

    def _complain_of_damage(self, thing: Thing, stored: list[Part], sound: list[Part]) -> float:
        """Say what is damaged; return the moment that the others may not be ahead of."""
        damaged = [part for part in stored if part not in sound]
        which = " and ".join(f"generation {part.generation} of {part.taken_at:%Y-%m-%d %H:%M:%S}" for part in damaged)
        if not sound:
            self._complain(thing, f"its snapshot is damaged ({which}) and there is no other: it starts empty")
            return float("inf")
        if sound[0].moment > damaged[0].moment:
            self._complain(thing, f"an older snapshot is damaged ({which}); the newest one is intact and is used")
            return float("inf")
        thing.generation = sound[0].generation
        self._complain(thing, f"its snapshot is damaged ({which}); generation {sound[0].generation} is used instead")
        return sound[0].moment

    def _complain(self, thing: Thing, reason: str) -> None:
        self.complaints.append((thing, reason))

    def _content(self, thing: Thing, part: Part | None, kind: type[Content]) -> Content | None:
        if part is None:
            return None
        thing.generation = part.generation
        try:
            return msgspec.msgpack.decode(part.payload, type=kind)
        except msgspec.DecodeError as error:  # intact, so it was written like that: by another version of Tidemill
            self._complain(thing, f"its snapshot cannot be read by this version: {error}; it starts empty")
            return None

    # -- accumulators

    def _restore_accumulator(self, one: RunningAccumulator, part: Part | None) -> None:
        content = self._content(one, part, AccumulatorPart)
        if content is None:
            return
        one.tally.sequence = content.sequence
        one.position = one.covered = self._positions[one] = content.position
        one.checkpoint = content.offset
        codecs = one.codecs
        if codecs.state is not None and content.state is not None:
            state = self._decoded(one, codecs.state, content.state, "its running state")
            one.state = one.kept_state = one.state if state is None else state
        held = [self._decoded(one, codecs.held, value, "an event that it held") for value in content.held]
        one.hold([value for value in held if value is not None])

    def _decoded(self, thing: Thing, codec: Codec, data: bytes, what: str) -> Any:
        """Return a stored value, or None if it does not fit what is declared by now."""
        try:
            return codec.decode(data)
        except MisfitError as error:
            self._complain(thing, f"{what} no longer fits its declaration and was left out: {error}")
            return None

    # -- reactors

    def _restore_reactor(self, reactor: RunningReactor, part: Part | None) -> None:
        content = self._content(reactor, part, ReactorPart)
        if content is None:
            return
        self._positions[reactor] = content.position
        named = _Indices(self, reactor)
        wheel = reactor.wheel
        inputs = wheel.inputs
        inputs.resume(named.values(content.cache), named.flags(content.dirty), content.applied)
        inputs.queue.extend((*entry, at) for name, data, at in content.queue for entry in named.entries([(name, data)]))
        inputs.consumed.extend(named.entries(content.consumed))
        if reactor.commits:
            wheel.log.series = Series(content.series, content.number)
        wheel.resume(_due(firing, named) for firing in content.firings)

    # -- the journal

    def _read_journal(self) -> None:
        """Let happen again what was committed after the snapshots, in its order."""
        fresh = {one.journal_key: one for one in self._accumulators}
        known = {one.journal_key: one for reactor in self._reactors for one in reactor.accumulators} | fresh
        for entry in self._memory.entries:
            one = known[entry.key]
            step = self._step(one, entry)
            if step is None:
                continue
            is_news = entry.key in fresh and entry.position > self._positions.get(one, 0)
            boundary = one.advance(step) if is_news else one.boundary_of(step)
            if is_news:
                one.position = entry.position
            if boundary is not None:
                self._deliver(one, boundary, entry.position)
        for one in self._accumulators:
            if one.commits:
                one.state = one.kept_state

    def _step(self, one: RunningAccumulator, entry: JournalEntry) -> Any:
        if not is_entry_intact(entry):
            self._complain(one, f"entry {entry.position} of its journal is damaged and was left out")
            return None
        try:
            return one.codecs.step(msgspec.msgpack.decode(entry.payload, type=JournalRecord))
        except (MisfitError, msgspec.DecodeError) as error:
            self._complain(one, f"entry {entry.position} of its journal no longer fits, and was left out: {error}")
            return None

    def _deliver(self, one: RunningAccumulator, boundary: Any, position: int) -> None:
        for reactor in self._reactors:
            if reactor.is_kept and one in reactor.accumulators and position > self._positions.get(reactor, 0):
                reactor.wheel.inputs.put(reactor.accumulators.index(one), boundary, position)
                repeats = reactor.wheel.inputs.sequential and not one.definition.is_window
                if not repeats and any(other.definition.is_window for other in reactor.accumulators):
                    self._unsure.add(reactor)

    # -- letters and pauses

    def _restore_the_rest(self) -> None:
        for one in self._accumulators:
            one.letters.refill(event_letters(one, self._readable_letters(one)))
        for reactor in self._reactors:
            reactor.wheel.outcomes.letters.refill(firing_letters(reactor, self._readable_letters(reactor)))
            if _key(reactor) in self._memory.paused:
                reactor.hold_back()
            if reactor.is_kept:
                reactor.wheel.mark_saved()

    def _readable_letters(self, thing: Thing) -> list[StoredContent]:
        found = []
        for row in self._memory.letters[_key(thing)]:
            try:
                found.append((row, read_letter(row)))
            except msgspec.DecodeError as error:
                self._complain(thing, f"its dead letter '{row.id}' cannot be read and stays in the store: {error}")
        return found


def _not_after(limit: float, parts: list[Part]) -> Part:
    """Return the newest part up to a moment, or the oldest one if all are newer."""
    return next((part for part in parts if part.moment <= limit), parts[-1])


def _due(firing: StoredFiring, named: "_Indices") -> Due:
    taken = Taken(named.values(firing.inputs), list(named.entries(firing.consumed)), named.flags(firing.flags))
    return Due(firing.series, firing.number, taken, [], firing.manual, firing.attempt, tuple(firing.graphs))


class _Indices:
    """Stored values of a reactor as its declaration has them now: what is no longer declared is passed over."""

    def __init__(self, restoration: Restoration, reactor: RunningReactor) -> None:
        self._restoration = restoration
        self._reactor = reactor
        self._sources = {one.name: (index, one) for index, one in enumerate(reactor.accumulators)}

    def entries(self, named: Iterable[Named]) -> Iterator[Entry]:
        for name, data in named:
            if name in self._sources:
                index, one = self._sources[name]
                what = f"a boundary of '{name}'"
                value = self._restoration._decoded(self._reactor, one.codecs.boundary, data, what)
                if value is not None:
                    yield index, value

    def values(self, named: dict[str, bytes]) -> list[Any]:
        values: list[Any] = [None] * len(self._sources)
        for index, value in self.entries(named.items()):
            values[index] = value
        return values

    def flags(self, names: Iterable[str]) -> int:
        return sum(1 << self._sources[name][0] for name in names if name in self._sources)
