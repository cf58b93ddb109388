"""The firing loop of a keyed reactor: one loop for all keys, which takes the firings of one key after the other.

One firing runs at a time, of whatever key. Boundaries of other keys wait in their own states, and each key keeps its
order. Each step gets the state of its key, and asks for the inputs of that key first.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from tidemill.engine.graphs.firing.fast_firings import FastFirings
from tidemill.engine.graphs.firing.firing_log import BurstMaker, FiringRecord, KeyedBurst
from tidemill.engine.graphs.firing.firing_loop import FiringLoop
from tidemill.engine.graphs.firing.graph_caller import PendingFiring
from tidemill.engine.graphs.firing.queue_gate import QueueGate
from tidemill.engine.graphs.host import FiringHost
from tidemill.engine.graphs.key_state import KeyState
from tidemill.engine.graphs.keys.key_memory import KeyMemory
from tidemill.engine.graphs.keys.key_states import KeyStates
from tidemill.engine.graphs.push_paths.by_key import KeyedFiringFailure
from tidemill.engine.graphs.push_paths.one_graph import DIRTY, FastFiringFailure
from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.graphs.compiler import CompiledGraph
from tidemill.graphs.definition import Reactor
from tidemill.graphs.inputs import FiringInputs, Inputs
from tidemill.graphs.keys import Key
from tidemill.graphs.result import GraphResult


class KeyedQueueGate(QueueGate):
    """The gate in front of the queues of all keys."""

    def __init__(self, definition: Reactor, inputs: Inputs, dropped: Counter[str], keys: KeyStates) -> None:
        super().__init__(definition.declared_name, inputs, definition.overflow, dropped)
        self._keys = keys

    def is_blocked(self, key_state: KeyState | None = None) -> bool:
        is_blocking = self._policy.blocks and self._inputs.is_sequential and not self._is_closed
        return is_blocking and not self.space(key_state)

    def space(self, key_state: KeyState | None = None) -> int:
        """Return how many boundaries may come for a key; for none, as many as for a new one."""
        taken = 0 if key_state is None else self._keys.queue_length(key_state) + key_state.reserved
        return max(0, self._inputs.capacity - taken)

    def reserve(self, key_state: KeyState | None = None) -> None:
        assert key_state is not None, "a step of a keyed accumulator has a key"
        key_state.reserved += 1

    def release(self, key_state: KeyState | None = None) -> None:
        assert key_state is not None, "a step of a keyed accumulator has a key"
        key_state.reserved -= 1
        self.wake_waiters()


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
        """Return whether a key has everything that a fast firing needs."""
        graph, inputs = self.graph, self._loop.inputs_of(state)
        if graph is None or state.pauses or inputs.dirty or inputs.queue:
            return False
        return graph.has_required_inputs(inputs.cache)

    def _burst_maker(self) -> BurstMaker:
        assert self.graph is not None, "bursts are of a graph with a fast path"
        return partial(KeyedBurst, graph=self.graph)

    def put_and_fire(self, index: int, boundary: Any, position: int = 0, key_state: KeyState | None = None) -> None:
        """Take a boundary of a key while there is credit, and fire it directly if the key allows."""
        state, graph = self._state, self.graph
        credit = state.credit
        assert credit, "callers have seen the credit"
        assert key_state is not None, "a boundary of a keyed accumulator has a key"
        if graph is None or not key_state.is_fast or not self._inputs.criteria_mask >> index & 1:
            self._loop.put(index, boundary, position, key_state)
            return self._loop.fire_due()
        if position:
            self._loop.inputs_of(key_state).applied_position = position
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
        """Return the inputs of a fast firing that raised."""
        changed = [(failure.index, failure.boundary)]
        return FiringInputs(failure.key_state.cache.copy(), changed, 1 << failure.index)


class KeyedFiringLoop(FiringLoop):
    """Inputs, graphs and firings of one keyed reactor, or of one of its partitions."""

    fast: KeyedFastFirings

    def __init__(self, reactor: FiringHost, runtime: GraphRuntime, is_busy: Callable[[KeyState], bool]) -> None:
        """Fire what is due; a key that `is_busy` stays in memory."""
        self._paused: dict[KeyState, None] = {}  # keys whose queues stand still
        super().__init__(reactor, runtime)
        self.memory = KeyMemory(reactor, self.keys, runtime, is_busy)

    def create_queue_gate(self) -> QueueGate:
        self.keys = KeyStates(self.inputs)
        return KeyedQueueGate(self.reactor.definition, self.inputs, self.dropped, self.keys)

    def create_fast_firings(self) -> KeyedFastFirings:
        return KeyedFastFirings(self)

    # -- inputs

    def inputs_of(self, key_state: KeyState | None) -> Inputs:
        return self.keys.inputs_of(key_state)

    def state_of(self, key: Key) -> KeyState:
        return self.keys.active[key]

    def put(self, index: int, boundary: Any, position: int = 0, key_state: KeyState | None = None) -> None:
        """Take a boundary of a key."""
        assert key_state is not None, "a boundary of a keyed accumulator has a key"
        key_state.is_fast = False
        self.keys.inputs_of(key_state)  # for what all reactors do with them
        super().put(index, boundary, position, key_state)
        self.keys.due[key_state] = None

    def refresh_window(self, index: int, content: list[Any], key_state: KeyState | None = None) -> None:
        """Show a window's new content to a key without marking it as changed."""
        assert key_state is not None, "a window of a keyed reactor has a key"
        key_state.is_fast = False
        super().refresh_window(index, content, key_state)

    def mark_changed(self, key_state: KeyState | None = None) -> None:
        """Include a key in the next checkpoint; without one, what belongs to none."""
        if key_state is not None and self.reactor.durability.is_durable:
            self.keys.mark_changed(key_state)
        super().mark_changed(key_state)

    @property
    def queued(self) -> int:
        """How many boundaries wait in the queues of all keys."""
        return sum(self.keys.queue_length(one) for one in self.keys.due | self._paused)

    def pause_queue(self, delta: int, key_state: KeyState | None = None, *, always: bool = False) -> None:
        """Pause (+1) or continue (-1) the queue of a key; with `always`, those of all keys."""
        if always:
            self._queue_pauses += delta
        elif self.inputs.is_sequential:
            assert key_state is not None, "a retry of a keyed reactor has a key"
            key_state.pauses += delta
            key_state.is_fast = False
            self.keys.due[key_state] = None
            if key_state.pauses:
                self._paused[key_state] = None
            else:
                self._paused.pop(key_state, None)
        else:
            return
        self.fast_path_state.flags |= DIRTY
        self.fire_due()

    # -- deciding

    def reevaluate(self) -> None:
        """Evaluate the criteria of all keys, even if no boundary has come."""
        self.keys.add_all_due()
        super().reevaluate()

    def _take_next(self, key_state: KeyState | None = None) -> PendingFiring | None:  # noqa: ARG002 - it finds the key
        """Take a firing of the next key whose inputs meet the criteria."""
        keys = self.keys
        while keys.due:
            state = next(iter(keys.due))
            keys.inputs_of(state)  # for what all reactors do with them
            firing = None if state.pauses else super()._take_next(state)
            self.mark_changed(state)  # queued boundaries may have been applied, or flags cleared
            if firing is not None and keys.queue_length(state):
                keys.due.move_to_end(state)
            else:
                del keys.due[state]
                state.is_fast = self.fast.may_fire(state)
            if firing is not None:
                self._clear_dirty(keep=DIRTY if keys.due else 0)
                return firing
        self._clear_dirty()
        return None

    def _with_current_graphs(self, firing: PendingFiring) -> PendingFiring | None:
        repeated = super()._with_current_graphs(firing)
        if repeated is None:
            self._pin(firing, -1)
        return repeated

    def _pin(self, firing: PendingFiring, delta: int = +1) -> PendingFiring:
        """Keep the key of a firing active until the firing is done (-1)."""
        self.keys.active[firing.key].pins += delta
        return firing

    # -- firing

    def new_firing(
        self, inputs: FiringInputs, graphs: list[CompiledGraph], key_state: KeyState | None = None
    ) -> PendingFiring:
        """Return a firing of a key; with a journal its number is its inputs' position.

        A restart evaluates the keys in another order, and must give each firing the number that it had.
        """
        assert key_state is not None, "a firing of a keyed reactor has a key"
        series, position = self.log.series, self.keys.inputs_of(key_state).applied_position
        number = self.log.next_number() if not self.reactor.durability.is_journaled else 0
        if not number:
            self.log.close_burst()
            number = position or series.next()
            series.number = max(series.number, number)
        return self._pin(PendingFiring(series.name, number, inputs, graphs, key=key_state.key))

    def finish(self, firing: PendingFiring, started: float, results: dict[str, GraphResult]) -> FiringRecord:
        """Process the results of a firing, whose key may be dropped afterwards."""
        self._pin(firing, -1)
        return super().finish(firing, started, results)

    def requeue_interrupted(self, firing: PendingFiring) -> None:
        """Queue an interrupted firing to be fired again whole; a manual one is done."""
        super().requeue_interrupted(firing)
        if not firing.is_repeated:
            self._pin(firing, -1)

    async def fire_inputs(self, inputs: FiringInputs, key_state: KeyState | None) -> FiringRecord:
        """Fire a key manually with these inputs, within a turn of the driver."""
        assert key_state is not None, "a firing of a keyed reactor has a key"
        self.new_series()
        key_state.is_fast = False
        series, number = self.log.manual_series.name, self.log.next_manual_number()
        graphs = self.ready_graphs(inputs.snapshot)
        firing = PendingFiring(series, number, inputs, graphs, manual=True, key=key_state.key)
        return await self.driver.fire(self._pin(firing))

    def _retry(self, firing: PendingFiring, key_state: KeyState | None) -> None:
        super()._retry(self._pin(firing), key_state)

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
            super().restore_firings([self._pin(firing)])
