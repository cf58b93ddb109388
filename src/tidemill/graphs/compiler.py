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

from tidemill.graphs.emission import Draft, write
from tidemill.graphs.inputs import Entry
from tidemill.graphs.result import SKIPPED, GraphResult, NodeError
from tidemill.graphs.shape import Shape
from tidemill.graphs.wired import Wiring

_serial = count(1)


class Routine(msgspec.Struct, frozen=True, kw_only=True, eq=False):
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
                node = node or self.lines.get(trace.tb_lineno)  # the outermost, should a node call its own graph
                seen = seen or trace.tb_frame.f_locals
            trace = trace.tb_next
        return node, seen


class Compiled(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A graph ready to run: its function, and what is needed to read its results and errors."""

    wiring: Wiring
    routine: Routine
    shape: Shape
    needs: tuple[int, ...]
    feeds: tuple[tuple[int, str], ...]
    is_async: bool
    needs_context: bool
    converts: bool
    """Whether some input is of another package's class until the graph has it."""

    @property
    def name(self) -> str:
        """The graph's name."""
        return self.wiring.name

    @property
    def function(self) -> Callable[..., Any]:
        """The generated function."""
        return self.routine.function

    def called(self, name: str) -> "Compiled":
        """Return the same graph under the name by which its reactor knows it."""
        return self if name == self.name else replace(self, wiring=replace(self.wiring, name=name))

    def has_all(self, inputs: list[Any]) -> bool:
        """Return whether every required input is there."""
        return None not in [inputs[index] for index in self.needs]

    def missing(self, inputs: list[Any]) -> list[str]:
        """Return the names of required inputs that are not there."""
        return [self.wiring.inputs[index].name for index in self.needs if inputs[index] is None]

    def own(self, consumed: list[Entry]) -> list[Entry]:
        """Return boundaries as the graph's own."""
        inputs = self.wiring.inputs
        return [(index, value if (own := inputs[index].own) is None else own(value)) for index, value in consumed]

    def failed(self, error: BaseException, routine: Routine | None = None) -> GraphResult:
        """Read a call that raised: which node it was, and what had run before."""
        node, seen = (routine or self.routine).trace(error)
        finished = {name: value for name, value in self._settled(seen, node) if value is not SKIPPED}
        return GraphResult(self.shape, (), NodeError(node or self.name, error), finished)

    def _settled(self, seen: dict[str, Any], failed: str | None) -> Iterator[tuple[str, Any]]:
        """Yield the nodes that ended before an error, with their values, from the locals it interrupted."""
        classes = [seen.get(f"{name}{self.shape.kind}", SKIPPED) for name in self.shape.routed]
        reached = self.shape.ran([*(None for _ in self.shape.kept), *classes])
        before = takewhile(lambda name: name != failed, reached)
        strands = [name for name in self.shape.names if hasattr(seen.get(f"{name}{self.shape.strand}"), "cancelled")]
        for name in before:
            if name not in strands and name in seen:
                yield name, seen[name]
        for name in strands:
            strand = seen[f"{name}{self.shape.strand}"]
            if strand.done() and not strand.cancelled() and strand.exception() is None:
                yield name, strand.result()


def compile_graph(wiring: Wiring) -> Compiled:
    """Write and compile the function of a wired graph."""
    draft = write(wiring)
    shape = draft.shape
    fed = [(one.name, one.node.feeds.name) for one in wiring.nodes if one.node.feeds is not None]
    return Compiled(
        wiring=wiring,
        routine=Routine.build(draft, wiring.name),
        shape=shape,
        needs=tuple(index for index, one in enumerate(wiring.inputs) if one.required),
        feeds=tuple((shape.kept.index(name), window) for name, window in fed),
        is_async=wiring.is_async,
        needs_context=wiring.needs_context,
        converts=any(one.own is not None for one in wiring.inputs),
    )
