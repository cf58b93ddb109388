"""The firing loop of a keyed reactor: one loop for all keys, which selects the key of each firing.

One firing runs at a time, of whatever key. Boundaries of other keys wait in their own states, and each key keeps its
order. A firing selects its key again after its graphs have run: they may have pushed events of other keys.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from tidemill.engine.graphs.firing.fast_firings import FastFirings
from tidemill.engine.graphs.firing.firing_log import BurstMaker, FiringRecord, KeyedBurst
from tidemill.engine.graphs.firing.firing_loop import FiringLoop
from tidemill.engine.graphs.firing.graph_caller import PendingFiring
from tidemill.engine.graphs.firing.queue_gate import QueueGate
from tidemill.engine.graphs.host import FiringHost
from tidemill.engine.graphs.keys.key_states import KeyState, KeyStates
from tidemill.engine.graphs.push_paths.by_key import KeyedFiringFailure
from tidemill.engine.graphs.push_paths.one_graph import DIRTY, FastFiringFailure
from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.graphs.compiler import CompiledGraph
from tidemill.graphs.inputs import FiringInputs
from tidemill.graphs.keys import Key
from tidemill.graphs.result import GraphResult


class KeyedQueueGate(QueueGate):
    """The gate in front of the queue of the selected key."""

    keys: KeyStates

    async def wait(self) -> None:
        key_state = self.keys.current
        while self.is_blocked:
            await self.wait_for_change()
            self.keys.select(key_state)


class KeyedFastFirings(FastFirings):
    """Fast firings of the keys of one reactor: what they need of a key, its state says."""

    has_broad_path = False  # each key has inputs of its own
    _loop: "KeyedFiringLoop"

    def reopen(self) -> None:
        """Grant fast firings if every condition for them holds that is not one of a single key."""
        loop = self._loop
        if self.graph is not None and not loop.repeated and not loop.log.has_waiters and loop.may_fire:
            self._state.credit = self._begin_burst()

    def may_fire(self, state: KeyState) -> bool:
        """Return whether the selected key has everything that a fast firing needs."""
        graph, inputs = self.graph, self._inputs
        if graph is None or state.pauses or inputs.dirty or inputs.queue:
            return False
        return graph.has_required_inputs(inputs.cache)

    def _burst_maker(self) -> BurstMaker:
        assert self.graph is not None, "bursts are of a graph with a fast path"
        return partial(KeyedBurst, graph=self.graph)

    def put_and_fire(self, index: int, boundary: Any, position: int = 0) -> None:
        """Take a boundary of the selected key while there is credit, and fire it directly if the key allows."""
        state, graph, key_state = self._state, self.graph, self._loop.keys.current
        credit = state.credit
        assert credit, "callers have seen the credit"
        if graph is None or not key_state.is_fast or not self._inputs.criteria_mask >> index & 1:
            self._loop.put(index, boundary, position)
            return self._loop.fire_due()
        if position:
            self._inputs.applied_position = position
            credit = self._follow_journal(position) or credit
        state.credit = None
        cache = key_state.cache
        cache[index] = boundary
        state.arrivals[index] = started = state.now()
        generated = graph.generated
        try:
            values = generated.function(cache)
        except BaseException as error:  # the author's, or a shutdown: `fail` distinguishes them
            failure = KeyedFiringFailure(index, boundary, started, error, generated)
            failure.key_state = key_state
            return self.fail(failure)
        state.entries.append((key_state.key, cache.copy(), started, state.now(), *values))
        if credit == 1 or state.flags:
            self.finish()
        else:
            state.credit = credit - 1

    def _failed_inputs(self, failure: FastFiringFailure) -> FiringInputs:
        """Return the inputs of a fast firing that raised, with its key selected."""
        assert isinstance(failure, KeyedFiringFailure)
        self._loop.keys.select(failure.key_state)
        changed = [(failure.index, failure.boundary)]
        return FiringInputs(failure.key_state.cache.copy(), changed, 1 << failure.index)


class KeyedFiringLoop(FiringLoop):
    """Inputs, graphs and firings of one keyed reactor, or of one of its partitions."""

    fast: KeyedFastFirings

    def __init__(self, reactor: FiringHost, runtime: GraphRuntime) -> None:
        super().__init__(reactor, runtime)
        definition = reactor.definition
        self.queue_gate = gate = KeyedQueueGate(
            definition.declared_name, self.inputs, definition.overflow, self.dropped
        )
        self.keys = gate.keys = KeyStates(self.inputs, gate)
        self.results.dead_letters.read_key = lambda: self.keys.current_key
        self._paused: dict[KeyState, None] = {}  # keys whose queues stand still

    def create_fast_firings(self) -> KeyedFastFirings:
        return KeyedFastFirings(self)

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

    @property
    def queued(self) -> int:
        """How many boundaries wait in the queues of all keys."""
        self.keys.put_away_current()
        return sum(len(one.queue) for one in self.keys.due | self._paused if one.queue)

    def pause_queue(self, delta: int, *, always: bool = False) -> None:
        """Pause (+1) or continue (-1) the queue of the selected key; with `always`, those of all keys."""
        if always:
            self._queue_pauses += delta
        elif self.inputs.is_sequential:
            state = self.keys.current
            state.pauses += delta
            state.is_fast = False
            self.keys.add_due()
            if state.pauses:
                self._paused[state] = None
            else:
                self._paused.pop(state, None)
        else:
            return
        self.fast_path_state.flags |= DIRTY
        self.fire_due()

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
                state.is_fast = self.fast.may_fire(state)
            if firing is not None:
                self._clear_dirty(keep=DIRTY if keys.due else 0)
                return firing
        self._clear_dirty()
        return None

    def _with_current_graphs(self, firing: PendingFiring) -> PendingFiring | None:
        self.select_key(firing.key)
        repeated = super()._with_current_graphs(firing)
        if repeated is None:
            self._unpin(firing)
        return repeated

    def select_key(self, key: Key) -> None:
        """Select a key, which is active."""
        self.keys.select(self.keys.active[key])

    def _pinned(self, firing: PendingFiring) -> PendingFiring:
        """Keep the key of a firing active until the firing is done."""
        self.keys.active[firing.key].pins += 1
        return firing

    def _unpin(self, firing: PendingFiring) -> None:
        self.keys.active[firing.key].pins -= 1

    # -- firing

    def new_firing(self, inputs: FiringInputs, graphs: list[CompiledGraph]) -> PendingFiring:
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

    def finish(self, firing: PendingFiring, started: float, results: dict[str, GraphResult]) -> FiringRecord:
        """Process the results of a firing with its key selected."""
        self.select_key(firing.key)
        self._unpin(firing)
        return super().finish(firing, started, results)

    def requeue_interrupted(self, firing: PendingFiring) -> None:
        """Queue an interrupted firing to be fired again whole; a manual one is done."""
        super().requeue_interrupted(firing)
        if not firing.is_repeated:
            self._unpin(firing)

    async def fire_inputs(self, inputs: FiringInputs) -> FiringRecord:
        """Fire the selected key manually with these inputs, within a turn of the driver."""
        self.new_series()
        self.keys.current.is_fast = False
        series, number = self.log.manual_series.name, self.log.next_manual_number()
        graphs, key = self.ready_graphs(inputs.snapshot), self.keys.current_key
        firing = PendingFiring(series, number, inputs, graphs, manual=True, key=key)
        return await self.driver.fire(self._pinned(firing))

    def _retry(self, firing: PendingFiring) -> None:
        super()._retry(self._pinned(firing))

    def _make_resume(self) -> Callable[[], None]:
        """Return the function that lets the queue of the selected key continue when a retry has ended."""
        key_state = self.keys.current

        def resume() -> None:
            self.keys.select(key_state)
            self.pause_queue(-1)

        return resume

    # -- graphs

    def set_graphs(self, graphs: dict[str, CompiledGraph]) -> None:
        super().set_graphs(graphs)
        self.keys.close_fast_paths(self.keys.active.values())

    # -- checkpoints

    def restore_firings(self, firings: Iterable[PendingFiring]) -> None:
        """Queue the firings that an earlier process did not finish; their keys stay active until they are done."""
        for firing in firings:
            if firing.key not in self.keys.active:
                self.keys.create(firing.key)
            super().restore_firings([self._pinned(firing)])
