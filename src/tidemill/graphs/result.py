"""What comes back: the result of one graph, of one firing, of one push; and the letters nobody could deliver.

Results are kept as the compiled function returned them, and become names and dicts only when somebody looks: a firing
that nobody looks at costs one tuple.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Literal

import msgspec

from tidemill.graphs.result_layout import ResultLayout
from tidemill.kernel.author_errors import describe
from tidemill.kernel.errors import OperationError


class SkippedMarker:
    """The mark of a node that did not run."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "SKIPPED"


SKIPPED = SkippedMarker()


class NodeError(OperationError):
    """A node raised: which one, and what."""

    def __init__(self, node: str, cause: BaseException) -> None:
        super().__init__(f"node '{node}' failed: {describe(cause)}")
        self.node = node
        self.cause = cause
        self.__cause__ = cause

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.node, self.cause)


class GraphResult(msgspec.Struct, frozen=True, eq=False):
    """What one graph did in one call."""

    layout: ResultLayout
    values: tuple[Any, ...]
    error: NodeError | None = None
    finished: dict[str, Any] | None = None  # after an error: the nodes that had run, and what they returned

    @property
    def ok(self) -> bool:
        """Whether every node that was due ran without an error."""
        return self.error is None

    @property
    def outputs(self) -> dict[str, Any]:
        """The results of the terminal nodes that ran, by name."""
        shape = self.layout
        if self.finished is not None:
            return {name: value for name, value in self.finished.items() if name in shape.terminals}
        ran = set(shape.find_ran(self.values))
        kept = zip(shape.returned, self.values, strict=False)
        return {name: value for name, value in kept if name in shape.terminals and name in ran}

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


class Receipt(msgspec.Struct, frozen=True):
    """What became of a pushed event."""

    accepted: bool
    sequence: int
    outcome: Literal["emitted", "suppressed", "buffered", "rejected", "dead_lettered"]
    reason: str | None = None


class Firing(msgspec.Struct, frozen=True, eq=False):
    """One firing of a reactor: the snapshot it saw and what each graph made of it."""

    id: str
    reactor: str
    at: datetime
    inputs: dict[str, Any]
    results: dict[str, GraphResult]
    duration: float
    manual: bool = False
    degraded: bool = False
    attempt: int = 1

    @property
    def ok(self) -> bool:
        """Whether every graph that was called succeeded."""
        return all(result.ok for result in self.results.values())


class DeadLetter(msgspec.Struct, frozen=True):
    """An event or a firing that could not be dealt with, kept to be looked at and replayed."""

    id: str
    kind: Literal["event", "firing"]
    source: str
    at: datetime
    error: str
    event: Any = None
    inputs: dict[str, Any] | None = None
    attempts: int = 1


def to_jsonable(value: Any, describe_unknown: Callable[[Any], Any] = repr) -> Any:
    """Return a value as JSON-able builtins; what msgspec does not know is described by `by`."""
    try:
        return msgspec.to_builtins(value, enc_hook=describe_unknown, str_keys=True)
    except Exception:  # author code: a value may be of any class, and its repr may raise
        return f"<{type(value).__name__}>"
