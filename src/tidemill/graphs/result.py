"""What comes back: the result of one graph, of one firing, of one push; and the letters nobody could deliver.

Results are kept as the compiled function returned them, one value per node, and become names and dicts only when
somebody looks: a firing that nobody looks at costs one tuple.
"""

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, Literal

import msgspec

from tidemill.kernel.errors import OperationError


class Skipped:
    """The mark of a node that did not run."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "SKIPPED"


SKIPPED = Skipped()


class NodeError(OperationError):
    """A node raised: which one, and what."""

    def __init__(self, node: str, cause: BaseException) -> None:
        super().__init__(f"node '{node}' failed: {type(cause).__name__}: {cause}")
        self.node = node
        self.cause = cause
        self.__cause__ = cause


class Shape(msgspec.Struct, frozen=True):
    """How to read the raw values of a compiled graph: the node behind each position, and which are terminal."""

    names: tuple[str, ...]
    terminals: frozenset[str]


class GraphResult(msgspec.Struct, frozen=True, eq=False):
    """What one graph did in one call."""

    shape: Shape
    values: tuple[Any, ...]
    error: NodeError | None = None

    @property
    def ok(self) -> bool:
        """Whether every node that was due ran without an error."""
        return self.error is None

    @property
    def outputs(self) -> dict[str, Any]:
        """The results of the terminal nodes that ran, by name."""
        terminals = self.shape.terminals
        return {name: value for name, value in self._pairs() if name in terminals}

    @property
    def ran(self) -> tuple[str, ...]:
        """The nodes that ran to their end, in the order of the graph."""
        return tuple(name for name, _ in self._pairs())

    @property
    def skipped(self) -> tuple[str, ...]:
        """The nodes that did not run: behind an untaken branch, or after an error."""
        values = zip(self.shape.names, self.values, strict=True)
        failed = self.error.node if self.error else None
        return tuple(name for name, value in values if value is SKIPPED and name != failed)

    def _pairs(self) -> Iterator[tuple[str, Any]]:
        for name, value in zip(self.shape.names, self.values, strict=True):
            if value is not SKIPPED:
                yield name, value

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


def plain(value: Any, by: Callable[[Any], Any] = repr) -> Any:
    """Return a value as JSON-able builtins; what msgspec does not know is described by `by`."""
    try:
        return msgspec.to_builtins(value, enc_hook=by, str_keys=True)
    except (TypeError, ValueError, RecursionError):
        return by(value)
