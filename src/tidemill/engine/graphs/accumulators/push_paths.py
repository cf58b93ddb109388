"""The fast ways of an accumulator's events: generated functions that take them straight to its reactor.

A push of an event of the declared class, or of one that fits it, is a call of a generated function while nothing has to
wait. It leaves the path, for `push_slow`, `emit_slow` or `_dead_letter`, with an event or a boundary that is not usual:
`slow_receipt` is what became of it. Many events run through the push loop, which ends at an unusual one.

A change behind the path closes it, and the next push tries to open it again.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tidemill.annotations.validation import TypeMismatchError
from tidemill.engine.graphs.accumulators.held import Held
from tidemill.engine.graphs.accumulators.ingest import EventIngest, accepts_all
from tidemill.engine.graphs.push_paths.loop import LoopEnd, PushLoop, build_push_loop, decline_next, has_push_loop
from tidemill.engine.graphs.push_paths.one_graph import BYTES_CLASSES, FastPath, FastPathSource, FastPathState
from tidemill.graphs.outcomes import Receipt
from tidemill.graphs.pushes import PushHandle, PushSummary, ReceiptTally, list_events
from tidemill.kernel.errors import PushStoppedError, RequestError

MAX_UNTIMED = 63  # direct pushes between two that are timed

NOT_DIRECT: Any = object()
"""Instead of an event that the open fast path cannot take."""
REJECTED: Any = object()


class AnyEvent:
    """Stands for the class of events whose accumulator declares none."""


class PushPaths:
    """The generated functions of one accumulator, and the state of its fast path."""

    def __init__(self, intake: EventIngest) -> None:
        self._intake = intake
        self.fast_path = self.create_fast_path()
        self._call = self.fast_path.call
        self.is_tried = False
        """Whether opening the fast path was tried since the last change."""
        self.direct_class: type | None = None
        """The class of the events that the open fast path takes; None while it is closed."""
        self._queueing_state: FastPathState | None = None  # of the reactor, if it queues boundaries
        self._push_loop: PushLoop | None = None  # built when many events are pushed
        self._successor: Callable[[], PushPaths] | None = None
        self.slow_receipt: Receipt  # of the last event that left the fast path
        self.untimed = 0
        """Direct pushes since the last one that was timed."""

    def create_fast_path(self) -> FastPath:
        """Create the callable that users hold."""
        return FastPath(self.push_slow)

    # -- one event

    def push_now(self, event: Any) -> Receipt | None:
        """Process an event that need not wait, and return its receipt; None if `push` must take the event."""
        if self.untimed == MAX_UNTIMED or (receipt := self.take_now(event)) is None:
            return None
        self.untimed += 1
        return receipt

    def take_now(self, event: Any, encoding: str | None = None) -> Receipt | None:
        """Process an event by the open fast path; None if it may have to wait, or does not fit."""
        state = self._queueing_state
        if self._intake.waiting_pushers or (state is not None and not state.credit):  # with credit the queue is empty
            return None
        if event.__class__ is not self.direct_class and (event := self._to_direct(event, encoding)) is NOT_DIRECT:
            return None
        sequence = self._call(event)
        return self.slow_receipt if sequence is None else Receipt(True, sequence, "emitted")

    def _to_direct(self, event: Any, encoding: str | None) -> Any:
        """Return an event as the open fast path takes it; NOT_DIRECT for one that does not fit.

        Without an encoding, bytes are not decoded.
        """
        expected = self.direct_class
        if expected is None or (isinstance(event, BYTES_CLASSES) and (encoding is None or expected is AnyEvent)):
            return NOT_DIRECT
        if expected is AnyEvent:
            return event
        try:
            value = self._intake.validate(event, encoding or "json")
        except TypeMismatchError:  # `push` makes a dead letter of it
            return NOT_DIRECT
        return value if value.__class__ is expected else NOT_DIRECT

    # -- many events

    def push_many_now(self, events: Iterable[Any]) -> PushSummary:
        """Push events in order without waiting, and return their receipts; this is `many` of a handle."""
        if self._successor is not None:
            return self._successor().handle().many(events)
        events, tally = list_events(events), ReceiptTally()
        remaining = iter(events)
        try:
            while tally.count < len(events):
                if self.take_many(remaining, tally):
                    tally.add(self._push_declined(events[tally.count]))
        except PushStoppedError as error:
            error.taken = tally.count
            raise
        return PushSummary(tuple(tally.runs))

    def take_many(self, events: Iterator[Any], tally: ReceiptTally) -> bool:
        """Run events through the push loop; return whether the last one that was taken from `events` is still to do."""
        while True:
            end = (decline_next if self._intake.waiting_pushers else self.find_push_loop())(events, tally)
            if end is LoopEnd.ANSWERED:
                tally.add(self.slow_receipt)
            elif end is not LoopEnd.INTERRUPTED:
                return end is LoopEnd.DECLINED

    def _push_declined(self, event: Any) -> Receipt:
        """Push an event that the loop has declined, without waiting."""
        sequence = self._call(event)
        return self.slow_receipt if sequence is None else Receipt(True, sequence, "emitted")

    def find_push_loop(self) -> PushLoop:
        """Return the loop for many events; one that declines every event if they may have to wait."""
        if self._push_loop is None:
            self.open()
            self._push_loop = self.build_push_loop()
        return self._push_loop

    def build_push_loop(self) -> PushLoop:
        """Build the loop for many events, as long as nothing changes behind the path."""
        intake = self._intake
        if intake.is_async or intake.emitter.is_journaled:
            return decline_next
        if not self.fast_path.is_open:
            return self._ingest_each
        ((reactor, index),) = intake.emitter.targets
        if reactor.fast.broad_path is not None:
            return reactor.fast.broad_path.build_push_loop(self.source(), index)
        if (graph := self.fast_path.graph) is not None and has_push_loop(graph.wiring):
            return build_push_loop(graph, self.source(), index, reactor.fast.target)
        return self._call_each

    def _call_each(self, events: Iterator[Any], tally: ReceiptTally) -> LoopEnd:
        """Run events through the open fast path one by one."""
        call, expected, state = self._call, self.direct_class, self._queueing_state
        first = following = self._intake.emitter.sequence + 1
        try:
            for event in events:
                if state is not None and not state.credit:
                    return LoopEnd.DECLINED
                if event.__class__ is not expected and (event := self._to_direct(event, None)) is NOT_DIRECT:
                    return LoopEnd.DECLINED
                sequence = call(event)
                if sequence != following:
                    tally.add_emitted(first, following - first)
                    first = following
                    if sequence is None:
                        return LoopEnd.ANSWERED
                    first = sequence
                following = sequence + 1
            return LoopEnd.EXHAUSTED
        finally:
            tally.add_emitted(first, following - first)

    def _ingest_each(self, events: Iterator[Any], tally: ReceiptTally) -> LoopEnd:
        """Run events through an accumulator without a fast path, such as a batch or one with a running state.

        It joins receipts in a row itself: to add each of them to the tally costs a fifth of such an event.
        """
        intake = self._intake
        accept, process, held = intake.accept, intake.process_now, intake.held
        first: Receipt | None = None  # of receipts in a row that differ in their numbers only
        count = following = step = 0
        try:
            for event in events:
                if isinstance(event, BYTES_CLASSES) or (not intake.never_blocks and intake.is_blocked(held)):
                    return LoopEnd.DECLINED  # `push` can wait, and knows how bytes are encoded
                receipt = accept(event, "json", process)
                if first and receipt.sequence == following and receipt.outcome == first.outcome and not receipt.reason:
                    count += 1
                    following += step
                    continue
                if first is not None:
                    tally.add(first, count)
                first, count, step = receipt, 1, int(receipt.outcome == "emitted")
                following = -1 if receipt.reason else receipt.sequence + step
            return LoopEnd.EXHAUSTED
        finally:
            if first is not None:
                tally.add(first, count)

    # -- opening and closing

    def handle(self) -> PushHandle:
        """Return the synchronous push function for hot loops; it stays valid across restarts and reloads."""
        self.check_synchronous()
        self.open()
        handle = self._call
        handle.many = self.push_many_now
        return handle

    def check_synchronous(self) -> None:
        """Raise RequestError if events of this accumulator may have to wait: then a handle cannot take them."""
        intake = self._intake
        obstacle = "is asynchronous" if intake.is_async else None
        if any(target.reactor.requires_journal for target, _ in intake.emitter.targets):
            obstacle = "feeds a reactor with durability='boundary'"
        if obstacle is not None:
            message = f"accumulator '{intake.definition.declared_name}' {obstacle}: use `await node.push(...)`"
            raise RequestError(message, code="needs_push", status=409)

    def open(self) -> None:
        """Open the fast path, once after each change, if the accumulator and its reactor allow one."""
        if self.is_tried or not self._intake.emitter.targets:
            return
        self.is_tried = True
        if self.is_plain and len(self._intake.emitter.targets) == 1:
            self.open_to_target()

    @property
    def is_plain(self) -> bool:
        """Whether processing an event of the accumulator is a call of its function, and needs no commit."""
        intake = self._intake
        validator = intake.event_validator
        is_plain = intake.kind.allows_fast_path and not intake.is_async and not intake.emitter.is_journaled
        is_plain = is_plain and intake.definition.state is None and intake.down_reason is None
        return is_plain and (validator.exact_class is not None or validator.classes is None)

    def open_to_target(self) -> None:
        """Open the fast path to the only reactor, if that allows one."""
        intake = self._intake
        ((reactor, index),) = intake.emitter.targets
        source, target = self.source(), reactor.fast.target
        if reactor.fast.broad_path is not None:
            self.fast_path.open_to_function(reactor.fast.broad_path.build_push(source, index))
        else:
            self.fast_path.open(source, index, target, reactor.fast.graph, accepts_all=accepts_all(reactor))
        if self.fast_path.is_open:
            self.direct_class = intake.event_validator.exact_class or AnyEvent
            self._queueing_state = reactor.fast_path_state if intake.emitter.queue_gates else None

    def source(self) -> FastPathSource:
        """Return the accumulator as the start of a fast path."""
        intake = self._intake
        return FastPathSource(
            name=intake.name if intake.definition.function is None else intake.definition.function.name,
            call=intake.call,
            event_validator=intake.event_validator,
            boundary_validator=intake.emitter.boundary_validator,
            counter=intake.emitter.counter,
            push_slow=self.push_slow,
            dead_letter=self.dead_letter,
            emit_slow=self.emit_slow,
        )

    def close(self) -> None:
        """Close the fast path because something behind it has changed."""
        self.direct_class = self._queueing_state = self._push_loop = None
        self.is_tried = False
        self.fast_path.close()

    def redirect(self, find_successor: "Callable[[], PushPaths]") -> None:
        """Redirect handles that outlive this accumulator to its successor."""
        self._successor = find_successor
        self.close()

    # -- what leaves the path

    def push_slow(self, event: Any) -> int | None:
        """Process an event that the fast path cannot take."""
        if self._successor is not None:
            return self._successor().push_slow(event)
        self.open()
        return self.push_unusual(event)

    def push_unusual(self, event: Any) -> int | None:
        """Process an event that the fast path cannot take, here and not at a successor."""
        value = self._validate_nowait(event)
        if value is REJECTED:
            return None
        if self.takes(value):
            return self._call(value)
        receipt = self.slow_receipt = self._intake.process_now(value, self._intake.held)
        return receipt.sequence if receipt.outcome == "emitted" else None

    def takes(self, value: Any) -> bool:
        """Return whether the fast path is open for a validated event; where boundaries queue, it needs credit."""
        intake = self._intake
        if not self.fast_path.is_open or value.__class__ is not intake.event_validator.exact_class:
            return False
        return not intake.emitter.queue_gates or bool(intake.emitter.targets[0][0].fast_path_state.credit)

    def dead_letter(self, event: Any, error: BaseException) -> None:
        """Dead-letter an event for which the author's function raised on the fast path."""
        self.slow_receipt = self._intake.dead_letter(event, error, self._intake.held)

    def emit_slow(self, event: Any, boundary: Any) -> int | None:
        """Emit a boundary that the fast path cannot take, if there is queue space."""
        return self.emit_held(event, boundary, self._intake.held)

    def emit_held(self, event: Any, boundary: Any, held: Held) -> int | None:
        """Emit a boundary that the fast path cannot take, for what is held."""
        intake = self._intake
        if boundary is not None and not intake.never_blocks:
            intake.check_queue_space(held)
        receipt = self.slow_receipt = intake.queue_rejection(held) or intake.emitter.emit(boundary, event, held)
        return receipt.sequence if receipt.outcome == "emitted" else None

    def _validate_nowait(self, event: Any) -> Any:
        """Validate an event without waiting: return REJECTED if it is rejected, raise FullError where it would wait."""
        intake = self._intake
        if not intake.never_blocks:
            self.check_synchronous()
            if (rejection := intake.rejection(intake.held)) is not None:
                self.slow_receipt = rejection
                return REJECTED
            intake.check_queue_space(intake.held)
        try:
            return intake.validate(event, "json")
        except TypeMismatchError as error:
            self.dead_letter(event, error)
            return REJECTED
