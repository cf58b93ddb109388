"""Pushes from inside a firing: noted, and fired after it."""

from collections.abc import Callable
from typing import Any

import pytest

import tidemill as tm
from tests.service.samples import Sample, observer, pair, raising, single


class Countdown:
    """An action that pushes the next smaller number, and notes when it begins and ends."""

    def __init__(self) -> None:
        self.push: Callable[[Any], Any] = lambda value: None
        self.order: list[tuple[str, int]] = []
        self.answers: list[Any] = []

    def __call__(self, value: int) -> None:
        self.order.append(("begin", value))
        if value:
            self.answers.append(self.push(value - 1))
        self.order.append(("end", value))


def graphs(sample: Sample, with_observer: bool) -> list[Any]:
    """Return what to load: alone the graph takes the fast path, with an observer the slow one."""
    return [*sample.load, observer(sample.reactor)] if with_observer else sample.load


@pytest.mark.parametrize("with_observer", [False, True])
@pytest.mark.parametrize("strategy", ["latest", "sequential"])
async def test_a_push_from_inside_a_firing_is_fired_after_it(strategy: str, with_observer: bool) -> None:
    """G-1: never inside, on both paths and with both strategies."""
    act = Countdown()
    sample = single(act, strategy=strategy)
    async with tm.testing.node(load=graphs(sample, with_observer)) as node:
        act.push = node.handle("a")
        act.push(0)
        outer = act.push(3)
        shown = [firing.inputs["a"] for firing in reversed(node.reactor("r").firings())]
    assert act.order[2:] == [(what, value) for value in (3, 2, 1, 0) for what in ("begin", "end")]
    assert (outer, act.answers) == (2, [3, 4, 5])
    assert shown == sample.seen == [0, 3, 2, 1, 0]


@pytest.mark.parametrize("with_observer", [False, True])
async def test_several_pushes_from_inside_are_one_more_firing_under_latest(with_observer: bool) -> None:
    """G-1, G-11: with the newest value."""
    box: dict[str, Any] = {"push": lambda value: None}

    def act(value: int) -> None:
        if value == 0:
            for inner in (1, 2, 3):
                box["push"](inner)

    sample = single(act)
    async with tm.testing.node(load=graphs(sample, with_observer)) as node:
        box["push"] = node.handle("a")
        box["push"](9)
        box["push"](0)
        assert node.reactor("r").state().fires == 3
    assert sample.seen == [9, 0, 3]


@pytest.mark.parametrize("with_observer", [False, True])
async def test_several_pushes_from_inside_are_each_fired_under_sequential(with_observer: bool) -> None:
    """G-11."""
    box: dict[str, Any] = {}

    def act(value: int) -> None:
        if value == 0:
            for inner in (1, 2, 3):
                box["push"](inner)

    sample = single(act, strategy="sequential")
    async with tm.testing.node(load=graphs(sample, with_observer)) as node:
        box["push"] = node.handle("a")
        box["push"](0)
    assert sample.seen == [0, 1, 2, 3]


async def test_a_push_of_another_source_from_inside_does_not_alter_the_running_snapshot() -> None:
    """G-3: exact snapshots also with re-entrant pushes."""
    box: dict[str, Any] = {"push": lambda value: None}
    sample = pair(lambda seen: box["push"](seen[0] * 10) if seen[0] and not seen[1] else None)
    async with tm.testing.node(load=sample.load) as node:
        push, box["push"] = node.handle("a"), node.handle("b")
        push(1)
        push(2)
        inputs = [firing.inputs for firing in reversed(node.reactor("r").firings())]
    assert inputs == [{"a": 1}, {"a": 1, "b": 10}, {"a": 2, "b": 10}]
    assert sample.seen == [(1, None), (1, 10), (2, 10)]


async def test_a_firing_that_pushes_and_then_fails_is_logged_as_it_was() -> None:
    """G-3, G-15: the dead letter holds the exact snapshot, the inner push is fired."""
    box: dict[str, Any] = {"push": lambda value: None}
    fail = raising(when=lambda value: value == 1)

    def act(value: int) -> None:
        if value == 1:
            box["push"](2)
        fail(value)

    sample = single(act)
    async with tm.testing.node(load=sample.load) as node:
        box["push"] = node.handle("a")
        for value in (0, 0, 1, 5):
            box["push"](value)
        (letter,) = await node.reactor("r").dead_letters()
        shown = [(firing.inputs["a"], firing.ok) for firing in reversed(node.reactor("r").firings())]
    assert letter.inputs == {"a": 1}
    assert shown == [(0, True), (0, True), (1, False), (2, True), (5, True)]


@pytest.mark.parametrize("strategy", ["latest", "sequential"])
@pytest.mark.parametrize(
    ("is_slow", "seen", "answers"), [(False, [0, 2, 1], (3, [2])), (True, [0, 1, 2], (2, [None]))], ids=["fast", "slow"]
)
async def test_an_accumulator_that_pushes_to_itself(
    strategy: Any, is_slow: bool, seen: list[int], answers: tuple[int, list[Any]]
) -> None:
    """G-1: on the fast path the inner event comes first, on the slow one the outer, as the documentation says."""
    box: dict[str, Any] = {}
    inner: list[int | None] = []

    def a(event: int) -> int:
        if event == 1:
            inner.append(box["push"](2))
        return event

    if is_slow:
        a.__annotations__["event"] = int | str  # events of several classes have no fast path
    reactor = tm.Reactor("r", [tm.passthrough(a)], strategy=strategy)
    graph = tm.Graph("g", reactor=reactor)
    fired: list[int] = []

    @graph.node
    def note(a: int) -> None:
        fired.append(a)

    async with tm.testing.node(load=[reactor, graph]) as node:
        box["push"] = push = node.handle("a")
        push(0)
        outer = push(1)
        assert node.reactor("r").state().accumulators["a"].emitted == 3
    assert fired == seen
    assert (outer, inner) == answers


async def test_two_reactors_may_push_into_each_other() -> None:
    """G-1: ping-pong does not recurse without end."""
    act = Countdown()
    ping = single(act)
    back: dict[str, Any] = {}

    @tm.passthrough
    def b(event: int) -> int:
        return event

    other = tm.Reactor("other", [b])
    pong = tm.Graph("pong", reactor=other)

    @pong.node
    def out(b: int) -> int:
        back["push"](b)
        return b

    async with tm.testing.node(load=[*ping.load, other, pong]) as node:
        back["push"], act.push = node.handle("a"), node.handle("b")
        back["push"](3000)
        await node.settle()
        assert node.reactor("other").state().fires == 3000
    assert ping.seen == list(range(3000, -1, -1))


async def test_an_endless_loop_of_pushes_leaves_the_loop_its_turns() -> None:
    """G-21: an operator can still pause it."""
    box: dict[str, Any] = {}
    sample = single(lambda value: box["push"](value + 1))
    async with tm.testing.node(load=sample.load) as node:
        box["push"] = node.handle("a")
        box["push"](0)
        await node.reactor("r").pause()
        fires = node.reactor("r").state().fires
        await node.settle()
        assert 0 < fires == node.reactor("r").state().fires


async def test_pausing_from_inside_a_firing_takes_effect_after_it() -> None:
    """G-13: a node that pauses its own reactor."""
    box: dict[str, Any] = {}

    def act(value: int) -> None:
        if value == 1:
            with pytest.raises(StopIteration):
                box["reactor"].pause().send(None)

    sample = single(act)
    async with tm.testing.node(load=sample.load) as node:
        box["reactor"] = node.reactor("r")
        push = node.handle("a")
        for value in (0, 0, 1, 2):
            push(value)
        assert node.reactor("r").state().dirty == {"a": True}
        await node.reactor("r").resume()
    assert sample.seen == [0, 0, 1, 2]
