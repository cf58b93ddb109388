"""The latest strategy: the newest value of each source, and no wake-up lost."""

import asyncio

import tidemill as tm
from tests.service.samples import pair, slow


async def test_boundaries_during_a_firing_lead_to_one_more_with_the_newest() -> None:
    """G-1, G-11, behaviour 34."""
    gate = asyncio.Event()
    sample = slow(lambda value: gate.wait())
    async with tm.testing.node(load=sample.load) as node, asyncio.timeout(5):
        await node.push("a", 0)
        await node.advance(0)
        for value in range(1, 6):
            await node.push("a", value)
        gate.set()
        await node.settle()
        assert node.reactor("r").state().fires == 2
    assert sample.seen == [0, 5]


async def test_a_running_firing_keeps_its_snapshot() -> None:
    """G-3, behaviour 35: later boundaries never alter it."""
    gate = asyncio.Event()
    sample = slow(lambda value: gate.wait())
    async with tm.testing.node(load=sample.load) as node, asyncio.timeout(5):
        await node.push("a", 1)
        await node.advance(0)
        await node.push("a", 2)
        gate.set()
        await node.settle()
        newest, oldest = node.reactor("r").firings()
    assert (oldest.inputs, newest.inputs) == ({"a": 1}, {"a": 2})
    assert oldest.results["g"].outputs == {"out": 10}


async def test_snapshots_of_the_past_stay_exact() -> None:
    """G-3: each firing shows what it saw, however many came after."""
    sample = pair()
    async with tm.testing.node(load=sample.load) as node:
        push_a, push_b = node.handle("a"), node.handle("b")
        for value in range(10):
            push_a(value)
            push_b(-value)
        shown = [firing.inputs for firing in reversed(node.reactor("r").firings())]
    wanted = [{"a": 0}, {"a": 0, "b": 0}]
    for value in range(1, 10):
        wanted += [{"a": value, "b": 1 - value}, {"a": value, "b": -value}]
    assert shown == wanted


async def test_the_last_value_is_always_seen_by_some_firing() -> None:
    """G-2, behaviour 36: no lost wake-up, pushes at every point of a firing."""
    sample = slow(lambda value: asyncio.sleep(0))
    async with tm.testing.node(load=sample.load) as node, asyncio.timeout(5):
        for value in range(50):
            await node.push("a", value)
            for _ in range(value % 7):
                await asyncio.sleep(0)
        await node.settle()
        assert node.reactor("r").state().cache == {"a": 49}
    assert sample.seen[-1] == 49
    assert sample.seen == sorted(sample.seen)


async def test_a_push_while_settling_is_settled_too() -> None:
    """API: settle returns when nothing is left to do now."""
    sample = slow(lambda value: asyncio.sleep(0))
    async with tm.testing.node(load=sample.load) as node, asyncio.timeout(5):
        await node.push("a", 1)
        await node.push("a", 2)
        await node.settle()
    assert sample.seen[-1] == 2


async def test_latest_never_queues() -> None:
    """G-11."""
    async with tm.testing.node(load=pair(capacity=1).load) as node:
        await node.reactor("r").pause()
        for value in range(5):
            await node.push("a", value)
        state = node.reactor("r").state()
    assert (state.queued, state.cache, state.dropped) == (0, {"a": 4}, {})
