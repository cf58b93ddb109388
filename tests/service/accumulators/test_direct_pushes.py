"""Awaited pushes that need not wait: they keep every promise of a push, and follow every change behind them."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest

import tidemill as tm
from tests.service.accumulators.test_handles import module
from tests.service.samples import raising, single


async def warm_up(node: tm.Node, pushes: int = 3) -> None:
    """Push until pushes are direct."""
    for number in range(pushes):
        assert (await node.push("a", number + 1)).outcome == "emitted"


async def test_pushes_are_counted_exactly_and_timed_by_samples() -> None:
    """Metrics: the count is that of the pushes; one in 64 direct ones stands for the others in the sum of seconds."""
    async with tm.testing.node(load=single().load) as node:
        clock, read = node.clock, node.clock.monotonic
        reads = 0

        def monotonic() -> float:
            nonlocal reads
            reads += 1
            return read() + reads * 0.5

        clock.monotonic = monotonic
        state = node.reactor("r").state
        for pushed in range(1, 301):
            await node.push("a", pushed)
            assert state().accumulators["a"].pushes == pushed
        seconds = state().accumulators["a"].push_seconds
    assert 300 * 0.5 <= seconds <= 300 * 2.0, "each timed push has read the clock at least once in between"
    assert seconds % 0.5 == 0


async def test_the_node_gets_a_turn_within_256_direct_pushes() -> None:
    """A tight loop of pushes that never wait does not starve what else runs on the loop."""
    async with tm.testing.node(load=single().load) as node:
        turns: list[int] = []
        pushed = 0

        async def take_turns() -> None:
            while pushed < 2_000:
                turns.append(pushed)
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as group:
            group.create_task(take_turns(), name="turns")
            for number in range(2_000):
                await node.push("a", number + 1)
                pushed = number + 1
    gaps = [later - earlier for earlier, later in pairwise(turns)]
    assert max(gaps) <= 256


@pytest.mark.parametrize("event", ["x", b"7", 4.5, None, {}])
async def test_an_unusual_event_among_direct_ones_gets_its_own_receipt(event: Any) -> None:
    """G-4: it is decoded, converted or a dead letter, as in a first push."""
    answers = []
    for pushes in (0, 3):
        async with tm.testing.node(load=single().load) as node:
            await warm_up(node, pushes)
            receipt = await node.push("a", event)
            answers.append((receipt.accepted, receipt.outcome, receipt.reason))
            assert len(await node.reactor("r").dead_letters()) == (receipt.outcome == "dead_lettered")
    assert answers[0] == answers[1]


@pytest.mark.parametrize("annotation", [int, Any])
async def test_events_of_one_class_and_of_any_class_are_pushed_directly(annotation: Any) -> None:
    """G-1: without an annotation, only bytes have to be decoded first."""

    def a(event: Any) -> Any:
        return event

    a.__annotations__["event"] = annotation
    reactor = tm.Reactor("r", [tm.passthrough(a)])
    graph = tm.Graph("g", reactor=reactor)
    seen: list[Any] = []

    @graph.node
    def note(a: Any) -> None:
        seen.append(a)

    async with tm.testing.node(load=[reactor, graph]) as node:
        await warm_up(node)
        push_now = node.probe.graphs.accumulator("a").paths.push_now
        assert push_now(4) == tm.Receipt(True, 4, "emitted")
        assert push_now(b"5") is None
        assert (await node.push("a", b"5")).sequence == 5
    assert seen == [1, 2, 3, 4, 5]


class Reading(tm.Boundary):
    value: int


async def test_an_event_that_fits_the_declared_class_is_converted_and_pushed_directly() -> None:
    """G-4: the fast path is tried once; an event that does not fit is a dead letter, as in a first push."""

    @tm.passthrough
    def readings(event: Reading) -> Reading:
        return event

    reactor = tm.Reactor("r", [readings])
    graph = tm.Graph("g", reactor=reactor)
    seen: list[Reading] = []

    @graph.node
    def note(readings: Reading) -> None:
        seen.append(readings)

    async with tm.testing.node(load=[reactor, graph]) as node:
        for value in (1, 2, 3):
            await node.push("readings", Reading(value))
        push_now = node.probe.graphs.accumulator("readings").paths.push_now
        assert push_now({"value": 4}) == tm.Receipt(True, 4, "emitted")
        assert push_now({"value": "many"}) is None
        assert (await node.push("readings", {"value": "many"})).outcome == "dead_lettered"
        assert len(await node.reactor("r").dead_letters()) == 1
    assert seen == [Reading(value) for value in (1, 2, 3, 4)]


async def test_a_direct_push_is_answered_when_its_function_or_its_graph_raises() -> None:
    """G-4, G-15: suppressed; emitted, and the firing has failed."""
    sample = single(raising(when=lambda value: value == 13))
    async with tm.testing.node(load=sample.load) as node:
        await warm_up(node)
        assert (await node.push("a", -1)).outcome == "suppressed"
        assert (await node.push("a", 13)) == tm.Receipt(True, 4, "emitted")
        assert node.reactor("r").state().failures == 1


async def test_a_direct_push_reaches_the_version_that_is_loaded_now() -> None:
    """G-27: after a reload, an unload and another load."""
    async with tm.testing.node() as node:
        name = await node.load(module("first", 2))
        await warm_up(node)
        await node.load(module("first", 3))
        await node.push("a", 5)
        assert node.reactor("r").firings(1)[0].results["g"].outputs == {"out": 15}
        await warm_up(node)
        await node.unload(name)
        with pytest.raises(tm.RequestError, match="accumulator 'a' not loaded"):
            await node.push("a", 6)
        await node.load(module("second", 7))
        assert (await node.push("a", 5)).sequence == 1
        assert node.reactor("r").firings(1)[0].results["g"].outputs == {"out": 35}


async def test_direct_pushes_go_to_the_tenant_of_the_push() -> None:
    """G-30: a namesake of another tenant is another accumulator."""
    ours, theirs = single(), single()
    async with tm.testing.node(load=ours.load) as node:
        for one in theirs.load:
            await node.load(one, tenant="other")
        await warm_up(node)
        await node.push("a", 8, tenant="other")
        await node.push("a", 9)
    assert (ours.seen[-1], theirs.seen) == (9, [8])


async def test_a_bad_format_is_refused_among_direct_pushes() -> None:
    async with tm.testing.node(load=single().load) as node:
        await warm_up(node)
        with pytest.raises(tm.RequestError, match="'json' or 'msgpack', not 'xml'"):
            await node.push("a", 1, format="xml")
        assert (await node.push("a", b"\x05", format="msgpack")).outcome == "emitted"


async def test_an_ended_node_refuses_what_was_direct_before() -> None:
    async with tm.testing.node(load=single().load) as node:
        await warm_up(node)
    with pytest.raises(tm.RequestError, match="the node is not running"):
        await node.push("a", 1)


async def test_direct_pushes_wait_behind_those_that_wait_for_space() -> None:
    """G-12: a full queue blocks them, and their order stays."""
    sample = single(strategy="sequential", capacity=2)
    async with tm.testing.node(load=sample.load) as node:
        await warm_up(node)
        await node.reactor("r").pause()
        async with asyncio.TaskGroup() as group:
            pushes = [group.create_task(node.push("a", value), name=f"push {value}") for value in (10, 11, 12, 13)]
            for _ in range(20):
                await asyncio.sleep(0)
            assert [push.done() for push in pushes] == [True, True, False, False]
            await node.reactor("r").resume()
        await node.settle()
    assert sample.seen[3:] == [10, 11, 12, 13]


async def test_a_restarted_accumulator_takes_direct_pushes_again() -> None:
    """G-19: while it is down every push is rejected."""
    async with tm.testing.node(load=single().load) as node:
        await warm_up(node)
        node.probe.graphs.accumulator("a").crash(OSError("gone"))
        assert (await node.push("a", 1)).outcome == "rejected"
        await node.restart_accumulator("a")
        assert [(await node.push("a", value)).outcome for value in (1, 2, 3)] == ["emitted"] * 3
