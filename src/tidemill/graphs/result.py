"""Results of graphs and firings.

Results are kept as the compiled function returned them, and become names and dicts only when they are read: a firing
whose result is never read costs one tuple.
"""

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, overload

import msgspec

from tidemill.graphs.outcomes import GraphNode, find_output, to_jsonable
from tidemill.graphs.result_layout import ResultLayout
from tidemill.kernel.author_errors import TRACEBACK_LIMIT, describe, format_traceback, shorten
from tidemill.kernel.errors import OperationError
from tidemill.telemetry.log_records import LogRecord

Output = TypeVar("Output")


class SkippedMarker:
    """Marks a node that did not run."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "SKIPPED"


SKIPPED = SkippedMarker()


class NodeError(OperationError):
    """A node raised an error."""

    def __init__(self, node: str, cause: BaseException) -> None:
        super().__init__(f"node '{node}' failed: {describe(cause)}")
        self.node = node
        self.cause = cause
        self.__cause__ = cause

    @cached_property
    def traceback(self) -> str:
        """Where it was raised: in the generated function, and in the author's code."""
        return shorten(format_traceback(self.cause), TRACEBACK_LIMIT)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.node, self.cause)


class PlainNodeError(NodeError):
    """The error of a node whose code is elsewhere, or is replaced: its message and its traceback are text."""

    def __init__(self, node: str, message: str, traceback: str) -> None:
        OperationError.__init__(self, message)
        self.node = node
        self.cause = OperationError(message)
        self.__dict__["traceback"] = traceback

    @classmethod
    def of(cls, error: NodeError) -> "PlainNodeError":
        """Return an error as text."""
        return cls(error.node, str(error), error.traceback)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.node, str(self), self.traceback)


class GraphResult(msgspec.Struct, frozen=True, eq=False):
    """The result of one call of a graph."""

    layout: ResultLayout
    values: tuple[Any, ...]
    error: NodeError | None = None
    finished: dict[str, Any] | None = None
    """After an error: the values of the nodes that had ended."""

    @property
    def ok(self) -> bool:
        """Whether every node that was due ran without an error."""
        return self.error is None

    @property
    def outputs(self) -> dict[str, Any]:
        """The results of the terminal nodes that ran, by name."""
        layout = self.layout
        if self.finished is not None:
            return {name: value for name, value in self.finished.items() if name in layout.terminals}
        ran = set(layout.find_ran(self.values))
        returned = zip(layout.returned, self.values, strict=False)
        return {name: value for name, value in returned if name in layout.terminals and name in ran}

    @overload
    def output(self, node: Callable[..., Awaitable[Output]], /) -> Output: ...
    @overload
    def output(self, node: Callable[..., Output], /) -> Output: ...
    @overload
    def output(self, node: GraphNode | str, /) -> Any: ...
    def output(self, node: Any, /) -> Any:
        """Return what a terminal node returned. Name it by its function: type checkers know the type then.

        `maker.place` names the graph too, where several have a node of this name; type checkers see `Any`. A name,
        "place", does as well.
        """
        return find_output({"": self}, node, "the result")

    @property
    def ran(self) -> tuple[str, ...]:
        """The nodes that ran to their end, in the order of the graph."""
        return self.layout.find_ran(self.values) if self.finished is None else tuple(self.finished)

    @property
    def skipped(self) -> tuple[str, ...]:
        """The nodes that did not run: behind an untaken branch, or after an error."""
        ran = {*self.ran, *([self.error.node] if self.error else [])}
        return tuple(name for name in self.layout.names if name not in ran)

    def __repr__(self) -> str:
        return f"GraphResult(outputs={self.outputs!r}, skipped={self.skipped!r}, error={self.error!r})"


if TYPE_CHECKING:

    class GraphCall(GraphResult, frozen=True):
        """What a call of a graph returns: the result, or an awaitable of it if a node is async.

        Nothing of this is known before the graph is built, so type checkers allow both.
        """

        def __await__(self) -> Generator[Any, Any, GraphResult]: ...


def plain_result(
    outputs: Mapping[str, Any], ran: Sequence[str], skipped: Sequence[str], error: PlainNodeError | None
) -> GraphResult:
    """Return a result that was read already: it refers to no code of its graph."""
    failed = () if error is None else (error.node,)
    layout = ResultLayout(
        names=(*ran, *failed, *skipped),
        returned=(),
        routed=(),
        terminals=frozenset(outputs),
        guards={},
        variant_suffix="",
        task_suffix="",
    )
    return GraphResult(layout, (), error, {name: outputs.get(name) for name in ran})


class Firing(msgspec.Struct, frozen=True, eq=False):
    """One firing of a reactor: the snapshot it saw and the result of each graph."""

    id: str
    reactor: str
    at: datetime
    inputs: dict[str, Any]
    results: dict[str, GraphResult]
    duration: float
    manual: bool = False
    degraded: bool = False
    attempt: int = 1
    key: Any = None
    """The key whose inputs it saw; None if the reactor has no `key=`."""
    log: list[LogRecord] = []
    """What its nodes printed, logged and warned about."""

    @property
    def ok(self) -> bool:
        """Whether every graph that was called succeeded."""
        return all(result.ok for result in self.results.values())

    @overload
    def output(self, node: Callable[..., Awaitable[Output]], /) -> Output: ...
    @overload
    def output(self, node: Callable[..., Output], /) -> Output: ...
    @overload
    def output(self, node: GraphNode | str, /) -> Any: ...
    def output(self, node: Any, /) -> Any:
        """Return what a terminal node returned. Name it by its function: type checkers know the type then.

        `maker.place` names the graph too, where several have a node of this name; type checkers see `Any`. A name,
        "place", does as well.
        """
        return find_output(self.results, node, f"firing {self.id}")


_ATOMS = frozenset({bool, float, int, str, type(None)})


class PlainValues:
    """Converts values and results to plain ones, each value once: what firings share stays shared."""

    def __init__(self) -> None:
        self._plain: dict[int, Any] = {}  # by the id of the value
        self._originals: list[Any] = []  # they keep their ids as long as they are here

    def convert(self, value: Any) -> Any:
        """Return a value as JSON-able builtins; lists, such as the contents of windows, share their elements."""
        if type(value) in _ATOMS:
            return value
        if id(value) not in self._plain:
            self._add(value, self._convert_elements(value) if type(value) is list else to_jsonable(value))
        return self._plain[id(value)]

    def _convert_elements(self, elements: list[Any]) -> list[Any]:
        for one in [one for one in elements if id(one) not in self._plain]:
            self._add(one, to_jsonable(one))
        return [*map(self._plain.__getitem__, map(id, elements))]

    def _add(self, value: Any, plain: Any) -> None:
        self._plain[id(value)] = plain
        self._originals.append(value)

    def convert_result(self, result: GraphResult) -> GraphResult:
        """Return a result that holds nothing of its graph's code."""
        outputs = {name: self.convert(value) for name, value in result.outputs.items()}
        error = None if result.error is None else PlainNodeError.of(result.error)
        return plain_result(outputs, result.ran, result.skipped, error)
