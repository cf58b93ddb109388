"""Fast and slow paths agree: any history of events gives the same firings by generated functions as without them.

Hypothesis writes a history and a kind of reactor. One node plays it with its fast paths; another one with the paths
closed before each step. Everything that a user can see afterwards is compared.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidemill as tm

SILENT, AUTHOR_RAISES, NODE_RAISES, OTHER_RAISES, PUSHES_B, PUSHES_A, ROUTED = -1, 11, 12, 13, 14, 15, 16


class Kind(msgspec.Struct, frozen=True):
    """What a reactor has beside one plain graph."""

    when: str = "any"
    strategy: str = "latest"
    capacity: int = 3
    has_second_graph: bool = False
    needs_b: bool = False
    """Whether the second graph requires the source that comes less often."""
    has_context: bool = False
    has_window: bool = False
    has_batch: bool = False
    has_state: bool = False
    has_any_class: bool = False
    """Whether the events of the first source are not annotated."""
    has_routed_input: bool = False
    """Whether the class of an input decides which node runs."""
    has_feed: bool = False
    is_followed: bool = False
    retries: bool = False
    durability: str = "interval"

    @property
    def allows_handles(self) -> bool:
        """Whether events may come in without a wait for their commit."""
        return self.durability != "boundary"


KINDS = {
    "plain": Kind(),
    "two graphs": Kind(has_second_graph=True),
    "two graphs, one incomplete": Kind(has_second_graph=True, needs_b=True, has_context=True),
    "context": Kind(has_context=True),
    "window": Kind(has_window=True),
    "batch": Kind(has_batch=True),
    "all": Kind(when="all"),
    "all of some": Kind(when="some", has_context=True),
    "all, sequential": Kind(when="all", strategy="sequential", has_context=True),
    "any of one, sequential": Kind(when="one", strategy="sequential", has_context=True, has_second_graph=True),
    "any of one": Kind(when="one"),
    "any class": Kind(has_any_class=True),
    "any class, sequential, context": Kind(has_any_class=True, has_context=True, strategy="sequential"),
    "routed input": Kind(has_routed_input=True),
    "routed input, sequential": Kind(has_routed_input=True, strategy="sequential"),
    "running state": Kind(has_state=True),
    "running state, sequential": Kind(has_state=True, strategy="sequential"),
    "feed": Kind(has_feed=True),
    "followed": Kind(is_followed=True),
    "retries": Kind(retries=True, has_second_graph=True),
    "each firing stored, batch": Kind(durability="fire", has_batch=True),
    "each firing stored": Kind(durability="fire"),
    "each firing stored, all": Kind(durability="fire", when="all"),
    "each firing stored, two graphs": Kind(durability="fire", when="one", has_second_graph=True),
    "journal": Kind(durability="boundary", has_second_graph=True, has_window=True, has_context=True),
    "journal, all, sequential": Kind(durability="boundary", when="all", strategy="sequential", has_batch=True),
    "journal, plain": Kind(durability="boundary"),
    "everything": Kind(
        when="some",
        strategy="sequential",
        has_second_graph=True,
        has_context=True,
        has_window=True,
        has_batch=True,
        has_state=True,
        has_feed=True,
        is_followed=True,
        retries=True,
    ),
}


class World:
    """A reactor of one kind, its graphs, and what they have seen."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.seen: list[Any] = []
        self.answers: list[Any] = []
        self.fed: list[Any] = []
        self.delivered: list[Any] = []  # by tasks, in an order of their own beside what nodes feed
        self.push: dict[str, Callable[[Any], Any]] = {"a": lambda value: None, "b": lambda value: None}
        self.module = type(asyncio)("world")
        self.declare()

    def declare(self) -> None:
        """Declare everything anew, as a reload does."""
        vars(self.module).update({f"part_{number}": part for number, part in enumerate(self._parts())})

    def take_handles(self, node: tm.testing.TestNode) -> None:
        """Let nodes push from inside a firing; a journaled reactor has no handles."""
        if self.kind.allows_handles:
            self.push = {"a": node.handle("a"), "b": node.handle("b")}

    def _parts(self) -> list[Any]:
        kind = self.kind
        sources = self._sources()
        deciding = {"some": tm.all_of(*sources[:2]), "one": tm.any_of(sources[0])}.get(kind.when, kind.when)
        on_error = tm.Retry(2, delay="100ms", jitter=0.0) if kind.retries else "dead_letter"
        options = {"when": deciding, "strategy": kind.strategy, "capacity": kind.capacity, "on_error": on_error}
        reactor = tm.Reactor("r", sources, overflow="reject", durability=kind.durability, **options)
        parts = [reactor, self._graph(reactor, sources)]
        if kind.has_second_graph:
            parts.append(self._second_graph(reactor))
        if kind.has_feed:
            parts += self._fed_reactor(parts[1])
        if kind.is_followed:
            parts += self._followers(parts[1])
        return parts

    def _sources(self) -> list[Any]:
        def a(event: int) -> int | None:
            if event == AUTHOR_RAISES:
                raise ValueError("author")
            return None if event == SILENT else event

        if self.kind.has_any_class:
            a.__annotations__["event"] = Any

        def counted(event: int, state: int) -> int | None:
            boundary = a(event)
            return None if boundary is None else boundary + 100 * (state // 100 + 1)

        counted.__name__ = "a"
        first = tm.passthrough(state=int)(counted) if self.kind.has_state else tm.passthrough(a)

        def b(event: int) -> int | str:
            return "text" if self.kind.has_routed_input and event == ROUTED else event

        b.__annotations__["return"] = int | str if self.kind.has_routed_input else int
        second = tm.passthrough(b)
        extra: list[Any] = [tm.window("recent", int, capacity=3)] if self.kind.has_window else []
        if self.kind.has_batch:

            @tm.batch(every="1h", max_size=3)
            def many(events: list[int]) -> list[int] | None:
                return None if SILENT in events else events

            extra.append(many)
        return [first, second, *extra]

    def _graph(self, reactor: tm.Reactor, sources: list[Any]) -> tm.Graph:
        graph = tm.Graph("g", reactor=reactor)

        @graph.node
        def read(a: int | None, b: int | None) -> int | str:
            self.seen.append(("read", a, b))
            self._push_from_inside(a, b)
            return "routed" if a == ROUTED else (a or 0)

        @graph.node
        def out(read: int) -> int:
            if read % 100 == NODE_RAISES:
                raise ValueError("node")
            return read * 2

        @graph.node
        def named(read: str) -> str:
            return read

        if self.kind.has_context:

            @graph.node
            def told(ctx: tm.Context) -> int:
                self.seen.append((ctx.graph, ctx.consumed, ctx.firing_id.rpartition("-")[2], ctx.key))
                return len(ctx.consumed)

        if self.kind.has_routed_input:

            @graph.node
            def written(b: str | None) -> str:
                return f"{b}"

        if self.kind.has_window:
            window = next(one for one in sources if one.name == "recent")

            @graph.node(feeds=window)
            def kept(read: int, recent: list[int]) -> int | None:
                self.seen.append(("recent", recent))
                return read if read % 2 else None

        return graph

    def _push_from_inside(self, a: int | None, b: int | None) -> None:
        """Push into the other source, or into the own one; each ends, because the pushed value pushes no more."""
        if a is not None and a % 100 == PUSHES_B and b != 7:
            self.answers.append(self.push["b"](7))
        if a is not None and a % 100 == PUSHES_A:
            self.answers.append(self.push["a"](0))

    def _second_graph(self, reactor: tm.Reactor) -> tm.Graph:
        graph = tm.Graph("h", reactor=reactor)

        def read(b: int | None, a: int | None) -> int:
            self.seen.append(("second", a, b))
            if a == OTHER_RAISES:
                raise ValueError("second")
            return (b or 0) + 1

        if self.kind.needs_b:
            read.__annotations__["b"] = int
        graph.node(read)
        return graph

    def _fed_reactor(self, graph: tm.Graph) -> list[Any]:
        @tm.passthrough
        def results(event: int) -> int:
            return event

        reactor = tm.Reactor("fed", [results])
        reader = tm.Graph("reader", reactor=reactor)

        @reader.node
        def take(results: int) -> int:
            self.fed.append(results)
            return results

        @graph.node(feeds=results)
        def sent(read: int) -> int | None:
            return read if read % 2 else None

        return [reactor, reader]

    def _followers(self, graph: tm.Graph) -> list[Any]:
        following = tm.Workflow("following", triggers=[tm.on_firing("r"), tm.on_output(graph, "out")])

        @following.task
        def note(ctx: tm.Context) -> None:
            self.delivered.append((ctx["inputs"], ctx.get("output"), ctx["firing_id"].rpartition("-")[2]))

        return [following]


class Push(msgspec.Struct, frozen=True):
    """An event that comes in by either way."""

    source: str
    value: Any
    by_handle: bool = True

    async def play(self, node: tm.testing.TestNode, world: World) -> Any:
        if self.source == "many" and not world.kind.has_batch:
            return None
        if self.by_handle and world.kind.allows_handles:
            return node.handle(self.source)(self.value)
        receipt = await node.push(self.source, self.value)
        return receipt.outcome, receipt.sequence, receipt.reason


class PushMany(msgspec.Struct, frozen=True):
    """Several events that come in as one push."""

    source: str
    values: list[Any]
    by_handle: bool = True

    async def play(self, node: tm.testing.TestNode, world: World) -> Any:
        if self.source == "many" and not world.kind.has_batch:
            return None
        if self.by_handle and world.kind.allows_handles:
            return node.handle(self.source).many(self.values).receipts
        return (await node.push_many(self.source, self.values)).receipts


class Act(msgspec.Struct, frozen=True):
    """Something that an operator does, or that happens to the node."""

    what: str

    async def play(self, node: tm.testing.TestNode, world: World) -> Any:
        match self.what:
            case "pause":
                await node.reactor("r").pause()
            case "resume":
                await node.reactor("r").resume()
            case "checkpoint":
                await node.advance("1s")
            case "reload":
                world.declare()
                await node.load(world.module)
                world.take_handles(node)
            case "fire":
                return (await node.reactor("r").force_fire()).inputs
            case "wait":
                return await self._wait_for_a_firing(node)
        return None

    async def _wait_for_a_firing(self, node: tm.testing.TestNode) -> Any:
        """Let an observer wait while an event comes."""
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(self._next_inputs(node), name="observer")
            await asyncio.sleep(0)
            await node.push("a", 3)
            await node.advance("1s")
        return waiting.result()

    async def _next_inputs(self, node: tm.testing.TestNode) -> Any:
        try:
            return (await node.reactor("r").next_firing(timeout=0.5)).inputs
        except TimeoutError:
            return "no firing"


Step = Push | PushMany | Act

values = st.sampled_from([0, 1, 2, 3, SILENT, AUTHOR_RAISES, NODE_RAISES, OTHER_RAISES, PUSHES_B, PUSHES_A, ROUTED])
sources = st.sampled_from(["a", "b", "a", "many"])
events = st.builds(Push, sources, values | st.just("x"), st.booleans())
groups = st.builds(PushMany, sources, st.lists(values | st.just("x"), max_size=4), st.booleans())
good = st.builds(Push, st.sampled_from(["a", "b"]), st.integers(0, 3))
acts = st.builds(Act, st.sampled_from(["pause", "resume", "checkpoint", "reload", "fire", "wait", "crash"]))
histories = st.lists(good | good | events | events | groups | acts, max_size=24)


def report(node: tm.testing.TestNode, world: World) -> dict[str, Any]:
    """Return everything that a user can see."""
    state = msgspec.to_builtins(node.reactor("r").state())
    for timed in ("subscribers", "since", "p50", "p99"):
        state.pop(timed)
    for accumulator in state["accumulators"].values():
        for timed in ("since", "pushes", "push_seconds"):
            accumulator.pop(timed)
    return {
        "seen": world.seen,
        "answers": world.answers,
        "fed": world.fed,
        "delivered": world.delivered,
        "state": state,
        "series": node.reactor("r").timeseries(),
        "cache": node.probe.graphs.cached_values("r"),
        "firings": [describe_firing(one) for one in node.reactor("r").firings(limit=200)],
    }


def describe_firing(firing: tm.Firing) -> Any:
    """Return a firing without the name of its series, which is random."""
    facts = (firing.id.rpartition("-")[2], firing.at, firing.inputs, firing.manual, firing.degraded, firing.attempt)
    results = {name: (one.outputs, one.ran, one.skipped, str(one.error)) for name, one in firing.results.items()}
    return (*facts, results)


async def crash(node: tm.testing.TestNode, world: World) -> tm.testing.TestNode:
    """Kill a node as soon as it has done what is due now: what it has written is the same by every path."""
    await node.advance(0)
    node = await node.crash()
    world.take_handles(node)
    return node


async def play(kind: Kind, history: list[Step], *, is_fast: bool, has_turns: bool) -> dict[str, Any]:
    """Play a history on a new node, and return what a user sees of it, and what is left after a crash.

    With turns, the node does after each step what is due then, such as a write; else the steps follow at once.
    """
    world = World(kind)
    answers: list[Any] = []
    async with tm.testing.node(load=[world.module], store="memory://") as node:
        world.take_handles(node)
        for step in history:
            if not is_fast:
                node.probe.graphs.close_fast_path("r")
            if step == Act("crash"):
                node = await crash(node, world)
            else:
                answers.append(await step.play(node, world))
            if has_turns:
                await node.advance(0)
        answers.append(report(node, world))
        node = await crash(node, world)
        answers.append(node.probe.graphs.cached_values("r"))
        await node.reactor("r").resume()
        await node.advance("1s")
        letters = [
            (one.kind, one.source, one.event, one.inputs, one.error, one.attempts)
            for one in [*await node.reactor("r").dead_letters()]
        ]
        return {"results": answers, "letters": letters, **report(node, world)}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
@settings(max_examples=12)
@given(history=histories, has_turns=st.booleans())
def test_the_fast_path_does_what_the_slow_one_does(kind: Kind, history: list[Step], has_turns: bool) -> None:
    """G-1, G-3, G-11, G-15, G-23: the same firings, snapshots, results, states, dead letters, log and stored state."""
    fast = asyncio.run(play(kind, history, is_fast=True, has_turns=has_turns))
    slow = asyncio.run(play(kind, history, is_fast=False, has_turns=has_turns))
    assert fast == slow


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
async def test_every_kind_has_a_fast_path(kind: Kind) -> None:
    """G-1: otherwise the comparison above compares the slow path with itself."""
    world = World(kind)
    async with tm.testing.node(load=[world.module]) as node:
        for source in "ababa":
            await node.push(source, 1)
        assert node.probe.graphs.has_fast_path("r")
