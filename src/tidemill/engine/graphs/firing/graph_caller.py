"""Pending firings, and the calls of their graphs."""

from collections.abc import Iterable
from functools import partial
from types import FrameType
from typing import Any

import msgspec

from tidemill.engine.graphs.firing.firing_log import FiringLog
from tidemill.engine.graphs.host import FiringHost
from tidemill.engine.graphs.push_paths.many_graphs import ContextMaker
from tidemill.engine.graphs.push_paths.one_graph import FastPathState
from tidemill.graphs.compiler import CompiledGraph
from tidemill.graphs.context import ContextOrigin, FiringContext
from tidemill.graphs.inputs import FiringInputs, SourceBoundary
from tidemill.graphs.result import GraphResult
from tidemill.kernel.author_errors import AUTHOR_ERRORS, is_cancelled_here
from tidemill.kernel.concurrency import FirstErrorGroup
from tidemill.telemetry.log_context import FIRING, FIRING_ON_STACK, RunningFiring


def _describe_firing_of(frame: FrameType) -> RunningFiring | None:
    """Return the firing that a method of GraphCaller has as its argument."""
    caller, firing = frame.f_locals.get("self"), frame.f_locals.get("firing")
    return caller.describe(firing) if isinstance(caller, GraphCaller) and isinstance(firing, PendingFiring) else None


globals()[FIRING_ON_STACK] = _describe_firing_of


class PendingFiring(msgspec.Struct, frozen=True):
    """A firing that is due, or due again."""

    series: str
    number: int
    inputs: FiringInputs
    graphs: list[CompiledGraph]
    manual: bool = False
    attempt: int = 1
    retry_graphs: tuple[str, ...] = ()
    """The graphs to retry; empty on the first attempt, which runs all graphs with complete inputs."""
    key: Any = None
    """Of a keyed reactor: the key whose inputs they are."""

    @property
    def is_repeated(self) -> bool:
        """Whether the firing is repeated after an interruption; a manual one that took no new boundary is not."""
        return not self.manual or self.attempt > 1 or bool(self.inputs.flags)


class GraphCaller:
    """Calls the graphs of a reactor for one firing, and collects their results."""

    def __init__(self, reactor: FiringHost, log: FiringLog, fast_path_state: FastPathState) -> None:
        self._reactor = reactor.definition.name
        self._tenant = reactor.tenant
        self._names = reactor.definition.accumulator_names
        self._log = log
        self._fast_path_state = fast_path_state

    def call(self, firing: PendingFiring) -> dict[str, GraphResult]:
        """Call synchronous graphs one after the other; a failing graph does not stop the next."""
        return self._call(firing.graphs, firing)

    def describe(self, firing: PendingFiring) -> RunningFiring:
        """Return a firing as the code that logs for it sees it."""
        return self._describe(firing.series, firing.number, firing.attempt)

    def describe_fast_firing(self, _: FrameType) -> RunningFiring | None:
        """Return the fast firing that runs now; None if none does."""
        return self._describe(*self._log.fast_firing_number()) if self._fast_path_state.credit is None else None

    def _describe(self, series: str, number: int, attempt: int = 1) -> RunningFiring:
        firing_id = self._log.firing_id(series, number)
        fields = {"reactor": self._reactor, "tenant": self._tenant, "firing_id": firing_id}
        return RunningFiring(fields, self._log.output.sink(series, number, attempt))

    def _call(self, graphs: Iterable[CompiledGraph], firing: PendingFiring) -> dict[str, GraphResult]:
        results = {}
        for graph in graphs:
            try:
                arguments = self._arguments_for(graph, firing) if graph.needs_context else (firing.inputs.snapshot,)
                results[graph.name] = GraphResult(graph.layout, graph.generated.function(*arguments))
            except AUTHOR_ERRORS as error:
                results[graph.name] = graph.failed_result(error)
        return results

    async def call_async(self, firing: PendingFiring) -> dict[str, GraphResult]:
        """Call graphs of which some are asynchronous; those run concurrently."""
        token = FIRING.set(partial(self.describe, firing))  # graphs may run in other tasks, and on threads
        try:
            if len(firing.graphs) == 1 and (graph := firing.graphs[0]).is_async:
                return {graph.wiring.name: await self._call_one_async(graph, firing)}
            return await self._call_several(firing)
        finally:
            FIRING.reset(token)

    async def _call_several(self, firing: PendingFiring) -> dict[str, GraphResult]:
        asynchronous = [graph for graph in firing.graphs if graph.is_async]
        results: dict[str, GraphResult] = {}
        if len(asynchronous) < len(firing.graphs):
            results = self._call((graph for graph in firing.graphs if not graph.is_async), firing)
        if len(asynchronous) == 1:
            results[asynchronous[0].name] = await self._call_one_async(asynchronous[0], firing)
        elif asynchronous:
            async with FirstErrorGroup() as group:
                tasks = {one.name: group.start(one.name, self._call_one_async(one, firing)) for one in asynchronous}
            results |= {name: task.result() for name, task in tasks.items()}
        return {graph.name: results[graph.name] for graph in firing.graphs}

    async def _call_one_async(self, graph: CompiledGraph, firing: PendingFiring) -> GraphResult:
        try:
            arguments = self._arguments_for(graph, firing) if graph.needs_context else (firing.inputs.snapshot,)
            return GraphResult(graph.layout, await graph.generated.function(*arguments))
        except AUTHOR_ERRORS as error:
            if is_cancelled_here(error):
                raise
            return graph.failed_result(error)

    def _arguments_for(self, graph: CompiledGraph, firing: PendingFiring) -> tuple[Any, ...]:
        """Return the arguments of a graph with a context."""
        origin, inputs = self._context_origin(graph), firing.inputs
        return inputs.snapshot, FiringContext(origin, firing.series, firing.number, inputs.consumed, firing.key)

    def fast_context_maker(self, graph: CompiledGraph) -> ContextMaker:
        """Return the function that creates the context of the fast firing that runs now."""
        origin, read_number = self._context_origin(graph), self._log.fast_firing_number

        def make(consumed: list[SourceBoundary]) -> FiringContext:
            series, number = read_number()
            return FiringContext(origin, series, number, consumed)

        return make

    def _context_origin(self, graph: CompiledGraph) -> ContextOrigin:
        convert = graph.convert_consumed if graph.converts_inputs else None
        return ContextOrigin(graph.name, self._names, self._log.firing_id, convert, self._reactor)
