"""One firing on its way: what it took, which graphs it calls, and what came of each."""

import logging
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from tidemill.graphs.compiler import Compiled
from tidemill.graphs.context import FiringContext
from tidemill.graphs.inputs import Taken
from tidemill.graphs.result import GraphResult
from tidemill.kernel.author_errors import AUTHOR_ERRORS, is_cut_off
from tidemill.kernel.concurrency import Strands
from tidemill.telemetry.fields import FieldsLog

logger = logging.getLogger("tidemill.graph")


class Due(msgspec.Struct, frozen=True):
    """A firing that is to happen, or to happen again."""

    series: str
    number: int
    taken: Taken
    graphs: list[Compiled]
    manual: bool = False
    attempt: int = 1
    only: tuple[str, ...] = ()
    """The graphs that are to be tried again; on the first attempt, all that are ready."""


class Caller:
    """Calls the graphs of a reactor for one firing, and reads what comes back."""

    def __init__(self, reactor: str, names: tuple[str, ...], firing_id: Callable[[str, int], str]) -> None:
        self._reactor = reactor
        self._names = names
        self._firing_id = firing_id

    def call(self, due: Due) -> dict[str, GraphResult]:
        """Call synchronous graphs one after the other; one failing does not stop the next."""
        return self._call(due.graphs, due)

    def _call(self, graphs: Iterable[Compiled], due: Due) -> dict[str, GraphResult]:
        results = {}
        for graph in graphs:
            try:
                results[graph.name] = GraphResult(graph.shape, graph.function(*self._arguments(graph, due)))
            except AUTHOR_ERRORS as error:
                results[graph.name] = graph.failed(error)
        return results

    async def call_async(self, due: Due) -> dict[str, GraphResult]:
        """Call graphs of which some must be awaited; those run at the same time."""
        waiting = [graph for graph in due.graphs if graph.is_async]
        results = self._call((graph for graph in due.graphs if not graph.is_async), due)
        if not waiting:
            return results
        if len(waiting) == 1:
            results[waiting[0].name] = await self._await_one(waiting[0], due)
        else:
            async with Strands() as strands:
                tasks = {one.name: strands.start(one.name, self._await_one(one, due)) for one in waiting}
            results |= {name: task.result() for name, task in tasks.items()}
        return {graph.name: results[graph.name] for graph in due.graphs}

    async def _await_one(self, graph: Compiled, due: Due) -> GraphResult:
        try:
            return GraphResult(graph.shape, await graph.function(*self._arguments(graph, due)))
        except AUTHOR_ERRORS as error:
            if is_cut_off(error):
                raise
            return graph.failed(error)

    def _arguments(self, graph: Compiled, due: Due) -> tuple[Any, ...]:
        if not graph.needs_context:
            return (due.taken.snapshot,)
        taken = graph.own(due.taken.consumed) if graph.converts else due.taken.consumed
        consumed = [(self._names[index], boundary) for index, boundary in taken]
        facts = {"reactor": self._reactor, "graph": graph.name, "firing": self._firing_id(due.series, due.number)}
        log = FieldsLog(logger, facts)
        context = FiringContext(graph.name, lambda: self._firing_id(due.series, due.number), consumed, log)
        return due.taken.snapshot, context
