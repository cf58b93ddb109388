"""Awaited pushes: those that need not wait take the fast path at once, and only a sample of them is timed.

Two reads of the clock and three coroutines cost more than a light graph. `push_now` has neither: it processes an event
of the declared class while the fast path is open and no pusher waits, and returns None for any other, which `push` then
takes. It also leaves every 64th event to `push`, which times it and yields to the event loop from time to time.
"""

import asyncio
from typing import Any

from tidemill.engine.graphs.accumulators.ingest import EventIngest
from tidemill.engine.graphs.firing.fast_path import FastPathState
from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.graphs.definition import Accumulator
from tidemill.graphs.result import Receipt

PUSHES_PER_YIELD = 256  # pushes in a row before the event loop gets a turn
MAX_UNTIMED = 63  # direct pushes between two that are timed


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

        `offset` is the position of the source after this event, if it came from one.
        """
        if self.targets:
            self._try_fast_path()
        direct: Receipt | None = None
        started = self.clock.monotonic()
        try:
            direct = self._take_now(event) if offset is None else None
            receipt = direct or await self._ingest(event, encoding, offset)
        finally:
            seconds = self.clock.monotonic() - started
            self._count_pushes(1, seconds)
            if direct is not None:
                self._take_sample(seconds)
        if self.is_journaled and receipt.outcome == "dead_lettered":
            await self.runtime.durability.flush_dead_letters()
        if self.push_count >= self._next_yield:  # a tight loop of pushes must not starve the node
            self._next_yield = self.push_count + PUSHES_PER_YIELD
            await asyncio.sleep(0)
        return receipt

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
        """Process an event by the open fast path; None if it must be validated, or may have to wait."""
        if event.__class__ is not self._direct_class or self._waiting_pushers:
            return None
        state = self._queueing_state
        if state is not None and not state.credit:  # with credit the queue is empty
            return None
        sequence = self._fast_path.call(event)
        return self._slow_receipt if sequence is None else Receipt(True, sequence, "emitted")

    # -- the fast path

    def _try_fast_path(self) -> None:
        if self._fast_path_tried:
            return
        super()._try_fast_path()
        if self._fast_path.is_open:
            ((reactor, _),) = self.targets
            self._direct_class = self.event_validator.exact_class
            self._queueing_state = reactor.fast_path_state if self.queue_gates else None

    def close_fast_path(self) -> None:
        """Close the fast path because something on it has changed."""
        self._direct_class = self._queueing_state = None
        super().close_fast_path()
