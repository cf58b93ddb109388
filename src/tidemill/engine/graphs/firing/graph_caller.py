"""Pending firings, and the calls of their graphs."""

import logging
from collections.abc import Iterable
from typing import Any

import msgspec

from tidemill.engine.graphs.firing.firing_log import FiringLog
from tidemill.graphs.compiler import CompiledGraph
from tidemill.graphs.context import FiringContext
from tidemill.graphs.inputs import FiringInputs
from tidemill.graphs.result import GraphResult
from tidemill.kernel.author_errors import AUTHOR_ERRORS, is_cancelled_here
from tidemill.kernel.concurrency import FirstErrorGroup
from tidemill.telemetry.log_fields import FieldLogger

logger = logging.getLogger("tidemill.graph")


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

    @property
    def is_repeated(self) -> bool:
        """Whether the firing is repeated after an interruption; a manual one that took no new boundary is not."""
        return not self.manual or self.attempt > 1 or bool(self.inputs.flags)


class GraphCaller:
    """Calls the graphs of a reactor for one firing, and collects their results."""

    def __init__(self, reactor: str, names: tuple[str, ...], log: FiringLog) -> None:
        self._reactor = reactor
        self._names = names
        self._log = log

    def call(self, firing: PendingFiring) -> dict[str, GraphResult]:
        """Call synchronous graphs one after the other; a failing graph does not stop the next."""
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
        """Call graphs of which some are asynchronous; those run concurrently."""
        if len(firing.graphs) == 1 and firing.graphs[0].is_async:
            (graph,) = firing.graphs
            return {graph.name: await self._call_one_async(graph, firing)}
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
            return GraphResult(graph.layout, await graph.function(*self._arguments_for(graph, firing)))
        except AUTHOR_ERRORS as error:
            if is_cancelled_here(error):
                raise
            return graph.failed_result(error)

    def _arguments_for(self, graph: CompiledGraph, firing: PendingFiring) -> tuple[Any, ...]:
        if not graph.needs_context:
            return (firing.inputs.snapshot,)
        boundaries = firing.inputs.consumed
        if graph.converts_inputs:
            boundaries = graph.convert_consumed(boundaries)
        consumed = [(self._names[index], boundary) for index, boundary in boundaries]
        facts = {
            "reactor": self._reactor,
            "graph": graph.name,
            "firing": self._log.firing_id(firing.series, firing.number),
        }
        log = FieldLogger(logger, facts)
        context = FiringContext(graph.name, lambda: self._log.firing_id(firing.series, firing.number), consumed, log)
        return firing.inputs.snapshot, context
