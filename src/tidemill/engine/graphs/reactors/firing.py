"""One firing on its way: what it took, which graphs it calls, and what came of each."""

import logging
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from tidemill.graphs.compiler import CompiledGraph
from tidemill.graphs.context import FiringContext
from tidemill.graphs.inputs import FiringInputs
from tidemill.graphs.result import GraphResult
from tidemill.kernel.author_errors import AUTHOR_ERRORS, is_cancelled_here
from tidemill.kernel.concurrency import FirstErrorGroup
from tidemill.telemetry.log_fields import FieldLogger

logger = logging.getLogger("tidemill.graph")


class PendingFiring(msgspec.Struct, frozen=True):
    """A firing that is to happen, or to happen again."""

    series: str
    number: int
    inputs: FiringInputs
    graphs: list[CompiledGraph]
    manual: bool = False
    attempt: int = 1
    retry_graphs: tuple[str, ...] = ()
    """The graphs that are to be tried again; on the first attempt, all that are ready."""


class GraphCaller:
    """Calls the graphs of a reactor for one firing, and reads what comes back."""

    def __init__(self, reactor: str, names: tuple[str, ...], firing_id: Callable[[str, int], str]) -> None:
        self._reactor = reactor
        self._names = names
        self._firing_id = firing_id

    def call(self, firing: PendingFiring) -> dict[str, GraphResult]:
        """Call synchronous graphs one after the other; one failing does not stop the next."""
        return self._call(firing.graphs, firing)

    def _call(self, graphs: Iterable[CompiledGraph], firing: PendingFiring) -> dict[str, GraphResult]:
        results = {}
        for graph in graphs:
            try:
                results[graph.name] = GraphResult(graph.layout, graph.function(*self._arguments_for(graph, firing)))
            except AUTHOR_ERRORS as error:
                results[graph.name] = graph.failed_result(error)
        return results

    async def call_async(self, firing: PendingFiring) -> dict[str, GraphResult]:
        """Call graphs of which some must be awaited; those run at the same time."""
        waiting = [graph for graph in firing.graphs if graph.is_async]
        results = self._call((graph for graph in firing.graphs if not graph.is_async), firing)
        if not waiting:
            return results
        if len(waiting) == 1:
            results[waiting[0].name] = await self._call_one_async(waiting[0], firing)
        else:
            async with FirstErrorGroup() as strands:
                tasks = {one.name: strands.start(one.name, self._call_one_async(one, firing)) for one in waiting}
            results |= {name: task.result() for name, task in tasks.items()}
        return {graph.name: results[graph.name] for graph in firing.graphs}

    async def _call_one_async(self, graph: CompiledGraph, firing: PendingFiring) -> GraphResult:
        try:
            return GraphResult(graph.layout, await graph.function(*self._arguments_for(graph, firing)))
        except AUTHOR_ERRORS as error:
            if is_cancelled_here(error):
                raise
            return graph.failed_result(error)

    def _arguments_for(self, graph: CompiledGraph, firing: PendingFiring) -> tuple[Any, ...]:
        if not graph.needs_context:
            return (firing.inputs.snapshot,)
        taken = graph.convert_consumed(firing.inputs.consumed) if graph.converts_inputs else firing.inputs.consumed
        consumed = [(self._names[index], boundary) for index, boundary in taken]
        facts = {"reactor": self._reactor, "graph": graph.name, "firing": self._firing_id(firing.series, firing.number)}
        log = FieldLogger(logger, facts)
        context = FiringContext(graph.name, lambda: self._firing_id(firing.series, firing.number), consumed, log)
        return firing.inputs.snapshot, context
