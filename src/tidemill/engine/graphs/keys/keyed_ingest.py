"""Event ingestion of a keyed accumulator: it reads the key of each event, and processes it with that key selected.

A task that waits selects its key again: after the lock, after waiting for queue space, and after the author's function.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, Self

import msgspec

from tidemill.annotations.validation import TypeMismatchError
from tidemill.engine.graphs.accumulators.accumulator import RunningAccumulator, state_migrators
from tidemill.engine.graphs.accumulators.emit import Emitter, PendingReceipt
from tidemill.engine.graphs.accumulators.ingest import EventIngest
from tidemill.engine.graphs.accumulators.push_paths import PushPaths
from tidemill.engine.graphs.accumulators.pushes import AuthorCall, Pushes
from tidemill.engine.graphs.dead_letters import BatchedEvents, ReplayedEvent
from tidemill.engine.graphs.durability.journal import JournalStep
from tidemill.engine.graphs.firing.firing_loop import FiringLoop
from tidemill.engine.graphs.keys.key_states import KeyState, KeyStates
from tidemill.engine.graphs.keys.keyed_loop import KeyedFiringLoop
from tidemill.engine.graphs.push_paths.by_key import KeyedFastPath, KeyedSource, KeyedTarget, build_keyed_loop
from tidemill.engine.graphs.push_paths.loop import PushLoop, decline_next, has_push_loop
from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.engine.graphs.unread_state import UnreadState
from tidemill.graphs.definition import Accumulator
from tidemill.graphs.keys import Key, KeyReader
from tidemill.graphs.outcomes import DeadLetter, Receipt, Rejection
from tidemill.graphs.pushes import ProducerPosition, PushSummary, ReceiptTally
from tidemill.kernel.errors import PushStoppedError, StoreError
from tidemill.storage.graph_ports import StoredPush


class _SelectingLock(asyncio.Lock):
    """A lock whose holder has the key selected that was selected when it began to wait."""

    def __init__(self, keyed: "KeyedIngest") -> None:
        super().__init__()
        self._keyed = keyed

    async def acquire(self) -> Any:
        keys = self._keyed.keys
        key_state = keys.current
        acquired = await super().acquire()
        keys.select(key_state)
        return acquired


class KeyedEvent(NamedTuple):
    """A validated event and its key: what has found the partition of the event, and need not be done again."""

    key: Key
    value: Any


class _DeferredEvent(msgspec.Struct, frozen=True):
    """An event that the author's function has pushed while it processed another one."""

    key_state: KeyState
    value: Any


class KeyedIngest(EventIngest):
    """Takes the events of a keyed accumulator from their pushers to its reactor, each with its key selected."""

    keys: KeyStates
    read_key: KeyReader
    emitter: "KeyedEmitter"
    paths: "KeyedPaths"

    def __init__(self, definition: Accumulator, tenant: str, runtime: GraphRuntime) -> None:
        super().__init__(definition, tenant, runtime)
        self.process_lock = _SelectingLock(self)
        self.dead_letters.read_key = lambda: self.keys.current_key

    def create_emitter(self, definition: Accumulator) -> "KeyedEmitter":
        """Create an emitter that keeps a state for each key."""
        return KeyedEmitter(self.dead_letter, definition, self.tenant, self.runtime)

    def use_keys(self, loop: KeyedFiringLoop) -> None:
        """Take events of the keys of this reactor, the only one that it feeds."""
        self.keys = self.emitter.keys = loop.keys
        self.read_key = loop.reactor.definition.key_reader(self.definition)

    # -- pushing

    async def ingest(self, event: Any, encoding: str, offset: Any) -> Receipt:
        """Read the key of an event, and process the event with that key selected."""
        if self.down_reason is not None:
            return self.reject_down()
        try:
            key, value = self.read(event, encoding)
        except TypeMismatchError as error:
            self.keys.deselect()
            return self.dead_letter(event, error, encoding)
        key_state = self.keys.find(key)
        if key_state is None:
            try:
                key_state = await self.keys.memory.load(key)
            except StoreError as error:
                return self.emitter.not_stored(str(error))
        key_state.pins += 1
        try:
            self.keys.select(key_state)
            return self.queue_rejection() or await self._process_selected(key_state, value, offset)
        finally:
            key_state.pins -= 1

    def read(self, event: Any, encoding: str) -> KeyedEvent:
        """Return a validated event and its key, or raise TypeMismatchError."""
        if event.__class__ is KeyedEvent:
            keyed: KeyedEvent = event
            return keyed
        value = self.validate(event, encoding)
        return KeyedEvent(self.read_key(value), value)

    async def _process_selected(self, key_state: KeyState, value: Any, offset: Any) -> Receipt:
        if self.is_async:
            work = self.keys.with_key(key_state, self.kind.process_in_order(value, offset))
            return await self.runtime.tasks.run_shielded(f"accumulator {self.name}: event", work)
        if self.emitter.is_journaled:
            return await self.process_journaled(value, offset)
        if not self.is_blocked():
            return self.paths.take_selected(value)
        return await self._process_when_unblocked(value)

    def begin_push(self, event: Any, encoding: str, offset: Any = None) -> PendingReceipt | None:  # noqa: ARG002
        """Return None: the key of the event may have to be read from the store."""
        return None

    def begin_event(self, event: Any, encoding: str, offset: Any = None) -> PendingReceipt:
        """Validate and process an event of an active key, and begin to commit its outcome."""
        selected = self.select_key_of(event, encoding)
        if isinstance(selected, Receipt):
            return selected
        return self.queue_rejection() or self.begin_step(selected[0], offset)

    def select_key_of(self, event: Any, encoding: str) -> Receipt | tuple[Any]:
        """Select the key of an event; return the validated event in a tuple, or a receipt if it is not processed."""
        if self.down_reason is not None:
            return self.rejection() or self.emitter.reject("accumulator_down", self.down_reason)
        try:
            key, value = self.read(event, encoding)
            key_state = self.keys.find(key)
        except TypeMismatchError as error:
            self.keys.deselect()
            return self.dead_letter(event, error, encoding)
        if key_state is None:
            return self.emitter.reject("not_stored", "the state of this key is not in memory")
        self.keys.select(key_state)
        return (value,)

    def selector_of(self, event: Any, encoding: str) -> Callable[[], None]:
        """Return the function that selects the key of an event, for one who asks about its queue."""
        try:
            key_state = self.keys.active.get(self.read(event, encoding).key)
        except TypeMismatchError:  # it becomes a dead letter, and needs no space
            key_state = None
        return self.keys.deselect if key_state is None else partial(self.keys.select, key_state)

    # -- with the key selected

    async def wait_for_queue_space(self) -> None:
        """Wait until the reactors have room; the same key is selected afterwards."""
        key_state = self.keys.current
        await super().wait_for_queue_space()
        self.keys.select(key_state)

    async def call_author(self, call: Callable[[], Awaitable[Any]], event: Any) -> tuple[Any, Receipt | None]:
        """Await the author's function; return its boundary or a receipt, with the same key selected as before."""
        key_state = self.keys.current
        key_state.pins += 1
        try:
            return await super().call_author(call, event)
        finally:
            key_state.pins -= 1
            self.keys.select(key_state)

    def process(self, value: Any) -> Any:
        """Call the author's function; it may push events of other keys."""
        key_state = self.keys.current
        try:
            return super().process(value)
        finally:
            self.keys.select(key_state)

    def defer_event(self, value: Any) -> None:
        """Process an event after the one in progress, whose function has pushed it."""
        super().defer_event(_DeferredEvent(self.keys.current, value))

    def _process_one(self, value: Any) -> Receipt:
        if isinstance(value, _DeferredEvent):
            self.keys.select(value.key_state)
            value = value.value
        return super()._process_one(value)

    # -- dead letters

    async def _replay_event(self, dead_letter: DeadLetter, detail: Any) -> Receipt:
        if not isinstance(detail, BatchedEvents):
            return await super()._replay_event(dead_letter, detail)
        key_state = await self.keys.activate(dead_letter.key)
        return await self.keys.with_key(key_state, super()._replay_event(dead_letter, detail))

    async def _replay_value(self, value: Any, dead_letter: DeadLetter) -> Receipt:
        try:
            key_state = await self.keys.activate(self.read_key(value))
        except TypeMismatchError as error:
            return self.dead_letter(ReplayedEvent(dead_letter), error)
        self.keys.select(key_state)
        if (rejection := self.queue_rejection()) is not None:
            return rejection
        return await self.keys.with_key(key_state, super()._replay_value(value, dead_letter))


def keys_of(intake: KeyedIngest, events: Iterable[Any], encoding: str) -> list[Key]:
    """Return the keys of events, each once; none if no key ever leaves the memory."""
    found: dict[Key, None] = {}
    for event in events if intake.keys.memory.drops_idle else ():
        with suppress(TypeMismatchError):  # the event becomes a dead letter when it is processed
            found[intake.read(event, encoding).key] = None
    return list(found)


class KeyedEmitter(Emitter):
    """Delivers the boundaries of a keyed accumulator: a step that is being committed keeps its key active."""

    keys: KeyStates

    def append_to_journal(self, step: JournalStep, event: Any) -> PendingReceipt:
        """Begin to commit a step of the selected key, which stays active until then."""
        key_state = self.keys.current
        pending = super().append_to_journal(msgspec.structs.replace(step, key=key_state.key), event)
        if not isinstance(pending, Receipt):
            key_state.pins += 1
        return pending

    def on_committed(self, step: JournalStep, position: int) -> Receipt:
        """Apply a committed step to its key."""
        self._select_key_of(step)
        return super().on_committed(step, position)

    def on_refused(self, step: JournalStep, reason: str) -> Receipt:
        """Roll back a refused step of its key."""
        self._select_key_of(step)
        return super().on_refused(step, reason)

    def _select_key_of(self, step: JournalStep) -> None:
        key_state = self.keys.active[step.key]
        key_state.pins -= 1
        self.keys.select(key_state)


class KeyedPaths(PushPaths):
    """The generated functions of a keyed accumulator: they find the key of an event, and fire it if it is active."""

    fast_path: KeyedFastPath

    def __init__(self, intake: KeyedIngest) -> None:
        super().__init__(intake)
        self._keyed = intake

    def create_fast_path(self) -> KeyedFastPath:
        return KeyedFastPath(self.push_slow)

    def take_selected(self, value: Any) -> Receipt:
        """Process a validated event of the selected key, by the fast path if that is open."""
        self.open()
        keyed = self._keyed
        if not keyed.keys.current.is_fast or keyed.read_key.attribute is None:  # the fast path would call it again
            return keyed.process_now(value)
        if not self.takes(value):
            return keyed.process_now(value)
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
        self._keyed.keys.select(key_state)
        self.dead_letter(event, error)

    def _emit_slow_in_key(self, key_state: KeyState, event: Any, boundary: Any) -> int | None:
        self._keyed.keys.select(key_state)
        return self.emit_slow(event, boundary)

    def push_unusual(self, event: Any) -> int | None:
        """Process an event that the fast path cannot take, of a key that is in memory."""
        keyed = self._keyed
        self.check_synchronous()
        selected = keyed.select_key_of(event, "json")
        if isinstance(selected, Rejection) and selected.code == "not_stored":
            message = f"accumulator '{keyed.definition.declared_name}': {selected.reason}; use `await node.push(...)`"
            raise PushStoppedError(f"{message}, which reads it", code="key_not_in_memory", status=409)
        if isinstance(selected, Receipt):
            self.slow_receipt = selected
            return None
        keyed.check_queue_space()
        receipt = self.slow_receipt = keyed.queue_rejection() or keyed.process_now(selected[0])
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
            async with keyed.keys.memory.holding(keys_of(keyed, events, encoding)):
                return await super().push_all(events, encoding)
        except StoreError:  # only events of keys that are not in memory are rejected
            tally = ReceiptTally()
            await self.push_each(events, encoding, tally)
            return tally

    async def push_atomically(
        self, events: Sequence[Any], encoding: str, position: ProducerPosition
    ) -> tuple[PushSummary, StoredPush | None]:
        async with self._keyed.keys.memory.holding(keys_of(self._keyed, events, encoding)):
            return await super().push_atomically(events, encoding, position)

    def begin_unblocked(self, events: Iterable[Any], encoding: str) -> Iterator[PendingReceipt]:
        keyed = self._keyed
        for event in events:
            selected = keyed.select_key_of(event, encoding)
            if isinstance(selected, Receipt):
                yield selected
                continue
            if keyed.is_blocked():
                return
            yield keyed.queue_rejection() or keyed.begin_step(selected[0])

    async def call_author_on_all(self, events: Sequence[Any], encoding: str) -> list[AuthorCall]:
        """Await the author's function on each event, with its key selected."""
        calls: list[AuthorCall] = []
        for event in events:
            selected = self._keyed.select_key_of(event, encoding)
            if isinstance(selected, Receipt):
                calls.append((event, None, selected))
            else:
                calls += await super().call_author_on_all(selected, encoding)
        return calls

    def emit_all(self, calls: Sequence[AuthorCall]) -> list[PendingReceipt]:
        return [one for call in calls for one in self._emit_in_key(call)]

    def _emit_in_key(self, call: AuthorCall) -> list[PendingReceipt]:
        if call[2] is None:
            self._keyed.select_key_of(call[0], "json")
        return super().emit_all([call])


class KeyedAccumulator(RunningAccumulator):
    """One loaded accumulator of a keyed reactor: it keeps its state, its buffer or its window for each key."""

    intake: KeyedIngest

    def create_intake(self, definition: Accumulator) -> KeyedIngest:
        return KeyedIngest(definition, self.tenant, self.runtime)

    def create_paths(self) -> KeyedPaths:
        self.intake.paths = paths = KeyedPaths(self.intake)
        return paths

    def create_pushes(self) -> KeyedPushes:
        return KeyedPushes(self.intake, self.intake.paths)

    def add_target(self, reactor: FiringLoop, index: int) -> None:
        """Deliver to this reactor, the only one, and use its keys."""
        assert isinstance(reactor, KeyedFiringLoop), "a keyed accumulator belongs to a keyed reactor alone"
        self.intake.use_keys(reactor)
        if self.keeps_content:
            self.intake.keys.add_holder(self)
        super().add_target(reactor, index)

    def selector_of(self, event: Any, encoding: str) -> Callable[[], None]:
        return self.intake.selector_of(event, encoding)

    def begin_replay(self, step: JournalStep) -> None:
        """Select the key of a step that a restart applies again, and include it in the next checkpoint."""
        keys = self.intake.keys
        keys.select(keys.active.get(step.key) or keys.create(step.key))
        keys.mark_changed()

    # -- content per key

    @property
    def keeps_content(self) -> bool:
        """Whether there is something to keep for each key."""
        return self.definition.state is not None or self.kind.holds_events

    def take_content(self) -> Any:
        """Return what belongs to the selected key: its running state, and what the kind holds; None for nothing."""
        held = self.kind.take_content()
        if held is None and self.definition.state is None:
            return None
        return self.emitter.state, self.emitter.committed_state, held

    def set_content(self, content: Any) -> None:
        """Continue with what belongs to another key."""
        if content is None:
            kind = self.definition.state
            state = None if kind is None else kind()
            content = state, state, None
        self.emitter.state, self.emitter.committed_state, held = content
        self.kind.set_content(held)

    def redefine(self, newer: Self) -> None:
        """Become a newer version; what each active key has stays as far as it fits."""
        keys = self.intake.keys
        keys.deselect()
        super().redefine(newer)
        for _ in keys.select_each():
            self._migrate_state(newer)
            self.kind.migrate_buffer()

    def create_unread(self) -> UnreadState:
        return UnreadState(lambda: self.intake.keys.current_key)

    def _migrate_state(self, newer: Self) -> None:
        if (kind := newer.definition.state) is None:
            self.emitter.state = self.emitter.committed_state = None
            return
        unread = self.unread if self.intake.keys.current_key is not None else None
        migrators = state_migrators(newer.definition, unread)
        before = (self.emitter.state, self.emitter.committed_state)
        fitting = (None if one is None else migrate(one) for one, migrate in zip(before, migrators, strict=True))
        self.emitter.state, self.emitter.committed_state = (kind() if state is None else state for state in fitting)
