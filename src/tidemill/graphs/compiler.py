"""From a wired graph to one Python function: source that a person can read, compiled once.

The function takes the reactor's inputs as one list and returns the values that a reader may ask for (see
`result_layout`). Routes become nested ifs on the class of the routed value; nothing is looked up or walked per event.
There are two bodies to write:

* sequential: nodes in topological order, awaited one by one if they must be. Blocks with the same route tests are kept
  together, so an untaken branch costs one comparison.
* concurrent: only when nodes that must be awaited do not depend on each other. Then each of them, and all behind them,
  becomes a task: a small coroutine that awaits the tasks it needs.

A node's error is not caught here. The line it passed through tells which node it was, so success costs nothing.
"""

import linecache
import weakref
from collections.abc import Callable
from itertools import count
from types import TracebackType
from typing import Any

import msgspec
from msgspec.structs import replace

from tidemill.graphs.codegen import GeneratedSource, write_graph_function
from tidemill.graphs.feeds import Feed
from tidemill.graphs.inputs import SourceBoundary
from tidemill.graphs.result import SKIPPED, GraphResult, NodeError
from tidemill.graphs.result_layout import ResultLayout
from tidemill.graphs.wiring_model import Wiring

_serial = count(1)


class GeneratedFunction(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A generated function with its source; finds the node of an error that passed through it."""

    function: Callable[..., Any]
    source: str
    file: str
    node_by_line: dict[int, str]

    @classmethod
    def build(cls, generated: GeneratedSource, title: str) -> "GeneratedFunction":
        """Compile generated source, and let tracebacks quote it as long as the function exists."""
        file = f"<graph {title} {next(_serial)}>"
        namespace: dict[str, Any] = dict(generated.namespace)
        exec(compile(generated.source, file, "exec"), namespace)
        function = namespace[generated.function_name]
        linecache.cache[file] = (len(generated.source), None, generated.source.splitlines(keepends=True), file)
        weakref.finalize(function, linecache.cache.pop, file, None)
        return cls(function=function, source=generated.source, file=file, node_by_line=generated.node_by_line)

    def locate_error(self, error: BaseException) -> tuple[str | None, dict[str, Any]]:
        """Return the node that an error came from, and the locals of the interrupted function."""
        node: str | None = None
        frame_locals: dict[str, Any] = {}
        trace: TracebackType | None = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == self.file:
                node = node or self.node_by_line.get(trace.tb_lineno)  # the outermost, should a node call its own graph
                frame_locals = frame_locals or trace.tb_frame.f_locals
            trace = trace.tb_next
        return node, frame_locals


class CompiledGraph(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A graph ready to run: its function, and the layout and lines to read its results and errors with."""

    wiring: Wiring
    generated: GeneratedFunction
    layout: ResultLayout
    required_indexes: tuple[int, ...]
    window_feeds: tuple[tuple[int, str], ...]
    """The positions of results that are appended to windows of the reactor itself, with their names."""
    feeds: tuple[Feed, ...]
    """The results that are pushed into other accumulators."""
    is_async: bool
    needs_context: bool
    converts_inputs: bool
    """Whether some input arrives as another package's class and is converted to the graph's own."""

    @property
    def name(self) -> str:
        """The graph's name."""
        return self.wiring.name

    @property
    def function(self) -> Callable[..., Any]:
        """The generated function."""
        return self.generated.function

    def with_name(self, name: str) -> "CompiledGraph":
        """Return the same graph under the name that its reactor uses."""
        return self if name == self.name else replace(self, wiring=replace(self.wiring, name=name))

    def has_required_inputs(self, inputs: list[Any]) -> bool:
        """Return whether every required input has a value."""
        return None not in [inputs[index] for index in self.required_indexes]

    def missing_inputs(self, inputs: list[Any]) -> list[str]:
        """Return the names of required inputs without a value."""
        return [self.wiring.inputs[index].name for index in self.required_indexes if inputs[index] is None]

    def convert_consumed(self, consumed: list[SourceBoundary]) -> list[SourceBoundary]:
        """Return boundaries converted to the graph's own classes."""
        inputs = self.wiring.inputs
        return [(index, value if (own := inputs[index].convert) is None else own(value)) for index, value in consumed]

    def failed_result(self, error: BaseException, generated: GeneratedFunction | None = None) -> GraphResult:
        """Return the result of a call that raised: the node that failed, and the values of those that ran before.

        `generated` is the function that was called, if it is not the graph's own.
        """
        node, frame_locals = (generated or self.generated).locate_error(error)
        values = self.layout.finished_values(frame_locals, node)
        finished = {name: value for name, value in values if value is not SKIPPED}
        return GraphResult(self.layout, (), NodeError(node or self.name, error), finished)


def compile_graph(wiring: Wiring) -> CompiledGraph:
    """Write and compile the function of a wired graph."""
    source = write_graph_function(wiring)
    layout = source.layout
    own_windows = {one.name for one in wiring.inputs if one.is_window}
    feeds = [
        Feed(one.node, name, layout.returned.index(one.name))
        for one in wiring.nodes
        if (name := one.node.fed_accumulator) is not None
    ]
    return CompiledGraph(
        wiring=wiring,
        generated=GeneratedFunction.build(source, wiring.name),
        layout=layout,
        required_indexes=tuple(index for index, one in enumerate(wiring.inputs) if one.required),
        window_feeds=tuple((one.position, one.accumulator) for one in feeds if one.accumulator in own_windows),
        feeds=tuple(one for one in feeds if one.accumulator not in own_windows),
        is_async=wiring.is_async,
        needs_context=wiring.needs_context,
        converts_inputs=any(one.convert is not None for one in wiring.inputs),
    )
