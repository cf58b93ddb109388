"""Feeds: results of nodes that are pushed into accumulators of any reactor; their types, and their loops.

Loops over reactors are rejected, because each firing would cause the next without end. A window or a batch ends a loop:
a window that a reactor's own graph feeds fires nothing, and a batch collects events until its interval is over.
"""

from collections.abc import Iterable, Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Any

import msgspec

from tidemill.annotations.class_conversion import find_mismatches, find_unconvertible
from tidemill.annotations.variants import NoneType, admits, expand_variants, full_name, label
from tidemill.graphs.definition import Accumulator, AccumulatorKind, GraphNodeDefinition

LOOP_REMEDY = "feed a window or a batch instead"

_LOOP_ENDING_KINDS = (AccumulatorKind.WINDOW, AccumulatorKind.BATCH)


class Feed(msgspec.Struct, frozen=True):
    """A node whose results are pushed into an accumulator."""

    node: GraphNodeDefinition
    accumulator: str
    position: int
    """The position of the result among the values of its graph."""


class FeedEdge(msgspec.Struct, frozen=True, eq=False):
    """A feed from one reactor to another."""

    source: str
    target: str
    tenant: str
    """The tenant of the graph."""
    graph: str
    feed: Feed

    def __str__(self) -> str:
        """Return the edge as error messages describe it."""
        return f"node '{self.feed.node.name}' of graph '{self.graph}' feeds '{self.feed.accumulator}'"


def ends_loop(accumulator: Accumulator) -> bool:
    """Return whether a loop through this accumulator is allowed."""
    return accumulator.kind in _LOOP_ENDING_KINDS


def find_misfits(node: GraphNodeDefinition, target: Accumulator) -> Iterator[str]:
    """Yield why values of a node do not fit the accumulator that it feeds."""
    returns, event_type = node.function.signature().returns, target.event_type
    takes = f"window '{target.name}' holds" if target.is_window else f"accumulator '{target.name}' takes"
    for variant in expand_variants(returns) or ():
        if variant.cls is not NoneType and not admits(event_type, variant):
            reasons = "".join(f"; {reason}" for reason in find_mismatches(event_type, [variant.annotation]))
            yield f"node '{node.name}' returns {variant.label}, but {takes} {label(event_type)}{reasons}"
    for cls in find_unconvertible(event_type, returns):
        yield (
            f"node '{node.name}' feeds '{target.name}', and no {full_name(cls)} of its package can be made from one of "
            "this; derive it from tm.Boundary, or let both packages get it from a library"
        )


def find_loop(edges: Iterable[FeedEdge]) -> Sequence[FeedEdge]:
    """Return the edges of a loop over reactors, in order; none if there is no loop."""
    by_ends: dict[tuple[str, str], FeedEdge] = {(edge.source, edge.target): edge for edge in edges}
    sources: dict[str, list[str]] = {}
    for source, target in by_ends:
        sources.setdefault(target, []).append(source)
    try:
        TopologicalSorter(sources).prepare()
    except CycleError as error:
        path: list[Any] = error.args[1]
        return [by_ends[ends] for ends in pairwise(path)]
    return ()
