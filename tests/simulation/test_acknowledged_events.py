"""Packages that are loaded, swapped, rolled back and unloaded while events are pushed: what is acknowledged fires once.

Events are pushed after the effect of every deploy step, forward and back, at both nodes of a store. A fault may hit any
step, before or after its effect, and one on the way back.
"""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack, suppress
from itertools import count
from types import ModuleType
from typing import Any, Literal

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

import tidemill as tm
from tidemill.kernel.errors import StoreError
from tidemill.testing.faults.deploy_steps import DeployFaults, Moment

PATIENCE = 30.0  # seconds of real time for one story
TURNS = 5  # of the event loop after each push: it is on its way, or done
DURABILITIES: tuple[Any, ...] = ("none", "interval", "fire", "boundary")
NAMES = [f"{form}_{durability}" for form in ("plain", "keyed") for durability in DURABILITIES]
SETTINGS = {"rebalance_delay": "50ms", "backoff_base": "50ms", "backoff_max": "200ms"}
_stores = count()

faults = st.none() | st.tuples(st.integers(1, 6), st.sampled_from(["before", "after"]))


class Change(msgspec.Struct, frozen=True):
    """A change of the package on the first node."""

    kind: Literal["load", "load other contracts", "load no reactors", "unload"]
    fault: tuple[int, Moment] | None = None
    """The step that fails, and when."""
    second_fault: tuple[int, Moment] | None = None
    """The step of the rollback that fails as well."""


changes = st.builds(Change, st.sampled_from(Change.__annotations__["kind"].__args__), faults, faults)


class Event(tm.Boundary):
    """An event."""

    number: int
    key: str


def accept(name: str) -> tm.Accumulator:
    """Return an accumulator that emits its events."""

    def pass_on(event: Event) -> Event:
        return event

    pass_on.__name__ = name
    return tm.passthrough(pass_on)


def work() -> None:
    """Do nothing."""


class Story:
    """Changes of a package on the first of one or two nodes, and the events that they take meanwhile."""

    def __init__(self, group: asyncio.TaskGroup, nodes: list[tm.testing.TestNode]) -> None:
        self.fired = Counter[tuple[str, int]]()
        self.acknowledged: set[tuple[str, int]] = set()
        self.nodes = nodes
        self._group = group
        self._pushes: list[asyncio.Task[None]] = []
        self._numbers = count()

    def package(self, kind: str = "load") -> ModuleType:
        """Return the package: for each durability a plain and a keyed reactor, each with its graph, and a workflow."""
        module, flow = ModuleType("orders"), tm.Workflow("flow")
        flow.task(work)
        vars(module)["flow"] = flow
        for name in NAMES if kind != "load no reactors" else ():
            sources = [accept(f"in_{name}"), *([accept(f"more_{name}")] if kind == "load other contracts" else [])]
            form, _, durability = name.partition("_")
            options: dict[str, Any] = {"key": "key", "partitions": 2} if form == "keyed" else {}
            reactor = tm.Reactor(name, sources, durability=durability, strategy="sequential", **options)
            graph = tm.Graph(f"graph_{name}", reactor=reactor)
            graph.node(self._recorder(name))
            vars(module).update({name: reactor, graph.name: graph})
        return module

    def _recorder(self, name: str) -> Any:
        """Return a node that records the events that it fires for."""

        def fire(ctx: tm.Context) -> None:
            for _, event in ctx.consumed:
                self.fired[name, event.number] += 1

        return fire

    async def push(self, *_: object) -> None:
        """Push an event into every accumulator at every node."""
        for node in self.nodes:
            for name in NAMES:
                self._pushes.append(self._group.create_task(self._push(node, name), name=f"push {name}"))
        for _ in range(TURNS):
            await asyncio.sleep(0)

    async def _push(self, node: tm.testing.TestNode, name: str) -> None:
        number = next(self._numbers)
        with suppress(tm.RequestError):  # it is not loaded, or no owner answers
            receipt = await node.push(f"in_{name}", {"number": number, "key": f"key {number % 4}"})
            if receipt.accepted:
                self.acknowledged.add((name, number))

    async def make(self, change: Change, faulty: DeployFaults) -> None:
        """Change the package; it may be refused, fail, or be finished later."""
        is_load = change.kind != "unload"
        if change.fault is not None:
            faulty.fail("apply" if is_load else "remove", *change.fault)
        if change.second_fault is not None:
            faulty.fail("roll_back", *change.second_fault)
        with suppress(tm.RequestError, tm.OperationError, StoreError):
            await (self.nodes[0].load(self.package(change.kind)) if is_load else self.nodes[0].unload("orders"))
        faulty.clear()
        await self.push()

    async def finish(self) -> None:
        """Load the package everywhere, and wait until every push is answered and nothing is left to fire."""
        await self.pass_time()
        await self.nodes[0].load(self.package())
        while not all(one.done() for one in self._pushes):
            await self.pass_time()
        await self.pass_time()

    async def pass_time(self) -> None:
        """Let time pass on all nodes, enough for everything that is retried."""
        for _ in range(5):
            for node in self.nodes:
                await node.advance("300ms")


async def tell(is_shared: bool, story: list[Change]) -> None:
    """Go through a story, and check what has fired."""
    address = f"memory://acknowledged-{next(_stores)}"
    async with AsyncExitStack() as stack:
        nodes = [
            await stack.enter_async_context(tm.testing.node(address, settings=SETTINGS)) for _ in range(1 + is_shared)
        ]
        async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
            told = Story(group, nodes)
            for node in nodes[::-1]:
                await node.load(told.package())
            faulty = DeployFaults(nodes[0])
            faulty.on_effect = told.push
            for change in story:
                await told.make(change, faulty)
            faulty.on_effect = None
            await told.finish()
    assert told.acknowledged
    wrong = {one: told.fired[one] for one in told.acknowledged if told.fired[one] != 1}
    assert not wrong, "how often each has fired"


@settings(max_examples=max(1, settings().max_examples // 10))
@given(is_shared=st.booleans(), story=st.lists(changes, min_size=1, max_size=4))
def test_every_acknowledged_event_fires_once(is_shared: bool, story: list[Change]) -> None:
    """P-2, P-4, P-6, G-24, G-31: whatever changes, and whichever step fails."""
    asyncio.run(tell(is_shared, story))
