"""Firings and dead letters of a version that was replaced: they read as before, and hold nothing of its code."""

import asyncio
from types import ModuleType
from typing import Any

import msgspec
import pytest

import tidemill as tm
from tidemill.graphs.views import FiringView

MODEL = """
import tidemill as tm

class Up(tm.Boundary):
    value: int
    key: str = "k"

class Down(tm.Boundary):
    value: int

@tm.passthrough
def a(event: Up) -> Up:
    return event

kept = tm.window("kept", Up, capacity=3)
"""
GRAPH = """
g = tm.Graph("g", reactor=r)

@g.node
def route(a: Up) -> Up | Down:
    if a.value == 0:
        raise ValueError("zero")
    return a if a.value > 0 else Down(value=a.value)

@g.node
def up(route: Up) -> Up:
    return route

@g.node
def down(route: Down) -> dict[str, Down]:
    return {"lowest": route}
"""
SHAPES = {
    "fast": 'r = tm.Reactor("r", [a])\n' + GRAPH,
    "broad": 'r = tm.Reactor("r", [a])\n'
    + GRAPH
    + GRAPH.replace("g =", "h =").replace('"g"', '"h"').replace("@g", "@h"),
    "with a window": 'r = tm.Reactor("r", [a, kept])\n'
    + GRAPH.replace("@g.node\ndef up", "@g.node(feeds=kept)\ndef up"),
    "keyed": 'r = tm.Reactor("r", [a], key="key", partitions=2)\n' + GRAPH,
    "awaited": 'r = tm.Reactor("r", [a], strategy="sequential")\n' + GRAPH.replace("def route", "async def route"),
    "without a graph": 'r = tm.Reactor("r", [a])\n',
}


def version(shape: str, **values: Any) -> Any:
    """Return module `m` with classes of its own."""
    made: Any = ModuleType("m")
    vars(made).update(values)
    exec(MODEL + SHAPES[shape], vars(made))
    return made


def views(node: tm.Node) -> list[Any]:
    """Return the firings as the API answers."""
    return [msgspec.to_builtins(FiringView.of(one)) for one in node.reactor("r").firings()]


def plain(value: Any) -> bool:
    """Return whether a value consists of builtins."""
    if isinstance(value, dict | list):
        return all(map(plain, value.values() if isinstance(value, dict) else value))
    return type(value).__module__ == "builtins"


@pytest.mark.parametrize("shape", SHAPES)
async def test_firings_of_a_replaced_version_read_as_before(shape: str) -> None:
    """P-6, G-16: routes, outputs, errors and inputs; the values are plain, those of the new version are its own."""
    async with tm.testing.node(load=[version(shape)]) as node:
        for value in (1, -2, 0, 3):
            await node.push("a", {"value": value})
        await node.settle()
        before = views(node)
        assert not plain(node.reactor("r").firings()[0].inputs)
        await node.load(newer := version(shape))
        assert views(node) == before
        for one in node.reactor("r").firings():
            assert plain(one.inputs)
            assert all(plain(result.outputs) for result in one.results.values())
        await node.load(newest := version(shape))
        assert views(node) == before
        await node.push("a", {"value": 4})
        await node.settle()
        firings = node.reactor("r").firings()
        assert type(firings[0].inputs["a"]) is newest.Up
        assert (len(firings), views(node)[1:]) == (5, before)
    assert newer.Up is not newest.Up


async def test_the_newest_200_stay_through_a_replacement() -> None:
    """G-16: the log is as long as before."""
    async with tm.testing.node(load=[version("fast")]) as node:
        push = node.handle("a")
        for value in range(1, 451):
            push({"value": value})
        await node.load(version("fast"))
        values = [one.inputs["a"]["value"] for one in node.reactor("r").firings(200)]
        assert values == list(range(450, 250, -1))
        await node.push("a", {"value": 451})
        assert len(node.reactor("r").firings(200)) == 200
        assert node.reactor("r").state().fires == 451


async def test_firings_without_the_replaced_graph_keep_their_types() -> None:
    """P-6: a graph of another package comes, is replaced, and goes."""

    def user() -> tm.Graph:
        graph = tm.Graph("user", reactor="r")

        @graph.node
        def seen(a: Any) -> int:
            return 1

        return graph

    def types() -> list[type]:
        return [type(one.inputs["a"]) for one in node.reactor("r").firings()]

    made = version("fast")
    async with tm.testing.node(load=[made]) as node:
        await node.push("a", {"value": 1})
        await node.load(user())
        await node.push("a", {"value": 2})
        assert types() == [made.Up, made.Up]
        await node.load(user())
        assert types() == [dict, made.Up]
        await node.push("a", {"value": 3})
        await node.unload("graph:user")
        assert types() == [dict, dict, made.Up]
        await node.push("a", {"value": 4})
        assert types() == [made.Up, dict, dict, made.Up]


async def test_a_firing_that_outlasts_its_version_is_logged_with_plain_values() -> None:
    """P-6: its graph is awaited while it is replaced."""
    gate = asyncio.Event()
    waiting = "\n@g.node\nasync def end(a: Up) -> Up:\n    await gate.wait()\n    return a\n"
    made, newer = (version("fast", gate=gate) for _ in range(2))
    exec(waiting, vars(made))
    async with tm.testing.node(load=[made]) as node:
        await node.push("a", {"value": 1})
        await asyncio.sleep(0)
        await node.load(newer)
        gate.set()
        await node.settle()
        (firing,) = node.reactor("r").firings()
        assert firing.results["g"].outputs["end"] == firing.inputs["a"] == {"value": 1, "key": "k"}


async def test_a_dead_firing_is_replayed_with_the_classes_of_the_new_version() -> None:
    """P-6: as after a restart."""
    made, newer = version("fast"), version("fast")
    newer.r = tm.Reactor("r", [newer.a])
    newer.g = tm.Graph("g", reactor=newer.r)

    def up(a: Any) -> bool:
        return type(a) is newer.Up

    up.__annotations__["a"] = newer.Up
    newer.g.node(up)
    async with tm.testing.node(load=[made]) as node:
        await node.push("a", {"value": 0})
        await node.load(newer)
        (letter,) = await node.reactor("r").dead_letters()
        assert letter.inputs == {"a": newer.Up(value=0)}
        firing = await node.reactor("r").replay(letter.id)
        assert firing.results["g"].outputs == {"up": True}


async def test_a_dead_event_has_the_class_of_the_new_version() -> None:
    """P-6: as after a restart; plain values if it does not fit."""

    def failing(made: Any, event: type) -> Any:
        def a(event: Any) -> int:
            raise ValueError("no")

        a.__annotations__ = {"event": event, "return": int}
        made.a = tm.passthrough(a)
        made.r = tm.Reactor("r", [made.a])
        return made

    first, second, third = (version("without a graph") for _ in range(3))
    async with tm.testing.node(load=[failing(first, first.Up)]) as node:
        await node.push("a", first.Up(value=1))
        await node.push("a", {"value": "x"})
        await node.load(failing(second, second.Up))
        assert await dead_events(node) == [second.Up(value=1), {"value": "x"}]
        await node.load(failing(third, str))
        assert await dead_events(node) == [{"value": 1, "key": "k"}, {"value": "x"}]


async def dead_events(node: tm.Node) -> list[Any]:
    """Return the events that are dead letters."""
    return [one.event for one in (await node.reactor("r").dead_letters())[::-1]]


async def test_the_elements_of_a_dead_event_have_the_class_of_the_new_version() -> None:
    """P-6: a list that was rejected holds nothing of the replaced version."""

    def failing(made: Any) -> Any:
        def a(event: Any) -> int:
            raise ValueError("no")

        a.__annotations__ = {"event": list[made.Up], "return": int}
        made.a = tm.passthrough(a)
        made.r = tm.Reactor("r", [made.a])
        return made

    first, second = (version("without a graph") for _ in range(2))
    async with tm.testing.node(load=[failing(first)]) as node:
        await node.push("a", [first.Up(value=1)])
        await node.load(failing(second))
        assert await dead_events(node) == [[second.Up(value=1)]]
