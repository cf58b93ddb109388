"""A store that fails: reactors fire on, say so, and recover; under "boundary" nothing is acknowledged meanwhile."""

import asyncio
from typing import Any

import pytest

import tidemill as tm
from tests.service.samples import pair, single


class Total(tm.Boundary):
    """A running sum."""

    sum: int = 0


def summing(**options: Any) -> tuple[list[Any], list[Any]]:
    """Return reactor `r` over `total`, which keeps a running sum, and what its graph saw."""
    seen: list[int] = []

    @tm.passthrough(state=Total)
    def total(event: int, state: Total) -> Total:
        return Total(state.sum + event)

    reactor = tm.Reactor("r", [total], **options)
    graph = tm.Graph("g", reactor=reactor)

    @graph.node
    def out(total: Total) -> None:
        seen.append(total.sum)

    return [reactor, graph], seen


async def fail(node: tm.testing.TestNode, times: int) -> None:
    """Have this many checkpoints fail, one after the other, without time passing."""
    node.fail_store(times)
    for value in range(times):
        await node.push("a", value)
        await node.settle()


# -- G-26


async def test_five_failures_in_a_row_degrade_and_one_success_clears(store: str) -> None:
    """G-26, behaviour 52: with source "persist"; firings continue meanwhile, marked as degraded."""
    sample = single(durability="interval")
    async with tm.testing.node(store=store, load=sample.load) as node:
        await node.settle()
        await fail(node, 4)
        assert node.reactor("r").state().health == tm.ReactorHealth.LIVE
        node.fail_store(1)
        await node.push("a", 4)
        await node.settle()
        state = node.reactor("r").state()
        failures = node.metrics()["checkpoint_failures_total"]
        node.fail_store(1)
        await node.push("a", 5)
        degraded = node.reactor("r").firings()[0]
        await node.settle()
        await node.settle()
        after = node.reactor("r").state()
        await node.push("a", 6)
        fine = node.reactor("r").firings()[0]
    assert (state.health, state.disconnected, failures) == (tm.ReactorHealth.DEGRADED, ["persist"], 5)
    assert (after.health, after.disconnected) == (tm.ReactorHealth.LIVE, [])
    assert (degraded.degraded, fine.degraded, sample.seen) == (True, False, [0, 1, 2, 3, 4, 5, 6])


async def test_fire_degrades_and_recovers_too(store: str) -> None:
    """G-26: and a settle between a failure and the next try returns."""
    sample = single(durability="fire")
    async with tm.testing.node(store=store, load=sample.load) as node, asyncio.timeout(10):
        node.fail_store(1000)
        for value in range(5):
            await node.push("a", value)
            await node.settle()
        degraded = node.reactor("r").state()
        node.fail_store(0)
        for value in range(5, 8):
            await node.push("a", value)
            await node.settle()
        assert node.reactor("r").state().health == tm.ReactorHealth.LIVE
    assert (degraded.disconnected, sample.seen) == (["persist"], list(range(8)))


async def test_four_failures_are_not_five(store: str) -> None:
    """G-26: not in a row if one success is between them."""
    async with tm.testing.node(store=store, load=single().load) as node:
        for _ in range(3):
            await fail(node, 4)
            assert node.reactor("r").state().health == tm.ReactorHealth.LIVE
            await node.settle()
        assert node.metrics()["checkpoint_failures_total"] == 12


async def test_a_write_that_failed_is_tried_again_an_interval_later(store: str) -> None:
    """G-26: without anybody pushing; what it holds is the newest state."""
    sample = pair(when="all")
    async with tm.testing.node(store=store, load=sample.load) as node:
        node.fail_store(2)
        await node.push("a", 1)
        await node.advance("200ms")
        await node.push("a", 2)
        await node.advance("200ms")
        failures = node.metrics()["checkpoint_failures_total"]
        await node.advance("200ms")
        node = await node.crash()
        assert node.reactor("r").state().cache == {"a": 2}
    assert failures == 2


async def test_degraded_after_five_intervals_of_failing_and_live_again(store: str) -> None:
    """G-26, on the clock alone: each failed interval counts once."""
    async with tm.testing.node(store=store, load=pair(when="all").load) as node:
        node.fail_store(5)
        await node.push("a", 1)
        healths = []
        for _ in range(6):
            await node.advance("200ms")
            healths.append(str(node.reactor("r").state().health))
        failures = node.metrics()["checkpoint_failures_total"]
    assert healths == ["live"] * 4 + ["degraded", "live"]
    assert failures == 5


async def test_a_disconnected_source_and_persist_are_both_named(store: str) -> None:
    """G-9, G-26: each goes by itself."""
    async with tm.testing.node(store=store, load=pair().load) as node:
        await fail(node, 5)
        await node.disconnect("b")
        both = node.reactor("r").state().disconnected
        await node.settle()
        one = node.reactor("r").state()
        await node.reconnect("b")
        none = node.reactor("r").state()
    assert (both, one.disconnected, none.disconnected) == (["b", "persist"], ["b"], [])
    assert (one.health, none.health) == (tm.ReactorHealth.DEGRADED, tm.ReactorHealth.LIVE)


async def test_a_reactor_that_is_not_kept_does_not_care(store: str) -> None:
    """G-26: "none" has nothing to persist."""
    async with tm.testing.node(store=store, load=single(durability="none").load) as node:
        node.fail_store(1000)
        for value in range(10):
            await node.push("a", value)
            await node.advance("1s")
        state = node.reactor("r").state()
        assert (state.health, node.metrics()["checkpoint_failures_total"]) == (tm.ReactorHealth.LIVE, 0)


async def test_a_reactor_that_cannot_be_stored_does_not_keep_others_from_it(store: str) -> None:
    """G-26: only the one whose value has no place in a database is degraded, and only it is counted."""

    @tm.passthrough
    def odd(event: int) -> Any:
        return {event}

    sample = pair(when="all")
    async with tm.testing.node(store=store, load=[*sample.load, tm.Reactor("odd", [odd])]) as node:
        for value in range(20):
            await node.push("odd", value)
            await node.push("a", value)
            await node.advance("100ms")
            assert node.reactor("r").state().health == tm.ReactorHealth.LIVE
        assert node.reactor("odd").state().disconnected == ["persist"]
        await node.settle()
        node = await node.crash()
        assert node.reactor("r").state().cache == {"a": 19}


async def test_health_answers_while_the_store_fails_for_long(store: str) -> None:
    """G-21, G-26: settle returns, state answers, pushes go through."""
    sample = single()
    async with tm.testing.node(store=store, load=sample.load) as node, asyncio.timeout(10):
        node.fail_store(10_000)
        for value in range(20):
            await node.push("a", value)
            await node.advance("1s")
            await node.settle()
        assert node.reactor("r").state().disconnected == ["persist"]
        node.fail_store(0)
        await node.advance("1s")
        assert node.reactor("r").state().health == tm.ReactorHealth.LIVE
        node = await node.crash()
        assert node.reactor("r").state().cache == {"a": 19}
    assert sample.seen == list(range(20))


# -- boundary


@pytest.mark.parametrize("strategy", ["latest", "sequential"])
async def test_a_push_that_was_not_stored_is_rejected_and_nothing_happened(store: str, strategy: Any) -> None:
    """G-4, G-24: with a reason, counted, no number spent; running state is as before; the next push works."""
    load, seen = summing(durability="boundary", strategy=strategy)
    async with tm.testing.node(store=store, load=load) as node:
        first = await node.push("total", 1)
        await node.settle()
        node.fail_store(1)
        refused = await node.push("total", 10)
        dropped = node.reactor("r").state().dropped
        second = await node.push("total", 2)
        await node.settle()
        node = await node.crash()
        await node.settle()
        third = await node.push("total", 3)
        await node.settle()
    assert (refused.outcome, refused.accepted, refused.sequence) == ("rejected", False, 1)
    assert "stored" in str(refused.reason)
    assert [first.sequence, second.sequence, third.sequence] == [1, 2, 3]
    assert (sum(dropped.values()), seen) == (1, [1, 3, 6])


async def test_pushes_behind_one_that_was_not_stored_share_its_fate(store: str) -> None:
    """G-24: what was prepared on top of a refused state is refused with it, and the rest counts on from there."""
    load, seen = summing(durability="boundary", strategy="sequential")
    async with tm.testing.node(store=store, load=load) as node:
        node.fail_store(1)
        receipts = await asyncio.gather(*(node.push("total", 1) for _ in range(5)))
        receipts += [await node.push("total", 1)]
        node = await node.crash()
        await node.settle()
    accepted = [receipt.sequence for receipt in receipts if receipt.accepted]
    assert accepted == list(range(1, len(accepted) + 1))
    assert 1 <= len(accepted) < 6
    assert seen[-1] == len(accepted)


async def test_room_that_a_refused_push_had_taken_is_free_again(store: str) -> None:
    """G-12, G-24: a queue of one is not blocked by what never got in."""
    load, _ = summing(durability="boundary", strategy="sequential", capacity=1, overflow="reject")
    async with tm.testing.node(store=store, load=load) as node:
        await node.reactor("r").pause()
        for _ in range(3):
            node.fail_store(1)
            assert "stored" in str((await node.push("total", 1)).reason)
        assert (await node.push("total", 1)).accepted
        assert "full" in str((await node.push("total", 1)).reason)


async def test_five_refused_pushes_degrade_a_reactor_with_a_journal(store: str) -> None:
    """G-26: a journal that cannot be written is a persist failure; one push that goes through clears it."""
    sample = single(durability="boundary")
    async with tm.testing.node(store=store, load=sample.load) as node:
        await node.settle()
        for _ in range(5):
            node.fail_store(1)
            await node.push("a", 1)
        state = node.reactor("r").state()
        await node.push("a", 2)
        after = node.reactor("r").state()
    assert (state.health, state.disconnected) == (tm.ReactorHealth.DEGRADED, ["persist"])
    assert (after.health, sample.seen) == (tm.ReactorHealth.LIVE, [2])


async def test_a_pause_that_is_not_stored_is_reported_and_holds_for_now(store: str) -> None:
    """API, G-13: a pause outlives the process; where it cannot, the operator learns it."""
    sample = single()
    async with tm.testing.node(store=store, load=sample.load) as node:
        node.fail_store(1)
        with pytest.raises(tm.OperationError, match="paused"):
            await node.reactor("r").pause()
        await node.push("a", 1)
        assert (node.reactor("r").state().paused, sample.seen) == (True, [])
