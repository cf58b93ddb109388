"""The firing loop of a keyed reactor: one loop for all keys, which selects the key of each firing.

One firing runs at a time, of whatever key. Boundaries of other keys wait in their own states, and each key keeps its
order. A firing selects its key again after its graphs have run: they may have pushed events of other keys.
"""

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Any

from tidemill.engine.graphs.firing.fast_path import DIRTY, FastFiringFailure
from tidemill.engine.graphs.firing.firing_log import BurstMaker, FiringRecord, KeyedBurst
from tidemill.engine.graphs.firing.firing_loop import FiringLoop
from tidemill.engine.graphs.firing.graph_caller import PendingFiring
from tidemill.engine.graphs.firing.host import FiringHost
from tidemill.engine.graphs.firing.queue_gate import QueueGate
from tidemill.engine.graphs.keys.key_states import KeyState, KeyStates
from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.graphs.compiler import CompiledGraph
from tidemill.graphs.inputs import FiringInputs
from tidemill.graphs.keys import Key
from tidemill.graphs.result import GraphResult
from tidemill.kernel.author_errors import AUTHOR_ERRORS


class KeyedFiringFailure(FastFiringFailure):
    """A fast firing of a keyed reactor that raised."""

    __slots__ = ("key_state",)

    key_state: KeyState


class KeyedQueueGate(QueueGate):
    """The gate in front of the queue of the selected key."""

    keys: KeyStates

    async def wait(self) -> None:
        key_state = self.keys.current
        while self.is_blocked:
            await self.wait_for_change()
            self.keys.select(key_state)


class KeyedFiringLoop(FiringLoop):
    """Inputs, graphs and firings of one keyed reactor, or of one of its partitions."""

    has_broad_path = False  # each key has inputs of its own

    def __init__(self, reactor: FiringHost, runtime: GraphRuntime) -> None:
        super().__init__(reactor, runtime)
        definition = reactor.definition
        self.queue_gate = gate = KeyedQueueGate(
            definition.declared_name, self.inputs, definition.overflow, self.dropped
        )
        self.keys = gate.keys = KeyStates(self.inputs, gate)
        self.results.dead_letters.read_key = lambda: self.keys.current_key
        self._retry_keys: dict[asyncio.Task[Any], KeyState] = {}

    # -- inputs

    def put(self, index: int, boundary: Any, position: int = 0) -> None:
        """Take a boundary of the selected key."""
        self.keys.current.is_fast = False
        super().put(index, boundary, position)
        self.keys.add_due()

    def refresh_window(self, index: int, content: list[Any]) -> None:
        """Show a window's new content to the selected key without marking it as changed."""
        self.keys.current.is_fast = False
        super().refresh_window(index, content)

    def mark_changed(self) -> None:
        """Include the selected key in the next checkpoint."""
        if self.reactor.durability.is_durable:
            self.keys.mark_changed()
        super().mark_changed()

    # -- deciding

    def reevaluate(self) -> None:
        """Evaluate the criteria of all keys, even if no boundary has come."""
        self.keys.add_all_due()
        super().reevaluate()

    def _take_next(self) -> PendingFiring | None:
        """Take a firing of the next key whose inputs meet the criteria."""
        keys = self.keys
        while keys.due:
            state = next(iter(keys.due))
            keys.select(state)
            firing = None if state.pauses else super()._take_next()
            self.mark_changed()  # queued boundaries may have been applied, or flags cleared
            if firing is not None and self.inputs.queue:
                keys.move_to_end(state)
            else:
                del keys.due[state]
                state.is_fast = self._may_fire_fast(state)
            if firing is not None:
                self._clear_dirty(keep=DIRTY if keys.due else 0)
                return firing
        self._clear_dirty()
        return None

    def _may_fire_fast(self, state: KeyState) -> bool:
        """Return whether the selected key has everything that a fast firing needs."""
        graph, inputs = self.fast_graph, self.inputs
        if graph is None or state.pauses or inputs.dirty or inputs.queue:
            return False
        return graph.has_required_inputs(inputs.cache)

    def _new_firing(self, inputs: FiringInputs, graphs: list[CompiledGraph]) -> PendingFiring:
        """Return a firing of the selected key; with a journal its number is its inputs' position.

        A restart evaluates the keys in another order, and must give each firing the number that it had.
        """
        series, position = self.log.series, self.inputs.applied_position
        number = self.log.next_number() if not self.reactor.durability.is_journaled else 0
        if not number:
            self.log.close_burst()
            number = position or series.next()
            series.number = max(series.number, number)
        return self._pinned(PendingFiring(series.name, number, inputs, graphs, key=self.keys.current_key))

    def _with_current_graphs(self, firing: PendingFiring) -> PendingFiring | None:
        self._select_key_of(firing)
        repeated = super()._with_current_graphs(firing)
        if repeated is None:
            self._unpin(firing)
        return repeated

    def _select_key_of(self, firing: PendingFiring) -> None:
        self.keys.select(self.keys.active[firing.key])

    def _pinned(self, firing: PendingFiring) -> PendingFiring:
        """Keep the key of a firing active until the firing is done."""
        self.keys.active[firing.key].pins += 1
        return firing

    def _unpin(self, firing: PendingFiring) -> None:
        self.keys.active[firing.key].pins -= 1

    # -- fast firings

    def _reopen_fast_path(self) -> None:
        """Grant fast firings if every condition for them holds that is not one of a single key."""
        graph, state = self.fast_graph, self.fast_path_state
        if graph is None or state.credit or state.flags or self._refire_queue or self._is_firing:
            return
        if not self.results.has_waiters and self.may_fire:
            state.credit = self._begin_burst()

    def _burst_maker(self) -> BurstMaker:
        assert self.fast_graph is not None, "bursts are of a graph with a fast path"
        return partial(KeyedBurst, graph=self.fast_graph)

    def put_and_fire(self, index: int, boundary: Any, position: int = 0) -> None:
        """Take a boundary of the selected key, and fire it directly if the fast path allows."""
        state, graph, key_state = self.fast_path_state, self.fast_graph, self.keys.current
        credit = state.credit
        if not credit or graph is None or not key_state.is_fast or not self.inputs.criteria_mask >> index & 1:
            self.put(index, boundary, position)
            return self.fire_due()
        if position:
            self.inputs.applied_position = position
            credit = self._follow_journal(position) or credit
        state.credit = None
        cache = key_state.cache
        cache[index] = boundary
        state.arrivals[index] = started = state.now()
        generated = graph.generated
        try:
            values = generated.function(cache)
        except BaseException as error:  # the author's, or a shutdown: `fail_fast_firing` distinguishes them
            failure = KeyedFiringFailure(index, boundary, started, error, generated)
            failure.key_state = key_state
            return self.fail_fast_firing(failure)
        state.entries.append((key_state.key, cache.copy(), started, state.now(), *values))
        if credit == 1 or state.flags:
            self.finish_fast_firing()
        else:
            state.credit = credit - 1

    def fail_fast_firing(self, failure: FastFiringFailure) -> None:
        """Handle a fast firing that raised."""
        assert isinstance(failure, KeyedFiringFailure)
        self._is_firing = True
        self.fast_path_state.credit = 0
        try:
            self.keys.select(failure.key_state)
            changed = [(failure.index, failure.boundary)]
            inputs = FiringInputs(failure.key_state.cache.copy(), changed, 1 << failure.index)
            (graph,) = self.graphs.values()
            firing = self._new_firing(inputs, [graph])
            if not isinstance(failure.error, AUTHOR_ERRORS):
                self._requeue_interrupted(firing)
                raise failure.error
            result = graph.failed_result(failure.error, failure.generated)
            self._finish(firing, failure.started, {graph.name: result})
        finally:
            self._is_firing = False
        self.fire_due()

    # -- the ends of firings

    def _finish(self, firing: PendingFiring, started: float, results: dict[str, GraphResult]) -> FiringRecord:
        self._select_key_of(firing)
        self._unpin(firing)
        return super()._finish(firing, started, results)

    def _requeue_interrupted(self, firing: PendingFiring) -> None:
        super()._requeue_interrupted(firing)
        if not firing.is_repeated:
            self._unpin(firing)

    def _start_retry(self, firing: PendingFiring) -> None:
        super()._start_retry(self._pinned(firing))
        self._retry_keys[next(reversed(self._retries))] = self.keys.current

    def _end_retry(self, task: "asyncio.Task[Any]") -> None:
        self.keys.select(self._retry_keys.pop(task))
        super()._end_retry(task)

    def pause_queue(self, delta: int, *, always: bool = False) -> None:
        """Pause (+1) or continue (-1) the queue of the selected key; with `always`, those of all keys."""
        if always:
            self._queue_pauses += delta
        elif self.inputs.is_sequential:
            self.keys.current.pauses += delta
            self.keys.current.is_fast = False
            self.keys.add_due()
        else:
            return
        self.fast_path_state.flags |= DIRTY
        self.fire_due()

    # -- manual firings

    def select_key(self, key: Key) -> None:
        """Select a key, which is active."""
        self.keys.select(self.keys.active[key])

    async def fire_inputs(self, inputs: FiringInputs) -> FiringRecord:
        """Fire the selected key manually with these inputs, within a turn."""
        self.new_series()
        self.keys.current.is_fast = False
        series, number = self.log.manual_series.name, self.log.next_manual_number()
        graphs, key = self._ready_graphs(inputs.snapshot), self.keys.current_key
        return await self._fire_async(self._pinned(PendingFiring(series, number, inputs, graphs, manual=True, key=key)))

    # -- checkpoints

    def restore_firings(self, firings: Iterable[PendingFiring]) -> None:
        """Queue the firings that an earlier process did not finish; their keys stay active until they are done."""
        for firing in firings:
            if firing.key not in self.keys.active:
                self.keys.create(firing.key)
            super().restore_firings([self._pinned(firing)])

    # -- graphs

    def set_graphs(self, graphs: dict[str, CompiledGraph]) -> None:
        super().set_graphs(graphs)
        self.keys.close_fast_paths(self.keys.active.values())

    @property
    def queued(self) -> int:
        """How many boundaries wait in the queues of all keys."""
        self.keys.put_away_current()
        waiting = self.keys.due | dict.fromkeys(self._retry_keys.values())
        return sum(len(one.queue) for one in waiting if one.queue)
