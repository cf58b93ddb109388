"""From a wired graph to one Python function: source that a person can read, compiled once.

The function takes the reactor's inputs as one list and returns one value per node, `SKIPPED` for those that did not
run. Routes become nested ifs on the class of the routed value; nothing is looked up or walked per event. There are
two bodies to write:

* straight: nodes in topological order, awaited one by one if they must be. Blocks that ask the same route tests
  are kept together, so an untaken branch costs one comparison.
* strands: only when nodes that must be awaited do not depend on each other. Then each of them, and all behind them,
  becomes a small coroutine that waits for the strands it needs.

A node's error is not caught here. The line it passed through tells which node it was, so success costs nothing.
"""

import linecache
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from types import TracebackType
from typing import Any

from tidemill.graphs.emission import Draft, write
from tidemill.graphs.result import SKIPPED, GraphResult, NodeError, Shape
from tidemill.graphs.wired import Wiring

_serial = count(1)


@dataclass(frozen=True, kw_only=True, eq=False)
class Routine:
    """A generated function with its source, and how to read an error that passed through it."""

    function: Callable[..., Any]
    source: str
    file: str
    lines: dict[int, str]

    @classmethod
    def build(cls, draft: Draft, title: str) -> "Routine":
        """Compile a draft, and let tracebacks quote it for as long as the function lives."""
        file = f"<graph {title} {next(_serial)}>"
        namespace: dict[str, Any] = dict(draft.namespace)
        exec(compile(draft.source, file, "exec"), namespace)
        function = namespace[draft.function]
        linecache.cache[file] = (len(draft.source), None, draft.source.splitlines(keepends=True), file)
        weakref.finalize(function, linecache.cache.pop, file, None)
        return cls(function=function, source=draft.source, file=file, lines=draft.lines)

    def trace(self, error: BaseException) -> tuple[str | None, dict[str, Any]]:
        """Return the node an error came from, and the locals of the function it interrupted."""
        node: str | None = None
        seen: dict[str, Any] = {}
        trace: TracebackType | None = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == self.file:
                node = self.lines.get(trace.tb_lineno, node)
                seen = seen or trace.tb_frame.f_locals
            trace = trace.tb_next
        return node, seen


@dataclass(frozen=True, kw_only=True, eq=False)
class Compiled:
    """A graph ready to run: its function, and what is needed to read its results and errors."""

    wiring: Wiring
    routine: Routine
    shape: Shape
    needs: tuple[int, ...]
    feeds: tuple[tuple[int, str], ...]
    is_async: bool
    needs_context: bool

    @property
    def name(self) -> str:
        """The graph's name."""
        return self.wiring.name

    @property
    def function(self) -> Callable[..., Any]:
        """The generated function."""
        return self.routine.function

    def has_all(self, inputs: list[Any]) -> bool:
        """Return whether every required input is there."""
        return None not in [inputs[index] for index in self.needs]

    def missing(self, inputs: list[Any]) -> list[str]:
        """Return the names of required inputs that are not there."""
        return [self.wiring.inputs[index].name for index in self.needs if inputs[index] is None]

    def failed(self, error: BaseException, routine: Routine | None = None) -> GraphResult:
        """Read a call that raised: which node it was, and what had run before."""
        node, seen = (routine or self.routine).trace(error)
        values = tuple(_settled(seen, name) for name in self.shape.names)
        return GraphResult(self.shape, values, NodeError(node or self.name, error))


def _settled(seen: dict[str, Any], name: str) -> Any:
    """Return a node's value from the locals of an interrupted function: a value, or a finished strand."""
    strand = seen.get(f"{name}_strand")
    if strand is not None and hasattr(strand, "cancelled"):
        finished = strand.done() and not strand.cancelled() and strand.exception() is None
        return strand.result() if finished else SKIPPED
    return seen.get(name, SKIPPED)


def compile_graph(wiring: Wiring) -> Compiled:
    """Write and compile the function of a wired graph."""
    draft = write(wiring)
    position = {name: index for index, name in enumerate(draft.order)}
    return Compiled(
        wiring=wiring,
        routine=Routine.build(draft, wiring.name),
        shape=Shape(draft.order, wiring.terminals),
        needs=tuple(index for index, one in enumerate(wiring.inputs) if one.required),
        feeds=tuple((position[one.name], one.node.feeds.name) for one in wiring.nodes if one.node.feeds is not None),
        is_async=wiring.is_async,
        needs_context=wiring.needs_context,
    )
