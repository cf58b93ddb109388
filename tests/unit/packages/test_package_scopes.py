"""Scopes: what workers and hosts load of a package."""

from types import ModuleType
from typing import Any

import tidemill as tm
from tidemill.packages.loading.reader import read_module


class Trade(tm.Boundary):
    symbol: str


@tm.passthrough
def trades(event: Trade) -> Trade:
    return event


@tm.passthrough
def alarms(event: Trade) -> Trade:
    return event


def graph_free() -> int:
    return 1


def module() -> Any:
    """A package with a keyed reactor and one without a key, with graphs of both, and a workflow."""
    made: Any = ModuleType("market")
    made.keyed = tm.Reactor("keyed", [trades], key="symbol")
    made.plain = tm.Reactor("plain", [alarms])
    made.on_keyed = graph("on_keyed", made.keyed)
    made.on_plain = graph("on_plain", made.plain)
    made.unbound = graph("unbound", None)
    made.flow = tm.Workflow("flow", schedule=tm.Cron("0 6 * * *"), triggers=[tm.on_firing("keyed"), "files"])
    made.flow.task(graph_free)
    return made


def graph(name: str, reactor: tm.Reactor | None) -> tm.Graph:
    made = tm.Graph(name, reactor=reactor)

    @made.node
    def only(trades: Trade | None = None) -> int:
        return 1

    return made


def test_a_host_loads_what_partitions_need() -> None:
    package = read_module(module()).within("partitions")
    assert [one.name for one in package.reactors] == ["keyed"]
    assert [one.name for one in package.graphs] == ["on_keyed", "unbound"]
    assert package.triggers == ()
    (flow,) = package.workflows
    assert flow.schedules == ()
    assert [type(one) for one in flow.triggers] == [type(tm.on_firing("keyed"))]


def test_a_worker_loads_what_tasks_need() -> None:
    package = read_module(module()).within("tasks")
    assert package.reactors == ()
    assert [one.name for one in package.graphs] == ["unbound"]
    (flow,) = package.workflows
    assert (flow.schedules, flow.triggers) == ((), ())


def test_a_node_loads_everything() -> None:
    package = read_module(module())
    assert package.within("all") is package
