"""Reading back what outlived the process, and filling reactors and accumulators with it before they start.

Of each part the newest generation that is intact counts. If one is damaged, the parts that were written with it step
back together to the moment before, so that an offset never says more than its reactor has seen. Then the journal brings
everything up to the last acknowledged event. Whatever could not be read is said aloud: a reactor never starts empty in
silence.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from tidemill.annotations.codec import Codec
from tidemill.annotations.validation import TypeMismatchError
from tidemill.engine.graphs.accumulators.accumulator import RunningAccumulator
from tidemill.engine.graphs.durability.capture import checkpoint_groups
from tidemill.engine.graphs.durability.checksums import is_entry_intact, is_part_intact
from tidemill.engine.graphs.durability.dead_letter_store import (
    DecodedDeadLetter,
    decode_payload,
    restore_event_dead_letters,
    restore_firing_dead_letters,
)
from tidemill.engine.graphs.durability.state_reader import Component, StoredState, durable_accumulators, part_key
from tidemill.engine.graphs.durability_backend import JournalStep
from tidemill.engine.graphs.reactors.firing import PendingFiring
from tidemill.engine.graphs.reactors.firing_log import FiringRecord, FiringSeries
from tidemill.engine.graphs.reactors.outbox import OutboxEntry
from tidemill.engine.graphs.reactors.reactor import RunningReactor
from tidemill.engine.graphs.staging import ManagedGraph
from tidemill.graphs.inputs import FiringInputs, SourceBoundary
from tidemill.graphs.snapshot import (
    AccumulatorPart,
    JournalRecord,
    NamedBoundary,
    ReactorPart,
    StoredFiring,
    StoredOutboxEntry,
)
from tidemill.storage.graph_ports import JournalEntry, PartKey, SnapshotPart

Content = TypeVar("Content", ReactorPart, AccumulatorPart)
Decode = Callable[[Codec, bytes, str], Any]

_UNREADABLE = object()
"""Stands in a batch for an event that could not be read, until the journal has said how many it let go of."""


class StateRestorer:
    """Fills reactors and accumulators that were not started yet with what the store holds of them.

    Accumulators that feed no reactor which is kept begin anew. `is_opening` says that the node comes up: then even an
    accumulator that runs already came up with everything else, and has taken in nothing yet but its journal.
    """

    def __init__(
        self,
        stored_state: StoredState,
        added: Sequence[ManagedGraph],
        starting: Sequence[RunningAccumulator],
        *,
        is_starting_up: bool = False,
    ) -> None:
        self._stored_state = stored_state
        self._is_starting_up = is_starting_up
        self._reactors = [managed.reactor for managed in added]
        self._starting = dict.fromkeys(starting)
        self._by_journal_key = {one.journal_key: one for one in durable_accumulators(added)}
        self._restorable = [one for one in self._by_journal_key.values() if one in self._starting]
        self._restored_positions: dict[RunningAccumulator, int] = {}
        self._delivered_positions: dict[
            tuple[RunningReactor, RunningAccumulator], int
        ] = {}  # what is inside, by position
        self._kind_changed: set[RunningAccumulator] = set()  # which are of another kind than they were
        self._maybe_diverged: set[RunningReactor] = set()  # whose windows may hold something else than they did
        self.problems: list[tuple[Component, str]] = []
        """What could not be restored, and whose it was."""

    def run(self) -> None:
        """Restore everything."""
        chosen = self._choose_generations()
        for one in self._restorable:
            self._restore_accumulator(one, chosen.get(part_key(one)))
        for reactor in self._reactors:
            if reactor.is_durable:
                self._restore_reactor(reactor, chosen.get(part_key(reactor)))
        self._initialize_fresh()
        self._replay_journal()
        self._restore_dead_letters_and_pauses()
        self._start_new_series(chosen)

    def _initialize_fresh(self) -> None:
        """Let what is not kept know how far the store is: if it ever is kept, nothing before that is its own."""
        restored: set[Component] = {*self._restorable, *(one for one in self._reactors if one.is_durable)}
        things: list[Component] = [*self._reactors, *self._starting]
        for thing in things:
            if thing not in restored:
                sound = (
                    part.generation
                    for part in self._stored_state.parts.get(part_key(thing), ())
                    if is_part_intact(part)
                )
                thing.generation = max(sound, default=0)
                if isinstance(thing, RunningAccumulator):
                    thing.position = thing.checkpointed_position = self._stored_state.newest_position

    def _start_new_series(self, chosen: dict[PartKey, SnapshotPart]) -> None:
        """Let firings have new ids where the journal may not lead to the inputs that they had before."""
        for reactor in self._reactors:
            part = chosen.get(part_key(reactor))
            is_other = part is not None and part.digest != reactor.schema_digest
            if is_other or self.problems or reactor in self._maybe_diverged:
                reactor.firing_loop.new_series()

    @property
    def position(self) -> int:
        """The highest position that was met; what is appended from now on must come after it."""
        entries = (entry.position for entry in self._stored_state.entries)
        return max((*self._restored_positions.values(), *self._delivered_positions.values(), *entries), default=0)

    @property
    def changed_reactors(self) -> list[RunningReactor]:
        """The reactors with an accumulator of another kind than before: what the journal says now means another."""
        return [one for one in self._reactors if one.is_durable and not self._kind_changed.isdisjoint(one.accumulators)]

    # -- which generation counts

    def _choose_generations(self) -> dict[PartKey, SnapshotPart]:
        """Choose, circle by circle, the newest intact generations of one moment."""
        chosen: dict[PartKey, SnapshotPart] = {}
        coming_up: set[Component] = {*self._restorable, *self._reactors}
        for circle in checkpoint_groups(one for one in self._reactors if one.is_durable):
            things: list[Component] = [*circle.reactors, *circle.accumulators]
            chosen |= self._choose_for_group([one for one in things if one in coming_up])
        return chosen

    def _choose_for_group(self, group: Sequence[Component]) -> dict[PartKey, SnapshotPart]:
        intact: dict[PartKey, list[SnapshotPart]] = {}
        limit = float("inf")
        for thing in group:
            stored = self._stored_state.parts.get(part_key(thing), [])
            sound = [part for part in stored if is_part_intact(part)]
            intact[part_key(thing)] = sound
            if len(sound) < len(stored):
                limit = min(limit, self._report_damage(thing, stored, sound))
        return {key: _newest_up_to(limit, parts) for key, parts in intact.items() if parts}

    def _report_damage(self, component: Component, stored: list[SnapshotPart], sound: list[SnapshotPart]) -> float:
        """Say what is damaged; return the moment that the others may not be ahead of."""
        damaged = [part for part in stored if not is_part_intact(part)]
        which = " and ".join(f"generation {part.generation} of {part.taken_at:%Y-%m-%d %H:%M:%S}" for part in damaged)
        if not sound:
            self._report(component, f"its snapshot is damaged ({which}) and there is no other: it starts empty")
            return float("inf")
        if all(_is_surely_older(part, sound[0]) for part in damaged):
            self._report(component, f"an older snapshot is damaged ({which}); the newest one is intact and is used")
            return float("inf")
        self._report(component, f"its snapshot is damaged ({which}); generation {sound[0].generation} is used instead")
        return sound[0].moment

    def _report(self, component: Component, reason: str) -> None:
        self.problems.append((component, reason))

    def _decode_part(self, component: Component, part: SnapshotPart | None, kind: type[Content]) -> Content | None:
        if part is None:
            return None
        component.generation = part.generation
        try:
            return msgspec.msgpack.decode(part.payload, type=kind)
        except msgspec.DecodeError as error:  # intact, so it was written like that: by another version of Tidemill
            self._report(component, f"its snapshot cannot be read by this version: {error}; it starts empty")
            return None

    # -- accumulators

    def _restore_accumulator(self, accumulator: RunningAccumulator, part: SnapshotPart | None) -> None:
        content = self._decode_part(accumulator, part, AccumulatorPart)
        if content is None:
            return
        accumulator.counter.sequence = content.sequence
        accumulator.position = accumulator.checkpointed_position = self._restored_positions[accumulator] = (
            content.position
        )
        accumulator.offset = content.offset
        codecs = accumulator.codecs
        if codecs.state is not None and content.state is not None:
            state = self._decode_value(accumulator, codecs.state, content.state, "its running state")
            accumulator.state = accumulator.committed_state = accumulator.state if state is None else state
        if content.kind in (None, accumulator.definition.kind):
            self._restore_buffer(accumulator, content.held)
        else:
            self._kind_changed.add(accumulator)
            left_out = f"the {len(content.held)} events it held, and those its journal says it held, are left out"
            self._report(accumulator, f"it was a {content.kind} and is a {accumulator.definition.kind} now: {left_out}")

    def _restore_buffer(self, accumulator: RunningAccumulator, stored: Iterable[bytes]) -> None:
        values = [
            self._decode_value(accumulator, accumulator.codecs.buffered, value, "an event that it held")
            for value in stored
        ]
        if accumulator.buffers_events:
            accumulator.replace_buffer([_UNREADABLE if value is None else value for value in values])
        else:
            accumulator.replace_buffer([value for value in values if value is not None])

    def _decode_value(self, component: Component, codec: Codec, data: bytes, what: str) -> Any:
        """Return a stored value, or None if it does not fit what is declared by now."""
        try:
            return codec.decode(data)
        except TypeMismatchError as error:
            self._report(component, f"{what} no longer fits its declaration and was left out: {error}")
            return None

    # -- reactors

    def _restore_reactor(self, reactor: RunningReactor, part: SnapshotPart | None) -> None:
        content = self._decode_part(reactor, part, ReactorPart)
        self._set_delivered_positions(reactor, content)
        if content is None:
            return

        def decoded(codec: Codec, data: bytes, what: str) -> Any:
            return self._decode_value(reactor, codec, data, what)

        named = _NamedDecoder(reactor.accumulators, decoded)
        wheel = reactor.firing_loop
        inputs = wheel.inputs
        inputs.restore(named.decode_values(content.cache), named.flag_mask(content.dirty), content.applied)
        inputs.queue.extend(
            (*entry, at) for name, data, at in content.queue for entry in named.decode_entries([(name, data)])
        )
        inputs.consumed.extend(named.decode_entries(content.consumed))
        if reactor.is_journaled:
            wheel.log.series = FiringSeries(content.series, content.number)
        wheel.restore_firings(_pending_firing(firing, named) for firing in content.firings)
        reactor.outbox.restore([_outbox_entry(post, named) for post in content.posts])

    def _set_delivered_positions(self, reactor: RunningReactor, content: ReactorPart | None) -> None:
        """Say for each accumulator which entries of its journal a reactor has seen, or is not to see."""
        is_known = part_key(reactor) in self._stored_state.parts
        for one in reactor.accumulators:
            is_new_here = one not in self._starting and not self._is_starting_up
            handed = content.journal_position_of(one.name) if content is not None else 0 if is_known else None
            if handed is None:  # it comes to it now; what happened before that, to others, is not for it
                handed = one.position if is_new_here else 0
            self._delivered_positions[reactor, one] = handed

    # -- the journal

    def _replay_journal(self) -> None:
        """Let happen again what was committed after the snapshots, in its order."""
        listening = self._reactors_by_accumulator()
        for entry in self._stored_state.entries:
            one = self._by_journal_key[entry.key]
            is_fresh = one in self._starting
            if not is_fresh and entry.position > one.position:
                continue  # it has not happened yet, and when it does the reactor is there
            step = self._decode_step(one, entry)
            if step is None:
                continue
            is_news = is_fresh and entry.position > self._restored_positions.get(one, 0)
            boundary = one.apply_step(step) if is_news else one.boundary_of(step)
            if is_news:
                one.position = entry.position
            if boundary is not None:
                self._deliver(one, boundary, entry.position, listening[one])
        for one in self._restorable:
            one.state = one.committed_state
            if one.buffers_events:
                one.replace_buffer([value for value in one.buffered_events if value is not _UNREADABLE])

    def _reactors_by_accumulator(self) -> dict[RunningAccumulator, list[tuple[RunningReactor, int]]]:
        found: dict[RunningAccumulator, list[tuple[RunningReactor, int]]] = {
            one: [] for one in self._by_journal_key.values()
        }
        for reactor in self._reactors:
            if reactor.is_durable:
                for index, one in enumerate(reactor.accumulators):
                    found[one].append((reactor, index))
        return found

    def _decode_step(self, accumulator: RunningAccumulator, entry: JournalEntry) -> JournalStep | None:
        """Return what an entry says, as far as that can be used."""
        record: JournalRecord | None = None
        try:
            record = msgspec.msgpack.decode(entry.payload, type=JournalRecord)
            if not is_entry_intact(entry):
                self._report(accumulator, f"entry {entry.position} of its journal is damaged and was left out")
            elif accumulator in self._kind_changed and (record.kind != "boundary" or accumulator.definition.is_window):
                return None
            else:
                return self._without_count(accumulator, accumulator.codecs.from_record(record))
        except (TypeMismatchError, msgspec.DecodeError) as error:
            what = "no longer fits, and" if is_entry_intact(entry) else "is damaged and"
            self._report(accumulator, f"entry {entry.position} of its journal {what} was left out: {error}")
        if (
            record is not None
            and record.kind == "held"
            and accumulator.buffers_events
            and accumulator not in self._kind_changed
        ):
            return JournalStep("held", _UNREADABLE)  # what is let go of later is counted with it
        return None

    def _without_count(self, accumulator: RunningAccumulator, step: JournalStep) -> JournalStep:
        """Return a step of an accumulator that may be of another kind by now, and then lets go of nothing."""
        return msgspec.structs.replace(step, count=0) if accumulator in self._kind_changed else step

    def _deliver(
        self, accumulator: RunningAccumulator, boundary: Any, position: int, reactors: list[tuple[RunningReactor, int]]
    ) -> None:
        for reactor, index in reactors:
            if position > self._delivered_positions[reactor, accumulator]:
                reactor.firing_loop.inputs.put(index, boundary, position)
                repeats = reactor.firing_loop.inputs.is_sequential and not accumulator.definition.is_window
                if not repeats and any(other.definition.is_window for other in reactor.accumulators):
                    self._maybe_diverged.add(reactor)

    # -- letters and pauses

    def _restore_dead_letters_and_pauses(self) -> None:
        for one in self._starting:
            one.dead_letters.restore(restore_event_dead_letters(one, self._decode_dead_letters(one)))
        for reactor in self._reactors:
            reactor.firing_loop.results.dead_letters.restore(
                restore_firing_dead_letters(reactor, self._decode_dead_letters(reactor))
            )
            if part_key(reactor) in self._stored_state.paused:
                reactor.pause_firing()
            if reactor.is_durable:
                reactor.firing_loop.mark_checkpointed()

    def _decode_dead_letters(self, component: Component) -> list[DecodedDeadLetter]:
        found = []
        for row in self._stored_state.dead_letters[part_key(component)]:
            try:
                found.append((row, decode_payload(row)))
            except msgspec.DecodeError as error:
                self._report(component, f"its dead letter '{row.id}' cannot be read and stays in the store: {error}")
        return found


def _newest_up_to(limit: float, parts: list[SnapshotPart]) -> SnapshotPart:
    """Return the newest part up to a moment, or the oldest one if all are newer."""
    return next((part for part in parts if part.moment <= limit), parts[-1])


def _is_surely_older(damaged: SnapshotPart, intact: SnapshotPart) -> bool:
    """Return whether a damaged part is surely the older one: one number that is the damage cannot say so alone."""
    return damaged.generation == intact.generation - 1 and damaged.moment < intact.moment


def _pending_firing(firing: StoredFiring, decoder: "_NamedDecoder") -> PendingFiring:
    taken = FiringInputs(
        decoder.decode_values(firing.inputs),
        list(decoder.decode_entries(firing.consumed)),
        decoder.flag_mask(firing.flags),
    )
    return PendingFiring(firing.series, firing.number, taken, [], firing.manual, firing.attempt, tuple(firing.graphs))


def _outbox_entry(stored: StoredOutboxEntry, decoder: "_NamedDecoder") -> OutboxEntry:
    record = FiringRecord(stored.series, stored.number, stored.at, stored.at, decoder.decode_values(stored.inputs), {})
    return OutboxEntry(record, set(stored.to), is_stored=True)


class _NamedDecoder:
    """Stored values of a reactor as its declaration has them now: what is no longer declared is passed over."""

    def __init__(self, accumulators: Sequence[RunningAccumulator], decode: Decode) -> None:
        self._decode = decode
        self._sources = {one.name: (index, one) for index, one in enumerate(accumulators)}

    def decode_entries(self, named: Iterable[NamedBoundary]) -> Iterator[SourceBoundary]:
        for name, data in named:
            if name in self._sources:
                index, one = self._sources[name]
                value = self._decode(one.codecs.boundary, data, f"a boundary of '{name}'")
                if value is not None:
                    yield index, one.definition.trim_to_capacity(value) if one.definition.is_window else value

    def decode_values(self, named: dict[str, bytes]) -> list[Any]:
        values: list[Any] = [None] * len(self._sources)
        for index, value in self.decode_entries(named.items()):
            values[index] = value
        return values

    def flag_mask(self, names: Iterable[str]) -> int:
        return sum(1 << self._sources[name][0] for name in names if name in self._sources)
