"""Hot swap: refused whole or done whole, values carried over, other packages' graphs kept in step."""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from types import ModuleType
from typing import Any

import pytest

import tidemill as tm
from tests.service.samples import single, slow
from tidemill.testing.probes import GraphProbe

SOURCE = """
import tidemill as tm

class Up(tm.Boundary):
    value: int

class Down(tm.Boundary):
    value: int

class Total(tm.Boundary):
    value: int = 0

@tm.passthrough
def a(event: int) -> Up | Down:
    return Up(value=event) if event > 0 else Down(value=event)

@tm.passthrough(state=Total)
def total(event: int, state: Total) -> Total:
    return Total(value=state.value + event)

@tm.batch(every="1h")
def many(events: list[Up]) -> int:
    return sum(one.value for one in events if isinstance(one, Up))

kept = tm.window("kept", Up, capacity=5)
"""


def version(*names: str, **options: Any) -> Any:
    """Return module `m` with new classes, with reactor `r` of these accumulators and a graph that records."""
    made: Any = ModuleType("m")
    exec(SOURCE, vars(made))
    made.r = tm.Reactor("r", [getattr(made, name) for name in names], **options)
    made.seen = []
    return made


def recording(made: Any) -> Any:
    """Give a version of `a` a graph with a node for each of its variants."""
    made.g = tm.Graph("g", reactor=made.r)

    def up(a: Any) -> None:
        made.seen.append(("up", a.value, type(a) is made.Up))

    def down(a: Any) -> None:
        made.seen.append(("down", a.value, type(a) is made.Down))

    up.__annotations__ = {"a": made.Up, "return": None}
    down.__annotations__ = {"a": made.Down, "return": None}
    made.g.node(up)
    made.g.node(down)
    return made


class Silent:
    """A source that never gets through."""

    async def start(self, checkpoint: Any) -> AsyncIterator[tuple[int, int]]:
        await asyncio.Event().wait()
        yield 0, 0


class Brief:
    """A source that brings one event and ends."""

    begun = 0

    async def start(self, checkpoint: Any) -> AsyncIterator[tuple[int, int]]:
        self.begun += 1
        yield 7, 7


class Steady(Brief):
    """A source that brings one event and stays connected."""

    async def start(self, checkpoint: Any) -> AsyncIterator[tuple[int, int]]:
        self.begun += 1
        yield 7, 7
        await asyncio.Event().wait()


def following(source: Any, *, more: bool = False, stream: Any = None) -> Any:
    """Return module `m` with reactor `r` over a stream `a`, and a passthrough `b` if there is to be more."""

    def a(event: int) -> int:
        return event

    @tm.passthrough
    def b(event: int) -> int:
        return event

    made: Any = ModuleType("m")
    one = stream or tm.stream(source)(a)
    made.r = tm.Reactor("r", [one, b] if more else [one])
    made.g = tm.Graph("g", reactor=made.r)

    @made.g.node
    def out(a: int) -> int:
        return a

    return made


async def health(node: tm.Node, wanted: str) -> None:
    """Return when the stream has this health."""
    async with asyncio.timeout(5):
        while node.reactor("r").state().accumulators["a"].health != wanted:
            await node.settle()


@pytest.mark.parametrize("more", [False, True], ids=["same contract", "other contract"])
async def test_a_reload_that_cannot_be_built_leaves_the_old_version_whole(more: bool) -> None:
    """P-6, P-4: a Kafka stream without servers is found out before anything changes."""
    async with tm.Node(load=[following(Steady())]) as node:
        await health(node, "live")
        before = (node.registry.packages(), node.registry.graphs(), node.registry.endpoints())
        with pytest.raises(tm.OperationError, match="no kafka servers"):
            await node.load(following(tm.Kafka(topic="t"), more=more))
        assert (node.registry.packages(), node.registry.graphs(), node.registry.endpoints()) == before
        assert node.reactor("r").state().accumulators["a"].health == "live"
        assert (await node.push("a", 1)).outcome == "emitted"
        assert node.reactor("r").firings(1)[0].results["g"].outputs == {"out": 1}
        await node.load(following(Steady(), more=more))
        await node.unload("m")
        assert node.registry.endpoints() == []


async def test_an_error_that_is_not_ours_reaches_the_caller_of_load_unchanged() -> None:
    """API, `node.load`: the work runs in a task of the node, its error is the caller's."""

    class Odd(tm.Graph):
        def compile_for(self, reactor: Any) -> Any:
            raise ZeroDivisionError("odd")

    sample = single()
    async with tm.testing.node(load=[sample.reactor]) as node:
        with pytest.raises(ZeroDivisionError, match="odd"):
            await node.load(Odd("odd", reactor="r"))
        assert node.registry.graphs() == []


async def test_graphs_of_other_packages_run_against_the_new_version() -> None:
    """G-27, P-5: a subscriber by name sees the new classes, and routes by them."""
    first, second = version("a"), version("a")
    foreign = recording(first).g
    first.g = None
    foreign.reactor = "r"
    async with tm.testing.node(load=[first, foreign]) as node:
        await node.push("a", 1)
        await node.load(second)
        await node.push("a", 2)
        await node.push("a", -2)
        assert [one.ok for one in node.reactor("r").firings()] == [True] * 3
        assert [list(one.results["g"].outputs) for one in node.reactor("r").firings()] == [["down"], ["up"], ["up"]]


async def test_a_new_version_that_other_packages_graphs_do_not_fit_is_refused() -> None:
    """P-4: refused like an unload, with the subscribers, and the old version stays."""
    old = single()

    @tm.passthrough
    def a(event: str) -> str:
        return event

    new: Any = ModuleType("m")
    user = tm.Graph("user", reactor="r")
    seen = []

    @user.node
    def look(a: int) -> None:
        seen.append(a)

    new.r = tm.Reactor("r", [a])
    first: Any = ModuleType("m")
    first.r = old.reactor
    async with tm.testing.node(load=[first, user]) as node:
        with pytest.raises(tm.RequestError, match=r"1 bound subscriber\(s\): \['user'\]") as caught:
            await node.load(new)
        await node.push("a", 1)
    assert (caught.value.code, caught.value.facts["subscribers"], seen) == ("reactor_in_use", ["user"], [1])


async def test_a_hot_swap_carries_queue_and_cache_over_to_the_new_classes() -> None:
    """P-6: union members are distinguished by name."""
    old, new = (recording(version("a", strategy="sequential")) for _ in range(2))
    async with tm.testing.node(load=[old]) as node:
        await node.push("a", 1)
        await node.reactor("r").pause()
        await node.push("a", 2)
        await node.push("a", -3)
        await node.load(new)
        await node.reactor("r").resume()
        assert node.reactor("r").state().dropped == {}
    assert (old.seen, new.seen) == ([("up", 1, True)], [("up", 2, True), ("down", -3, True)])


async def test_a_hot_swap_carries_windows_batches_and_state_over() -> None:
    """P-6: elements, buffered events and running state become what the new version declares."""
    names = ("kept", "many", "total")
    old, new = version(*names), version(*names)
    async with tm.testing.node(load=[old]) as node:
        await node.push("kept", old.Up(value=1))
        await node.push("total", 5)
        await node.reactor("r").pause()
        await node.push("many", old.Up(value=10))
        await node.load(new)
        await node.push("kept", new.Up(value=2))
        await node.push("total", 6)
        await node.advance("1h")
        kept, many, total = node.probe.graphs.cached_values("r")
        assert {type(one) for one in kept} == {new.Up}
        assert ([one.value for one in kept], many, total) == ([1, 2], 10, new.Total(value=11))


async def test_what_does_not_fit_the_new_version_is_dropped_and_counted() -> None:
    """P-6: nothing vanishes without a trace."""

    def build(event_type: type) -> tm.Reactor:
        def a(event: Any) -> Any:
            return event

        a.__annotations__ = {"event": event_type, "return": event_type}
        return tm.Reactor("r", [tm.passthrough(a)], strategy="sequential")

    async with tm.testing.node(load=[build(int)]) as node:
        await node.push("a", 1)
        await node.reactor("r").pause()
        await node.push("a", 2)
        await node.load(build(str))
        state = node.reactor("r").state()
        assert (state.cache, state.queued, state.dropped) == ({}, 0, {"migration": 2})


async def test_a_pusher_waiting_for_room_is_let_in_by_a_larger_capacity() -> None:
    """P-6, G-12."""
    old, new = (single(strategy="sequential", capacity=size) for size in (1, 9))
    async with tm.testing.node(load=[old.reactor]) as node, asyncio.timeout(5), asyncio.TaskGroup() as group:
        await node.reactor("r").pause()
        await node.push("a", 1)
        waiting = group.create_task(node.push("a", 2))
        await node.advance(0)
        await node.load(new.reactor)
        assert (await waiting).outcome == "emitted"


async def test_an_unload_goes_on_when_its_caller_stops_waiting() -> None:
    """API, `node.unload`; G-29: never half done."""
    gate = asyncio.Event()
    sample = slow(lambda value: gate.wait())
    package: Any = ModuleType("m")
    package.r, package.g = sample.load
    async with tm.testing.node(load=[package]) as node, asyncio.timeout(5):
        async with asyncio.TaskGroup() as group:
            await node.push("a", 1)
            await node.advance(0)
            unloading = group.create_task(node.unload("m"))
            await node.advance(0)
            unloading.cancel()
        gate.set()
        await node.settle()
        await node.load(package)
        await node.unload("m")
        registry = node.registry
        assert registry.packages() == registry.reactors() == registry.graphs() == registry.accumulators() == []


async def test_a_swapped_stream_reports_its_new_source() -> None:
    """G-18, P-6: not what the old connection was worth."""
    async with tm.Node(load=[following(Steady())]) as node:
        await health(node, "live")
        await node.load(following(Silent()))
        assert node.reactor("r").state().accumulators["a"].health == "connecting"
        await node.load(following(Brief()))
        await health(node, "socket_only")
        await node.load(following(Steady()))
        await health(node, "live")
        assert node.reactor("r").events() == []


async def test_a_stream_that_did_not_change_stays_connected() -> None:
    """P-6: the same definition in a new version is not opened again."""
    source = Steady()

    @tm.stream(source)
    def a(event: int) -> int:
        return event

    async with tm.Node(load=[following(None, stream=a)]) as node:
        await health(node, "live")
        await node.load(following(None, stream=a))
        assert node.reactor("r").state().accumulators["a"].health == "live"
        await node.settle()
    assert source.begun == 1


async def test_a_feed_that_was_replaced_can_say_nothing_any_more() -> None:
    """G-19: only the current following of a source counts."""
    listeners: list[Any] = []

    async with tm.Node(load=[following(Steady())]) as node:
        await health(node, "live")
        stream: Any = GraphProbe.of(node).accumulator("a").kind
        follow = stream.reader.run

        async def noted(listener: Any, checkpoint: Any) -> None:
            listeners.append(listener)
            await follow(listener, checkpoint)

        stream.reader.run = noted
        await node.restart_accumulator("a")
        await health(node, "live")
        await node.load(following(Silent()))
        await node.settle()
        listeners[0].on_connected()
        listeners[0].on_disconnected("gone")
        assert node.reactor("r").state().accumulators["a"].health == "connecting"
        with pytest.raises(tm.OperationError, match="this one has ended"):
            await listeners[0].on_event(1, 1)


async def test_a_graph_may_have_any_name_and_is_gone_once_replaced() -> None:
    """G-27: names of the push path itself are no exception, and held handles stay valid."""
    sample = single()
    ran = []
    old, new = (tm.Graph(name, reactor=sample.reactor) for name in ("push_slow", "other"))

    @old.node
    def first(a: int) -> None:
        ran.append("old")

    @new.node
    def second(a: int) -> None:
        ran.append("new")

    async with tm.testing.node(load=[sample.reactor, old]) as node:
        push = node.handle("a")
        push(1)
        push(2)
        await node.unload("graph:push_slow")
        push(3)
        await node.load(new)
        push(4)
        push(5)
        assert node.handle("a") is push
    assert ran == ["old", "old", "new", "new"]


async def test_nothing_of_a_retired_graph_is_kept_alive() -> None:
    """P-6: memory is where it was."""

    class Heavy:
        pass

    def graph() -> tuple[tm.Graph, "weakref.ref[Heavy]"]:
        heavy, made = Heavy(), tm.Graph("g", reactor="r")

        @made.node
        def out(a: int) -> str:
            return str(heavy)

        return made, weakref.ref(heavy)

    sample = single()
    async with tm.testing.node(load=[sample.reactor]) as node:
        made, heavy = graph()
        await node.load(made)
        push = node.handle("a")
        push(1)
        push(2)
        await node.unload("graph:g")
        del made
        assert set(push.__globals__) == {"push_slow"}  # type: ignore[attr-defined]
    gc.collect()
    assert heavy() is None


@pytest.mark.parametrize("what", [tm.Reactor, tm.Graph])
async def test_two_definitions_of_one_name_in_a_module_are_refused(what: Any) -> None:
    """G-4, G-27: both places are named, nothing is loaded."""
    sample = single()
    package: Any = ModuleType("m")
    build = (lambda: tm.Reactor("x", sample.reactor.accumulators)) if what is tm.Reactor else (lambda: tm.Graph("x"))
    package.one = build()
    package.two = build()
    async with tm.testing.node() as node:
        with pytest.raises(tm.DefinitionError, match="are named 'x'") as caught:
            await node.load(package)
        assert node.registry.packages() == []
    assert str(package.one.location) in str(caught.value)
    assert str(package.two.location) in str(caught.value)
