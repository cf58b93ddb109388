"""The layout of the tuple that a compiled graph returns.

A graph's function returns as little as it can: the values of the nodes that a reader may ask for, then the class of
each routed value. The nodes that ran follow from those classes, and are computed only when they are read.
"""

from collections.abc import Collection, Iterator, Sequence
from itertools import takewhile
from typing import Any

import msgspec

from tidemill.graphs.routes import Guard, GuardTest, RouteTest


class ResultLayout(msgspec.Struct, frozen=True, kw_only=True):
    """The layout of a graph's raw values: one per returned node, then one class per routed value."""

    names: tuple[str, ...]
    returned: tuple[str, ...]
    routed: tuple[str, ...]
    terminals: frozenset[str]
    guards: dict[str, Guard]
    """By node. Nothing here refers to author code: results, and so layouts, outlive the versions they come from."""
    variant_suffix: str
    """The suffix of the local names that hold the class of a routed value."""
    task_suffix: str
    """The suffix of the local names that hold a node's task."""

    def find_ran(self, values: Sequence[Any]) -> tuple[str, ...]:
        """Return the nodes that ran, in the order of the graph."""
        return self._find_ran(dict(zip(self.routed, values[len(self.returned) :], strict=True)))

    def finished_values(self, frame_locals: dict[str, Any], failed: str | None) -> Iterator[tuple[str, Any]]:
        """Yield the nodes that ended before an error, with their values, from the interrupted function's locals."""
        ran = self._find_ran({name: frame_locals.get(f"{name}{self.variant_suffix}") for name in self.routed})
        locals_of_tasks = {name: frame_locals.get(f"{name}{self.task_suffix}") for name in self.names}
        tasks: dict[str, Any] = {name: one for name, one in locals_of_tasks.items() if hasattr(one, "cancelled")}
        for name in takewhile(lambda name: name != failed, ran):
            if name not in tasks and name in frame_locals:
                yield name, frame_locals[name]
        for name, task in tasks.items():
            if task.done() and not task.cancelled() and task.exception() is None:
                yield name, task.result()

    def _find_ran(self, classes: dict[str, Any]) -> tuple[str, ...]:
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
    """Return a suffix like the preferred one that turns none of these names into another."""
    while any(f"{name}{preferred}" in names for name in names):
        preferred += "_"
    return preferred
