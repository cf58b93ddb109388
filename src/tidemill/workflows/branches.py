"""Which tasks can never run, because what they need comes from branches that exclude each other."""

from collections.abc import Iterator, Mapping
from graphlib import TopologicalSorter

from tidemill.workflows.spec import Edge, TaskSpec

Needs = dict[str, frozenset[str]]
"""Of each task that takes branches: the variants with which a task can still run."""


def excluded(tasks: Mapping[str, TaskSpec]) -> Iterator[tuple[str, str]]:
    """Yield the tasks that need two branches of one task at once, with that task; there must be no cycle.

    Only "all_success" needs anything of those before it: by every other rule a task may run without them.
    """
    needs: dict[str, Needs] = {}
    for name in TopologicalSorter({name: one.sources for name, one in tasks.items()}).static_order():
        found: Needs = {}
        for edge in tasks[name].edges if tasks[name].rule == "all_success" else ():
            if edge.optional:
                continue
            is_mapped = tasks[edge.source].each is not None
            for source, variants in _needs(edge, needs[edge.source], is_mapped=is_mapped).items():
                found[source] = found.get(source, variants) & variants
        needs[name] = {source: variants for source, variants in found.items() if variants}
        for source in found.keys() - needs[name].keys():  # said once: what comes after it needs nothing of them
            yield name, source


def _needs(edge: Edge, before: Needs, *, is_mapped: bool) -> Needs:
    """Return what must have been returned for an edge to be fulfilled; the elements of a mapped task go many ways."""
    if not edge.takes or is_mapped:
        return before
    return before | {edge.source: frozenset(edge.takes)}
