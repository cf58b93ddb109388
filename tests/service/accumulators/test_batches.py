"""Batches: gathered events, summed up by time, by size, after firings and at an orderly end."""

import asyncio
from typing import Any

import tidemill as tm


def gathering(max_size: int | None = None, **options: Any) -> tuple[list[Any], list[Any], list[list[int]]]:
    """Return what to load (batch `fills` and passthrough `go`), what the graph saw, and what the batch was given."""
    given: list[list[int]] = []
    seen: list[Any] = []

    @tm.batch(every="1s", max_size=max_size)
    def fills(events: list[int]) -> int | None:
        given.append(events)
        if 13 in events:
            raise ValueError("unlucky")
        return sum(events) or None

    @tm.passthrough
    def go(event: int) -> int:
        return event

    reactor = tm.Reactor("r", [fills, go], **options)
    graph = tm.Graph("g", reactor=reactor)

    @graph.node
    def out(fills: int | None, go: int | None) -> None:
        seen.append((fills, go))
        if go == 13:
            raise ValueError("unlucky")

    return [reactor, graph], seen, given


async def test_an_event_is_buffered_until_the_timer_flushes() -> None:
    """G-5, behaviour 10."""
    load, seen, given = gathering()
    async with tm.testing.node(load=load) as node:
        receipts = [await node.push("fills", value) for value in (1, 2, 3)]
        await node.advance("999ms")
        assert given == []
        await node.advance("1ms")
        assert given == [[1, 2, 3]]
    assert {(receipt.accepted, receipt.outcome) for receipt in receipts} == {(True, "buffered")}
    assert seen == [(6, None)]


async def test_an_empty_batch_emits_nothing() -> None:
    """G-5, behaviour 10: never empty."""
    load, seen, given = gathering()
    async with tm.testing.node(load=load) as node:
        await node.advance("1m")
    assert (seen, given) == ([], [])


async def test_a_full_batch_flushes_without_the_timer() -> None:
    """Behaviour 9."""
    load, seen, given = gathering(max_size=3)
    async with tm.testing.node(load=load) as node:
        receipts = [await node.push("fills", value) for value in (1, 2, 3, 4)]
    assert [receipt.outcome for receipt in receipts] == ["buffered", "buffered", "emitted", "buffered"]
    assert (given[0], seen[0]) == ([1, 2, 3], (6, None))
    assert [receipt.sequence for receipt in receipts] == [0, 0, 1, 1]


async def test_a_successful_firing_flushes() -> None:
    """G-5, behaviour 11: flush after the firing, which leads to another."""
    load, seen, given = gathering()
    async with tm.testing.node(load=load) as node:
        await node.push("fills", 5)
        await node.push("go", 1)
    assert given == [[5]]
    assert seen == [(None, 1), (5, 1)]


async def test_a_failed_firing_does_not_flush() -> None:
    """G-5."""
    load, seen, given = gathering()
    async with tm.testing.node(load=load) as node:
        await node.push("fills", 5)
        await node.push("go", 13)
        assert given == []
        await node.push("go", 1)
        assert given == [[5]]
    assert seen == [(None, 13), (None, 1), (5, 1)]


async def test_a_manual_firing_flushes_too() -> None:
    """G-5."""
    load, seen, given = gathering()
    async with tm.testing.node(load=load) as node:
        await node.push("fills", 5)
        firing = await node.reactor("r").force_fire()
        assert firing.inputs == {}
        assert given == [[5]]
    assert seen == [(None, None), (5, None)]


async def test_a_manual_firing_while_paused_flushes_into_the_cache() -> None:
    """G-5, G-13."""
    load, seen, _ = gathering()
    async with tm.testing.node(load=load) as node:
        await node.reactor("r").pause()
        await node.push("fills", 5)
        await node.reactor("r").fire_with({"go": 1})
        assert node.reactor("r").state().cache == {"go": 1, "fills": 5}
    assert seen == [(None, 1)]


async def test_shutdown_drains_into_one_boundary() -> None:
    """G-5, behaviour 12."""
    load, seen, given = gathering()
    async with tm.testing.node(load=load) as node:
        for value in (1, 2, 3):
            await node.push("fills", value)
    assert given == [[1, 2, 3]]
    assert seen == [(6, None)]


async def test_unloading_drains_too_and_an_async_graph_gets_to_see_it() -> None:
    """G-5, G-29: an orderly end."""
    load, _, given = gathering()
    late = tm.Graph("late", reactor=load[0])
    seen = []

    @late.node
    async def out(fills: int) -> None:
        await asyncio.sleep(0)
        seen.append(fills)

    async with asyncio.timeout(5), tm.testing.node(load=[load[0], late]) as node:
        await node.push("fills", 4)
    assert (given, seen) == ([[4]], [4])


async def test_none_suppresses_but_clears_the_buffer() -> None:
    """Behaviour 15."""
    load, seen, given = gathering()
    async with tm.testing.node(load=load) as node:
        await node.push("fills", 0)
        await node.advance("1s")
        await node.push("fills", 2)
        await node.advance("1s")
    assert given == [[0], [2]]
    assert seen == [(2, None)]


async def test_a_raising_batch_is_one_dead_letter_with_all_its_events() -> None:
    """G-7: replayed as a whole."""
    load, _, given = gathering()
    async with tm.testing.node(load=load) as node:
        await node.push("fills", 1)
        await node.push("fills", 13)
        await node.advance("1s")
        (letter,) = await node.reactor("r").dead_letters()
        state = node.reactor("r").state().accumulators["fills"]
    assert (letter.kind, letter.event, given) == ("event", [1, 13], [[1, 13]])
    assert (state.events, state.emitted, state.dead_letters) == (2, 0, 1)


async def test_a_misfit_never_enters_the_buffer() -> None:
    """G-7: elements are validated one by one."""
    load, _, given = gathering(max_size=2)
    async with tm.testing.node(load=load) as node:
        outcomes = [(await node.push("fills", value)).outcome for value in (1, "x", 2)]
    assert outcomes == ["buffered", "dead_lettered", "emitted"]
    assert given == [[1, 2]]


async def test_only_the_event_that_fills_a_batch_waits_for_room() -> None:
    """G-12: others are merely kept."""
    load, _, given = gathering(max_size=2, strategy="sequential", capacity=1)
    async with tm.testing.node(load=load) as node, asyncio.timeout(5), asyncio.TaskGroup() as group:
        await node.reactor("r").pause()
        await node.push("go", 1)
        assert (await node.push("fills", 1)).outcome == "buffered"
        filling = group.create_task(node.push("fills", 2))
        await node.settle()
        assert not filling.done()
        await node.reactor("r").resume()
        await filling
        await node.settle()
    assert sum(map(sum, given)) == 3


async def test_an_async_batch_gathers_while_it_flushes() -> None:
    """G-5: one at a time, nothing lost."""
    given = []

    @tm.batch(every="1s", max_size=2)
    async def fills(events: list[int]) -> int:
        given.append(events)
        await asyncio.sleep(0)
        return sum(events)

    async with tm.testing.node(load=[tm.Reactor("r", [fills], strategy="sequential")]) as node, asyncio.timeout(5):
        await asyncio.gather(*(node.push("fills", value) for value in range(5)))
        await node.advance("1s")
        await node.settle()
        assert sum(firing.inputs["fills"] for firing in node.reactor("r").firings()) == 10
    assert sorted(value for events in given for value in events) == [0, 1, 2, 3, 4]


async def test_an_async_batch_that_hangs_is_put_aside_by_a_restart() -> None:
    """G-22, G-20: its events become a dead letter, its timer continues."""
    never = asyncio.Event()

    @tm.batch(every="1s")
    async def fills(events: list[int]) -> int:
        if 0 in events:
            await never.wait()
        return sum(events)

    async with tm.testing.node(load=[tm.Reactor("r", [fills])]) as node, asyncio.timeout(5):
        await node.push("fills", 0)
        await node.advance("10s")
        assert node.reactor("r").state().accumulators["fills"].stuck_since is not None
        await node.restart_accumulator("fills")
        await node.settle()
        (letter,) = await node.reactor("r").dead_letters()
        await node.push("fills", 3)
        await node.advance("1s")
        assert node.reactor("r").state().cache == {"fills": 3}
        timers = [task for task in asyncio.all_tasks() if task.get_name() == "accumulator fills"]
    assert letter.event == [0]
    assert len(timers) == 1
