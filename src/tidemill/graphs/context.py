"""The context of a firing, as nodes see it."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from tidemill.annotations.context import Context
from tidemill.graphs.inputs import SourceBoundary
from tidemill.telemetry.log_fields import FieldLogger

logger = logging.getLogger("tidemill.graph")


class ContextOrigin(msgspec.Struct, frozen=True):
    """What the contexts of all firings of one graph have in common."""

    graph: str
    names: Sequence[str]
    """Of the graph's inputs."""
    format_id: Callable[[str, int], str]
    """Returns the id of a firing, from its series and number."""
    convert: Callable[[list[SourceBoundary]], list[SourceBoundary]] | None = None
    """Converts boundaries to the graph's own classes; None if they are the same."""
    reactor: str | None = None
    """None in a direct call."""


class FiringContext(Context):
    """The firing that a node runs in. It keeps what it is given, and computes its members when a node reads them."""

    __slots__ = ("_boundaries", "_number", "_origin", "_series", "key")

    def __init__(
        self, origin: ContextOrigin, series: str, number: int, boundaries: list[SourceBoundary], key: Any = None
    ) -> None:
        self._origin = origin
        self._series = series
        self._number = number
        self._boundaries = boundaries
        self.key = key  # type: ignore[misc]  # our own slot hides the property

    @property
    def graph(self) -> str:
        """The graph's name."""
        return self._origin.graph

    @property
    def log(self) -> FieldLogger:  # type: ignore[override]  # read-only
        """A logger that adds reactor, graph and firing to each record."""
        origin = self._origin
        fields = {"graph": origin.graph}
        if origin.reactor is not None:
            fields = {"reactor": origin.reactor, **fields, "firing": self.firing_id}
        return FieldLogger(logger, fields)

    @property
    def consumed(self) -> list[tuple[str, Any]]:
        """The boundaries that led to this firing, as (source, boundary) in the order of arrival; a new list."""
        origin, boundaries = self._origin, self._boundaries
        if origin.convert is not None:
            boundaries = origin.convert(boundaries)
        return [(origin.names[index], boundary) for index, boundary in boundaries]

    @property
    def firing_id(self) -> str:
        """The firing's id; it stays the same when the firing is retried."""
        return self._origin.format_id(self._series, self._number)
