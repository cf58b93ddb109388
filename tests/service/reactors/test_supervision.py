"""Supervision: crashed parts are restarted with growing delays, and everything else continues."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

import tidemill as tm
from tests.service.samples import pair, single, slow

Break = Callable[[tm.testing.TestNode], Awaitable[None]]


def accumulator(node: tm.Node) -> tm.AccumulatorState:
    """Return the state of accumulator `a`."""
    return node.reactor("r").state().accumulators["a"]


async def test_a_crashed_accumulator_restarts_alone() -> None:
    """G-19, behaviour 53: other sources keep their cache, the reactor is degraded meanwhile."""
    sample = pair()
    async with tm.testing.node(load=sample.load) as node:
        await node.push("a", 1)
        await node.push("b", 2)
        await node.break_accumulator("a")
        state = node.reactor("r").state()
        await node.push("b", 3)
        await node.advance("1s")
        after = node.reactor("r").state()
    assert (state.health, state.disconnected) == (tm.ReactorHealth.DEGRADED, ["a"])
    assert after.health is tm.ReactorHealth.LIVE
    assert (after.cache, after.accumulators["a"].restarts, after.accumulators["b"].restarts) == ({"a": 1, "b": 3}, 1, 0)
    assert sample.seen[-1] == (1, 3)


async def test_a_push_to_a_crashed_accumulator_is_rejected_with_the_reason() -> None:
    """API, G-4: and counted."""
    sample = single()
    async with tm.testing.node(load=sample.load) as node:
        await node.break_accumulator("a", ConnectionError("broker gone"))
        receipt = await node.push("a", 1)
        dropped = node.reactor("r").state().dropped
        await node.advance("1s")
        again = await node.push("a", 2)
    assert (receipt.accepted, receipt.outcome) == (False, "rejected")
    assert "broker gone" in (receipt.reason or "")
    assert sum(dropped.values()) == 1
    assert (again.outcome, sample.seen) == ("emitted", [2])


async def test_restarts_come_after_1_2_4_and_8_seconds_and_the_fifth_failure_is_final() -> None:
    """G-20, behaviour 55: no jitter."""
    delays = []
    async with tm.testing.node(load=single().load) as node:
        for delay in (1, 2, 4, 8):
            await node.break_accumulator("a")
            await node.advance(delay - 0.001)
            assert accumulator(node).health is tm.AccumulatorHealth.DISCONNECTED
            await node.advance("1ms")
            assert accumulator(node).health is tm.AccumulatorHealth.SOCKET_ONLY
            delays.append(delay)
        await node.break_accumulator("a")
        await node.advance("2h")
        assert accumulator(node).health is tm.AccumulatorHealth.FAILED
        assert accumulator(node).restarts == len(delays)


async def test_a_failed_accumulator_leaves_its_reactor_degraded_naming_it() -> None:
    """G-20: and pushes to it are rejected."""
    sample = pair()
    async with tm.testing.node(load=sample.load) as node:
        for _ in range(5):
            await node.break_accumulator("a")
        state = node.reactor("r").state()
        receipt = await node.push("a", 1)
        await node.push("b", 1)
        actions = [event.action for event in node.reactor("r").events()[::-1]]
    assert (state.health, state.disconnected) == (tm.ReactorHealth.DEGRADED, ["a"])
    assert receipt.outcome == "rejected"
    assert sample.seen == [(None, 1)]
    assert actions == ["crashed"] * 4 + ["failed"]


async def test_an_operator_revives_a_failed_accumulator() -> None:
    """G-20: `restart_accumulator`, with a clean slate."""
    async with tm.testing.node(load=single().load) as node:
        for _ in range(5):
            await node.break_accumulator("a")
        await node.restart_accumulator("a")
        assert accumulator(node).health is tm.AccumulatorHealth.SOCKET_ONLY
        assert (await node.push("a", 1)).outcome == "emitted"
        await node.break_accumulator("a")
        await node.advance("1s")
        assert accumulator(node).health is tm.AccumulatorHealth.SOCKET_ONLY


async def test_restarting_the_reactor_revives_its_failed_accumulators() -> None:
    """G-20: `reactor.restart()`."""
    async with tm.testing.node(load=single().load) as node:
        for _ in range(5):
            await node.break_accumulator("a")
        await node.reactor("r").restart()
        state = node.reactor("r").state()
    assert state.health is tm.ReactorHealth.LIVE
    assert state.accumulators["a"].health is tm.AccumulatorHealth.SOCKET_ONLY


async def test_breaking_a_failed_accumulator_again_changes_nothing() -> None:
    """G-20: given up is given up."""
    async with tm.testing.node(load=single().load) as node:
        for _ in range(7):
            await node.break_accumulator("a")
        await node.disconnect("a")
        await node.reconnect("a")
        assert accumulator(node).health is tm.AccumulatorHealth.FAILED


async def test_a_minute_of_health_wipes_the_slate_clean() -> None:
    """G-20, behaviour 55."""
    async with tm.testing.node(load=single().load) as node:
        for _ in range(8):
            await node.break_accumulator("a")
            await node.advance("1s")
            assert accumulator(node).health is tm.AccumulatorHealth.SOCKET_ONLY
            await node.advance("60s")


async def test_less_than_a_minute_of_health_does_not() -> None:
    """G-20."""
    async with tm.testing.node(load=single().load) as node:
        await node.break_accumulator("a")
        await node.advance("60s")
        await node.break_accumulator("a")
        await node.advance("1s")
        assert accumulator(node).health is tm.AccumulatorHealth.DISCONNECTED
        await node.advance("1s")
        assert accumulator(node).health is tm.AccumulatorHealth.SOCKET_ONLY


async def test_twenty_restarts_an_hour_are_the_limit() -> None:
    """G-20: a sliding limit, on top of the count in a row."""
    async with tm.testing.node(load=single().load) as node:
        for _ in range(20):
            await node.break_accumulator("a")
            await node.advance("62s")
        assert accumulator(node).restarts == 20
        await node.break_accumulator("a")
        assert accumulator(node).health is tm.AccumulatorHealth.FAILED


async def test_restarts_spread_over_more_than_an_hour_are_no_reason_to_give_up() -> None:
    """G-20: the hour slides."""
    async with tm.testing.node(load=single().load) as node:
        for _ in range(30):
            await node.break_accumulator("a")
            await node.advance("4m")
        assert accumulator(node).health is tm.AccumulatorHealth.SOCKET_ONLY


async def test_a_crashed_reactor_keeps_cache_flags_and_takes_boundaries_meanwhile() -> None:
    """G-19, behaviour 54: subscribers preserved, accumulators keep running."""
    sample = pair(when="all")
    async with tm.testing.node(load=sample.load) as node:
        await node.push("a", 1)
        await node.break_reactor("r")
        down = node.reactor("r").state()
        assert (await node.push("b", 2)).outcome == "emitted"
        assert sample.seen == []
        await node.advance("1s")
        up = node.reactor("r").state()
    assert down.health is tm.ReactorHealth.STARTING
    assert (up.health, up.subscribers) == (tm.ReactorHealth.LIVE, ["g"])
    assert sample.seen == [(1, 2)]
    assert all(one.restarts == 0 for one in up.accumulators.values())


async def test_a_crashed_sequential_reactor_keeps_its_queue() -> None:
    """G-19."""
    sample = single(strategy="sequential")
    async with tm.testing.node(load=sample.load) as node:
        await node.reactor("r").pause()
        await node.push("a", 0)
        await node.break_reactor("r")
        await node.push("a", 1)
        await node.advance("1s")
        assert node.reactor("r").state().paused
        await node.reactor("r").resume()
    assert sample.seen == [0, 1]


async def test_a_firing_that_a_crash_cut_off_runs_again() -> None:
    """G-2, G-19: its inputs are fired again, ahead of newer ones."""
    gate = asyncio.Event()
    sample = slow(lambda value: gate.wait(), strategy="sequential")
    async with tm.testing.node(load=sample.load) as node, asyncio.timeout(5):
        await node.push("a", 0)
        await node.advance(0)
        await node.push("a", 1)
        await node.break_reactor("r")
        gate.set()
        await node.advance("1s")
        await node.settle()
    assert sample.seen == [0, 0, 1]


async def test_an_operator_restart_ends_a_hanging_firing_and_runs_it_again() -> None:
    """G-19, G-20."""
    hang = [True]

    async def act(value: int) -> None:
        if hang.pop():
            await asyncio.Event().wait()

    hang = [False, True]
    sample = slow(act)
    async with tm.testing.node(load=sample.load) as node, asyncio.timeout(5):
        await node.push("a", 1)
        await node.advance(0)
        await node.reactor("r").restart()
        await node.settle()
        assert node.reactor("r").state().fires == 1
    assert sample.seen == [1, 1]


async def test_a_reactor_is_given_up_after_five_crashes_and_revived_by_hand() -> None:
    """G-20: Failed, visible; not_ready for commands."""
    sample = single()
    async with tm.testing.node(load=sample.load) as node:
        for delay in (1, 2, 4, 8):
            await node.break_reactor("r")
            await node.advance(delay)
            assert node.reactor("r").state().health is tm.ReactorHealth.LIVE
        await node.break_reactor("r")
        await node.advance("1h")
        assert node.reactor("r").state().health is tm.ReactorHealth.FAILED
        await node.push("a", 1)
        with pytest.raises(tm.RequestError) as caught:
            await node.reactor("r").force_fire()
        await node.reactor("r").restart()
        assert node.reactor("r").state().health is tm.ReactorHealth.LIVE
    assert caught.value.code == "not_ready"
    assert sample.seen == [1]


async def test_recoveries_are_events_with_time_and_reason() -> None:
    """G-20: every recovery is an event."""
    async with tm.testing.node(load=single().load) as node:
        began = node.clock.now()
        await node.break_accumulator("a", OSError("gone"))
        await node.advance("1s")
        await node.break_reactor("r")
        await node.advance("1s")
        events = node.reactor("r").events()[::-1]
    assert [(event.component, event.name, event.action) for event in events] == [
        ("accumulator", "a", "crashed"),
        ("accumulator", "a", "restarted"),
        ("reactor", "r", "crashed"),
        ("reactor", "r", "restarted"),
    ]
    assert "gone" in events[0].reason
    assert (events[0].at, (events[1].at - began).total_seconds()) == (began, 1)


async def test_constants_are_settings() -> None:
    """graphs.md: constants are settings with these defaults."""
    settings = {"backoff_base": "10s", "component_max_failures": 2}
    async with tm.testing.node(load=single().load, settings=settings) as node:
        await node.break_accumulator("a")
        await node.advance("9s")
        assert accumulator(node).health is tm.AccumulatorHealth.DISCONNECTED
        await node.advance("1s")
        await node.break_accumulator("a")
        assert accumulator(node).health is tm.AccumulatorHealth.FAILED


async def test_a_crash_planned_for_restart_is_forgotten_when_its_reactor_is_unloaded() -> None:
    """G-29: nothing is restarted."""
    polls = []

    @tm.polling(every="1s")
    def limits() -> None:
        polls.append(1)

    async with tm.testing.node(load=[tm.Reactor("r", [limits])]) as node:
        await node.break_accumulator("limits")
        await node.unload("reactor:r")
        await node.advance("1m")
    assert polls == []
