"""The order in which a graph's nodes are written, and whether some of them can wait at the same time."""

from collections.abc import Mapping, Sequence
from heapq import heappop, heappush

from tidemill.graphs.routes import Guard, Routes, RouteTest
from tidemill.graphs.wiring_model import WiredNode, Wiring


def has_parallel_waits(wiring: Wiring, routes: Routes) -> bool:
    """Return whether two nodes that must be awaited can wait at the same time."""
    awaited = [one.name for one in wiring.nodes if one.node.needs_await]
    if len(awaited) < 2:
        return False
    ancestors = find_ancestors(wiring)
    return any(
        one not in ancestors[other]
        and other not in ancestors[one]
        and not _are_exclusive(routes.guards[one], routes.guards[other])
        for index, one in enumerate(awaited)
        for other in awaited[index + 1 :]
    )


def find_ancestors(wiring: Wiring) -> dict[str, set[str]]:
    """Return the nodes that each node depends on, directly or not."""
    ancestors: dict[str, set[str]] = {}
    for one in topological_order(wiring.nodes, {node.name: () for node in wiring.nodes}):
        sources = [edge.source for edge in one.upstream_edges()]
        ancestors[one.name] = set(sources).union(*(ancestors[source] for source in sources))
    return ancestors


def _are_exclusive(one: Guard, other: Guard) -> bool:
    """Return whether two guards require different branches of the same route."""
    required = {test.source: set(test.classes) for test in one if isinstance(test, RouteTest)}
    return any(
        isinstance(test, RouteTest) and test.source in required and not required[test.source] & set(test.classes)
        for test in other
    )


def topological_order(nodes: Sequence[WiredNode], guards: Mapping[str, Guard]) -> list[WiredNode]:
    """Return nodes in topological order, those with the same guard side by side, else as declared."""
    position = {one.name: index for index, one in enumerate(nodes)}
    missing = {one.name: len({edge.source for edge in one.upstream_edges()}) for one in nodes}
    downstream: dict[str, list[WiredNode]] = {one.name: [] for one in nodes}
    for one in nodes:
        for source in {edge.source for edge in one.upstream_edges()}:
            downstream[source].append(one)
    ready: dict[Guard, list[int]] = {}  # by guard, a heap of positions: most nodes share a few guards
    for one in nodes:
        if not missing[one.name]:
            heappush(ready.setdefault(guards[one.name], []), position[one.name])
    ordered: list[WiredNode] = []
    current: Guard = ()
    while ready:
        current = min(ready, key=lambda guard: (-common_prefix_length(current, guard), ready[guard][0]))
        chosen = nodes[heappop(ready[current])]
        if not ready[current]:
            del ready[current]
        ordered.append(chosen)
        for node in downstream[chosen.name]:
            missing[node.name] -= 1
            if not missing[node.name]:
                heappush(ready.setdefault(guards[node.name], []), position[node.name])
    return ordered


def common_prefix_length(one: Guard, other: Guard) -> int:
    """Return the number of tests that two guards share from the start."""
    length = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        length += 1
    return length
