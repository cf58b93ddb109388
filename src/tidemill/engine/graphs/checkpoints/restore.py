"""Reading back what outlived the process, and filling reactors and accumulators with it before they start.

Of each part the newest generation that is intact counts. If one is damaged, the parts that were written with it step
back together to the moment before, so that an offset never says more than its reactor has seen. Then the journal brings
everything up to the last acknowledged event. Whatever could not be read is said aloud: a reactor never starts empty in
silence.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from tidemill.annotations.admission import MisfitError
from tidemill.annotations.codec import Codec
from tidemill.engine.graphs.accumulator import RunningAccumulator
from tidemill.engine.graphs.checkpoints.capture import circles
from tidemill.engine.graphs.checkpoints.letters import StoredContent, event_letters, firing_letters, read_letter
from tidemill.engine.graphs.checkpoints.recall import Memory, Thing, kept_accumulators, key_of
from tidemill.engine.graphs.checkpoints.sealing import is_entry_intact, is_intact
from tidemill.engine.graphs.firing import Due
from tidemill.engine.graphs.firing_log import Record, Series
from tidemill.engine.graphs.outbox import Post
from tidemill.engine.graphs.reactor import RunningReactor
from tidemill.engine.graphs.staging import ManagedGraph
from tidemill.engine.graphs.step import Step
from tidemill.graphs.inputs import Entry, Taken
from tidemill.graphs.snapshot import AccumulatorPart, JournalRecord, Named, ReactorPart, StoredFiring, StoredPost
from tidemill.storage.ports import JournalEntry, Part, PartKey

Content = TypeVar("Content", ReactorPart, AccumulatorPart)
Decode = Callable[[Codec, bytes, str], Any]

_LEFT_OUT = object()
"""Stands in a batch for an event that could not be read, until the journal has said how many it let go of."""


class Restoration:
    """Fills reactors and accumulators that were not started yet with what the store holds of them.

    Accumulators that feed no reactor which is kept begin anew. `is_opening` says that the node comes up: then even an
    accumulator that runs already came up with everything else, and has taken in nothing yet but its journal.
    """

    def __init__(
        self,
        memory: Memory,
        fresh: Sequence[ManagedGraph],
        starting: Sequence[RunningAccumulator],
        *,
        is_opening: bool = False,
    ) -> None:
        self._memory = memory
        self._is_opening = is_opening
        self._reactors = [managed.reactor for managed in fresh]
        self._starting = dict.fromkeys(starting)
        self._known = {one.journal_key: one for one in kept_accumulators(fresh)}
        self._restored = [one for one in self._known.values() if one in self._starting]
        self._positions: dict[RunningAccumulator, int] = {}
        self._handed: dict[tuple[RunningReactor, RunningAccumulator], int] = {}  # what is inside, by position
        self._changed: set[RunningAccumulator] = set()  # which are of another kind than they were
        self._unsure: set[RunningReactor] = set()  # whose windows may hold something else than they did
        self.complaints: list[tuple[Thing, str]] = []
        """What could not be restored, and whose it was."""

    def run(self) -> None:
        """Restore everything."""
        chosen = self._choose()
        for one in self._restored:
            self._restore_accumulator(one, chosen.get(key_of(one)))
        for reactor in self._reactors:
            if reactor.is_kept:
                self._restore_reactor(reactor, chosen.get(key_of(reactor)))
        self._begin_anew()
        self._read_journal()
        self._restore_the_rest()
        self._begin_series(chosen)

    def _begin_anew(self) -> None:
        """Let what is not kept know how far the store is: if it ever is kept, nothing before that is its own."""
        restored: set[Thing] = {*self._restored, *(one for one in self._reactors if one.is_kept)}
        things: list[Thing] = [*self._reactors, *self._starting]
        for thing in things:
            if thing not in restored:
                sound = (part.generation for part in self._memory.parts.get(key_of(thing), ()) if is_intact(part))
                thing.generation = max(sound, default=0)
                if isinstance(thing, RunningAccumulator):
                    thing.position = thing.covered = self._memory.newest

    def _begin_series(self, chosen: dict[PartKey, Part]) -> None:
        """Let firings have new ids where the journal may not lead to the inputs that they had before."""
        for reactor in self._reactors:
            part = chosen.get(key_of(reactor))
            is_other = part is not None and part.digest != reactor.schema_digest
            if is_other or self.complaints or reactor in self._unsure:
                reactor.wheel.begin_series()

    @property
    def position(self) -> int:
        """The highest position that was met; what is appended from now on must come after it."""
        entries = (entry.position for entry in self._memory.entries)
        return max((*self._positions.values(), *self._handed.values(), *entries), default=0)

    @property
    def changed(self) -> list[RunningReactor]:
        """The reactors with an accumulator of another kind than before: what the journal says now means another."""
        return [one for one in self._reactors if one.is_kept and not self._changed.isdisjoint(one.accumulators)]

    # -- which generation counts

    def _choose(self) -> dict[PartKey, Part]:
        """Choose, circle by circle, the newest intact generations of one moment."""
        chosen: dict[PartKey, Part] = {}
        coming_up: set[Thing] = {*self._restored, *self._reactors}
        for circle in circles(one for one in self._reactors if one.is_kept):
            things: list[Thing] = [*circle.reactors, *circle.accumulators]
            chosen |= self._choose_of([one for one in things if one in coming_up])
        return chosen

    def _choose_of(self, circle: Sequence[Thing]) -> dict[PartKey, Part]:
        intact: dict[PartKey, list[Part]] = {}
        limit = float("inf")
        for thing in circle:
            stored = self._memory.parts.get(key_of(thing), [])
            sound = [part for part in stored if is_intact(part)]
            intact[key_of(thing)] = sound
            if len(sound) < len(stored):
                limit = min(limit, self._complain_of_damage(thing, stored, sound))
        return {key: _not_after(limit, parts) for key, parts in intact.items() if parts}

    def _complain_of_damage(self, thing: Thing, stored: list[Part], sound: list[Part]) -> float:
        """Say what is damaged; return the moment that the others may not be ahead of."""
        damaged = [part for part in stored if not is_intact(part)]
        which = " and ".join(f"generation {part.generation} of {part.taken_at:%Y-%m-%d %H:%M:%S}" for part in damaged)
        if not sound:
            self._complain(thing, f"its snapshot is damaged ({which}) and there is no other: it starts empty")
            return float("inf")
        if all(_is_before(part, sound[0]) for part in damaged):
            self._complain(thing, f"an older snapshot is damaged ({which}); the newest one is intact and is used")
            return float("inf")
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
        one.offset = content.offset
        codecs = one.codecs
        if codecs.state is not None and content.state is not None:
            state = self._decoded(one, codecs.state, content.state, "its running state")
            one.state = one.kept_state = one.state if state is None else state
        if content.kind in (None, one.definition.kind):
            self._restore_held(one, content.held)
        else:
            self._changed.add(one)
            left_out = f"the {len(content.held)} events it held, and those its journal says it held, are left out"
            self._complain(one, f"it was a {content.kind} and is a {one.definition.kind} now: {left_out}")

    def _restore_held(self, one: RunningAccumulator, stored: Iterable[bytes]) -> None:
        values = [self._decoded(one, one.codecs.held, value, "an event that it held") for value in stored]
        if one.holds:
            one.hold([_LEFT_OUT if value is None else value for value in values])
        else:
            one.hold([value for value in values if value is not None])

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
        self._place(reactor, content)
        if content is None:
            return

        def decoded(codec: Codec, data: bytes, what: str) -> Any:
            return self._decoded(reactor, codec, data, what)

        named = _Indices(reactor.accumulators, decoded)
        wheel = reactor.wheel
        inputs = wheel.inputs
        inputs.resume(named.values(content.cache), named.flags(content.dirty), content.applied)
        inputs.queue.extend((*entry, at) for name, data, at in content.queue for entry in named.entries([(name, data)]))
        inputs.consumed.extend(named.entries(content.consumed))
        if reactor.commits:
            wheel.log.series = Series(content.series, content.number)
        wheel.resume(_due(firing, named) for firing in content.firings)
        reactor.outbox.refill([_post(post, named) for post in content.posts])

    def _place(self, reactor: RunningReactor, content: ReactorPart | None) -> None:
        """Say for each accumulator which entries of its journal a reactor has seen, or is not to see."""
        is_known = key_of(reactor) in self._memory.parts
        for one in reactor.accumulators:
            is_new_here = one not in self._starting and not self._is_opening
            handed = content.handed(one.name) if content is not None else 0 if is_known else None
            if handed is None:  # it comes to it now; what happened before that, to others, is not for it
                handed = one.position if is_new_here else 0
            self._handed[reactor, one] = handed

    # -- the journal

    def _read_journal(self) -> None:
        """Let happen again what was committed after the snapshots, in its order."""
        listening = self._listening()
        for entry in self._memory.entries:
            one = self._known[entry.key]
            is_fresh = one in self._starting
            if not is_fresh and entry.position > one.position:
                continue  # it has not happened yet, and when it does the reactor is there
            step = self._step(one, entry)
            if step is None:
                continue
            is_news = is_fresh and entry.position > self._positions.get(one, 0)
            boundary = one.advance(step) if is_news else one.boundary_of(step)
            if is_news:
                one.position = entry.position
            if boundary is not None:
                self._deliver(one, boundary, entry.position, listening[one])
        for one in self._restored:
            one.state = one.kept_state
            if one.holds:
                one.hold([value for value in one.held if value is not _LEFT_OUT])

    def _listening(self) -> dict[RunningAccumulator, list[tuple[RunningReactor, int]]]:
        found: dict[RunningAccumulator, list[tuple[RunningReactor, int]]] = {one: [] for one in self._known.values()}
        for reactor in self._reactors:
            if reactor.is_kept:
                for index, one in enumerate(reactor.accumulators):
                    found[one].append((reactor, index))
        return found

    def _step(self, one: RunningAccumulator, entry: JournalEntry) -> Step | None:
        """Return what an entry says, as far as that can be used."""
        record: JournalRecord | None = None
        try:
            record = msgspec.msgpack.decode(entry.payload, type=JournalRecord)
            if not is_entry_intact(entry):
                self._complain(one, f"entry {entry.position} of its journal is damaged and was left out")
            elif one in self._changed and (record.kind != "boundary" or one.definition.is_window):
                return None
            else:
                return self._uncounted(one, one.codecs.step(record))
        except (MisfitError, msgspec.DecodeError) as error:
            what = "no longer fits, and" if is_entry_intact(entry) else "is damaged and"
            self._complain(one, f"entry {entry.position} of its journal {what} was left out: {error}")
        if record is not None and record.kind == "held" and one.holds and one not in self._changed:
            return Step("held", _LEFT_OUT)  # what is let go of later is counted with it
        return None

    def _uncounted(self, one: RunningAccumulator, step: Step) -> Step:
        """Return a step of an accumulator that may be of another kind by now, and then lets go of nothing."""
        return msgspec.structs.replace(step, count=0) if one in self._changed else step

    def _deliver(
        self, one: RunningAccumulator, boundary: Any, position: int, listening: list[tuple[RunningReactor, int]]
    ) -> None:
        for reactor, index in listening:
            if position > self._handed[reactor, one]:
                reactor.wheel.inputs.put(index, boundary, position)
                repeats = reactor.wheel.inputs.sequential and not one.definition.is_window
                if not repeats and any(other.definition.is_window for other in reactor.accumulators):
                    self._unsure.add(reactor)

    # -- letters and pauses

    def _restore_the_rest(self) -> None:
        for one in self._starting:
            one.letters.refill(event_letters(one, self._readable_letters(one)))
        for reactor in self._reactors:
            reactor.wheel.outcomes.letters.refill(firing_letters(reactor, self._readable_letters(reactor)))
            if key_of(reactor) in self._memory.paused:
                reactor.hold_back()
            if reactor.is_kept:
                reactor.wheel.mark_saved()

    def _readable_letters(self, thing: Thing) -> list[StoredContent]:
        found = []
        for row in self._memory.letters[key_of(thing)]:
            try:
                found.append((row, read_letter(row)))
            except msgspec.DecodeError as error:
                self._complain(thing, f"its dead letter '{row.id}' cannot be read and stays in the store: {error}")
        return found


def _not_after(limit: float, parts: list[Part]) -> Part:
    """Return the newest part up to a moment, or the oldest one if all are newer."""
    return next((part for part in parts if part.moment <= limit), parts[-1])


def _is_before(damaged: Part, intact: Part) -> bool:
    """Return whether a damaged part is surely the older one: one number that is the damage cannot say so alone."""
    return damaged.generation == intact.generation - 1 and damaged.moment < intact.moment


def _due(firing: StoredFiring, named: "_Indices") -> Due:
    taken = Taken(named.values(firing.inputs), list(named.entries(firing.consumed)), named.flags(firing.flags))
    return Due(firing.series, firing.number, taken, [], firing.manual, firing.attempt, tuple(firing.graphs))


def _post(post: StoredPost, named: "_Indices") -> Post:
    record = Record(post.series, post.number, post.at, post.at, named.values(post.inputs), {})
    return Post(record, set(post.to), is_stored=True)


class _Indices:
    """Stored values of a reactor as its declaration has them now: what is no longer declared is passed over."""

    def __init__(self, accumulators: Sequence[RunningAccumulator], decode: Decode) -> None:
        self._decode = decode
        self._sources = {one.name: (index, one) for index, one in enumerate(accumulators)}

    def entries(self, named: Iterable[Named]) -> Iterator[Entry]:
        for name, data in named:
            if name in self._sources:
                index, one = self._sources[name]
                value = self._decode(one.codecs.boundary, data, f"a boundary of '{name}'")
                if value is not None:
                    yield index, one.definition.cut(value) if one.definition.is_window else value

    def values(self, named: dict[str, bytes]) -> list[Any]:
        values: list[Any] = [None] * len(self._sources)
        for index, value in self.entries(named.items()):
            values[index] = value
        return values

    def flags(self, names: Iterable[str]) -> int:
        return sum(1 << self._sources[name][0] for name in names if name in self._sources)
