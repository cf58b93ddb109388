"""Event ingestion: validates events, calls the author's function on each, and emits the boundary.

An accumulator processes one event at a time, in the order of arrival. A synchronous function is called directly; an
asynchronous one runs as its own task, so that an operator can restart an accumulator that hangs without losing track of
the event. An event of the wrong type, and one for which the function raises, becomes a dead letter.

| verb | what it does with an event |
|---|---|
| `push`, `_ingest` | all of it: waits for queue space, for the function and for the commit |
| `_accept` | rejects or validates it, and goes on with one of the verbs below |
| `begin_push`, `begin_event`, `begin_step` | begin its commit: if it need not wait; at once; when it is validated |
| `process_now`, `_process_fast` | process it without a commit, when it is validated; by the fast path if that is open |
| `process`, `call_author` | call the author's function |
| `push_slow`, `emit_slow`, `dead_letter` | take it from the fast path; `_slow_receipt` is what became of it |
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
from tidemill.engine.graphs.accumulators.emit import BoundaryEmitter, PendingReceipt, resolve_receipt
from tidemill.engine.graphs.dead_letters import BatchedEvents, DeadLetterQueue, ReplayedEvent
from tidemill.engine.graphs.firing.fast_path import BYTES_CLASSES, FastPath, FastPathSource
from tidemill.engine.graphs.firing.firing_loop import FiringLoop
from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.graphs.definition import Accumulator
from tidemill.graphs.health import AccumulatorHealth
from tidemill.graphs.outcomes import DeadLetter, Receipt
from tidemill.graphs.pushes import PushHandle
from tidemill.kernel.author_errors import AUTHOR_ERRORS, is_cancelled_here
from tidemill.kernel.errors import FullError, RequestError

Accepted = TypeVar("Accepted")

REJECTED: Any = object()
INTERRUPTED_ERROR = RuntimeError("the accumulator was ended or restarted while it processed this event")


class EventIngest(BoundaryEmitter):
    """Takes one accumulator's events from their pushers to its reactors."""

    allows_fast_path = False  # whether processing an event is only a call of the function

    def __init__(self, definition: Accumulator, tenant: str, runtime: GraphRuntime) -> None:
        super().__init__(definition, tenant, runtime)
        self.health = AccumulatorHealth.STARTING
        self.down_reason: str | None = None  # why events are rejected, if they are
        store = runtime.durability.dead_letter_store(tenant, "accumulator", self.name)
        limit = runtime.settings.dead_letter_limit
        on_added = partial(runtime.publish_dead_letter, tenant)
        self.dead_letters = DeadLetterQueue(definition.declared_name, self.clock, limit, self.dropped, store, on_added)
        self._apply_definition(definition)
        self._dead_event_log = DeadEventLog(self.name, self.clock)
        self._fast_path = FastPath(self.push_slow)
        self._fast_path_tried = False
        self._never_blocks = False  # whether no event waits or is rejected, as long as no target changes
        self._slow_receipt: Receipt  # of the last event that left the fast path
        self.stuck_since: float | None = None
        self._in_flight: asyncio.Task[Any] | None = None
        self._in_flight_event: Any = None
        self._in_flight_since: float | None = None
        self._interrupted_event: Any = None  # whose call was cancelled, and which is a dead letter for that
        self._process_lock = asyncio.Lock()
        self._is_processing = False
        self._reentrant_events: deque[Any] = deque()
        self._waiting_pushers = 0  # pushers that wait for their turn or for queue space, and what quiesces them
        self._flowing = asyncio.Event()  # cleared while the accumulator is quiesced
        self._flowing.set()
        self._successor: Callable[[], EventIngest] | None = None

    def _apply_definition(self, definition: Accumulator) -> None:
        """Copy from the declaration what every event needs. Handles read it here, so that they outlive a reload."""
        self.definition = definition
        validator = StrictTypeValidator if definition.extra == "forbid" else TypeValidator
        self.event_validator = validator(definition.event_type)
        self.boundary_validator = TypeValidator(definition.boundary_type)
        self.is_async = definition.function is not None and definition.function.is_async
        self.call: Callable[..., Any] = definition.function.call if definition.function else _no_function
        self._codecs = None

    # -- targets

    def add_target(self, reactor: FiringLoop, index: int) -> None:
        """Deliver to this reactor too."""
        self.targets.append((reactor, index))
        self.close_fast_path()

    def remove_target(self, reactor: FiringLoop) -> None:
        """Stop delivering to this reactor."""
        self.departed_reactors[reactor] = self.position
        self.targets = [target for target in self.targets if target[0] is not reactor]
        self.close_fast_path()

    # -- pushing

    async def _ingest(self, event: Any, encoding: str, offset: Any) -> Receipt:
        if (rejection := self._rejection()) is not None:
            return rejection
        try:
            value = self._validate(event, encoding)
        except TypeMismatchError as error:
            return self._dead_letter(event, error, encoding)
        if self.is_async:
            title = f"accumulator {self.name}: event"
            return await self.runtime.tasks.run_shielded(title, self._process_in_order(value, offset))
        if self.is_journaled:
            return await self._process_journaled(value, offset)
        if not self._is_blocked():
            return self._process_fast(value)
        return await self._process_when_unblocked(value)

    def _validate(self, event: Any, encoding: str) -> Any:
        if isinstance(event, BYTES_CLASSES):
            return self.event_validator.decode(bytes(event), encoding)
        return self.event_validator.validate(event)

    def _rejection(self) -> Receipt | None:
        if self.down_reason is not None:
            self._count_drop("accumulator_down")
            return self.reject("accumulator_down", f"accumulator '{self.definition.declared_name}' {self.down_reason}")
        return self._queue_rejection()

    @property
    def must_wait(self) -> bool:
        """Whether an event that is pushed now has to wait: for queue space, or for events before it that do."""
        return self._is_blocked()

    @property
    def is_waiting_for_space(self) -> bool:
        """Whether pushers wait for space in the queue of a reactor."""
        return any(gate.is_blocked for gate in self.queue_gates)

    def _queue_rejection(self) -> Receipt | None:
        for gate in self.queue_gates:
            if gate.is_rejecting:
                return self.reject("queue_full", gate.reject())
        return None

    def process_now(self, value: Any) -> Receipt:
        """Process a validated event now; for synchronous functions.

        Events that the function itself pushes here wait until it returns: one event at a time, in order.
        """
        if self._is_processing:
            self.defer_event(value)
            return self._receipt("buffered")
        receipt = self._process_one(value)
        while self._reentrant_events and not self._is_processing:
            self._process_one(self._reentrant_events.popleft())
        return receipt

    def defer_event(self, value: Any) -> None:
        """Process an event after the one in progress, whose function has pushed it."""
        self._reentrant_events.append(value)

    def _process_one(self, value: Any) -> Receipt:
        self._is_processing = True
        try:
            boundary = self.process(value)
        except AUTHOR_ERRORS as error:
            return self._dead_letter(value, error)
        finally:
            self._is_processing = False
        return self.emit(boundary, value)

    def _process_fast(self, value: Any) -> Receipt:
        """Process a validated event by the fast path if that is open."""
        self._try_fast_path()
        if not self._takes_fast_path(value):
            return self.process_now(value)
        sequence = self._fast_path.call(value)
        return self._slow_receipt if sequence is None else Receipt(True, sequence, "emitted")

    def _takes_fast_path(self, value: Any) -> bool:
        """Return whether the fast path is open for a validated event; where boundaries queue, it needs credit."""
        if not self._fast_path.is_open or value.__class__ is not self.event_validator.exact_class:
            return False
        return not self.queue_gates or bool(self.targets[0][0].fast_path_state.credit)

    async def _process_when_unblocked(self, value: Any) -> Receipt:
        """Process a validated event after those that already wait, when there is queue space."""
        self._waiting_pushers += 1
        try:
            async with self._process_lock:
                await self._wait_for_queue_space()
                return self._rejection() or self.process_now(value)
        finally:
            self._waiting_pushers -= 1

    async def _process_journaled(self, value: Any, offset: Any) -> Receipt:
        """Process a validated event and wait for its commit; other events are processed meanwhile."""
        if not self._is_blocked():
            return await resolve_receipt(self.begin_step(value, offset))
        self._waiting_pushers += 1
        try:
            async with self._process_lock:
                await self._wait_for_queue_space()
                pending = self._rejection() or self.begin_step(value, offset)
        finally:
            self._waiting_pushers -= 1
        return await resolve_receipt(pending)

    def begin_push(self, event: Any, encoding: str, offset: Any = None) -> "PendingReceipt | None":
        """Begin to commit the outcome of an event; None if it has to wait for its turn or for the author's function."""
        return None if self.is_async or self._is_blocked() else self.begin_event(event, encoding, offset)

    def begin_event(self, event: Any, encoding: str, offset: Any = None) -> "PendingReceipt":
        """Validate and process an event, and begin to commit its outcome; for synchronous functions."""
        begin = self.begin_step if offset is None else partial(self.begin_step, offset=offset)
        return self._accept(event, encoding, begin)

    def _accept(self, event: Any, encoding: str, proceed: Callable[[Any], Accepted]) -> Accepted | Receipt:
        """Go on with the validated event, unless it is rejected or becomes a dead letter."""
        if not self._never_blocks and (rejection := self._rejection()) is not None:
            return rejection
        try:
            value = self._validate(event, encoding)
        except TypeMismatchError as error:
            return self._dead_letter(event, error, encoding)
        return proceed(value)

    def begin_step(self, value: Any, offset: Any = None) -> "PendingReceipt":
        """Process a validated event, and begin to commit its outcome; for synchronous functions."""
        try:
            boundary = self.process(value)
        except AUTHOR_ERRORS as error:
            return self._dead_letter(value, error)
        return self.emit_or_journal(boundary, value, offset)

    async def _process_in_order(self, value: Any, offset: Any = None) -> Receipt:
        """Process a validated event after all that came before it; for asynchronous functions."""
        async with self._process_lock:
            await self._wait_for_queue_space()
            if (rejection := self._rejection()) is not None:
                return rejection
            pending = await self.await_author(lambda: self.process(value), value, offset)
        return await resolve_receipt(pending)

    async def await_author(
        self, call: Callable[[], Awaitable[Any]], event: Any, offset: Any = None
    ) -> "PendingReceipt":
        """Await the author's function, and emit its boundary."""
        boundary, receipt = await self.call_author(call, event)
        if receipt is not None:
            return receipt
        await self._wait_for_queue_space()  # other events may have filled the queue meanwhile
        if (rejection := self._queue_rejection()) is not None:
            self.requeue(event)
            return rejection
        return self.emit_or_journal(boundary, event, offset)

    async def call_author(self, call: Callable[[], Awaitable[Any]], event: Any) -> tuple[Any, Receipt | None]:
        """Await the author's function so that a restart can cancel it; return its boundary or a receipt."""
        task = self._in_flight = asyncio.current_task()
        self._in_flight_since = self.clock.monotonic()
        self._in_flight_event = event
        try:
            with self.runtime.in_flight:
                boundary = await call()
        except AUTHOR_ERRORS as error:
            if self._in_flight is task:
                if is_cancelled_here(error):
                    self._interrupted_event = event
                    self._dead_letter(event, INTERRUPTED_ERROR)
                    raise
                return None, self._dead_letter(event, error)
        finally:
            was_abandoned = self._in_flight is not task
            if not was_abandoned:
                self._in_flight = self._in_flight_event = self._in_flight_since = self.stuck_since = None
        if was_abandoned:  # the event is a dead letter already
            return None, self._receipt("dead_lettered", _describe_error(INTERRUPTED_ERROR))
        return boundary, None

    def requeue(self, event: Any) -> None:
        """Take back an event whose boundary was rejected; only batches do, other pushers get the receipt."""

    def process(self, value: Any) -> Any:
        """Call the author's function, with the running state if there is one."""
        return self.call(value) if self.definition.state is None else self.call(value, self.state)

    # -- the fast path

    def handle(self) -> PushHandle:
        """Return the synchronous push function for hot loops; it stays valid across restarts and reloads."""
        self._check_synchronous()
        self._try_fast_path()
        return self._fast_path.call

    def _check_synchronous(self) -> None:
        obstacle = "is asynchronous" if self.is_async else None
        if any(target.reactor.requires_journal for target, _ in self.targets):
            obstacle = "feeds a reactor with durability='boundary'"
        if obstacle is not None:
            message = f"accumulator '{self.definition.declared_name}' {obstacle}: use `await node.push(...)`"
            raise RequestError(message, code="needs_push", status=409)

    def _try_fast_path(self) -> None:
        """Open the fast path, once after each change, if the accumulator and its reactor allow one."""
        if self._fast_path_tried:
            return
        self._fast_path_tried = True
        self._never_blocks = (
            self.down_reason is None and not self.is_async and all(_accepts_all(one) for one, _ in self.targets)
        )
        validator = self.event_validator
        is_plain = self.allows_fast_path and not self.is_async and not self.is_journaled
        is_plain = is_plain and self.definition.state is None and self.down_reason is None
        if is_plain and (validator.exact_class is not None or validator.classes is None) and len(self.targets) == 1:
            reactor, index = self.targets[0]
            source, target = self._fast_path_source(), reactor.fast.target
            if reactor.fast.broad_path is not None:
                return self._fast_path.open_to_function(reactor.fast.broad_path.build_push(source, index))
            self._fast_path.open(source, index, target, reactor.fast.graph, accepts_all=_accepts_all(reactor))

    def _fast_path_source(self) -> FastPathSource:
        return FastPathSource(
            name=self.name if self.definition.function is None else self.definition.function.name,
            call=self.call,
            event_validator=self.event_validator,
            boundary_validator=self.boundary_validator,
            counter=self.counter,
            push_slow=self.push_slow,
            dead_letter=self.dead_letter,
            emit_slow=self.emit_slow,
        )

    def close_fast_path(self) -> None:
        """Close the fast path because something on it has changed."""
        self._fast_path.close()
        self._fast_path_tried = self._never_blocks = False
        self._update_targets()

    def push_slow(self, event: Any) -> int | None:
        """Process an event that the fast path cannot take."""
        if self._successor is not None:
            return self._successor().push_slow(event)
        self._try_fast_path()
        value = self.validate_nowait(event)
        if value is REJECTED:
            return None
        if self._takes_fast_path(value):
            return self._fast_path.call(value)
        receipt = self._slow_receipt = self.process_now(value)
        return receipt.sequence if receipt.outcome == "emitted" else None

    def dead_letter(self, event: Any, error: BaseException) -> None:
        """Dead-letter an event for which the author's function raised on the fast path."""
        self._slow_receipt = self._dead_letter(event, error)

    def emit_slow(self, event: Any, boundary: Any) -> int | None:
        """Emit a boundary that the fast path cannot take, if there is queue space."""
        if boundary is not None and not self._never_blocks:
            self._check_queue_space()
        receipt = self._slow_receipt = self._queue_rejection() or self.emit(boundary, event)
        return receipt.sequence if receipt.outcome == "emitted" else None

    def validate_nowait(self, event: Any) -> Any:
        """Validate an event without waiting: return REJECTED if it is rejected, raise FullError where it would wait."""
        if not self._never_blocks:
            self._check_synchronous()
            if (rejection := self._rejection()) is not None:
                self._slow_receipt = rejection
                return REJECTED
            self._check_queue_space()
        try:
            return self._validate(event, "json")
        except TypeMismatchError as error:
            self.dead_letter(event, error)
            return REJECTED

    def _check_queue_space(self) -> None:
        if self._is_blocked():
            blocked = (gate for gate in self.queue_gates if gate.is_blocked)
            gate = next(blocked, self.targets[0][0].queue_gate)
            raise FullError(gate.reactor, gate.capacity)

    def _is_blocked(self) -> bool:
        if self._waiting_pushers:
            return True
        for gate in self.queue_gates:  # noqa: SIM110 - spelled out, because this is done for each event
            if gate.is_blocked:
                return True
        return False

    async def _wait_for_queue_space(self) -> None:
        await self._flowing.wait()
        while blocked := [gate for gate in self.queue_gates if gate.is_blocked]:
            await blocked[0].wait()
            await self._flowing.wait()

    @asynccontextmanager
    async def quiesced(self) -> AsyncIterator[None]:
        """Start no further events, and wait for pending commits: a package change must not overlap with them."""
        self._flowing.clear()
        self._waiting_pushers += 1
        try:
            await self.wait_committed()
            yield
        finally:
            self._waiting_pushers -= 1
            self._flowing.set()

    def _dead_letter(self, event: Any, error: BaseException, encoding: str = "json") -> Receipt:
        self._last_event_time = self.clock.monotonic()
        text = _describe_error(error)
        if isinstance(event, ReplayedEvent):
            self.dead_letters.record_failed_replay(event.dead_letter.id, text)
        elif isinstance(event, BatchedEvents):
            self.dead_letters.put("event", text, event, event=event.events)
        else:
            self.dead_letters.put("event", text, encoding, event=event)
        self._dead_event_log.record(error, text, self.definition.function)
        return self._receipt("dead_lettered", text)

    # -- dead letters

    async def replay(self, dead_letter: DeadLetter, detail: Any) -> Receipt:
        """Process a dead event again, by the same rules as any event; if that fails it stays a dead letter."""
        title = f"accumulator {self.name}: replay"
        return await self.runtime.tasks.run_shielded(title, self._replay_in_order(dead_letter, detail))

    async def _replay_in_order(self, dead_letter: DeadLetter, detail: Any) -> Receipt:
        self._waiting_pushers += 1
        try:
            async with self._process_lock:
                await self._wait_for_queue_space()
                receipt = self._rejection() or await self._replay_event(dead_letter, detail)
        finally:
            self._waiting_pushers -= 1
        if receipt.accepted:
            self.dead_letters.remove(dead_letter.id)
        return receipt

    async def _replay_event(self, dead_letter: DeadLetter, detail: Any) -> Receipt:
        """Process the event of a dead letter; `detail` is its encoding, if it is encoded."""
        try:
            value = self._validate(dead_letter.event, detail)
        except TypeMismatchError as error:
            return self._dead_letter(ReplayedEvent(dead_letter), error)
        return await self._replay_value(value, dead_letter)

    async def _replay_value(self, value: Any, dead_letter: DeadLetter) -> Receipt:
        return await self._reprocess(value, ReplayedEvent(dead_letter))

    async def _reprocess(self, value: Any, replayed: ReplayedEvent) -> Receipt:
        if self.is_async:
            return await resolve_receipt(await self.await_author(lambda: self.process(value), replayed))
        try:
            boundary = self.process(value)
        except AUTHOR_ERRORS as error:
            return self._dead_letter(replayed, error)
        return await resolve_receipt(self.emit_or_journal(boundary, replayed))

    # -- counters

    @property
    def last_event_time(self) -> float | None:
        """When the last event came, in monotonic seconds."""
        arrivals = [target.fast_path_state.arrivals[index] for target, index in self.targets]
        return max((time for time in (*arrivals, self._last_event_time) if time is not None), default=None)

    @property
    def events(self) -> int:
        """How many events were taken, with any outcome."""
        return self.sequence + self.suppressed + self.buffered + self.dead_letters.total


def _accepts_all(reactor: FiringLoop) -> bool:
    """Return whether a reactor takes every boundary immediately, as long as it is not redefined."""
    return not reactor.inputs.is_sequential and not reactor.reactor.requires_journal


def _describe_error(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _no_function(*_: Any) -> Any:
    raise TypeError("a window has no function")
