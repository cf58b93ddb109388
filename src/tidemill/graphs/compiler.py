"""From a wired graph to one Python function: source that a person can read, compiled once.

The function takes the reactor's inputs as one list and returns what somebody may ask for (see `shape`). Routes become
nested ifs on the class of the routed value; nothing is looked up or walked per event. There are two bodies to write:

* straight: nodes in topological order, awaited one by one if they must be. Blocks that ask the same route tests
  are kept together, so an untaken branch costs one comparison.
* strands: only when nodes that must be awaited do not depend on each other. Then each of them, and all behind them,
  becomes a small coroutine that waits for the strands it needs.

A node's error is not caught here. The line it passed through tells which node it was, so success costs nothing.
"""

import linecache
import weakref
from collections.abc import Callable, Iterator
from itertools import count, takewhile
from types import TracebackType
from typing import Any

import msgspec
from msgspec.structs import replace

from tidemill.graphs.codegen import GeneratedSource, write_graph_function
from tidemill.graphs.inputs import SourceBoundary
from tidemill.graphs.result import SKIPPED, GraphResult, NodeError
from tidemill.graphs.result_layout import ResultLayout
from tidemill.graphs.wiring_model import Wiring

_serial = count(1)


class GeneratedFunction(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A generated function with its source, and how to read an error that passed through it."""

    function: Callable[..., Any]
    source: str
    file: str
    node_by_line: dict[int, str]

    @classmethod
    def build(cls, generated: GeneratedSource, title: str) -> "GeneratedFunction":
        """Compile a draft, and let tracebacks quote it for as long as the function lives."""
        file = f"<graph {title} {next(_serial)}>"
        namespace: dict[str, Any] = dict(generated.namespace)
        exec(compile(generated.source, file, "exec"), namespace)
        function = namespace[generated.function_name]
        linecache.cache[file] = (len(generated.source), None, generated.source.splitlines(keepends=True), file)
        weakref.finalize(function, linecache.cache.pop, file, None)
        return cls(function=function, source=generated.source, file=file, node_by_line=generated.node_by_line)

    def locate_error(self, error: BaseException) -> tuple[str | None, dict[str, Any]]:
        """Return the node an error came from, and the locals of the function it interrupted."""
        node: str | None = None
        seen: dict[str, Any] = {}
        trace: TracebackType | None = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == self.file:
                node = node or self.node_by_line.get(trace.tb_lineno)  # the outermost, should a node call its own graph
                seen = seen or trace.tb_frame.f_locals
            trace = trace.tb_next
        return node, seen


class CompiledGraph(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A graph ready to run: its function, and what is needed to read its results and errors."""

    wiring: Wiring
    generated: GeneratedFunction
    layout: ResultLayout
    required_indexes: tuple[int, ...]
    window_feeds: tuple[tuple[int, str], ...]
    is_async: bool
    needs_context: bool
    converts_inputs: bool
    """Whether some input is of another package's class until the graph has it."""

    @property
    def name(self) -> str:
        """The graph's name."""
        return self.wiring.name

    @property
    def function(self) -> Callable[..., Any]:
        """The generated function."""
        return self.generated.function

    def with_name(self, name: str) -> "CompiledGraph":
        """Return the same graph under the name by which its reactor knows it."""
        return self if name == self.name else replace(self, wiring=replace(self.wiring, name=name))

    def has_required_inputs(self, inputs: list[Any]) -> bool:
        """Return whether every required input is there."""
        return None not in [inputs[index] for index in self.required_indexes]

    def missing_inputs(self, inputs: list[Any]) -> list[str]:
        """Return the names of required inputs that are not there."""
        return [self.wiring.inputs[index].name for index in self.required_indexes if inputs[index] is None]

    def convert_consumed(self, consumed: list[SourceBoundary]) -> list[SourceBoundary]:
        """Return boundaries as the graph's own."""
        inputs = self.wiring.inputs
        return [(index, value if (own := inputs[index].convert) is None else own(value)) for index, value in consumed]

    def failed_result(self, error: BaseException, generated: GeneratedFunction | None = None) -> GraphResult:
        """Read a call that raised: which node it was, and what had run before."""
        node, seen = (generated or self.generated).locate_error(error)
        finished = {name: value for name, value in self._finished_nodes(seen, node) if value is not SKIPPED}
        return GraphResult(self.layout, (), NodeError(node or self.name, error), finished)

    def _finished_nodes(self, frame_locals: dict[str, Any], failed: str | None) -> Iterator[tuple[str, Any]]:
        """Yield the nodes that ended before an error, with their values, from the locals it interrupted."""
        classes = [frame_locals.get(f"{name}{self.layout.variant_suffix}", SKIPPED) for name in self.layout.routed]
        reached = self.layout.find_ran([*(None for _ in self.layout.returned), *classes])
        before = takewhile(lambda name: name != failed, reached)
        strands = [
            name
            for name in self.layout.names
            if hasattr(frame_locals.get(f"{name}{self.layout.task_suffix}"), "cancelled")
        ]
        for name in before:
            if name not in strands and name in frame_locals:
                yield name, frame_locals[name]
        for name in strands:
            strand = frame_locals[f"{name}{self.layout.task_suffix}"]
            if strand.done() and not strand.cancelled() and strand.exception() is None:
                yield name, strand.result()


def compile_graph(wiring: Wiring) -> CompiledGraph:
    """Write and compile the function of a wired graph."""
    draft = write_graph_function(wiring)
    shape = draft.layout
    fed = [(one.name, one.node.feeds.name) for one in wiring.nodes if one.node.feeds is not None]
    return CompiledGraph(
        wiring=wiring,
        generated=GeneratedFunction.build(draft, wiring.name),
        layout=shape,
        required_indexes=tuple(index for index, one in enumerate(wiring.inputs) if one.required),
        window_feeds=tuple((shape.returned.index(name), window) for name, window in fed),
        is_async=wiring.is_async,
        needs_context=wiring.needs_context,
        converts_inputs=any(one.convert is not None for one in wiring.inputs),
    )
