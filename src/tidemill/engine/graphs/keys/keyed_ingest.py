"""Event ingestion of a keyed accumulator: it reads the key of each event, and hands on what is held for that key.

A task that waits pins its key: what it was handed stays that of the key.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from tidemill.annotations.validation import TypeMismatchError
from tidemill.engine.graphs.accumulators.accumulator import RunningAccumulator
from tidemill.engine.graphs.accumulators.emit import Emitter, PendingReceipt
from tidemill.engine.graphs.accumulators.held import Held
from tidemill.engine.graphs.accumulators.ingest import EventIngest
from tidemill.engine.graphs.accumulators.push_paths import PushPaths
from tidemill.engine.graphs.accumulators.pushes import AuthorCall, Pushes
from tidemill.engine.graphs.dead_letters import ReplayedEvent
from tidemill.engine.graphs.durability.journal import JournalStep
from tidemill.engine.graphs.firing.firing_loop import FiringLoop
from tidemill.engine.graphs.key_state import KeyState
from tidemill.engine.graphs.keys.key_memory import KeyMemory
from tidemill.engine.graphs.keys.key_states import KeyStates
from tidemill.engine.graphs.keys.keyed_loop import KeyedFiringLoop
from tidemill.engine.graphs.push_paths.by_key import KeyedFastPath, KeyedSource, KeyedTarget, build_keyed_loop
from tidemill.engine.graphs.push_paths.loop import PushLoop, decline_next, has_push_loop
from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.graphs.definition import Accumulator
from tidemill.graphs.keys import Key, KeyReader
from tidemill.graphs.outcomes import DeadLetter, Receipt, Rejection
from tidemill.graphs.pushes import ProducerPosition, PushSummary, ReceiptTally
from tidemill.kernel.errors import PushStoppedError, StoreError
from tidemill.storage.graph_ports import StoredPush


class KeyedEvent(NamedTuple):
    """A validated event and its key: what has found the partition of the event, and need not be done again."""

    key: Key
    value: Any


class KeyedIngest(EventIngest):
    """Takes the events of a keyed accumulator from their pushers to its reactor."""

    keys: KeyStates
    memory: KeyMemory
    read_key: KeyReader
    emitter: "KeyedEmitter"

    def __init__(self, definition: Accumulator, tenant: str, runtime: GraphRuntime) -> None:
        super().__init__(definition, tenant, runtime)
        self.paths = KeyedPaths(self)

    def create_emitter(self, definition: Accumulator) -> "KeyedEmitter":
        """Create an emitter that keeps a state for each key."""
        return KeyedEmitter(self.dead_letter, definition, self.tenant, self.runtime)

    def use_keys(self, loop: KeyedFiringLoop) -> None:
        """Take events of the keys of this reactor, the only one that it feeds."""
        self.keys, self.memory = loop.keys, loop.memory
        self.emitter.use_keys(loop.keys)
        self.read_key = loop.reactor.definition.key_reader(self.definition)

    # -- pushing

    async def ingest(self, event: Any, encoding: str, offset: Any) -> Receipt:
        """Read the key of an event, and process the event for it."""
        if self.down_reason is not None:
            return self.reject_down()
        try:
            key, value = self.read(event, encoding)
        except TypeMismatchError as error:
            return self.dead_letter(event, error, self.held, encoding)
        key_state = self.keys.find(key)
        if key_state is None:
            try:
                key_state = await self.memory.load(key)
            except StoreError as error:
                return self.emitter.not_stored(str(error))
        key_state.pins += 1
        try:
            held = self.emitter.held_of(key_state)
            if (rejection := self.queue_rejection(held)) is not None:
                return rejection
            if self.is_async:
                work = self.keys.pinned(key_state, self.kind.process_in_order(value, held, offset))
                return await self.runtime.tasks.run_shielded(f"accumulator {self.name}: event", work)
            if self.emitter.is_journaled:
                return await self.process_journaled(value, held, offset)
            if not self.is_blocked(held):
                return self.paths.take(value, key_state, held)
            return await self.process_when_unblocked(value, held)
        finally:
            key_state.pins -= 1

    def read(self, event: Any, encoding: str) -> KeyedEvent:
        """Return a validated event and its key, or raise TypeMismatchError."""
        if event.__class__ is KeyedEvent:
            keyed: KeyedEvent = event
            return keyed
        value = self.validate(event, encoding)
        return KeyedEvent(self.read_key(value), value)

    def begin_push(self, event: Any, encoding: str, offset: Any = None) -> PendingReceipt | None:  # noqa: ARG002
        """Return None: the key of the event may have to be read from the store."""
        return None

    def begin_unblocked(self, event: Any, encoding: str, offset: Any = None) -> PendingReceipt | None:
        found = self.find_held(event, encoding)
        if isinstance(found, Receipt):
            return found
        value, held = found
        return None if self.is_blocked(held) else self.queue_rejection(held) or self.begin_step(value, held, offset)

    def begin_event(self, event: Any, encoding: str, offset: Any = None) -> PendingReceipt:
        """Validate and process an event of an active key, and begin to commit its outcome."""
        found = self.find_held(event, encoding)
        if isinstance(found, Receipt):
            return found
        value, held = found
        return self.queue_rejection(held) or self.begin_step(value, held, offset)

    def find_held(self, event: Any, encoding: str) -> Receipt | tuple[Any, Held]:
        """Return the validated event and what is held for its key, or a receipt if it is not processed."""
        if self.down_reason is not None:
            return self.rejection(self.held) or self.emitter.reject("accumulator_down", self.down_reason)
        try:
            key, value = self.read(event, encoding)
            key_state = self.keys.find(key)
        except TypeMismatchError as error:
            return self.dead_letter(event, error, self.held, encoding)
        if key_state is None:
            return self.emitter.reject("not_stored", "the state of this key is not in memory")
        return value, self.emitter.held_of(key_state)

    def held_for(self, event: Any, encoding: str) -> Held:
        """Return what is held for the key of an event, for one who asks about its queue."""
        try:
            key_state = self.keys.active.get(self.read(event, encoding).key)
        except TypeMismatchError:  # it becomes a dead letter, and needs no space
            key_state = None
        return self.held if key_state is None else self.emitter.held_of(key_state)

    # -- dead letters

    async def replay_batch(self, events: list[Any], dead_letter: DeadLetter) -> Receipt:
        key_state = await self.memory.activate(dead_letter.key)
        held = self.emitter.held_of(key_state)
        return await self.keys.pinned(key_state, self.reprocess(events, ReplayedEvent(dead_letter), held))

    async def replay_value(self, value: Any, dead_letter: DeadLetter) -> Receipt:
        try:
            key_state = await self.memory.activate(self.read_key(value))
        except TypeMismatchError as error:
            return self.dead_letter(ReplayedEvent(dead_letter), error, self.held)
        held = self.emitter.held_of(key_state)
        if (rejection := self.queue_rejection(held)) is not None:
            return rejection
        return await self.keys.pinned(key_state, self.kind.replay(value, dead_letter, held))


def keys_of(intake: KeyedIngest, events: Iterable[Any], encoding: str) -> list[Key]:
    """Return the keys of events, each once; none if no key ever leaves the memory."""
    found: dict[Key, None] = {}
    for event in events if intake.memory.drops_idle else ():
        with suppress(TypeMismatchError):  # the event becomes a dead letter when it is processed
            found[intake.read(event, encoding).key] = None
    return list(found)


class KeyedEmitter(Emitter):
    """Delivers the boundaries of a keyed accumulator: a step that is being committed keeps its key active."""

    _keys: KeyStates | None = None  # until it belongs to a reactor
    _place: int | None = None  # among the accumulators that hold something for each key; None for one that does not

    def use_keys(self, keys: KeyStates) -> None:
        """Hold something for each of these keys, if there is something to hold."""
        self._keys = keys
        self._take_place()

    def redefine(self, definition: Accumulator) -> None:
        """Emit by a newer declaration, which may be the first with a running state."""
        super().redefine(definition)
        if self._keys is not None:
            self._take_place()

    def _take_place(self) -> None:
        assert self._keys is not None, "only an accumulator of a reactor has keys"
        if self._place is None and (self._definition.state is not None or self.kind.holds_events):
            self._place = self._keys.add_holder()

    def held_of(self, key_state: KeyState) -> Held:
        """Return what is held for a key, which is as at the start if the key is new here."""
        if self._place is None:
            return Held(None, (), key_state)
        places = key_state.held = key_state.held or []
        while len(places) <= self._place:
            places.append(None)
        held: Held | None = places[self._place]
        if held is None:
            held = places[self._place] = Held(self.new_state(), self.kind.new_events(), key_state)
        return held

    def held_now(self) -> list[Held]:
        place = self._place
        if self._keys is None or place is None:
            return [self.held]
        found = (
            one.held[place] for one in self._keys.active.values() if one.held is not None and len(one.held) > place
        )
        return [self.held, *(one for one in found if one is not None)]

    def append_to_journal(self, step: JournalStep, event: Any, held: Held) -> PendingReceipt:
        """Begin to commit a step of a key, which stays active until then."""
        pending = super().append_to_journal(msgspec.structs.replace(step, key=held.key), event, held)
        if not isinstance(pending, Receipt):
            assert held.key_state is not None, "a step of a keyed accumulator has a key"
            held.key_state.pins += 1
        return pending

    def committed_held(self, key: Key) -> Held:
        """Return what is held for the key of a step, which may be dropped when the step has happened."""
        assert self._keys is not None, "only an accumulator of a reactor commits steps"
        key_state = self._keys.active[key]
        key_state.pins -= 1
        return self.held_of(key_state)


class KeyedPaths(PushPaths):
    """The generated functions of a keyed accumulator: they find the key of an event, and fire it if it is active."""

    fast_path: KeyedFastPath

    def __init__(self, intake: KeyedIngest) -> None:
        super().__init__(intake)
        self._keyed = intake

    def create_fast_path(self) -> KeyedFastPath:
        return KeyedFastPath(self.push_slow)

    def take(self, value: Any, key_state: KeyState, held: Held) -> Receipt:
        """Process a validated event of a key, by the fast path if that is open."""
        self.open()
        keyed = self._keyed
        if not key_state.is_fast or keyed.read_key.attribute is None:  # the fast path would call it again
            return keyed.process_now(value, held)
        if not self.takes(value):
            return keyed.process_now(value, held)
        sequence = self.fast_path.call(value)
        return self.slow_receipt if sequence is None else Receipt(True, sequence, "emitted")

    def open_to_target(self) -> None:
        """Open the fast path to the keyed reactor, if each boundary of this accumulator alone may fire it."""
        ((target, index),) = self._keyed.emitter.targets
        assert isinstance(target, KeyedFiringLoop)
        decides = not target.inputs.needs_all and bool(target.inputs.criteria_mask >> index & 1)
        if decides and target.fast.graph is not None:
            self.fast_path.open_to_keys(self._keyed_source(), index, _as_target(target), target.fast.graph)

    def build_push_loop(self) -> PushLoop:
        graph = self.fast_path.graph
        if graph is None or not has_push_loop(graph.wiring):
            return decline_next  # the key of an event may have to be read from the store
        ((target, index),) = self._keyed.emitter.targets
        assert isinstance(target, KeyedFiringLoop)
        return build_keyed_loop(self._keyed_source(), index, _as_target(target), graph)

    def _keyed_source(self) -> KeyedSource:
        return KeyedSource(
            source=self.source(),
            read_key=self._keyed.read_key,
            dead_letter=self._dead_letter_in_key,
            emit_slow=self._emit_slow_in_key,
        )

    def _dead_letter_in_key(self, key_state: KeyState, event: Any, error: BaseException) -> None:
        self.slow_receipt = self._keyed.dead_letter(event, error, self._keyed.emitter.held_of(key_state))

    def _emit_slow_in_key(self, key_state: KeyState, event: Any, boundary: Any) -> int | None:
        return self.emit_held(event, boundary, self._keyed.emitter.held_of(key_state))

    def push_unusual(self, event: Any) -> int | None:
        """Process an event that the fast path cannot take, of a key that is in memory."""
        keyed = self._keyed
        self.check_synchronous()
        found = keyed.find_held(event, "json")
        if isinstance(found, Rejection) and found.code == "not_stored":
            message = f"accumulator '{keyed.definition.declared_name}': {found.reason}; use `await node.push(...)`"
            raise PushStoppedError(f"{message}, which reads it", code="key_not_in_memory", status=409)
        if isinstance(found, Receipt):
            self.slow_receipt = found
            return None
        value, held = found
        keyed.check_queue_space(held)
        receipt = self.slow_receipt = keyed.queue_rejection(held) or keyed.process_now(value, held)
        return receipt.sequence if receipt.outcome == "emitted" else None


def _as_target(loop: KeyedFiringLoop) -> KeyedTarget:
    """Return a reactor as the end of a fast path."""
    return KeyedTarget(loop.fast.target, loop.keys.active)


class KeyedPushes(Pushes):
    """Takes the pushes of a keyed accumulator: the keys of their events are in memory meanwhile."""

    def __init__(self, intake: KeyedIngest, paths: KeyedPaths) -> None:
        super().__init__(intake, paths)
        self._keyed = intake

    async def push_all(self, events: Sequence[Any], encoding: str) -> ReceiptTally:
        keyed = self._keyed
        try:
            async with keyed.memory.holding(keys_of(keyed, events, encoding)):
                return await super().push_all(events, encoding)
        except StoreError:  # only events of keys that are not in memory are rejected
            tally = ReceiptTally()
            await self.push_each(events, encoding, tally)
            return tally

    async def push_atomically(
        self, events: Sequence[Any], encoding: str, position: ProducerPosition
    ) -> tuple[PushSummary, StoredPush | None]:
        async with self._keyed.memory.holding(keys_of(self._keyed, events, encoding)):
            return await super().push_atomically(events, encoding, position)

    async def wait_for_queue_space(self, events: Sequence[Any], encoding: str) -> None:
        """Wait until the queue of each key has space."""
        keyed = self._keyed
        found = [keyed.held_for(event, encoding) for event in events] if keyed.emitter.queue_gates else []
        for held in {one.key: one for one in (keyed.held, *found)}.values():
            await keyed.wait_for_queue_space(held)

    async def call_author_on_all(self, events: Sequence[Any], encoding: str) -> list[AuthorCall]:
        """Await the author's function on each event, with what is held for its key."""
        calls: list[AuthorCall] = []
        for event in events:
            found = self._keyed.find_held(event, encoding)
            if isinstance(found, Receipt):
                calls.append(AuthorCall(event, None, self._keyed.held, found))
            else:
                calls.append(await self.call_author(found[0], encoding, found[1]))
        return calls


class KeyedAccumulator(RunningAccumulator):
    """One loaded accumulator of a keyed reactor: it keeps its state, its buffer or its window for each key."""

    intake: KeyedIngest

    def create_intake(self, definition: Accumulator) -> KeyedIngest:
        return KeyedIngest(definition, self.tenant, self.runtime)

    def create_paths(self) -> KeyedPaths:
        return self.intake.paths

    def create_pushes(self) -> KeyedPushes:
        return KeyedPushes(self.intake, self.intake.paths)

    def add_target(self, reactor: FiringLoop, index: int) -> None:
        """Deliver to this reactor, the only one, and use its keys."""
        assert isinstance(reactor, KeyedFiringLoop), "a keyed accumulator belongs to a keyed reactor alone"
        self.intake.use_keys(reactor)
        super().add_target(reactor, index)

    def held_for(self, event: Any, encoding: str) -> Held:
        return self.intake.held_for(event, encoding)

    def held_at(self, key: Key | None) -> Held:
        """Return what is held for a key, which is active."""
        return self.intake.emitter.held_of(self.intake.keys.active[key])

    def held_of_step(self, step: JournalStep) -> Held:
        """Return what is held for the key of a step that a restart applies again; the next checkpoint has the key."""
        keys = self.intake.keys
        key_state = keys.active.get(step.key) or keys.create(step.key)
        keys.mark_changed(key_state)
        return self.intake.emitter.held_of(key_state)
