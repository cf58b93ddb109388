"""Pushes: events that need not wait take the fast path at once, one by one or many in a loop.

Two reads of the clock and three coroutines cost more than a light graph. `push_now` has neither: it processes an event
of the declared class, or one that fits it, while the fast path is open and no pusher waits. It returns None for any
other, which `push` then takes. It also leaves every 64th event to `push`, which times it and yields to the event loop
from time to time. Many events run through the push loop, which leaves the unusual ones among them to the same two.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from tidemill.annotations.validation import TypeMismatchError
from tidemill.engine.graphs.accumulators.ingest import EventIngest
from tidemill.engine.graphs.firing.fast_path import BYTES_CLASSES, FastPathState
from tidemill.engine.graphs.firing.push_loop import LoopEnd, PushLoop, build_push_loop, decline_next, has_push_loop
from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.graphs.definition import Accumulator
from tidemill.graphs.outcomes import Receipt
from tidemill.graphs.pushes import PushHandle, PushSummary, ReceiptTally, list_events
from tidemill.kernel.errors import PushStoppedError

PUSHES_PER_YIELD = 256  # pushes in a row before the event loop gets a turn
MAX_UNTIMED = 63  # direct pushes between two that are timed


NOT_DIRECT: Any = object()
"""Instead of an event that the open fast path cannot take."""


class AnyEvent:
    """Stands for the class of events whose accumulator declares none."""


class PushIngest(EventIngest):
    """Takes awaited pushes, directly if nothing has to wait, and counts them."""

    def __init__(self, definition: Accumulator, tenant: str, runtime: GraphRuntime) -> None:
        super().__init__(definition, tenant, runtime)
        self._direct_class: type | None = None  # of the events that the open fast path takes; None while it is closed
        self._queueing_state: FastPathState | None = None  # of the reactor, if it queues boundaries
        self._counted_pushes = 0  # without the untimed ones below
        self._counted_seconds = 0.0
        self._untimed = 0  # direct pushes since the last one that was timed
        self._direct_seconds = 0.0  # how long that one took
        self._next_yield = PUSHES_PER_YIELD
        self._push_loop: PushLoop | None = None  # built when many events are pushed

    # -- counters

    @property
    def push_count(self) -> int:
        """How many pushes were awaited."""
        return self._counted_pushes + self._untimed

    @property
    def push_seconds(self) -> float:
        """The time that they took: each direct one that was not timed counts as much as the last one that was."""
        return self._counted_seconds + self._untimed * self._direct_seconds

    def _count_pushes(self, count: int, seconds: float) -> None:
        """Count pushes that took some time together."""
        self._counted_pushes += count
        self._counted_seconds += seconds

    def _take_sample(self, seconds: float) -> None:
        """Count the untimed pushes so far by the last sample, and the next ones by this one."""
        self._count_pushes(self._untimed, self._untimed * self._direct_seconds)
        self._untimed, self._direct_seconds = 0, seconds

    # -- pushing

    async def push(self, event: Any, encoding: str = "json", offset: Any = None) -> Receipt:
        """Process an event, waiting for queue space and for its commit, and return its receipt.

        `offset` is the position of the source after this event, if it came from one. The caller then moves the offset,
        and yields: a snapshot in between would have the event and not its offset.
        """
        self._try_fast_path()
        direct: Receipt | None = None
        started = self.clock.monotonic()
        try:
            if self.is_journaled and (pending := self.begin_push(event, encoding, offset)) is not None:
                receipt = pending if isinstance(pending, Receipt) else await pending
            else:
                direct = self._take_now(event) if offset is None else None
                receipt = direct or await self._ingest(event, encoding, offset)
        finally:
            seconds = self.clock.monotonic() - started
            self._count_pushes(1, seconds)
            if direct is not None:
                self._take_sample(seconds)
        if self.is_journaled and receipt.outcome == "dead_lettered":
            await self.runtime.durability.flush_dead_letters()
        if offset is None:
            await self._yield_in_turn()
        return receipt

    async def _yield_in_turn(self) -> None:
        """Give the event loop a turn now and then: a tight loop of pushes must not starve the node."""
        if self.push_count >= self._next_yield:
            self._next_yield = self.push_count + PUSHES_PER_YIELD
            await asyncio.sleep(0)

    def push_now(self, event: Any) -> Receipt | None:
        """Process an event that need not wait, and return its receipt; None if `push` must take the event."""
        if self._untimed == MAX_UNTIMED or (receipt := self._take_now(event)) is None:
            return None
        self._untimed += 1
        return receipt

    @property
    def takes_direct_pushes(self) -> bool:
        """Whether `push_now` is worth a try."""
        return self._direct_class is not None

    def _take_now(self, event: Any) -> Receipt | None:
        """Process an event by the open fast path; None if it may have to wait, or does not fit."""
        if self._waiting_pushers:
            return None
        state = self._queueing_state
        if state is not None and not state.credit:  # with credit the queue is empty
            return None
        if event.__class__ is not self._direct_class and (event := self._to_direct(event)) is NOT_DIRECT:
            return None
        sequence = self._fast_path.call(event)
        return self._slow_receipt if sequence is None else Receipt(True, sequence, "emitted")

    def _to_direct(self, event: Any) -> Any:
        """Return an event as the open fast path takes it; NOT_DIRECT for one that is to be decoded, or does not fit."""
        expected = self._direct_class
        if expected is None or isinstance(event, BYTES_CLASSES):
            return NOT_DIRECT
        if expected is AnyEvent:
            return event
        try:
            value = self.event_validator.validate(event)
        except TypeMismatchError:  # `push` makes a dead letter of it
            return NOT_DIRECT
        return value if value.__class__ is expected else NOT_DIRECT

    # -- many events

    async def _push_each(self, events: Sequence[Any], encoding: str, tally: ReceiptTally) -> None:
        """Push events in order, as many as possible by the push loop, and add their receipts."""
        remaining = iter(events)
        while tally.count < len(events):
            if self._find_push_loop() is decline_next:
                tally.add(await self.push(next(remaining), encoding))
                continue
            started, before = self.clock.monotonic(), tally.count
            is_declined = self._take_many(islice(remaining, PUSHES_PER_YIELD), tally)
            self._count_pushes(tally.count - before, self.clock.monotonic() - started)
            if is_declined:
                tally.add(await self.push(events[tally.count], encoding))
            else:
                await self._yield_in_turn()

    def _take_many(self, events: Iterator[Any], tally: ReceiptTally) -> bool:
        """Run events through the push loop; return whether the last one that was taken from `events` is still to do."""
        while True:
            end = (decline_next if self._waiting_pushers else self._find_push_loop())(events, tally)
            if end is LoopEnd.ANSWERED:
                tally.add(self._slow_receipt)
            elif end is not LoopEnd.INTERRUPTED:
                return end is LoopEnd.DECLINED

    def push_many_now(self, events: Iterable[Any]) -> PushSummary:
        """Push events in order without waiting, and return their receipts; this is `many` of a handle."""
        if self._successor is not None:
            return self._successor().handle().many(events)
        events, tally = list_events(events), ReceiptTally()
        remaining = iter(events)
        try:
            while tally.count < len(events):
                if self._take_many(remaining, tally):
                    tally.add(self._push_declined(events[tally.count]))
        except PushStoppedError as error:
            error.taken = tally.count
            raise
        return PushSummary(tuple(tally.runs))

    def _push_declined(self, event: Any) -> Receipt:
        """Push an event that the loop has declined, without waiting."""
        sequence = self._fast_path.call(event)
        return self._slow_receipt if sequence is None else Receipt(True, sequence, "emitted")

    # -- the fast path

    def handle(self) -> PushHandle:
        """Return the synchronous push function for hot loops; it stays valid across restarts and reloads."""
        handle = super().handle()
        handle.many = self.push_many_now
        return handle

    def _find_push_loop(self) -> PushLoop:
        """Return the loop for many events; one that declines every event if they may have to wait."""
        if self._push_loop is None:
            self._try_fast_path()
            self._push_loop = self._build_push_loop()
        return self._push_loop

    def _build_push_loop(self) -> PushLoop:
        if self.is_async or self.is_journaled:
            return decline_next
        if not self._fast_path.is_open:
            return self._ingest_each
        ((reactor, index),) = self.targets
        if reactor.fast.broad_path is not None:
            return reactor.fast.broad_path.build_push_loop(self._fast_path_source(), index)
        if (graph := self._fast_path.graph) is not None and has_push_loop(graph.wiring):
            return build_push_loop(graph, self._fast_path_source(), index, reactor.fast.target)
        return self._call_each

    def _call_each(self, events: Iterator[Any], tally: ReceiptTally) -> LoopEnd:
        """Run events through the open fast path one by one."""
        call, expected, state = self._fast_path.call, self._direct_class, self._queueing_state
        first = following = self.sequence + 1
        try:
            for event in events:
                if state is not None and not state.credit:
                    return LoopEnd.DECLINED
                if event.__class__ is not expected and (event := self._to_direct(event)) is NOT_DIRECT:
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
        accept, process = self._accept, self.process_now
        first: Receipt | None = None  # of receipts in a row that differ in their numbers only
        count = following = step = 0
        try:
            for event in events:
                if isinstance(event, BYTES_CLASSES) or (not self._never_blocks and self._is_blocked()):
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

    def _try_fast_path(self) -> None:
        if self._fast_path_tried:
            return
        super()._try_fast_path()
        if self._fast_path.is_open:
            ((reactor, _),) = self.targets
            self._direct_class = self.event_validator.exact_class or AnyEvent
            self._queueing_state = reactor.fast_path_state if self.queue_gates else None

    def close_fast_path(self) -> None:
        """Close the fast path because something on it has changed."""
        self._direct_class = self._queueing_state = self._push_loop = None
        super().close_fast_path()
