"""A package with something in each of the six steps, what a node has of it, and steps that fail when told to."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from types import ModuleType
from typing import Any, Literal, NamedTuple

import tidemill as tm
from tidemill.kernel.errors import StoreError
from tidemill.packages.deploy.change import PackageChange
from tidemill.packages.deploy.steps import DeployStep
from tidemill.storage.workflow_ports import RunFilter, ScheduleCursor

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

Verb = Literal["apply", "roll_back", "remove"]
Moment = Literal["before", "after"]
Node = tm.testing.TestNode

# -- the package


class Whole(NamedTuple):
    """A version of the package, and what its code has seen and is to answer."""

    module: ModuleType
    seen: list[Any]
    """By the graph of reactor `market`: its version and its inputs."""
    fires: list[tm.Fire]
    """What trigger `new_files` is to answer, one at a time."""


def whole(version: int = 1, *, rule: str = "1h", sources: tuple[str, ...] = ("a", "b"), name: str = "whole") -> Whole:
    """Return version 1 or 2 of the package: each has what the other has not, and most they share."""
    seen: list[Any] = []
    fires: list[tm.Fire] = []
    own = "older" if version == 1 else "newer"
    market = tm.Reactor("market", [source(one) for one in sources])
    leaves = tm.Reactor(own, [source(f"{own}_source")])
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


async def rows(node: Node) -> dict[tuple[str, str], ScheduleCursor]:
    """Return the rows of the schedules that any version of the package has."""
    found = {key: await node._run_store.schedules.get_cursor("public", *key) for key in SCHEDULES}
    return {key: row for key, row in found.items() if row is not None}


async def traces(node: Node) -> dict[str, Any]:
    """Return everything that a package may leave on a node and in its store."""
    await node.settle()
    registry, service = node.registry, node.probe.workflows
    schedules, triggers = service.scheduler.due_work
    installer = node._packages.installer
    return {
        "reactors": {name: registry.reactor("public", name) for name in registry.reactors()},
        "graphs": {name: registry.graph("public", name) for name in registry.graphs()},
        "workflows": {name: registry.workflow("public", name) for name in registry.workflows()},
        "triggers": {name: registry.trigger("public", name) for name in registry.triggers()},
        "packages": {name: registry.package("public", name) for name in registry.packages()},
        "accumulators": registry.accumulators(),
        "endpoints": registry.endpoints(),
        "running": node._scheduler.running_keys(),
        "bound": {name: node._scheduler.subscribers("public", name) for name in registry.reactors()},
        "tasks": tasks_of(node),
        "workflow tasks": sorted(task.get_name() for task in service.engine.runtime.tasks._running),
        "current": sorted(service.versions.current),
        "watched": sorted(schedules._watched),
        "polled": sorted(triggers._loops),
        "held": sorted(installer.definitions),
        "owed": sorted(node._packages.pipeline._cleanups),
        "schedules": await rows(node),
        "paused": await node._run_store.schedules.list_paused_workflows(),
        "pages": [(one.name, one.phase, one.state) for one in await node._run_store.package_states.list_all()],
    }


def tasks_of(node: Node) -> list[str]:
    """Return the names of the tasks that run, but for those that keep checkpoints, whoever needed them first."""
    running = sorted(task.get_name() for task in node._graph_runtime.tasks._running)
    return [name for name in running if not name.startswith("checkpoints")]


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
    found = await node._run_store.runs.find(RunFilter(tenant="public", workflow=workflow))
    return sum(run.origin == origin for run in found)


# -- steps that fail


class Faulty(DeployStep):
    """A step that does as it is told, or fails: before it has an effect, or after that."""

    def __init__(self, step: DeployStep, done: Callable[[str, str], Awaitable[None]]) -> None:
        self.title = step.title
        self.awaits_author_code = step.awaits_author_code
        self._step = step
        self._done = done
        self.faults: dict[str, list[Moment]] = {"apply": [], "roll_back": [], "remove": []}
        """When to fail, the next times."""

    async def apply(self, exchange: PackageChange) -> None:
        await self._go("apply", exchange)

    async def roll_back(self, exchange: PackageChange) -> None:
        await self._go("roll_back", exchange)

    async def remove(self, exchange: PackageChange) -> None:
        await self._go("remove", exchange)

    async def _go(self, verb: str, exchange: PackageChange) -> None:
        fault = self.faults[verb].pop(0) if self.faults[verb] else None
        if fault != "before":
            await getattr(self._step, verb)(exchange)
            await self._done(verb, self.title)
        if fault is not None:
            raise StoreError(f"{verb} of {self.title} fails on purpose, {fault} its effect")


class Walks:
    """The steps of a node, in their order, and what they did."""

    def __init__(self, node: Node) -> None:
        self._taken: list[tuple[str, str]] = []
        self.between: Callable[[str], Awaitable[None]] | None = None
        """Called after each step with its title."""
        pipeline = node._packages.pipeline
        self.steps = [Faulty(step, self._note) for step in pipeline.steps]
        pipeline.steps = tuple(self.steps)

    async def _note(self, verb: str, title: str) -> None:
        self._taken.append((verb, title))
        if self.between is not None:
            await self.between(title)

    def taken(self) -> dict[str, list[str]]:
        """Return which steps had their effect since the last time, in which direction, oldest first."""
        found = {way: [title for verb, title in self._taken if verb == way] for way in ("apply", "roll_back", "remove")}
        self._taken.clear()
        return found

    def fail(self, verb: Verb, step: int, *moments: Moment) -> None:
        """Let a step, counted from 1, fail the next times."""
        self.steps[step - 1].faults[verb] = list(moments)

    @contextmanager
    def over(
        self, *, roll_back: int | None = None, remove: int | None = None, moments: Sequence[Moment] = ()
    ) -> Iterator[None]:
        """Let a step fail on the way back too, and see that every fault that was ordered has happened."""
        if roll_back is not None:
            self.fail("roll_back", roll_back, *moments)
        if remove is not None:
            self.fail("remove", remove, *moments)
        yield
        assert not [(one.title, one.faults) for one in self.steps if any(one.faults.values())]
