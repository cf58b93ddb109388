"""Restores reactors and accumulators from the store before they start.

First the snapshots that `GenerationChooser` picked, then the journal up to the last acknowledged event. State that
cannot be read is reported: a reactor never starts empty in silence.
"""

import logging
from collections.abc import Iterable, Sequence, Set
from functools import partial
from typing import Any, TypeVar

import msgspec

from tidemill.annotations.codec import Codec
from tidemill.annotations.validation import TypeMismatchError
from tidemill.engine.graphs.accumulators.accumulator import RunningAccumulator
from tidemill.engine.graphs.accumulators.held import Held
from tidemill.engine.graphs.checkpoints.dead_letter_store import (
    DecodedDeadLetter,
    decode_payload,
    restore_event_dead_letters,
    restore_firing_dead_letters,
)
from tidemill.engine.graphs.checkpoints.double_writes import find_double_writes, group_by_journal
from tidemill.engine.graphs.checkpoints.generations import GenerationChooser
from tidemill.engine.graphs.checkpoints.key_restore import KeyRestorer
from tidemill.engine.graphs.checkpoints.named_values import NamedDecoder
from tidemill.engine.graphs.checkpoints.part_history import read_histories
from tidemill.engine.graphs.checkpoints.state_reader import Component, StoredState, durable_accumulators, part_key
from tidemill.engine.graphs.durability.checksums import is_part_intact
from tidemill.engine.graphs.durability.journal import JournalStep
from tidemill.engine.graphs.durability.journal_blocks import JournalEntry
from tidemill.engine.graphs.firing.firing_log import FiringRecord, FiringSeries
from tidemill.engine.graphs.firing.graph_caller import PendingFiring
from tidemill.engine.graphs.keys.keyed_ingest import KeyedAccumulator
from tidemill.engine.graphs.keys.keyed_reactor import KeyedReactor, KeyHistory
from tidemill.engine.graphs.reactors.feed_outbox import PendingFeed
from tidemill.engine.graphs.reactors.outbox import FailedStart, OutboxEntry
from tidemill.engine.graphs.reactors.reactor import RunningReactor
from tidemill.engine.graphs.staging import ManagedGraph
from tidemill.engine.graphs.unread_state import UnreadState
from tidemill.graphs.definition import StateUpgrade
from tidemill.graphs.inputs import FiringInputs
from tidemill.graphs.keys import Key, decode_key
from tidemill.graphs.snapshot import (
    UNREADABLE_ERRORS,
    AccumulatorPart,
    JournalRecord,
    KeyedJournalRecord,
    ReactorPart,
    StoredFiring,
    StoredOutboxEntry,
)
from tidemill.graphs.subscription import GraphNodeOutput, Subscription
from tidemill.storage.graph_ports import PartKey, SnapshotPart
from tidemill.telemetry import events

logger = logging.getLogger(__name__)

Content = TypeVar("Content", ReactorPart, AccumulatorPart)

_UNREADABLE = object()
"""Placeholder in a batch for an event that could not be read, until the journal has released events by count."""


class StateRestorer:
    """Restores reactors and accumulators that were not started yet from their stored state.

    Accumulators that feed no durable reactor start empty. The reactors in `reset` have another contract than the
    version whose state is stored: their cache starts empty, as do the windows that only they read. With
    `is_starting_up` the node itself is starting: then even an accumulator that already runs has processed nothing but
    its journal.
    """

    def __init__(
        self,
        stored_state: StoredState,
        added: Sequence[ManagedGraph],
        starting: Sequence[RunningAccumulator],
        *,
        reset: Set[RunningReactor] = frozenset(),
        is_starting_up: bool = False,
    ) -> None:
        self._stored_state = stored_state
        self._reset = reset
        self._is_starting_up = is_starting_up
        self._reactors = [managed.reactor for managed in added]
        self._starting = dict.fromkeys(starting)
        self._by_journal_key = {one.emitter.journal_writer.key: one for one in durable_accumulators(added)}
        self._restorable = [one for one in self._by_journal_key.values() if one in self._starting]
        self._restored_positions: dict[RunningAccumulator, int] = {}
        # the journal position up to which a reactor has seen an accumulator's entries
        self._delivered_positions: dict[tuple[RunningReactor, RunningAccumulator], int] = {}
        self._kind_changed: set[RunningAccumulator] = set()  # of another kind than in the snapshot
        self._maybe_diverged: set[RunningReactor] = set()  # their windows may differ from before
        self.problems: list[tuple[Component, str]] = []
        """What could not be restored, in words, and the component of each."""
        self.unread: dict[Component, UnreadState] = {}
        """What was not read of the values of each component."""

    def run(self) -> None:
        """Restore everything."""
        chooser = GenerationChooser(self._stored_state)
        chosen = chooser.choose(self._reactors, [*self._restorable, *self._reactors])
        self.problems += chooser.problems
        self._report_double_writes()
        for one in self._restorable:
            self._restore_accumulator(one, chosen.get(part_key(one)))
        for reactor in self._reactors:
            if reactor.durability.is_durable:
                self._restore_reactor(reactor, chosen.get(part_key(reactor)))
        self._initialize_fresh()
        self._replay_journal()
        self._restore_dead_letters_and_pauses()
        for component, unread in self.unread.items():
            if (reason := unread.describe_unfit()) is not None:
                self._report(component, reason)
        self._start_new_series(chosen)

    def _initialize_fresh(self) -> None:
        """Set the positions of components that are not restored: if they become durable, they skip older entries."""
        restored: set[Component] = {*self._restorable, *(one for one in self._reactors if one.durability.is_durable)}
        components: list[Component] = [*self._reactors, *self._starting]
        for component in components:
            if component not in restored:
                stored = self._stored_state.parts.get(part_key(component), ())
                component.generation = max((part.generation for part in stored if is_part_intact(part)), default=0)
                if isinstance(component, RunningAccumulator):
                    emitter = component.emitter
                    emitter.position = emitter.checkpointed_position = self._stored_state.newest_position

    def _start_new_series(self, chosen: dict[PartKey, SnapshotPart]) -> None:
        """Number firings in a new series where the journal may not reproduce their inputs."""
        for reactor in self._reactors:
            part = chosen.get(part_key(reactor))
            has_new_schema = part is not None and part.digest != reactor.schema_digest
            if has_new_schema or self.problems or reactor in self._maybe_diverged:
                reactor.firing_loop.new_series()

    @property
    def position(self) -> int:
        """The highest position found; new journal entries must come after it."""
        entries = (entry.position for entry in self._stored_state.entries)
        return max((*self._restored_positions.values(), *self._delivered_positions.values(), *entries), default=0)

    @property
    def changed_reactors(self) -> list[RunningReactor]:
        """The reactors with an accumulator of another kind than before, for which the old journal is not valid."""
        return [
            one
            for one in self._reactors
            if one.durability.is_durable and not self._kind_changed.isdisjoint(one.accumulators)
        ]

    def _report_double_writes(self) -> None:
        """Report the signs of two nodes that ran the same reactor, before the next snapshots erase them."""
        durable: list[Component] = [*self._restorable, *(one for one in self._reactors if one.durability.is_durable)]
        components = {part_key(one): one for one in durable}
        stored = [part for key in components for part in self._stored_state.parts.get(key, ())]
        journals = group_by_journal(entry for entry in self._stored_state.entries if entry.is_intact)
        for one in find_double_writes(read_histories(stored), journals):
            if (component := components.get(one.key)) is not None:  # else it runs already, and was reported then
                self._report(component, one.reason)

    # -- snapshot parts

    def _report(self, component: Component, reason: str) -> None:
        self.problems.append((component, reason))

    def _decode_part(self, component: Component, part: SnapshotPart | None, kind: type[Content]) -> Content | None:
        if part is None:
            return None
        component.generation = part.generation
        try:
            return msgspec.msgpack.decode(part.payload, type=kind)
        except msgspec.DecodeError as error:  # intact, so another version of Tidemill wrote it
            self._report(component, f"its snapshot cannot be read by this version: {error}; it starts empty")
            return None

    # -- accumulators

    def _restore_accumulator(self, accumulator: RunningAccumulator, part: SnapshotPart | None) -> None:
        content = self._decode_part(accumulator, part, AccumulatorPart)
        if content is None:
            return
        emitter = accumulator.emitter
        emitter.counter.sequence = content.sequence
        emitter.position = emitter.checkpointed_position = content.position
        self._restored_positions[accumulator] = content.position
        emitter.offset = emitter.checkpointed_offset = content.offset
        codec = None if isinstance(accumulator, KeyedAccumulator) else emitter.codecs.state  # each key has its state
        if codec is not None and content.state is not None:
            upgrade = accumulator.definition.state_upgrade
            state = self._decode_value(accumulator, codec, content.state, "its running state", upgrade)
            emitter.held.state = emitter.held.committed_state = emitter.held.state if state is None else state
        if accumulator.definition.is_window and self._reset >= {one.reactor for one, _ in emitter.targets}:
            return
        if content.kind in (None, accumulator.definition.kind):
            self._restore_buffer(accumulator, content.held)
        else:
            self._kind_changed.add(accumulator)
            left_out = f"the {len(content.held)} events it held, and those its journal says it held, are left out"
            self._report(accumulator, f"it was a {content.kind} and is a {accumulator.definition.kind} now: {left_out}")

    def _restore_buffer(self, accumulator: RunningAccumulator, stored: Iterable[bytes]) -> None:
        values = [
            self._decode_value(accumulator, accumulator.emitter.codecs.buffered, value, "an event that it held")
            for value in stored
        ]
        if accumulator.kind.buffers_events:
            values = [_UNREADABLE if value is None else value for value in values]
        accumulator.kind.replace_events(accumulator.emitter.held, [value for value in values if value is not None])

    def _decode_value(
        self, component: Component, codec: Codec, data: bytes, what: str, upgrade: StateUpgrade | None = None
    ) -> Any:
        """Return a stored value, or None if it does not fit the current declaration."""
        return self._unread_of(component).read_fitting(codec, data, what, upgrade)

    def _unread_of(self, component: Component) -> UnreadState:
        if (unread := self.unread.get(component)) is None:
            unread = self.unread[component] = UnreadState()
        return unread

    # -- reactors

    def _restore_reactor(self, reactor: RunningReactor, part: SnapshotPart | None) -> None:
        content = self._decode_part(reactor, part, ReactorPart)
        self._set_delivered_positions(reactor, content)
        if isinstance(reactor, KeyedReactor):
            self._restore_keys(reactor, content, 0 if part is None or content is None else part.moment)
        if content is None:
            return

        decoder = NamedDecoder(reactor.accumulators, partial(self._decode_value, reactor))
        loop = reactor.firing_loop
        inputs = reactor.inputs_of(None)
        cache, dirty = ({}, []) if reactor in self._reset else (content.cache, content.dirty)
        inputs.restore(decoder.decode_values(cache), decoder.flag_mask(dirty), content.applied)
        inputs.queue.extend(
            (*entry, at) for name, data, at in content.queue for entry in decoder.decode_entries([(name, data)])
        )
        if reactor not in self._reset:
            inputs.consumed.extend(decoder.decode_entries(content.consumed))
        if reactor.durability.is_journaled:
            loop.log.series = FiringSeries(content.series, content.number)
        loop.restore_firings(_pending_firing(firing, decoder) for firing in content.firings)
        counts = {"cached": len(cache), "queued": len(inputs.queue), "firings": len(content.firings)}
        logger.info(events.CHECKPOINT_RESTORED, extra={"reactor": reactor.name, **counts})
        reactor.outbox.restore(_outbox_entry(entry, decoder, reactor.tenant) for entry in content.posts)
        reactor.feed_outbox.restore(
            PendingFeed((feed.tenant, feed.accumulator), None, feed.value, is_restored=True) for feed in content.feeds
        )

    def _restore_keys(self, reactor: KeyedReactor, content: ReactorPart | None, moment: int) -> None:
        """Restore the keys that have work to do; the others are read when they are needed."""
        stored = self._stored_state.keys[part_key(reactor)]
        lost = [] if content is None else content.lost_moments
        if moment < stored.newest_moment and self._went_back(reactor, moment):
            lost = [*lost, (moment, stored.newest_moment)]
        if content is not None and content.partitions not in (0, reactor.definition.partitions):
            lost = [(0, stored.newest_moment)]  # other keys belong here now
        reset = moment if reactor in self._reset else 0 if content is None else content.reset_moment
        reactor.key_history = KeyHistory(tuple(lost), reset)
        reactor.firing_loop.keys.stored = stored.index
        KeyRestorer(reactor, partial(self._report, reactor), self._unread_of(reactor)).restore_at_start(stored)

    def _went_back(self, reactor: RunningReactor, moment: int) -> bool:
        """Return whether a later generation than the chosen one was written, and cannot be used."""
        return any(part.moment > moment for part in self._stored_state.parts.get(part_key(reactor), ()))

    def _set_delivered_positions(self, reactor: RunningReactor, content: ReactorPart | None) -> None:
        """Set, for each accumulator, the journal position up to which a reactor needs no entries."""
        is_known = part_key(reactor) in self._stored_state.parts
        for one in reactor.accumulators:
            is_new_here = one not in self._starting and not self._is_starting_up
            delivered = content.journal_position_of(one.name) if content is not None else 0 if is_known else None
            if delivered is None:  # the reactor is new to this accumulator: earlier entries are not for it
                delivered = one.emitter.position if is_new_here else 0
            self._delivered_positions[reactor, one] = delivered

    # -- the journal

    def _replay_journal(self) -> None:
        """Apply the steps that were committed after the snapshots, in order."""
        reactors = self._reactors_by_accumulator()
        for entry in self._stored_state.entries:
            one = self._by_journal_key[entry.key]
            is_fresh = one in self._starting
            if not is_fresh and entry.position > one.emitter.position:
                continue  # the step has not happened yet; the reactor will receive it
            step = self._decode_step(one, entry)
            if step is None:
                continue
            held = one.held_of_step(step)
            is_new = is_fresh and entry.position > self._restored_positions.get(one, 0)
            boundary = one.kind.apply_step(step, held) if is_new else one.kind.boundary_of(step, held)
            if is_new:
                one.emitter.position = entry.position
            if boundary is not None:
                self._deliver(one, boundary, entry.position, reactors[one], held)
        for one in self._restorable:
            for held in one.emitter.held_now():
                held.state = held.committed_state
                if one.kind.buffers_events:
                    one.kind.replace_events(held, [value for value in held.events if value is not _UNREADABLE])

    def _reactors_by_accumulator(self) -> dict[RunningAccumulator, list[tuple[RunningReactor, int]]]:
        targets: dict[RunningAccumulator, list[tuple[RunningReactor, int]]] = {
            one: [] for one in self._by_journal_key.values()
        }
        for reactor in self._reactors:
            if reactor.durability.is_durable:
                for index, one in enumerate(reactor.accumulators):
                    targets[one].append((reactor, index))
        return targets

    def _decode_step(self, accumulator: RunningAccumulator, entry: JournalEntry) -> JournalStep | None:
        """Return the step of an entry, or None if it cannot be used."""
        record: JournalRecord | None = None
        try:
            kind = KeyedJournalRecord if isinstance(accumulator, KeyedAccumulator) else JournalRecord
            record = msgspec.msgpack.decode(entry.payload, type=kind)
            if not entry.is_intact:
                self._report(accumulator, f"entry {entry.position} of its journal is damaged and was left out")
            elif accumulator in self._kind_changed and (record.kind != "boundary" or accumulator.definition.is_window):
                return None
            else:
                upgrade = accumulator.definition.state_upgrade if record.kind == "boundary" else None
                read = partial(self._unread_of(accumulator).read, what="an entry of its journal", upgrade=upgrade)
                return self._without_count(accumulator, accumulator.emitter.codecs.from_record(record, read))
        except (TypeMismatchError, *UNREADABLE_ERRORS) as error:
            what = "no longer fits, and" if entry.is_intact else "is damaged and"
            self._report(accumulator, f"entry {entry.position} of its journal {what} was left out: {error}")
        if (
            record is not None
            and record.kind == "held"
            and accumulator.kind.buffers_events
            and accumulator not in self._kind_changed
        ):
            key = decode_key(record.key) if isinstance(record, KeyedJournalRecord) else None
            return JournalStep("held", _UNREADABLE, key=key)  # later steps release events by count
        return None

    def _without_count(self, accumulator: RunningAccumulator, step: JournalStep) -> JournalStep:
        """Return a step; one of an accumulator that has changed its kind releases no events."""
        return msgspec.structs.replace(step, count=0) if accumulator in self._kind_changed else step

    def _deliver(
        self,
        accumulator: RunningAccumulator,
        boundary: Any,
        position: int,
        reactors: list[tuple[RunningReactor, int]],
        held: Held,
    ) -> None:
        for reactor, index in reactors:
            if position > self._delivered_positions[reactor, accumulator]:
                inputs = reactor.firing_loop.inputs_of(held.key_state)
                inputs.put(index, boundary, position)
                repeats = inputs.is_sequential and not accumulator.definition.is_window
                if not repeats and any(other.definition.is_window for other in reactor.accumulators):
                    self._maybe_diverged.add(reactor)

    # -- dead letters and pauses

    def _restore_dead_letters_and_pauses(self) -> None:
        for one in self._starting:
            one.dead_letters.restore(restore_event_dead_letters(one, self._decode_dead_letters(one)))
        for reactor in self._reactors:
            dead_letters = restore_firing_dead_letters(reactor, self._decode_dead_letters(reactor))
            reactor.firing_loop.results.dead_letters.restore(dead_letters)
            reactor.outbox.discard_failed(detail for _, detail in dead_letters if isinstance(detail, FailedStart))
            if part_key(reactor) in self._stored_state.paused:
                reactor.pausing.hold()
            if reactor.durability.is_durable:
                reactor.firing_loop.mark_checkpointed()

    def _decode_dead_letters(self, component: Component) -> list[DecodedDeadLetter]:
        decoded = []
        for row in self._stored_state.dead_letters[part_key(component)]:
            try:
                decoded.append((row, decode_payload(row)))
            except msgspec.DecodeError as error:
                self._report(component, f"its dead letter '{row.id}' cannot be read and stays in the store: {error}")
        return decoded


def _pending_firing(firing: StoredFiring, decoder: NamedDecoder) -> PendingFiring:
    inputs = FiringInputs(
        decoder.decode_values(firing.inputs),
        list(decoder.decode_entries(firing.consumed)),
        decoder.flag_mask(firing.flags),
    )
    facts = (firing.manual, firing.attempt, tuple(firing.graphs), _key_of(firing))
    return PendingFiring(firing.series, firing.number, inputs, [], *facts)


def _outbox_entry(stored: StoredOutboxEntry, decoder: NamedDecoder, tenant: str) -> OutboxEntry:
    inputs = decoder.decode_values(stored.inputs)
    record = FiringRecord(stored.series, stored.number, stored.at, stored.at, inputs, {}, key=_key_of(stored))
    undelivered: dict[Subscription, GraphNodeOutput | None] = {Subscription(tenant, name): None for name in stored.to}
    undelivered |= {one.to: one.output for one in stored.outputs}
    return OutboxEntry(record, undelivered, is_stored=True)


def _key_of(stored: StoredFiring | StoredOutboxEntry) -> Key | None:
    return None if stored.key is None else decode_key(stored.key)
