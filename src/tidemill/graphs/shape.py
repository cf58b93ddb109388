"""How to read what a compiled graph returned.

A graph's function returns as little as it can: the values of the nodes that somebody may ask for, then the class of
each routed value. Which nodes ran follows from those classes, and is worked out only when somebody looks.
"""

from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from tidemill.graphs.routes import Guard, RouteTest, Test


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """The layout of a graph's raw values: one per kept node, then one class per routed value."""

    names: tuple[str, ...]
    kept: tuple[str, ...]
    routed: tuple[str, ...]
    terminals: frozenset[str]
    guards: dict[str, Guard]
    """By node. Nothing here leads to authors' code: results, and so shapes, outlive the versions that they are of."""

    kind: str  # how the local names end that hold the class of a routed value
    strand: str  # how the local names end that hold a node's strand

    def ran(self, values: Sequence[Any]) -> tuple[str, ...]:
        """Return the nodes that ran, in the order of the graph."""
        classes = dict(zip(self.routed, values[len(self.kept) :], strict=True))
        ran: dict[str, None] = {}
        for name in self.names:
            if all(self._holds(test, classes, ran) for test in self.guards[name]):
                ran[name] = None
        return tuple(ran)

    def _holds(self, test: Test, classes: dict[str, Any], ran: dict[str, None]) -> bool:
        if isinstance(test, RouteTest):
            return classes[test.source] in test.classes
        live = (edge for edge in test.edges if edge.source in ran)
        return any(edge.admitted is None or classes[edge.source] in edge.admitted for edge in live)


def free_ending(names: Collection[str], wanted: str) -> str:
    """Return an ending like this one that makes none of these names from another."""
    while any(f"{name}{wanted}" in names for name in names):
        wanted += "_"
    return wanted
