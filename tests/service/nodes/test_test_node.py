"""The node for tests: virtual time, settling, and faults on demand."""

import asyncio
from datetime import UTC, datetime, timedelta, timezone

import pytest

import tidemill as tm
from tests.service.samples import pair, single, slow

START = datetime(2030, 6, 1, tzinfo=UTC)


async def test_time_starts_where_told_and_stands_still() -> None:
    """API: `start=`."""
    async with tm.testing.node(start=START) as node:
        await node.settle()
        assert node.clock.now() == START


async def test_time_is_aware_and_in_utc() -> None:
    """API: `node.clock.now()` (aware)."""
    east = datetime(2030, 6, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    async with tm.testing.node(start=east) as node:
        assert node.clock.now() == START
        assert node.clock.now().utcoffset() == timedelta(0)
    async with tm.testing.node() as node:
        assert node.clock.now().tzinfo is not None


@pytest.mark.parametrize(
    ("duration", "seconds"), [("3h", 10800), ("200ms", 0.2), (90, 90), (timedelta(minutes=2), 120), ("1h30m", 5400)]
)
async def test_advance_takes_any_duration(duration: str | int | timedelta, seconds: float) -> None:
    """API: `await node.advance("3h")`."""
    async with tm.testing.node(start=START) as node:
        await node.advance(duration)
        assert node.clock.now() == START + timedelta(seconds=seconds)


async def test_advance_moves_step_by_step() -> None:
    """API: running what becomes due, each at its own time."""
    moments = []

    @tm.polling(every="10m")
    def polled() -> None:
        moments.append(node.clock.now())

    node = tm.testing.node(load=[tm.Reactor("r", [polled])], start=START)
    async with node:
        await node.advance("1h")
    assert moments == [START + timedelta(minutes=10 * number) for number in range(1, 7)]


async def test_advance_does_not_wait_for_what_blocks() -> None:
    """API."""
    gate = asyncio.Event()
    sample = slow(lambda value: gate.wait())
    async with tm.testing.node(load=sample.load) as node, asyncio.timeout(5):
        await node.push("a", 1)
        await node.advance("1h")
        assert node.reactor("r").state().fires == 0
        gate.set()
        await node.settle()
        assert node.reactor("r").state().fires == 1


async def test_settle_waits_for_real_sleeps_of_author_code() -> None:
    """API: author code's own `asyncio.sleep` stays real."""
    sample = slow(lambda value: asyncio.sleep(0.01))
    async with tm.testing.node(load=sample.load) as node, asyncio.timeout(5):
        await node.push("a", 1)
        await node.settle()
        assert node.reactor("r").state().fires == 1


async def test_settle_does_not_wait_for_a_blocked_push() -> None:
    """API: a blocked push does not count."""
    sample = single(strategy="sequential", capacity=1)
    async with tm.testing.node(load=sample.load) as node, asyncio.timeout(5), asyncio.TaskGroup() as group:
        await node.reactor("r").pause()
        await node.push("a", 1)
        group.create_task(node.push("a", 2))
        await node.settle()
        await node.reactor("r").resume()


async def test_settle_works_on_a_real_node_too() -> None:
    """API: for tests and scripts."""
    sample = slow(lambda value: asyncio.sleep(0.01))
    async with tm.Node(load=sample.load) as node, asyncio.timeout(5):
        await node.push("a", 1)
        await node.settle()
        assert node.reactor("r").state().fires == 1


async def test_break_accumulator_is_one_crash() -> None:
    """API: with an error of one's choice."""
    async with tm.testing.node(load=single().load) as node:
        await node.break_accumulator("a", ValueError("mine"))
        (event,) = node.reactor("r").events()
        await node.advance("1s")
        assert node.reactor("r").state().accumulators["a"].restarts == 1
    assert "mine" in event.reason


async def test_a_crashed_accumulator_is_not_repaired_by_a_connection() -> None:
    """API: disconnect and reconnect are about the source alone."""
    async with tm.testing.node(load=single().load) as node:
        await node.break_accumulator("a")
        await node.reconnect("a")
        assert node.reactor("r").state().health is tm.ReactorHealth.DEGRADED
        assert (await node.push("a", 1)).outcome == "rejected"


async def test_a_restart_does_not_repair_a_connection() -> None:
    """API: it stays disconnected until reconnected."""
    async with tm.testing.node(load=single().load) as node:
        await node.disconnect("a")
        await node.break_accumulator("a")
        await node.advance("1s")
        assert node.reactor("r").state().disconnected == ["a"]
        await node.reconnect("a")
        assert node.reactor("r").state().health is tm.ReactorHealth.LIVE


async def test_faults_of_unknown_parts_are_errors() -> None:
    """G-4."""
    async with tm.testing.node() as node:
        for fault in (node.break_accumulator, node.break_reactor, node.disconnect, node.reconnect):
            with pytest.raises(tm.RequestError):
                await fault("nothing")


async def test_a_crash_gives_a_fresh_node_on_the_same_clock_and_definitions() -> None:
    """API, G-25: without a store it starts empty."""
    sample = pair()
    async with tm.testing.node(load=sample.load, start=START) as node:
        await node.push("a", 1)
        await node.advance("1h")
        before, node = node, await node.crash()
        assert node is not before
        assert node.clock.now() == START + timedelta(hours=1)
        assert (node.reactor("r").state().cache, node.reactor("r").state().fires) == ({}, 0)
        assert (await node.push("b", 2)).sequence == 1
    assert sample.seen == [(1, None), (None, 2)]


async def test_a_crash_brings_back_what_was_loaded_later_and_not_what_was_unloaded() -> None:
    """API: the same definitions as at the moment of the crash."""
    sample = single()
    other = tm.Reactor("other", sample.reactor.accumulators)
    async with tm.testing.node(load=[other]) as node:
        for thing in sample.load:
            await node.load(thing)
        await node.load(sample.reactor, tenant="acme")
        await node.unload("reactor:other")
        node = await node.crash()
        assert (node.registry.reactors(), node.registry.graphs()) == (["r"], ["g"])
        assert node.registry.reactors("acme") == ["r"]


async def test_what_a_crashed_node_ran_never_reports() -> None:
    """API: as after kill -9; its handles are dead."""
    gate = asyncio.Event()
    done = []

    async def act(value: int) -> None:
        await gate.wait()
        done.append(value)

    sample = slow(act, strategy="sequential")
    async with tm.testing.node(load=sample.load) as node, asyncio.timeout(5):
        push = node.handle("a")
        push(1)
        push(2)
        await node.advance(0)
        node = await node.crash()
        gate.set()
        await node.settle()
        with pytest.raises(tm.RequestError, match="no longer running"):
            push(3)
        await node.push("a", 4)
        await node.settle()
    assert done == [4]


async def test_a_crashed_node_can_crash_again_and_all_are_closed_with_the_first() -> None:
    """API: the original `async with` closes it."""
    tasks = len(asyncio.all_tasks())
    async with tm.testing.node(load=single().load) as node:
        for _ in range(3):
            node = await node.crash()
        last = node
        await last.push("a", 1)
    assert len(asyncio.all_tasks()) == tasks
    with pytest.raises(tm.RequestError, match="not running"):
        await last.push("a", 2)


async def test_a_node_may_be_opened_and_closed_at_once() -> None:
    """G-29: nothing was even started."""

    @tm.polling(every="1s")
    async def polled() -> int:
        return 1

    for _ in range(3):
        async with tm.testing.node(load=[tm.Reactor("r", [polled])]):
            pass
        async with tm.Node(load=[tm.Reactor("r", [polled])]):
            pass
