"""Fast firings of one reactor: boundaries that are fired straight from their push.

* `credit` is positive only while a boundary may be fired straight from its push. A pause, a change of health, a waiting
  observer or a new graph closes the fast path; `reopen` alone grants credit again.
* A run of fast firings is a burst, which is logged as a whole. With a journal, the number of a firing is the position
  of its boundary, so a burst ends where other steps come in between.
* A firing that raises leaves the path: it is finished as any other is.
"""

from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import Any, Protocol

import msgspec

from tidemill.engine.graphs.firing.firing_log import BroadBurst, BurstMaker, ChangeBurst, FiringLog, FiringRecord
from tidemill.engine.graphs.firing.firing_results import FiringResults
from tidemill.engine.graphs.firing.graph_caller import GraphCaller, PendingFiring
from tidemill.engine.graphs.host import FiringHost
from tidemill.engine.graphs.key_state import KeyState
from tidemill.engine.graphs.push_paths.many_graphs import (
    BroadFiringFailure,
    BroadPath,
    BroadPathTarget,
    may_fire_broadly,
)
from tidemill.engine.graphs.push_paths.one_graph import (
    FastFiringFailure,
    FastPathState,
    FastPathTarget,
    find_fast_graph,
)
from tidemill.graphs.compiler import CompiledGraph
from tidemill.graphs.inputs import FiringInputs, Inputs
from tidemill.graphs.result import GraphResult
from tidemill.kernel.author_errors import AUTHOR_ERRORS


class LoopOfFirings(Protocol):
    """A firing loop, as its fast firings see it."""

    reactor: FiringHost
    fast_path_state: FastPathState
    inputs: Inputs
    graphs: dict[str, CompiledGraph]
    results: FiringResults
    log: FiringLog
    caller: GraphCaller
    repeated: deque[PendingFiring]
    """Interrupted firings and due retries, the next one first."""
    is_firing: bool
    is_degraded: bool

    @property
    def may_fire(self) -> bool:
        """Whether met criteria lead to a firing now."""

    def put(self, index: int, boundary: Any, position: int = 0, key_state: KeyState | None = None) -> None:
        """Take a boundary, without firing."""

    def fire_due(self) -> None:
        """Fire what is due."""

    def ready_graphs(self, values: list[Any]) -> list[CompiledGraph]:
        """Return the graphs whose required inputs are present."""

    def new_firing(
        self, inputs: FiringInputs, graphs: list[CompiledGraph], key_state: KeyState | None = None
    ) -> PendingFiring:
        """Return a firing with its own number."""

    def finish(self, firing: PendingFiring, started: float, results: dict[str, GraphResult]) -> FiringRecord:
        """Process the results of a firing."""

    def requeue_interrupted(self, firing: PendingFiring) -> None:
        """Queue an interrupted firing to be fired again whole."""


class FastFirings:
    """Grants fast firings to one reactor, fires boundaries, and handles what raised."""

    has_broad_path = True

    def __init__(self, loop: LoopOfFirings) -> None:
        self._loop = loop
        self._state = loop.fast_path_state
        self._inputs = loop.inputs
        self.graph: CompiledGraph | None = None
        """The graph that plain fast paths may run."""
        self.broad_path: BroadPath | None = None
        """For everything else, if its graphs are synchronous."""
        self.is_possible = False
        """Whether there is one of them: nothing reopens the path otherwise."""
        describe = loop.caller.describe_fast_firing
        self.target = FastPathTarget(loop.fast_path_state, loop.inputs, self.finish, self.fail, describe)
        self._burst_start = 0  # the number of the first firing in the running burst

    def set_graphs(self, graphs: Mapping[str, CompiledGraph]) -> None:
        """Fire these graphs from now on."""
        loop = self._loop
        is_observed = bool(loop.reactor.batches) or loop.results.firing_observer is not None
        self.graph = None if is_observed or self._inputs.needs_all else find_fast_graph(graphs.values())
        is_broad = self.has_broad_path and self.graph is None and may_fire_broadly(list(graphs.values()))
        self.broad_path = self._build_broad_path(graphs) if is_broad else None
        self.is_possible = is_broad or self.graph is not None
        self._state.close()

    def forget_graphs(self) -> None:
        """Let every boundary take the slow path, until the graphs change."""
        self.graph = self.broad_path = None
        self.is_possible = False
        self._state.close()

    def _build_broad_path(self, graphs: Mapping[str, CompiledGraph]) -> BroadPath:
        loop = self._loop
        target = BroadPathTarget(
            target=self.target,
            host=loop.reactor,
            make_context=loop.caller.fast_context_maker,
            observe=None if loop.results.firing_observer is None else self._observe,
            fail_firing=self._fail_broad_firing,
            fail_effects=self._fail_effects,
        )
        return BroadPath(next(iter(graphs.values())).wiring.inputs, target)

    # -- granting

    def reopen(self) -> None:
        """Grant fast firings if every condition for them holds; called between firings, when no flag is set."""
        loop = self._loop
        if not loop.repeated and not loop.log.has_waiters and loop.may_fire and self._has_fast_inputs():
            self._state.credit = self._begin_burst(self._inputs.applied_position)

    def _has_fast_inputs(self) -> bool:
        """Return whether the inputs leave the next boundary to fast firings: some graph is complete, none is due."""
        inputs, graph, path = self._inputs, self.graph, self.broad_path
        if inputs.queue:
            return False
        if graph is not None:
            return not inputs.dirty and graph.has_required_inputs(inputs.cache)
        if path is None or inputs.is_criteria_met or not (ready := self._loop.ready_graphs(inputs.cache)):
            return False
        path.set_ready(ready)
        return True

    def _begin_burst(self, number: int = 0) -> int:
        """Begin a run of fast firings, numbered at least from `number` on; return how many it may hold."""
        log, degraded = self._loop.log, self._loop.is_degraded
        credit = log.begin_burst(self._burst_maker(), self._state.entries, degraded=degraded, number=number)
        self._burst_start = log.series.number + 1
        return credit

    def _burst_maker(self) -> BurstMaker:
        if self.broad_path is not None:
            return partial(BroadBurst, graphs=self.broad_path.graphs)
        assert self.graph is not None, "bursts are of graphs with a fast path"
        return partial(ChangeBurst, graph=self.graph, base_snapshot=self._inputs.cache.copy())

    def _follow_journal(self, position: int) -> int | None:
        """Give the next fast firing a journal position as its number; return the credit of a new burst, if needed."""
        if self._burst_start + len(self._state.entries) == position:
            return None
        return self._begin_burst(position)  # other steps have the positions in between

    # -- firing

    def put_and_fire(self, index: int, boundary: Any, position: int = 0, key_state: KeyState | None = None) -> None:
        """Take a boundary while there is credit, and fire it directly if its source decides.

        `position` is its journal position.
        """
        state, graph = self._state, self.graph
        credit = state.credit
        assert credit, "callers have seen the credit"
        if self.broad_path is not None and self._inputs.cache[index] is not None:
            return self._put_broadly(self.broad_path, credit, index, boundary, position)
        if graph is None or not self._inputs.criteria_mask >> index & 1:
            self._loop.put(index, boundary, position, key_state)
            return self._loop.fire_due()
        if position:
            self._inputs.applied_position = position
            credit = self._follow_journal(position) or credit
        state.credit = None
        state.cache[index] = boundary
        state.arrivals[index] = started = state.now()
        generated = graph.generated
        try:
            values = generated.function(state.cache)
        except BaseException as error:  # the author's, or a shutdown: `fail` distinguishes them
            return self.fail(FastFiringFailure(index, boundary, started, error, generated))
        state.entries.append((index, boundary, started, state.now(), *values))
        if credit == 1 or state.flags:
            self.finish()
        else:
            state.credit = credit - 1

    def _put_broadly(self, path: BroadPath, credit: int, index: int, boundary: Any, position: int) -> None:
        state, inputs = self._state, self._inputs
        inputs.cache[index] = boundary
        state.arrivals[index] = started = state.now()
        if position:
            inputs.applied_position = position
        if inputs.is_sequential:
            inputs.consume(index, boundary)
        dirty = inputs.dirty | 1 << index
        if not inputs.meets_criteria(dirty):
            inputs.dirty = dirty
            return
        if position:
            credit = self._follow_journal(position) or credit
        path.fire(credit, dirty, started)

    def finish(self) -> None:
        """Fire what became due during a fast firing."""
        self._state.credit = 0
        self._loop.fire_due()

    def _observe(self) -> None:
        observer = self._loop.results.firing_observer
        assert observer is not None, "the path is closed when the last observer leaves"
        observer(self._loop.log.newest_fast_record())

    # -- failures

    def fail(self, failure: FastFiringFailure) -> None:
        """Handle a fast firing that raised."""
        loop = self._loop
        loop.is_firing = True
        self._state.credit = 0
        try:
            (graph,) = loop.graphs.values()
            firing = loop.new_firing(self._failed_inputs(failure), [graph], failure.key_state)
            if not isinstance(failure.error, AUTHOR_ERRORS):
                loop.requeue_interrupted(firing)
                raise failure.error
            result = graph.failed_result(failure.error, failure.generated)
            loop.finish(firing, failure.started, {graph.name: result})
        finally:
            loop.is_firing = False
        loop.fire_due()

    def _failed_inputs(self, failure: FastFiringFailure) -> FiringInputs:
        """Return the inputs of a fast firing that raised."""
        snapshot = self._loop.log.latest_snapshot()
        snapshot[failure.index] = failure.boundary
        return FiringInputs(snapshot, [(failure.index, failure.boundary)], 1 << failure.index)

    def _fail_broad_firing(self, failure: BroadFiringFailure) -> None:
        """Handle a firing on the broad path in which a graph raised: call the graphs that are left."""
        loop = self._loop
        loop.is_firing = True
        self._state.credit = 0
        try:
            firing = loop.new_firing(failure.inputs, list(failure.graphs))
            try:
                if not isinstance(failure.error, AUTHOR_ERRORS):
                    raise failure.error
                results = self._complete_results(firing, failure)
            except BaseException:
                loop.requeue_interrupted(firing)
                raise
            loop.finish(firing, failure.started, results)
        finally:
            loop.is_firing = False
        loop.fire_due()

    def _complete_results(self, firing: PendingFiring, failure: BroadFiringFailure) -> dict[str, GraphResult]:
        """Return the results of the graphs before the one that raised, its own, and those of the graphs after it."""
        graphs = firing.graphs
        failed = failure.values.index(None)
        done = zip(graphs[:failed], failure.values, strict=False)
        results = {graph.name: GraphResult(graph.layout, values) for graph, values in done if values is not None}
        results[graphs[failed].name] = graphs[failed].failed_result(failure.error)
        rest = msgspec.structs.replace(firing, graphs=graphs[failed + 1 :])
        return results | self._loop.caller.call(rest)

    def _fail_effects(self, error: BaseException) -> None:
        """Handle an error of the engine after a firing on the broad path, as the firing loop does."""
        self._state.credit = 0
        if not isinstance(error, Exception):
            raise error
        self._loop.reactor.crash(error)
        self._loop.fire_due()
