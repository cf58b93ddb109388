"""Due firings: the inputs of one reactor, and the firing that is due because of them.

A firing clears its flags when it takes its snapshot. Interrupted firings, retries and firings that an earlier process
left are fired again whole, under their number, before any other, as soon as the reactor's health allows.
"""

from collections import Counter, deque
from typing import Any

import msgspec

from tidemill.engine.graphs.firing.fast_path import CHECKPOINTED, DIRTY, FastPathState
from tidemill.engine.graphs.firing.firing_results import FiringResults
from tidemill.engine.graphs.firing.graph_caller import PendingFiring
from tidemill.engine.graphs.firing.host import FiringHost
from tidemill.engine.graphs.firing.queue_gate import QueueGate
from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.graphs.compiler import CompiledGraph
from tidemill.graphs.inputs import FiringInputs, Inputs


class DueFirings:
    """Takes the boundaries of one reactor, and decides which firing is due."""

    def __init__(self, reactor: FiringHost, runtime: GraphRuntime) -> None:
        definition = reactor.definition
        self.reactor = reactor
        self.name = definition.name
        self._runtime = runtime
        self._clock = runtime.clock
        self.dropped: Counter[str] = Counter()
        self.inputs = Inputs(definition)
        self.queue_gate = QueueGate(definition.declared_name, self.inputs, definition.overflow, self.dropped)
        self.fast_path_state = FastPathState(self.inputs.cache, self._clock.monotonic)
        self.graphs: dict[str, CompiledGraph] = {}
        self.results = FiringResults(reactor, runtime, self.dropped)
        self.log = self.results.log
        self.health_allows_firing = False
        self.paused = False
        self.incomplete = 0
        self._queue_pauses = 0  # retries and full outboxes that pause the queue
        self._needs_new_series = False  # after the fast firing that runs now
        self._is_rebound = self.is_redefined = False  # since the log was last checked for replaced firings
        self._refire_queue: deque[PendingFiring] = deque()  # interrupted firings and due retries, next one first

    # -- inputs

    def put(self, index: int, boundary: Any, position: int = 0) -> None:
        """Take a boundary; callers call `fire_due` when all reactors have it. `position` is its journal position."""
        self.fast_path_state.close()
        self.fast_path_state.arrivals[index] = self._clock.monotonic()
        if self.inputs.is_full and not self.queue_gate.make_room():
            return
        self.inputs.put(index, boundary, position)
        self.fast_path_state.flags |= DIRTY
        self.mark_changed()

    def refresh_window(self, index: int, content: list[Any]) -> None:
        """Show a window's new content without marking it as changed."""
        self.inputs.cache[index] = content
        self.mark_changed()

    def mark_changed(self) -> None:
        """Request a checkpoint if this is the first change since the last one."""
        if self.fast_path_state.flags & CHECKPOINTED:
            self.fast_path_state.flags &= ~CHECKPOINTED
            self.request_checkpoint()

    def request_checkpoint(self) -> None:
        """Include the reactor in the next checkpoint, if it is durable and may be written."""
        if self.reactor.durability.is_durable and not self.reactor.is_unsaved_reset:
            self._runtime.durability.request_checkpoint(self.reactor)

    # -- deciding

    @property
    def may_fire(self) -> bool:
        """Whether met criteria lead to a firing now."""
        return self.health_allows_firing and not self.paused and not self._queue_pauses

    @property
    def _has_due_work(self) -> bool:
        """Whether a firing may be due: repeated firings wait neither for criteria nor for a resume."""
        return bool(self._refire_queue and self.health_allows_firing) or bool(
            self.fast_path_state.flags & DIRTY and self.may_fire
        )

    def _take_due(self) -> PendingFiring | None:
        """Take the next firing if one is due."""
        while self._refire_queue and self.health_allows_firing:
            if (repeated := self._with_current_graphs(self._refire_queue.popleft())) is not None:
                return repeated
        if not (self.fast_path_state.flags & DIRTY and self.may_fire):
            return None
        return self._take_next()

    def _take_next(self) -> PendingFiring | None:
        """Take a firing if the inputs meet the criteria; apply queued boundaries on the way to it."""
        inputs = self.inputs
        while not inputs.is_sequential or inputs.apply_next():
            if inputs.is_sequential:
                self.queue_gate.wake_waiters()
            if inputs.is_criteria_met:
                ready = self._ready_graphs(inputs.cache)
                if ready or not self.graphs:
                    self._clear_dirty(keep=DIRTY if inputs.queue else 0)
                    return self._new_firing(inputs.take_snapshot(), ready)
                self.incomplete += 1
            if not inputs.is_sequential:
                break
        self._clear_dirty()
        return None

    def _clear_dirty(self, keep: int = 0) -> None:
        self.fast_path_state.flags = self.fast_path_state.flags & CHECKPOINTED | keep

    def _new_firing(self, inputs: FiringInputs, graphs: list[CompiledGraph]) -> PendingFiring:
        """Return a firing with its own number; with a journal, the number is at least its inputs' position."""
        return PendingFiring(self.log.series.name, self.log.next_number(self.inputs.applied_position), inputs, graphs)

    def new_series(self) -> None:
        """Start a new number series after a change of inputs that the journal does not hold, so that no id repeats.

        A fast firing that runs now did not see the change: it keeps its number, and the series starts after it.
        """
        self._needs_new_series = self.fast_path_state.credit is None
        if self.reactor.durability.is_journaled and not self._needs_new_series:
            self.log.new_series()

    def _detach_replaced(self) -> None:
        """Turn the logged firings of replaced graphs into plain values; called between firings."""
        if self._is_rebound:
            self.log.detach(self.graphs.values(), is_redefined=self.is_redefined)
            self._is_rebound = self.is_redefined = False

    def _with_current_graphs(self, firing: PendingFiring) -> PendingFiring | None:
        """Return a repeated firing with the graphs that are bound now."""
        if firing.attempt > 1:
            return self.results.prepare_retry(firing, self.graphs)
        ready = self._ready_graphs(firing.inputs.snapshot)
        if not ready and self.graphs:
            self.incomplete += 1
            return None
        return msgspec.structs.replace(firing, graphs=ready)

    def _ready_graphs(self, values: list[Any]) -> list[CompiledGraph]:
        """Return the graphs whose required inputs are present."""
        return [graph for graph in self.graphs.values() if graph.has_required_inputs(values)]

    @property
    def queued(self) -> int:
        """How many boundaries wait in the queue."""
        return len(self.inputs.queue)
