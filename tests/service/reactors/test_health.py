"""Health: the gate before the first firing, and firing on with stale values."""

import asyncio

import tidemill as tm
from tests.service.samples import pair

Health = tm.ReactorHealth


async def test_a_reactor_whose_accumulators_are_all_healthy_is_live() -> None:
    """G-8, behaviour 50."""
    async with tm.testing.node(load=pair().load) as node:
        state = node.reactor("r").state()
    assert (state.health, state.waiting, state.disconnected) == (Health.LIVE, [], [])


async def test_a_warming_reactor_takes_boundaries_in_but_does_not_fire() -> None:
    """G-8, behaviour 50: warming names whom it waits for."""
    sample = pair()
    async with tm.testing.node(load=sample.load, disconnected=["b"]) as node:
        receipt = await node.push("a", 1)
        state = node.reactor("r").state()
    assert receipt.outcome == "emitted"
    assert (state.health, state.waiting) == (Health.WARMING, ["b"])
    assert (state.cache, state.dirty, sample.seen) == ({"a": 1}, {"a": True, "b": False}, [])


async def test_criteria_that_hold_are_evaluated_on_becoming_live() -> None:
    """G-8: without a new event."""
    sample = pair()
    async with tm.testing.node(load=sample.load, disconnected=["b"]) as node:
        await node.push("a", 1)
        await node.push("a", 2)
        await node.reconnect("b")
        assert node.reactor("r").state().health is Health.LIVE
    assert sample.seen == [(2, None)]


async def test_becoming_live_without_news_fires_nothing() -> None:
    """G-8."""
    sample = pair()
    async with tm.testing.node(load=sample.load, disconnected=["b"]) as node:
        await node.reconnect("b")
        assert node.reactor("r").state().fires == 0


async def test_a_sequential_queue_that_grew_while_warming_is_worked_off_in_order() -> None:
    """G-8, G-11."""
    sample = pair(strategy="sequential")
    async with tm.testing.node(load=sample.load, disconnected=["b"]) as node:
        for value in range(4):
            await node.push("a", value)
        await node.reconnect("b")
    assert sample.seen == [(value, None) for value in range(4)]


async def test_a_lost_source_degrades_and_firing_goes_on_with_the_stale_value() -> None:
    """G-9, behaviour 51: every firing record says so."""
    sample = pair()
    async with tm.testing.node(load=sample.load) as node:
        await node.push("b", 1)
        await node.disconnect("b")
        state = node.reactor("r").state()
        await node.push("a", 2)
        await node.reconnect("b")
        await node.push("a", 3)
        flags = [firing.degraded for firing in reversed(node.reactor("r").firings())]
        assert node.reactor("r").state().health is Health.LIVE
    assert (state.health, state.disconnected, state.waiting) == (Health.DEGRADED, ["b"], [])
    assert sample.seen == [(None, 1), (2, 1), (3, 1)]
    assert flags == [False, True, False]


async def test_a_disconnected_accumulator_still_takes_pushes() -> None:
    """Behaviour 4: the socket is always active."""
    async with tm.testing.node(load=pair().load) as node:
        await node.disconnect("a")
        receipt = await node.push("a", 1)
        state = node.reactor("r").state().accumulators["a"]
    assert (receipt.outcome, state.health) == ("emitted", tm.AccumulatorHealth.DISCONNECTED)


async def test_two_lost_sources_are_both_named() -> None:
    """G-9: live again only when both are back."""
    async with tm.testing.node(load=pair().load) as node:
        await node.disconnect("b")
        await node.disconnect("a")
        assert node.reactor("r").state().disconnected == ["a", "b"]
        await node.reconnect("a")
        assert node.reactor("r").state().health is Health.DEGRADED
        await node.reconnect("b")
        assert node.reactor("r").state().health is Health.LIVE


async def test_a_handle_marks_its_firings_degraded_too() -> None:
    """G-9, on the fast path."""
    async with tm.testing.node(load=pair().load) as node:
        push = node.handle("a")
        push(1)
        push(2)
        await node.disconnect("b")
        push(3)
        push(4)
        flags = [firing.degraded for firing in reversed(node.reactor("r").firings())]
    assert flags == [False, False, True, True]


async def test_health_is_read_while_something_is_restarted() -> None:
    """G-21, behaviour 56: commands are answered too."""
    async with tm.testing.node(load=pair().load) as node, asyncio.timeout(5):
        await node.break_accumulator("b")
        await node.advance("500ms")
        state = node.reactor("r").state()
        firing = await node.reactor("r").force_fire()
        await node.reactor("r").pause()
        assert node.reactor("r").state().paused
    assert (state.health, state.disconnected) == (Health.DEGRADED, ["b"])
    assert firing.degraded


async def test_the_state_names_the_workflows_that_decisions_start() -> None:
    """D17: a reactor fired 893 times while the package of its workflow waited, and nothing said that no run began."""

    @tm.passthrough
    def number(event: int) -> int:
        return event

    desk = tm.Reactor("desk", [number])
    decide = tm.Graph("decide", reactor=desk)

    @decide.node
    def order(number: int) -> int:
        return number

    book = tm.Workflow("book", triggers=[tm.on_output(decide.order)])

    @book.task
    def note() -> None:
        """Do nothing."""

    async with tm.testing.node(load=[desk, decide]) as node:
        assert node.reactor("desk").state().starts == []
        await node.load(book)
        assert node.reactor("desk").state().starts == ["book"]
