"""The route tests that decide whether a node runs.

A node runs when every required edge is live and, if other nodes feed it at all, at least one of those edges is live.
An edge is live when its source ran and returned a variant that the edge admits. Both become tests on the class of a
routed value, in the order in which they must be evaluated; nodes behind a route inherit the tests of their sources.
"""

from collections.abc import Iterable, Mapping, Sequence
from graphlib import TopologicalSorter

import msgspec

from tidemill.graphs.wiring_model import Edge, InputOrigin, WiredNode


class RouteTest(msgspec.Struct, frozen=True):
    """The value of `source` has one of these classes."""

    source: str
    classes: tuple[type, ...]


class AnyLive(msgspec.Struct, frozen=True):
    """At least one of these optional edges is live."""

    edges: tuple[Edge, ...]


GuardTest = RouteTest | AnyLive
Guard = tuple[GuardTest, ...]


class Routes(msgspec.Struct):
    """The guards of all nodes of a graph, computed from its edges."""

    nodes: Mapping[str, WiredNode]
    guards: dict[str, Guard]

    @classmethod
    def from_nodes(cls, nodes: Sequence[WiredNode]) -> "Routes":
        """Compute the guard of every node; the nodes must not form a cycle."""
        routes = cls({one.name: one for one in nodes}, {})
        upstream = {one.name: [edge.source for edge in one.upstream_edges()] for one in nodes}
        for name in TopologicalSorter(upstream).static_order():
            routes.guards[name] = routes._compute_guard(routes.nodes[name])
        return routes

    def edge_tests(self, edge: Edge) -> Guard:
        """Return the tests that must hold for an edge to be live."""
        inherited = self.guards[edge.source] if edge.origin is InputOrigin.NODE else ()
        own = () if edge.admitted is None else (RouteTest(edge.source, edge.admitted),)
        return (*inherited, *own)

    def is_always_live(self, edge: Edge, node: str) -> bool:
        """Return whether an edge is live whenever its node runs."""
        return set(self.edge_tests(edge)) <= set(self.guards[node])

    def minimal_guard(self, node: str) -> Guard:
        """Return a node's guard without the tests that other tests in it imply: the guards of their sources."""
        guard = self.guards[node]
        sources = [test.source for test in guard if isinstance(test, RouteTest)]
        implied = {earlier for source in sources for earlier in self.guards.get(source, ())}
        return tuple(test for test in guard if test not in implied)

    def _compute_guard(self, wired: WiredNode) -> Guard:
        required = [test for edge in wired.edges if not edge.optional for test in self.edge_tests(edge)]
        upstream = list(wired.upstream_edges())
        if upstream and all(edge.optional for edge in upstream):
            required.extend(self._any_live_tests(upstream))
        return tuple(dict.fromkeys(required))

    def _any_live_tests(self, edges: Sequence[Edge]) -> Iterable[GuardTest]:
        """Return tests for "one of these edges is live", as route tests where these are equivalent."""
        alternatives = [self.edge_tests(edge) for edge in edges]
        shared = [test for test in alternatives[0] if all(test in other for other in alternatives)]
        rests = [[test for test in tests if test not in shared] for tests in alternatives]
        if not all(rests):
            return shared
        merged = self._merge_route_tests(rests)
        if merged is None:
            return [*shared, AnyLive(tuple(edges))]
        return [*shared, *merged]

    def _merge_route_tests(self, alternatives: Sequence[Sequence[GuardTest]]) -> Sequence[GuardTest] | None:
        """Return one test for alternatives that test the same value, no test if they cover all its classes."""
        tests = [rest[0] for rest in alternatives if len(rest) == 1]
        routes = [test for test in tests if isinstance(test, RouteTest)]
        sources = {test.source for test in routes}
        if len(routes) < len(alternatives) or len(sources) > 1:
            return None
        source = sources.pop()
        classes = tuple(dict.fromkeys(cls for test in routes for cls in test.classes))
        known = self.nodes[source].classes if source in self.nodes else None
        return () if known is not None and set(classes) >= set(known) else (RouteTest(source, classes),)


def find_unreachable(nodes: Sequence[WiredNode]) -> Iterable[tuple[WiredNode, str]]:
    """Yield the nodes that can never run because their inputs exclude each other, with the reason."""
    routes = Routes.from_nodes(nodes)
    for one in nodes:
        tested: dict[str, set[type]] = {}
        for test in routes.guards[one.name]:
            if isinstance(test, RouteTest) and test.classes:
                possible = tested.setdefault(test.source, set(test.classes))
                possible &= set(test.classes)
                if not possible:
                    yield (
                        one,
                        (
                            f"node '{one.name}' can never run: its inputs come from branches of '{test.source}' that "
                            "exclude each other; make them optional (`| None`) to join branches"
                        ),
                    )
                    break
