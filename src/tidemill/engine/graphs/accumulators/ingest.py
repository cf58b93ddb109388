"""Event ingestion: validates events, calls the author's function on each, and emits the boundary.

An accumulator processes one event at a time, in the order of arrival. A synchronous function is called directly; an
asynchronous one runs as its own task, so that an operator can restart an accumulator that hangs without losing track of
the event. An event of the wrong type, and one for which the function raises, becomes a dead letter.

| verb | what it does with an event |
|---|---|
| `ingest` | all of it: waits for queue space, for the function and for the commit |
| `accept` | rejects or validates it, and goes on with one of the verbs below |
| `begin_push`, `begin_event`, `begin_step` | begin its commit: if it need not wait; at once; when it is validated |
| `process_now` | process it without a commit, when it is validated |
| `process`, `call_author` | call the author's function |
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

from tidemill.annotations.strict_validation import StrictTypeValidator
from tidemill.annotations.validation import TypeMismatchError, TypeValidator
from tidemill.engine.graphs.accumulators.dead_event_log import DeadEventLog
from tidemill.engine.graphs.accumulators.emit import Emitter, PendingReceipt, resolve_receipt
from tidemill.engine.graphs.accumulators.held import Held
from tidemill.engine.graphs.accumulators.kind import Kind
from tidemill.engine.graphs.dead_letters import BatchedEvents, DeadLetterQueue, ReplayedEvent
from tidemill.engine.graphs.firing.firing_loop import FiringLoop
from tidemill.engine.graphs.push_paths.one_graph import BYTES_CLASSES
from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.graphs.definition import Accumulator
from tidemill.graphs.outcomes import DeadLetter, Receipt
from tidemill.kernel.author_errors import AUTHOR_ERRORS, is_cancelled_here
from tidemill.kernel.errors import FullError

Accepted = TypeVar("Accepted")

INTERRUPTED_ERROR = RuntimeError("the accumulator was ended or restarted while it processed this event")


class EventIngest:
    """Takes one accumulator's events from their pushers to its reactors."""

    kind: Kind
    process_now: Callable[[Any, Held], Receipt]
    """Processes a validated event now; for synchronous functions."""
    begin_step: Callable[..., PendingReceipt]
    """Processes a validated event, and begins to commit its outcome; for synchronous functions."""
    is_blocked: Callable[[Held], bool]
    """Returns whether an event that is pushed now has to wait: for queue space, or for events before it that do."""

    def __init__(self, definition: Accumulator, tenant: str, runtime: GraphRuntime) -> None:
        self.name = definition.name
        self.tenant = tenant
        self.runtime = runtime
        self.clock = runtime.clock
        self.emitter = self.create_emitter(definition)
        self.held = self.emitter.held
        self.down_reason: str | None = None  # why events are rejected, if they are
        store = runtime.durability.dead_letter_store(tenant, "accumulator", self.name)
        limit = runtime.settings.dead_letter_limit
        on_added = partial(runtime.publish_dead_letter, tenant)
        dropped = self.emitter.dropped
        self.dead_letters = DeadLetterQueue(definition.declared_name, self.clock, limit, dropped, store, on_added)
        self.read_definition(definition)
        self._dead_event_log = DeadEventLog(self.name, self.clock)
        self.never_blocks = False  # whether no event waits or is rejected, as long as no target changes
        self.stuck_since: float | None = None
        self._in_flight: asyncio.Task[Any] | None = None
        self._in_flight_event: Any = None
        self._in_flight_held = self.held
        self.in_flight_since: float | None = None
        self.interrupted_event: Any = None  # whose call was cancelled, and which is a dead letter for that
        self.process_lock = asyncio.Lock()
        self._is_processing = False
        self._reentrant_events: deque[tuple[Any, Held]] = deque()
        self.waiting_pushers = 0  # pushers that wait for their turn or for queue space, and what quiesces them
        self.flowing = asyncio.Event()  # cleared while the accumulator is quiesced
        self.flowing.set()

    def set_kind(self, kind: Kind) -> None:
        """Process events as this kind does. What is done for each event is found at once."""
        self.kind = kind
        self.emitter.set_kind(kind)
        self.process_now = kind.process_now if kind.holds_events else self.process_directly
        self.begin_step = kind.begin_step if kind.holds_events else self.begin_directly
        self.is_blocked = kind.is_blocked if kind.buffers_events else self.is_queue_blocked
        kind.apply_definition(self.definition)

    def create_emitter(self, definition: Accumulator) -> Emitter:
        """Create the part that delivers its boundaries."""
        return Emitter(self.dead_letter, definition, self.tenant, self.runtime)

    def read_definition(self, definition: Accumulator) -> None:
        """Copy from the declaration what every event needs. Handles read it here, so that they outlive a reload."""
        self.definition = definition
        validator = StrictTypeValidator if definition.extra == "forbid" else TypeValidator
        self.event_validator = validator(definition.event_type)
        self.is_async = definition.function is not None and definition.function.is_async
        self.call: Callable[..., Any] = definition.function.call if definition.function else _no_function
        self.emitter.redefine(definition)

    def update_targets(self) -> None:
        """Recompute everything that depends on which reactors the accumulator feeds, and on whether it takes events."""
        self.emitter.update_targets()
        self.never_blocks = (
            self.down_reason is None and not self.is_async and all(accepts_all(one) for one, _ in self.emitter.targets)
        )

    # -- pushing

    async def ingest(self, event: Any, encoding: str, offset: Any) -> Receipt:
        """Process an event, waiting for queue space and for its commit, and return its receipt."""
        held, may_reject = self.held, self.emitter.may_reject or self.down_reason is not None
        if may_reject and (rejection := self.rejection(held)) is not None:
            return rejection
        try:
            is_exact = event.__class__ is self.event_validator.exact_class
            value = event if is_exact else self.validate(event, encoding)
        except TypeMismatchError as error:
            return self.dead_letter(event, error, held, encoding)
        if self.is_async:
            title = f"accumulator {self.name}: event"
            return await self.runtime.tasks.run_shielded(title, self.kind.process_in_order(value, held, offset))
        if self.emitter.is_journaled:
            return await self.process_journaled(value, held, offset)
        if not self.is_blocked(held):
            return self.process_now(value, held)
        return await self.process_when_unblocked(value, held)

    def validate(self, event: Any, encoding: str) -> Any:
        """Return an event as the accumulator declares it, or raise TypeMismatchError."""
        if isinstance(event, BYTES_CLASSES):
            return self.event_validator.decode(bytes(event), encoding)
        return self.event_validator.validate(event)

    def rejection(self, held: Held) -> Receipt | None:
        """Return the receipt of an event if none is taken now, which counts it; else None."""
        if self.down_reason is not None:
            return self.reject_down()
        return self.queue_rejection(held) if self.emitter.may_reject else None

    def reject_down(self) -> Receipt:
        """Return the receipt of an event that comes while the accumulator is down, and count it."""
        self.emitter.count_drop("accumulator_down")
        reason = f"accumulator '{self.definition.declared_name}' {self.down_reason}"
        return self.emitter.reject("accumulator_down", reason)

    def queue_rejection(self, held: Held) -> Receipt | None:
        """Return the receipt of an event for which a full queue has no space; None if it may come."""
        for gate in self.emitter.queue_gates:
            if gate.is_rejecting(held.key_state):
                return self.emitter.reject("queue_full", gate.reject())
        return None

    def process_directly(self, value: Any, held: Held) -> Receipt:
        """Call the function on a validated event now, and emit its boundary.

        Events that the function itself pushes here wait until it returns: one event at a time, in order.
        """
        if self._is_processing:
            self._reentrant_events.append((value, held))
            return self.emitter.receipt("buffered")
        receipt = self._process_one(value, held)
        while self._reentrant_events and not self._is_processing:
            self._process_one(*self._reentrant_events.popleft())
        return receipt

    def _process_one(self, value: Any, held: Held) -> Receipt:
        self._is_processing = True
        try:
            boundary = self.process(value, held)
        except AUTHOR_ERRORS as error:
            return self.dead_letter(value, error, held)
        finally:
            self._is_processing = False
        return self.emitter.emit(boundary, value, held)

    async def process_when_unblocked(self, value: Any, held: Held) -> Receipt:
        """Process a validated event after those that already wait, when there is queue space."""
        self.waiting_pushers += 1
        try:
            async with self.process_lock:
                await self.wait_for_queue_space(held)
                return self.rejection(held) or self.process_now(value, held)
        finally:
            self.waiting_pushers -= 1

    async def process_journaled(self, value: Any, held: Held, offset: Any) -> Receipt:
        """Process a validated event and wait for its commit; other events are processed meanwhile."""
        if not self.is_blocked(held):
            return await resolve_receipt(self.begin_step(value, held, offset))
        self.waiting_pushers += 1
        try:
            async with self.process_lock:
                await self.wait_for_queue_space(held)
                pending = self.rejection(held) or self.begin_step(value, held, offset)
        finally:
            self.waiting_pushers -= 1
        return await resolve_receipt(pending)

    def begin_push(self, event: Any, encoding: str, offset: Any = None) -> "PendingReceipt | None":
        """Begin to commit the outcome of an event; None if it has to wait for its turn or for the author's function."""
        return None if self.is_async else self.begin_unblocked(event, encoding, offset)

    def begin_unblocked(self, event: Any, encoding: str, offset: Any = None) -> "PendingReceipt | None":
        """Begin to commit the outcome of an event; None if it has to wait. For synchronous functions."""
        return None if self.is_blocked(self.held) else self.begin_event(event, encoding, offset)

    def begin_event(self, event: Any, encoding: str, offset: Any = None) -> "PendingReceipt":
        """Validate and process an event, and begin to commit its outcome; for synchronous functions."""
        begin = self.begin_step if offset is None else partial(self.begin_step, offset=offset)
        return self.accept(event, encoding, begin)

    def accept(self, event: Any, encoding: str, proceed: Callable[[Any, Held], Accepted]) -> Accepted | Receipt:
        """Go on with the validated event, unless it is rejected or becomes a dead letter."""
        held = self.held
        if not self.never_blocks and (rejection := self.rejection(held)) is not None:
            return rejection
        try:
            value = self.validate(event, encoding)
        except TypeMismatchError as error:
            return self.dead_letter(event, error, held, encoding)
        return proceed(value, held)

    def begin_directly(self, value: Any, held: Held, offset: Any = None) -> "PendingReceipt":
        """Call the function on a validated event, and begin to commit its outcome."""
        try:
            boundary = self.process(value, held)
        except AUTHOR_ERRORS as error:
            return self.dead_letter(value, error, held)
        return self.kind.emit_or_journal(boundary, value, held, offset)

    async def process_in_order(self, value: Any, held: Held, offset: Any = None) -> Receipt:
        """Process a validated event after all that came before it; for asynchronous functions."""
        async with self.process_lock:
            await self.wait_for_queue_space(held)
            if (rejection := self.rejection(held)) is not None:
                return rejection
            pending = await self.await_author(lambda: self.process(value, held), value, held, offset)
        return await resolve_receipt(pending)

    async def await_author(
        self, call: Callable[[], Awaitable[Any]], event: Any, held: Held, offset: Any = None
    ) -> "PendingReceipt":
        """Await the author's function, and emit its boundary."""
        boundary, receipt = await self.call_author(call, event, held)
        if receipt is not None:
            return receipt
        await self.wait_for_queue_space(held)  # other events may have filled the queue meanwhile
        if (rejection := self.queue_rejection(held)) is not None:
            self.kind.requeue(event, held)
            return rejection
        return self.kind.emit_or_journal(boundary, event, held, offset)

    async def call_author(
        self, call: Callable[[], Awaitable[Any]], event: Any, held: Held
    ) -> tuple[Any, Receipt | None]:
        """Await the author's function so that a restart can cancel it; return its boundary or a receipt."""
        task = self._in_flight = asyncio.current_task()
        self.in_flight_since = self.clock.monotonic()
        self._in_flight_event, self._in_flight_held = event, held
        try:
            with self.runtime.in_flight:
                boundary = await call()
        except AUTHOR_ERRORS as error:
            if self._in_flight is task:
                if is_cancelled_here(error):
                    self.interrupted_event = event
                    self.dead_letter(event, INTERRUPTED_ERROR, held)
                    raise
                return None, self.dead_letter(event, error, held)
        finally:
            was_abandoned = self._in_flight is not task
            if not was_abandoned:
                self._in_flight = self._in_flight_event = self.in_flight_since = self.stuck_since = None
        if was_abandoned:  # the event is a dead letter already
            return None, self.emitter.receipt("dead_lettered", _describe_error(INTERRUPTED_ERROR))
        return boundary, None

    @property
    def in_flight_call(self) -> object | None:
        """Identifies the call of the author's function in progress; None if there is none."""
        return self._in_flight

    def abandon_event(self) -> None:
        """Dead-letter the event that the author's function is processing, and cancel the call."""
        in_flight, self._in_flight = self._in_flight, None
        if in_flight is not None:
            self.dead_letter(self._in_flight_event, INTERRUPTED_ERROR, self._in_flight_held)
            in_flight.cancel()
        self._in_flight_event = None
        self.in_flight_since = self.stuck_since = None

    def process(self, value: Any, held: Held) -> Any:
        """Call the author's function, with the running state if there is one."""
        return self.call(value) if self.definition.state is None else self.call(value, held.state)

    # -- queue space

    def check_queue_space(self, held: Held) -> None:
        """Raise FullError if an event that is pushed now has to wait."""
        if self.is_blocked(held):
            blocked = (gate for gate in self.emitter.queue_gates if gate.is_blocked(held.key_state))
            gate = next(blocked, self.emitter.targets[0][0].queue_gate)
            raise FullError(gate.reactor, gate.capacity)

    def is_queue_blocked(self, held: Held) -> bool:
        """Return whether pushers wait already, or a queue has no space."""
        if self.waiting_pushers:
            return True
        for gate in self.emitter.queue_gates:  # noqa: SIM110 - spelled out, because this is done for each event
            if gate.is_blocked(held.key_state):
                return True
        return False

    async def wait_for_queue_space(self, held: Held) -> None:
        """Wait until the accumulator may go on, and every queue has space."""
        await self.flowing.wait()
        while blocked := [gate for gate in self.emitter.queue_gates if gate.is_blocked(held.key_state)]:
            await blocked[0].wait(held.key_state)
            await self.flowing.wait()

    @asynccontextmanager
    async def quiesced(self) -> AsyncIterator[None]:
        """Start no further events, and wait for pending commits: a package change must not overlap with them."""
        self.flowing.clear()
        self.waiting_pushers += 1
        try:
            await self.emitter.wait_committed()
            yield
        finally:
            self.waiting_pushers -= 1
            self.flowing.set()

    def dead_letter(self, event: Any, error: BaseException, held: Held, encoding: str = "json") -> Receipt:
        """Dead-letter an event that cannot be processed."""
        self.emitter.arrived_at = self.clock.monotonic()
        text = _describe_error(error)
        if isinstance(event, ReplayedEvent):
            self.dead_letters.record_failed_replay(event.dead_letter.id, text)
        elif isinstance(event, BatchedEvents):
            self.dead_letters.put("event", text, event, event=event.events, key=held.key)
        else:
            self.dead_letters.put("event", text, encoding, event=event, key=held.key)
        self._dead_event_log.record(error, text, self.definition.function)
        self.kind.on_dead_letter(event, held)
        return self.emitter.receipt("dead_lettered", text)

    # -- dead letters

    async def replay(self, dead_letter: DeadLetter, detail: Any) -> Receipt:
        """Process a dead event again, by the same rules as any event; if that fails it stays a dead letter."""
        title = f"accumulator {self.name}: replay"
        return await self.runtime.tasks.run_shielded(title, self._replay_in_order(dead_letter, detail))

    async def _replay_in_order(self, dead_letter: DeadLetter, detail: Any) -> Receipt:
        self.waiting_pushers += 1
        try:
            async with self.process_lock:
                await self.wait_for_queue_space(self.held)
                receipt = self.rejection(self.held) or await self._replay_event(dead_letter, detail)
        finally:
            self.waiting_pushers -= 1
        if receipt.accepted:
            self.dead_letters.remove(dead_letter.id)
        return receipt

    async def _replay_event(self, dead_letter: DeadLetter, detail: Any) -> Receipt:
        """Process the event of a dead letter; `detail` is its encoding, if it is encoded, or its batch."""
        if isinstance(detail, BatchedEvents) and self.kind.buffers_events:
            return await self.replay_batch(detail.events, dead_letter)
        try:
            value = self.validate(dead_letter.event, detail)
        except TypeMismatchError as error:
            return self.dead_letter(ReplayedEvent(dead_letter), error, self.held)
        return await self.replay_value(value, dead_letter)

    async def replay_batch(self, events: list[Any], dead_letter: DeadLetter) -> Receipt:
        """Process the events of a dead batch together."""
        return await self.reprocess(events, ReplayedEvent(dead_letter), self.held)

    async def replay_value(self, value: Any, dead_letter: DeadLetter) -> Receipt:
        """Process the validated event of a dead letter."""
        return await self.kind.replay(value, dead_letter, self.held)

    async def reprocess(self, value: Any, replayed: ReplayedEvent, held: Held) -> Receipt:
        """Call the function on the value of a dead letter, and emit its boundary."""
        if self.is_async:
            return await resolve_receipt(await self.await_author(lambda: self.process(value, held), replayed, held))
        try:
            boundary = self.process(value, held)
        except AUTHOR_ERRORS as error:
            return self.dead_letter(replayed, error, held)
        return await resolve_receipt(self.kind.emit_or_journal(boundary, replayed, held))


def accepts_all(reactor: FiringLoop) -> bool:
    """Return whether a reactor takes every boundary immediately, as long as it is not redefined."""
    return not reactor.inputs.is_sequential and not reactor.reactor.requires_journal


def _describe_error(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _no_function(*_: Any) -> Any:
    raise TypeError("a window has no function")
