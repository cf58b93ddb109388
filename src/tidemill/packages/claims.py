"""Claims: the names that a change of a package is about, so that another one does not come between."""

from collections.abc import Iterator
from typing import NamedTuple

from tidemill.engine.graphs.staging import reactor_key
from tidemill.packages.exchange import Exchange
from tidemill.workflows.definition import OnFiring
from tidemill.workflows.workflow import Workflow


class Claim(NamedTuple):
    """One name of one tenant."""

    kind: str
    tenant: str
    name: str

    def __str__(self) -> str:
        """As people are told of it."""
        return f"{self.kind} '{self.name}'"


def held_by(exchange: Exchange) -> frozenset[Claim]:
    """Return the names that are an exchange's own until it is settled: before, after, and workflows of others."""
    return frozenset(Claim(kind, exchange.tenant, name) for kind, name in _held(exchange))


def _held(exchange: Exchange) -> Iterator[tuple[str, str]]:
    for holdings in (exchange.before, exchange.after):
        for reactor in holdings.reactors:
            yield "reactor", reactor.name
            yield from (("accumulator", name) for name in reactor.names)
        yield from (("graph", one.name) for one in (*holdings.triggerless, *holdings.graphs))
        yield from (("trigger", one.name) for one in holdings.triggers)
    yield from (("workflow", name) for name in exchange.held_workflows)


def named_by(exchange: Exchange) -> frozenset[Claim]:
    """Return the names that what is to come relies on, whoever has them; of other tenants those that are shared."""
    return frozenset(_named(exchange))


def _named(exchange: Exchange) -> Iterator[Claim]:
    tenant = exchange.tenant
    for graph in exchange.after.graphs:
        key = reactor_key(graph, tenant)
        if key is not None and (key[0] == tenant or exchange.is_shared(key)):
            yield Claim("reactor", *key)
    for workflow in exchange.after.workflows:
        yield from (Claim("trigger", tenant, name) for name in trigger_names(workflow))
        yield from (Claim("graph", tenant, name) for name in graph_names(workflow))


def trigger_names(workflow: Workflow) -> set[str]:
    """Return the names of the triggers that start a workflow; those of reactors are no triggers."""
    return {one if isinstance(one, str) else one.name for one in workflow.triggers if not isinstance(one, OnFiring)}


def graph_names(workflow: Workflow) -> list[str]:
    """Return the names of the graphs that a workflow calls."""
    graphs = [task.graph for task in workflow.tasks if task.graph is not None]
    return [one if isinstance(one, str) else one.name for one in graphs]
