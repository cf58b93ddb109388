"""Letting events in: admission, the author's function on each, boundaries out; and the fast way for hot loops.

One event at a time per accumulator, in the order in which they came. A synchronous function is simply called; an
asynchronous one runs as a task of its own, so that an operator can restart an accumulator that hangs and the event is
still accounted for. What does not fit, and what the function cannot digest, becomes a dead letter.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from tidemill.annotations.validation import TypeMismatchError, TypeValidator
from tidemill.engine.graphs.accumulators.dead_letters import BatchedEvents, DeadLetterQueue, ReplayedEvent
from tidemill.engine.graphs.accumulators.emit import BoundaryEmitter, PendingReceipt, resolve_receipt
from tidemill.engine.graphs.error_location import locate_error
from tidemill.engine.graphs.event_path.fast_path import FastPath, PushHandle
from tidemill.engine.graphs.event_path.ports import ReactorInput
from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.graphs.definition import Accumulator
from tidemill.graphs.health import AccumulatorHealth
from tidemill.graphs.result import DeadLetter, Receipt
from tidemill.kernel.author_errors import AUTHOR_ERRORS, is_cancelled_here
from tidemill.kernel.errors import FullError, RequestError
from tidemill.telemetry import events

logger = logging.getLogger(__name__)

REJECTED: Any = object()
PUSHES_PER_YIELD = 256  # before the loop gets a turn
INTERRUPTED_ERROR = RuntimeError("the accumulator was ended or restarted while it processed this event")


class EventIngest(BoundaryEmitter):
    """The way of one accumulator's events, from whoever pushes them to the reactors."""

    allows_fast_path = False  # whether an event is nothing but a call of the function

    def __init__(self, definition: Accumulator, tenant: str, runtime: GraphRuntime) -> None:
        super().__init__(definition, tenant, runtime)
        self.health = AccumulatorHealth.STARTING
        self.down_reason: str | None = None  # why events are turned away, if they are
        archive = runtime.durability.dead_letter_store(tenant, "accumulator", self.name)
        limit = runtime.settings.dead_letter_limit
        self.dead_letters = DeadLetterQueue(self.name, self.clock, limit, self._count_drop, archive)
        self._apply_definition(definition)
        self._fast_path = FastPath(self.push_slow)
        self._fast_path_tried = False
        self._never_blocks = False  # whether no event ever has to wait or is turned away, as long as nothing changes
        self._slow_receipt: Receipt  # what became of the last event that left the fast way
        self.push_count = 0
        self.push_seconds = 0.0
        self.stuck_since: float | None = None
        self._in_flight: asyncio.Task[Any] | None = None
        self._in_flight_event: Any = None
        self._in_flight_since: float | None = None
        self._process_lock = asyncio.Lock()
        self._is_processing = False
        self._reentrant_events: deque[Any] = deque()
        self._waiting_pushers = 0  # pushers that wait for their turn or for room
        self._flowing = asyncio.Event()  # not while it stands still
        self._flowing.set()
        self._successor: Callable[[], EventIngest] | None = None

    def _apply_definition(self, definition: Accumulator) -> None:
        """Read from the declaration what every event needs. Handles look here, so that they outlive a reload."""
        self.definition = definition
        self.event_validator = TypeValidator(definition.event_type)
        self.boundary_validator = TypeValidator(definition.boundary_type)
        self.is_async = definition.function is not None and definition.function.is_async
        self.call: Callable[..., Any] = definition.function.call if definition.function else _no_function
        self._codecs = None

    # -- where boundaries go

    def add_target(self, reactor: ReactorInput, index: int) -> None:
        """Deliver to this reactor too."""
        self.targets.append((reactor, index))
        self.close_fast_path()

    def remove_target(self, reactor: ReactorInput) -> None:
        """Deliver to this reactor no more."""
        self.departed_reactors[reactor] = self.position
        self.targets = [target for target in self.targets if target[0] is not reactor]
        self.close_fast_path()

    # -- events in

    async def push(self, event: Any, encoding: str = "json", offset: Any = None) -> Receipt:
        """Take an event, wait where that is called for, and say what became of it.

        `offset` says how far the source is read with this event, if it came from one.
        """
        began = self.clock.monotonic()
        try:
            receipt = await self._ingest(event, encoding, offset)
        finally:
            self.push_count += 1
            self.push_seconds += self.clock.monotonic() - began
        if self.is_journaled and receipt.outcome == "dead_lettered":
            await self.runtime.durability.flush_dead_letters()
        if not self.push_count % PUSHES_PER_YIELD:  # a loop of pushes awaits nothing else, and must not starve the node
            await asyncio.sleep(0)
        return receipt

    async def _ingest(self, event: Any, encoding: str, offset: Any) -> Receipt:
        if (turned_away := self._rejection()) is not None:
            return turned_away
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
        if isinstance(event, bytes | bytearray | memoryview):
            return self.event_validator.decode(bytes(event), encoding)
        return self.event_validator.validate(event)

    def _rejection(self) -> Receipt | None:
        if self.down_reason is not None:
            self._count_drop("accumulator_down")
            return self._receipt("rejected", f"accumulator '{self.name}' {self.down_reason}")
        return self._queue_rejection()

    def _queue_rejection(self) -> Receipt | None:
        if self._never_blocks:
            return None
        for reactor, _ in self.targets:
            if reactor.queue_gate.rejects:
                reactor.count_drop("full")
                return self._receipt("rejected", f"the queue of reactor '{reactor.name}' is full")
        return None

    def process_now(self, value: Any) -> Receipt:
        """Process an admitted event at once; for synchronous functions.

        What the function itself pushes here waits until it is done: one event at a time, in order.
        """
        if self._is_processing:
            self._reentrant_events.append(value)
            return self._receipt("buffered")
        receipt = self._process_one(value)
        while self._reentrant_events and not self._is_processing:
            self._process_one(self._reentrant_events.popleft())
        return receipt

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
        """Take an admitted event by the fast way if that is open."""
        self._try_fast_path()
        if not self._fast_path.is_open or value.__class__ is not self.event_validator.exact_class:
            return self.process_now(value)
        sequence = self._fast_path.call(value)
        return self._slow_receipt if sequence is None else Receipt(True, sequence, "emitted")

    async def _process_when_unblocked(self, value: Any) -> Receipt:
        """Process an admitted event after those that wait already, when there is room."""
        self._waiting_pushers += 1
        try:
            async with self._process_lock:
                await self._wait_for_queue_space()
                return self._rejection() or self.process_now(value)
        finally:
            self._waiting_pushers -= 1

    async def _process_journaled(self, value: Any, offset: Any) -> Receipt:
        """Process an admitted event, and wait until what comes of it is committed; others go on meanwhile."""
        if not self._is_blocked():
            return await resolve_receipt(self.begin_step(value, offset))
        self._waiting_pushers += 1
        try:
            async with self._process_lock:
                await self._wait_for_queue_space()
                answer = self._rejection() or self.begin_step(value, offset)
        finally:
            self._waiting_pushers -= 1
        return await resolve_receipt(answer)

    def begin_step(self, value: Any, offset: Any = None) -> "PendingReceipt":
        """Process an admitted event, and begin to commit what comes of it; for synchronous functions."""
        try:
            boundary = self.process(value)
        except AUTHOR_ERRORS as error:
            return self._dead_letter(value, error)
        return self.emit_or_journal(boundary, value, offset)

    async def _process_in_order(self, value: Any, offset: Any = None) -> Receipt:
        """Process an admitted event after all that came before it; for asynchronous functions."""
        async with self._process_lock:
            await self._wait_for_queue_space()
            if (turned_away := self._rejection()) is not None:
                return turned_away
            answer = await self.await_author(lambda: self.process(value), value, offset)
        return await resolve_receipt(answer)

    async def await_author(
        self, call: Callable[[], Awaitable[Any]], event: Any, offset: Any = None
    ) -> "PendingReceipt":
        """Await the author's function so that a restart can end it, and hand in what it returns."""
        task = self._in_flight = asyncio.current_task()
        self._in_flight_since = self.clock.monotonic()
        self._in_flight_event = event
        try:
            with self.runtime.in_flight:
                boundary = await call()
        except AUTHOR_ERRORS as error:
            if self._in_flight is task:
                if is_cancelled_here(error):
                    self._dead_letter(event, INTERRUPTED_ERROR)
                    raise
                return self._dead_letter(event, error)
        finally:
            was_abandoned = self._in_flight is not task
            if not was_abandoned:
                self._in_flight = self._in_flight_event = self._in_flight_since = self.stuck_since = None
        if was_abandoned:  # it is a dead letter already, whatever came of it since
            return self._receipt("dead_lettered", _describe_error(INTERRUPTED_ERROR))
        await self._wait_for_queue_space()  # others may have taken it since
        refused = self._queue_rejection()
        if refused is not None:
            self.requeue(event)
            return refused
        return self.emit_or_journal(boundary, event, offset)

    def requeue(self, event: Any) -> None:
        """What came of an event was turned away after all; whoever pushed it is told."""

    def process(self, value: Any) -> Any:
        """Call the author's function, with the running state if there is one."""
        return self.call(value) if self.definition.state is None else self.call(value, self.state)

    # -- the fast way

    def handle(self) -> PushHandle:
        """Return the synchronous way in for hot loops: it stays valid whatever is restarted or reloaded."""
        self._check_synchronous()
        self._try_fast_path()
        return self._fast_path.call

    def _check_synchronous(self) -> None:
        waits = "is asynchronous" if self.is_async else None
        if any(reactor.requires_journal for reactor, _ in self.targets):
            waits = "feeds a reactor with durability='boundary'"
        if waits is not None:
            message = f"accumulator '{self.name}' {waits}: use `await node.push(...)`"
            raise RequestError(message, code="needs_push", status=409)

    def _try_fast_path(self) -> None:
        """Open the fast way once after each change, if there is one."""
        if self._fast_path_tried:
            return
        self._fast_path_tried = True
        self._never_blocks = (
            self.down_reason is None and not self.is_async and all(one.accepts_all for one, _ in self.targets)
        )
        is_checked = self.event_validator.exact_class is not None or self.event_validator.classes is None
        plain = self.allows_fast_path and is_checked and not self.is_async and self.definition.state is None
        plain = plain and not self.is_journaled
        if plain and self.down_reason is None and len(self.targets) == 1:
            reactor, index = self.targets[0]
            reactor.open_fast_path(self._fast_path, self, index)

    def close_fast_path(self) -> None:
        """Let nobody take the fast way: something on it has changed."""
        self._fast_path.close()
        self._fast_path_tried = self._never_blocks = False
        did_commit, self.is_journaled = self.is_journaled, any(reactor.is_journaled for reactor, _ in self.targets)
        if self.is_journaled and not did_commit:
            self.committed_state = self.state

    def push_slow(self, event: Any) -> int | None:
        """Take an event that is not plain, or for which there is no fast way."""
        if self._successor is not None:
            return self._successor().push_slow(event)
        self._try_fast_path()
        value = self.validate_nowait(event)
        if value is REJECTED:
            return None
        if self._fast_path.is_open and value.__class__ is self.event_validator.exact_class:
            return self._fast_path.call(value)
        receipt = self.process_now(value)
        return receipt.sequence if receipt.outcome == "emitted" else None

    def dead_letter(self, event: Any, error: BaseException) -> None:
        """Put an event aside that the author's function could not digest."""
        self._slow_receipt = self._dead_letter(event, error)

    def emit_slow(self, event: Any, boundary: Any) -> int | None:
        """Emit a boundary the long way, if there is room for it."""
        if boundary is not None and not self._never_blocks:
            self._check_queue_space()
        receipt = self._slow_receipt = self._queue_rejection() or self.emit(boundary, event)
        return receipt.sequence if receipt.outcome == "emitted" else None

    def validate_nowait(self, event: Any) -> Any:
        """Admit an event without waiting: REFUSED if it is turned away, FullError where it would have to wait."""
        if not self._never_blocks:
            self._check_synchronous()
            if self._rejection() is not None:
                return REJECTED
            self._check_queue_space()
        try:
            return self._validate(event, "json")
        except TypeMismatchError as error:
            self._dead_letter(event, error)
            return REJECTED

    def _check_queue_space(self) -> None:
        if self._is_blocked():
            reactor = next((one for one, _ in self.targets if one.queue_gate.is_blocked), self.targets[0][0])
            raise FullError(reactor.name, reactor.queue_gate.capacity)

    def _is_blocked(self) -> bool:
        if self._waiting_pushers or not self._flowing.is_set():
            return True
        return not self._never_blocks and any(target.queue_gate.is_blocked for target, _ in self.targets)

    async def _wait_for_queue_space(self) -> None:
        await self._flowing.wait()
        while full := [target.queue_gate for target, _ in self.targets if target.queue_gate.is_blocked]:
            await full[0].wait()
            await self._flowing.wait()

    @asynccontextmanager
    async def quiesced(self) -> AsyncIterator[None]:
        """Begin nothing more, and go on when what is being committed has happened: a change must not meet it."""
        self._flowing.clear()
        try:
            await self.runtime.durability.wait_committed()
            yield
        finally:
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
        place = locate_error(error, self.definition.function)
        logger.warning(events.EVENT_DEAD_LETTERED, extra={"accumulator": self.name, "error": text, "place": place})
        return self._receipt("dead_lettered", text)

    # -- dead letters

    async def replay(self, dead_letter: DeadLetter, detail: Any) -> Receipt:
        """Try a dead event again, by the same rules as any event; it stays a dead letter if it fails again."""
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
        """Take the event of a letter; `detail` says how it is encoded, if it is."""
        try:
            value = self._validate(dead_letter.event, detail)
        except TypeMismatchError as error:
            return self._dead_letter(ReplayedEvent(dead_letter), error)
        return await self._reprocess(value, ReplayedEvent(dead_letter))

    async def _reprocess(self, value: Any, replayed: ReplayedEvent) -> Receipt:
        if self.is_async:
            return await resolve_receipt(await self.await_author(lambda: self.process(value), replayed))
        try:
            boundary = self.process(value)
        except AUTHOR_ERRORS as error:
            return self._dead_letter(replayed, error)
        return await resolve_receipt(self.emit_or_journal(boundary, replayed))

    # -- counting

    @property
    def last_event_time(self) -> float | None:
        """When the last event came, in seconds of the clock."""
        known = [target.arrivals[index] for target, index in self.targets]
        return max((moment for moment in (*known, self._last_event_time) if moment is not None), default=None)

    @property
    def events(self) -> int:
        """How many events were taken in, whatever became of them."""
        return self.sequence + self.suppressed + self.buffered + self.dead_letters.total


def _describe_error(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _no_function(*_: Any) -> Any:
    raise TypeError("a window has no function")
