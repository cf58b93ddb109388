"""How to read what a compiled graph returned.

A graph's function returns as little as it can: the values of the nodes that somebody may ask for, then the class of
each routed value. Which nodes ran follows from those classes, and is worked out only when somebody looks.
"""

from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from tidemill.graphs.routes import Guard, GuardTest, RouteTest


class ResultLayout(msgspec.Struct, frozen=True, kw_only=True):
    """The layout of a graph's raw values: one per kept node, then one class per routed value."""

    names: tuple[str, ...]
    returned: tuple[str, ...]
    routed: tuple[str, ...]
    terminals: frozenset[str]
    guards: dict[str, Guard]
    """By node. Nothing here leads to authors' code: results, and so shapes, outlive the versions that they are of."""

    variant_suffix: str  # how the local names end that hold the class of a routed value
    task_suffix: str  # how the local names end that hold a node's strand

    def find_ran(self, values: Sequence[Any]) -> tuple[str, ...]:
        """Return the nodes that ran, in the order of the graph."""
        classes = dict(zip(self.routed, values[len(self.returned) :], strict=True))
        ran: dict[str, None] = {}
        for name in self.names:
            if all(self._holds(test, classes, ran) for test in self.guards[name]):
                ran[name] = None
        return tuple(ran)

    def _holds(self, test: GuardTest, classes: dict[str, Any], ran: dict[str, None]) -> bool:
        if isinstance(test, RouteTest):
            return classes[test.source] in test.classes
        live = (edge for edge in test.edges if edge.source in ran)
        return any(edge.admitted is None or classes[edge.source] in edge.admitted for edge in live)


def unused_suffix(names: Collection[str], preferred: str) -> str:
    """Return an ending like this one that makes none of these names from another."""
    while any(f"{name}{preferred}" in names for name in names):
        preferred += "_"
    return preferred
