"""Checks of feeds before a package change: every fed accumulator is loaded, takes the values, and closes no loop.

The checks look at everything as it will be after the change, because a loop, or a type that no longer fits, may concern
graphs of packages that do not change.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from graphlib import TopologicalSorter

import msgspec

from tidemill.engine.registry import Key
from tidemill.graphs.compiler import CompiledGraph
from tidemill.graphs.definition import Accumulator, Reactor
from tidemill.graphs.feeds import LOOP_REMEDY, Feed, FeedEdge, ends_loop, find_loop, find_misfits
from tidemill.kernel.errors import DefinitionError, Problem, RequestError
from tidemill.kernel.suggestions import did_you_mean


class FeedLayout(msgspec.Struct, frozen=True):
    """The reactors and the graphs bound to them, as they will be after a change, in all tenants."""

    reactors: Mapping[Key, Reactor]
    graphs: Mapping[Key, Mapping[str, CompiledGraph]]
    """By reactor. A graph of another tenant than its reactor's is named "tenant/name"."""

    def check(self, tenant: str, is_changed: Callable[[str, str], bool]) -> None:
        """Raise if a feed cannot work after a change of a tenant's package; it brings the graphs that `is_changed`."""
        if not any(graph.feeds for bound in self.graphs.values() for graph in bound.values()):
            return
        self._check_targets(is_changed)
        if loop := find_loop(self._iter_edges()):
            raise _loop_error(tenant, loop, is_changed)

    def graphs_feeding(self, reactor: Key) -> set[str]:
        """Return the graphs that feed accumulators which only this reactor has."""
        tenant = reactor[0]
        fed: set[str] = set(self.reactors[reactor].accumulator_names) if reactor in self.reactors else set()
        for key, definition in self.reactors.items():
            if key != reactor and key[0] == tenant:
                fed.difference_update(definition.accumulator_names)
        return {name for owner, name, _, feed in self._iter_feeds() if owner == tenant and feed.accumulator in fed}

    def feeders_first(self, tenant: str, names: Iterable[str]) -> list[str]:
        """Return reactors of a tenant in an order in which each comes before those that its graphs feed."""
        feeders: dict[str, list[str]] = {name: [] for name in names}
        for edge in self._iter_edges():
            if edge.tenant == tenant and edge.source in feeders and edge.target in feeders:
                feeders[edge.target].append(edge.source)
        return list(TopologicalSorter(feeders).static_order())

    def _check_targets(self, is_changed: Callable[[str, str], bool]) -> None:
        for owner, name, _, feed in self._iter_feeds():
            target = self._find_target(owner, feed)
            reasons = [] if target is None else list(find_misfits(feed.node, target))
            if target is None and is_changed(owner, name):
                raise self._not_loaded_error(owner, name, feed)
            if reasons and is_changed(owner, name):
                problems = [
                    Problem(message=one, location=feed.node.function.location, node=feed.node.name) for one in reasons
                ]
                raise DefinitionError(problems, f"graph '{name}'")
            if target is None or reasons:
                raise _in_use_error(name, feed, reasons)

    def _iter_feeds(self) -> Iterator[tuple[str, str, Key, Feed]]:
        """Yield each feed with its graph's tenant and name, and the reactor that the graph is bound to."""
        for key, bound in self.graphs.items():
            for name, graph in bound.items():
                owner, _, local = name.rpartition("/")
                yield from ((owner or key[0], local, key, feed) for feed in graph.feeds)

    def _iter_edges(self) -> Iterator[FeedEdge]:
        for owner, name, source, feed in self._iter_feeds():
            target = self._find_target(owner, feed)
            if target is None or ends_loop(target):
                continue
            for key, reactor in self.reactors.items():
                if key[0] == owner and feed.accumulator in reactor.accumulator_names:
                    yield FeedEdge(_display(source, owner), _display(key, owner), owner, name, feed)

    def _find_target(self, tenant: str, feed: Feed) -> Accumulator | None:
        for (owner, _), reactor in self.reactors.items():
            if owner == tenant and feed.accumulator in reactor.accumulator_names:
                return reactor.accumulators[reactor.accumulator_names.index(feed.accumulator)]
        return None

    def _not_loaded_error(self, tenant: str, graph: str, feed: Feed) -> RequestError:
        known = [name for (owner, _), one in self.reactors.items() if owner == tenant for name in one.accumulator_names]
        message = (
            f"accumulator '{feed.accumulator}' not loaded{did_you_mean(feed.accumulator, known)}: node "
            f"'{feed.node.name}' of graph '{graph}' feeds it; load its reactor first"
        )
        return RequestError(message, code="accumulator_not_found", status=404, accumulator=feed.accumulator)


def _loop_error(tenant: str, loop: Sequence[FeedEdge], is_changed: Callable[[str, str], bool]) -> DefinitionError:
    """Return the error for a loop; it ends with a feed that the change brings, if it brings one."""
    closing = next((index for index, edge in enumerate(loop) if is_changed(edge.tenant, edge.graph)), len(loop) - 1)
    edges = [*loop[closing + 1 :], *loop[: closing + 1]]
    path = " -> ".join([*(edge.source for edge in edges), edges[-1].target])
    message = f"reactors feed one another in a loop, {path}: {'; '.join(map(str, edges))}; {LOOP_REMEDY}"
    location = edges[-1].feed.node.function.location
    return DefinitionError([Problem(message=message, location=location)], f"tenant '{tenant}'")


def _in_use_error(graph: str, feed: Feed, reasons: list[str]) -> RequestError:
    """Return the error for a change that breaks the feed of a graph that does not change."""
    detail = "".join(f"\nthe new version does not fit: {reason}" for reason in reasons)
    message = f"accumulator '{feed.accumulator}' is fed by graph '{graph}'; unload that first{detail}"
    return RequestError(message, code="reactor_in_use", status=409, subscribers=[graph])


def _display(reactor: Key, tenant: str) -> str:
    return reactor[1] if reactor[0] == tenant else "/".join(reactor)
