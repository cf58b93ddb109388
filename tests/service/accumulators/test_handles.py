"""Handles: `push` without await, the same results on every path, and valid across every change."""

import asyncio
from typing import Any

import msgspec
import pytest

import tidemill as tm
from tests.service.samples import observer, raising, single

EVENTS = [1, 2, -1, 3, "x", 13, None, 4.5, b"5", 6, {}, 13, 7]


def module(name: str, factor: int = 1, reactor: dict[str, Any] | None = None) -> Any:
    """Return a module with reactor `r` over `a`, and graph `g`, which multiplies by `factor`."""
    sample = single(**(reactor or {}))
    graph = tm.Graph("g", reactor=sample.reactor)

    @graph.node
    def out(a: int) -> int:
        return a * factor

    made = type(asyncio)(name)
    vars(made).update(r=sample.reactor, g=graph)
    return made


async def by_push(node: tm.Node, event: Any) -> int | None:
    """Push and return what a handle would."""
    receipt = await node.push("a", event)
    return receipt.sequence if receipt.outcome == "emitted" else None


def report(node: tm.Node) -> dict[str, Any]:
    """Return everything that may be compared between two nodes."""
    firings = node.reactor("r").firings(limit=200)
    state = msgspec.to_builtins(node.reactor("r").state())
    for timed in ("subscribers", "since", "p50", "p99"):
        state.pop(timed)
    for accumulator in state["accumulators"].values():
        for timed in ("since", "pushes", "push_seconds"):
            accumulator.pop(timed)
    return {
        "firings": [(one.inputs, one.ok, one.results["g"].outputs, one.at, one.degraded) for one in firings],
        "ids": [one.id.rpartition("-")[2] for one in firings],
        "state": state,
        "series": node.reactor("r").timeseries(),
    }


@pytest.mark.parametrize("strategy", ["latest", "sequential"])
async def test_every_path_gives_the_same_results(strategy: str) -> None:
    """G-1: by handle, by push, and with a second graph, which closes the fast path."""
    reports, answers = [], []
    for way in ("handle", "push", "observed handle", "observed push"):
        sample = single(raising(when=lambda value: value == 13), strategy=strategy)
        others = [observer(sample.reactor)] if "observed" in way else []
        async with tm.testing.node(load=[*sample.load, *others]) as node:
            push = node.handle("a")
            answers.append([push(one) if "handle" in way else await by_push(node, one) for one in EVENTS * 30])
            reports.append(report(node))
            reports[-1]["letters"] = [
                (one.kind, one.event, one.inputs, one.error) for one in await node.reactor("r").dead_letters()
            ]
    assert all(one == reports[0] for one in reports)
    assert all(one == answers[0] for one in answers)


@pytest.mark.parametrize(
    ("annotation", "good", "bad"),
    [(list[int], [1], ["x"]), (int | str, "x", 1.5), (dict[str, int], {"x": 1}, {"x": "y"}), (float, 1.5, "x")],
)
async def test_a_handle_validates_like_a_push(annotation: Any, good: Any, bad: Any) -> None:
    """API: misfits are dead letters, on the fast path too."""

    def a(event: Any) -> str:
        return repr(event)

    a.__annotations__["event"] = annotation
    reactor = tm.Reactor("r", [tm.passthrough(a)])
    graph = tm.Graph("g", reactor=reactor)

    @graph.node
    def out(a: str) -> str:
        return a

    async with tm.testing.node(load=[reactor, graph]) as node:
        push = node.handle("a")
        assert [push(good), push(good), push(bad), push(good)] == [1, 2, None, 3]
        assert (await node.push("a", bad)).outcome == "dead_lettered"
        assert len(await node.reactor("r").dead_letters()) == 2


async def test_a_handle_decodes_bytes_like_a_push() -> None:
    """API: also where the annotation says nothing."""
    seen = []

    def a(event) -> int:
        seen.append(event)
        return 1

    reactor = tm.Reactor("r", [tm.passthrough(a)])
    graph = tm.Graph("g", reactor=reactor)

    @graph.node
    def out(a: int) -> int:
        return a

    async with tm.testing.node(load=[reactor, graph]) as node:
        push = node.handle("a")
        push({"x": 0})
        for data in (b'{"x": 1}', bytearray(b'{"x": 1}'), memoryview(b'{"x": 1}')):
            push(data)
        await node.push("a", b'{"x": 1}')
    assert seen == [{"x": 0}] + [{"x": 1}] * 4


@pytest.mark.parametrize("returned", [1.5, object()])
async def test_a_boundary_of_an_undeclared_class_is_a_dead_letter_on_the_fast_path(returned: Any) -> None:
    """G-7: unions are checked too."""

    @tm.passthrough
    def a(event: int) -> int | str:
        return returned if event == 13 else event

    reactor = tm.Reactor("r", [a])
    graph = tm.Graph("g", reactor=reactor)

    @graph.node
    def out(a: int | str) -> None:
        return None

    async with tm.testing.node(load=[reactor, graph]) as node:
        push = node.handle("a")
        assert [push(1), push(2), push(13), push(3)] == [1, 2, None, 3]
        assert len(await node.reactor("r").dead_letters()) == 1


async def test_a_handle_returns_none_when_nothing_was_emitted() -> None:
    """API."""
    async with tm.testing.node(load=single().load) as node:
        push = node.handle("a")
        assert [push(1), push(-1), push(2)] == [1, None, 2]


async def test_a_handle_refuses_async_accumulators() -> None:
    """API: they need `push`."""

    @tm.passthrough
    async def a(event: int) -> int:
        return event

    async with tm.testing.node(load=[tm.Reactor("r", [a])]) as node:
        with pytest.raises(tm.RequestError, match="asynchronous"):
            node.handle("a")


async def test_a_handle_refuses_reactors_that_promise_to_lose_nothing() -> None:
    """API: durability="boundary" needs `push`, which works without a store too (G-25)."""
    async with tm.testing.node(load=single(durability="boundary").load) as node:
        with pytest.raises(tm.RequestError, match="boundary"):
            node.handle("a")
        assert (await node.push("a", 1)).outcome == "emitted"


async def test_an_unknown_accumulator_has_no_handle() -> None:
    """G-4."""
    async with tm.testing.node(load=single().load) as node:
        with pytest.raises(tm.RequestError) as caught:
            node.handle("b")
    assert caught.value.code == "accumulator_not_found"


async def test_a_handle_outlives_a_crash_of_its_accumulator() -> None:
    """G-19: None meanwhile, counted."""
    sample = single()
    async with tm.testing.node(load=sample.load) as node:
        push = node.handle("a")
        push(1)
        await node.break_accumulator("a")
        assert push(2) is None
        assert sum(node.reactor("r").state().dropped.values()) == 1
        await node.advance("1s")
        assert [push(3), push(4)] == [2, 3]
    assert sample.seen == [1, 3, 4]


async def test_a_handle_outlives_a_crash_of_its_reactor() -> None:
    """G-19: what it brings meanwhile is kept."""
    sample = single()
    async with tm.testing.node(load=sample.load) as node:
        push = node.handle("a")
        push(1)
        await node.break_reactor("r")
        assert push(2) == 2
        assert sample.seen == [1]
        await node.advance("1s")
        assert push(3) == 3
    assert sample.seen == [1, 2, 3]


async def test_a_handle_outlives_hot_reloads() -> None:
    """G-19, P-6: same contract, new code; the cache stays."""
    async with tm.testing.node(load=[module("m")]) as node:
        push = node.handle("a")
        push(1)
        await node.load(module("m", factor=2))
        assert node.reactor("r").state().cache == {"a": 1}
        push(2)
        await node.load(module("m", factor=3))
        push(3)
        outputs = [firing.results["g"].outputs["out"] for firing in reversed(node.reactor("r").firings())]
    assert outputs == [1, 4, 9]


async def test_a_handle_outlives_a_reload_with_another_contract() -> None:
    """G-19: it finds the accumulator that has the name now."""
    async with tm.testing.node(load=[module("m")]) as node:
        push, reactor = node.handle("a"), node.reactor("r")
        push(1)
        await node.load(module("m", factor=2, reactor={"strategy": "sequential"}))
        assert push(2) == 1
        assert reactor.firings()[0].results["g"].outputs == {"out": 4}


async def test_a_handle_outlives_unload_and_load() -> None:
    """G-4: an error in between, nothing silently lost."""
    sample = single()
    async with tm.testing.node(load=sample.load) as node:
        push, reactor = node.handle("a"), node.reactor("r")
        push(1)
        await node.unload("graph:g")
        await node.unload("reactor:r")
        with pytest.raises(tm.RequestError) as caught:
            push(2)
        with pytest.raises(tm.RequestError, match="reactor 'r' not loaded"):
            reactor.state()
        for thing in sample.load:
            await node.load(thing)
        push(3)
        assert reactor.state().fires == 1
    assert caught.value.code == "accumulator_not_found"
    assert sample.seen == [1, 3]


async def test_a_handle_whose_accumulator_became_async_says_so() -> None:
    """API: it needs `push` now."""

    @tm.passthrough
    async def a(event: int) -> int:
        return event

    newer = type(asyncio)("m")
    newer.r = tm.Reactor("r", [a])  # type: ignore[attr-defined]
    async with tm.testing.node(load=[module("m")]) as node:
        push = node.handle("a")
        push(1)
        await node.load(newer)
        with pytest.raises(tm.RequestError, match="asynchronous"):
            push(2)
        assert (await node.push("a", 2)).outcome == "emitted"


async def test_a_handle_of_a_closed_node_says_so() -> None:
    """G-4: nothing is lost silently."""
    sample = single()
    async with tm.testing.node(load=sample.load) as node:
        push = node.handle("a")
        push(1)
    with pytest.raises(tm.RequestError, match="no longer running"):
        push(2)
    assert sample.seen == [1]


async def test_every_kind_has_a_handle() -> None:
    """Behaviour 4."""

    @tm.batch(every="1s", max_size=2)
    def fills(events: list[int]) -> int:
        return sum(events)

    @tm.polling(every="1h")
    async def polled() -> int:
        return 1

    @tm.stream(tm.Kafka(topic="t"))
    def streamed(event: int) -> int:
        return event

    window = tm.window("window", int, capacity=2)
    async with tm.testing.node(load=[tm.Reactor("r", [fills, polled, streamed, window])]) as node:
        assert [node.handle(name)(4) for name in ("fills", "fills", "polled", "streamed", "window")] == [
            None,
            1,
            1,
            1,
            1,
        ]
        assert node.reactor("r").state().cache == {"fills": 8, "polled": 4, "streamed": 4, "window": [4]}


async def test_an_interrupt_in_a_node_reaches_the_pusher_and_loses_no_news() -> None:
    """G-2: the value is seen by a later firing."""

    def act(value: int) -> None:
        if value == 2 and not sample.seen.count(2) > 1:
            raise KeyboardInterrupt

    sample = single(act)
    async with tm.testing.node(load=sample.load) as node:
        push = node.handle("a")
        push(1)
        push(1)
        with pytest.raises(KeyboardInterrupt):
            push(2)
        await node.settle()
        await node.reactor("r").resume()
        assert node.reactor("r").firings()[0].inputs == {"a": 2}
    assert sample.seen == [1, 1, 2, 2]
