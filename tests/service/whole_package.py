"""A package with something in each of the six deploy steps, and everything that a node has of it."""

from datetime import UTC, datetime
from types import ModuleType
from typing import Any, NamedTuple

import tidemill as tm
from tidemill.storage.tables.schedules import ScheduleCursor
from tidemill.storage.workflow_ports import RunFilter
from tidemill.testing import TestNode as Node
from tidemill.testing.probes import PackageProbe

START = datetime(2026, 3, 1, tzinfo=UTC)
SCHEDULES = [(flow, key) for flow in ("daily", "older", "newer") for key in ("hourly", "other")]
PUT_ORDER = (
    "schedules",
    "triggers",
    "reactors",
    "graphs without a reactor",
    "graphs of reactors",
    "workflows",
)


# -- the package


class Whole(NamedTuple):
    """A version of the package, and what its code has seen and is to answer."""

    module: ModuleType
    seen: list[Any]
    """By the graph of reactor `market`: its version and its inputs."""
    fires: list[tm.Fire]
    """What trigger `new_files` is to answer, one at a time."""


def whole(
    version: int = 1,
    *,
    rule: str = "1h",
    sources: tuple[str, ...] = ("a", "b"),
    name: str = "whole",
    durability: Any = None,
) -> Whole:
    """Return version 1 or 2 of the package: each has what the other has not, and most they share."""
    seen: list[Any] = []
    fires: list[tm.Fire] = []
    own = "older" if version == 1 else "newer"
    market = tm.Reactor("market", [source(one) for one in sources], durability=durability)
    leaves = tm.Reactor(own, [source(f"{own}_source")], durability=durability)
    shared = [
        market,
        spread(market, version, seen),
        scoring("scoring", version),
        trigger("new_files", fires),
        flow("daily", version, ["new_files"], [tm.Every(rule, key="hourly")]),
    ]
    only = [
        leaves,
        scoring(f"{own}_scoring", version),
        trigger(f"{own}_files", []),
        empty(f"{own}_graph", leaves),
        flow(own, version, [f"{own}_files"], [tm.Every("1h", key="hourly"), tm.Every("2h", key="other")]),
    ]
    return Whole(module(name, *shared, *only), seen, fires)


def module(name: str, *definitions: Any) -> ModuleType:
    """Return a module that holds these."""
    made = ModuleType(name)
    for number, one in enumerate(definitions):
        setattr(made, f"definition_{number}", one)
    return made


def source(name: str) -> tm.Accumulator:
    """Return an accumulator that passes numbers on."""

    def take(event: int) -> int:
        return event

    take.__name__ = name
    return tm.passthrough(take)


def spread(reactor: tm.Reactor | str, version: int, seen: list[Any], name: str = "spread") -> tm.Graph:
    """Return a graph of reactor `market` that notes what it sees."""
    graph = tm.Graph(name, reactor=reactor)

    @graph.node
    def out(a: int | None, b: int | None) -> None:
        seen.append((version, a, b))

    return graph


def empty(name: str, reactor: tm.Reactor) -> tm.Graph:
    """Return a graph that looks at nothing."""
    graph = tm.Graph(name, reactor=reactor)

    @graph.node
    def out() -> None:
        return None

    return graph


def scoring(name: str, version: int) -> tm.Graph:
    """Return a graph without a reactor: what workflows call."""
    graph = tm.Graph(name)

    @graph.node
    def score(work: int) -> int:
        return work * 100 + version

    return graph


def trigger(name: str, fires: list[tm.Fire]) -> tm.Trigger:
    """Return a trigger that answers what it finds in a list."""

    async def ask() -> tm.Fire | None:
        return fires.pop() if fires else None

    ask.__name__ = name
    return tm.trigger(every="20m")(ask)


def flow(name: str, version: int, triggers: list[str], schedules: list[tm.Every]) -> tm.Workflow:
    """Return a workflow whose first task tells its version, and whose second calls graph `scoring` with that."""
    made = tm.Workflow(name, schedule=schedules, triggers=triggers)

    @made.task
    def work() -> int:
        return version

    made.call("scoring", name="scored")
    return made


# -- what a node has of it


async def rows(node: tm.Node) -> dict[tuple[str, str], ScheduleCursor]:
    """Return the rows of the schedules that any version of the package has."""
    schedules = PackageProbe.of(node).store.schedules
    found = {key: await schedules.get_cursor("public", *key) for key in SCHEDULES}
    return {key: row for key, row in found.items() if row is not None}


async def traces(node: Node) -> dict[str, Any]:
    """Return everything that a package may leave on a node and in its store, but for the tasks of checkpoints."""
    await node.settle()
    registry, packages = node.registry, node.probe.packages
    in_process = packages.traces()
    in_process["tasks"] = [name for name in in_process["tasks"] if not name.startswith("checkpoints")]
    return in_process | {
        "reactors": {name: registry.reactors.find("public", name) for name in registry.reactors()},
        "graphs": {name: registry.graphs.find("public", name) for name in registry.graphs()},
        "workflows": {name: registry.workflows.find("public", name) for name in registry.workflows()},
        "declared triggers": {name: registry.triggers.find("public", name) for name in registry.triggers()},
        "packages": {name: registry.packages.find("public", name) for name in registry.packages()},
        "accumulators": registry.accumulators(),
        "endpoints": registry.endpoints(),
        "rows": await rows(node),
        "paused": await packages.store.schedules.list_paused_workflows(),
        "records": [(one.name, one.phase, one.state) for one in await packages.store.package_states.list_all()],
    }


async def check_it_works(node: Node, package: Whole, version: int) -> None:
    """Let everything of a package happen once: a firing, a run by hand, one of the trigger, one of the schedule."""
    package.seen.clear()
    await node.push("b", 7)
    await node.settle()
    assert [(one, b) for one, _, b in package.seen] == [(version, 7)]
    run = await node.start("daily")
    await node.settle()
    result = await run.state()
    assert result.outputs == {"work": version, "scored": {"score": 101 * version}}
    for origin, seconds, fires in (("trigger", 1200, [tm.Fire()]), ("schedule", 3600, [])):
        before = await runs_of(node, origin)
        package.fires.extend(fires)
        await node.advance(seconds)
        assert await runs_of(node, origin) == before + 1, origin


async def runs_of(node: Node, origin: str, workflow: str = "daily") -> int:
    """Return how many runs of a workflow came of something."""
    found = await node.probe.packages.store.runs.find(RunFilter(tenant="public", workflow=workflow))
    return sum(run.origin == origin for run in found)
