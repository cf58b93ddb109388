"""What operators can ask of a reactor."""

import asyncio
import json
from decimal import Decimal
from typing import Any

import msgspec
import pytest

import tidemill as tm
from tests.service.samples import observer, pair, single, slow


async def test_pause_stops_firing_and_resume_evaluates_at_once() -> None:
    """G-13, behaviour 43."""
    sample = pair()
    async with tm.testing.node(load=sample.load) as node:
        reactor = node.reactor("r")
        await reactor.pause()
        await node.push("a", 1)
        await node.push("a", 2)
        assert (reactor.state().paused, sample.seen) == (True, [])
        await reactor.resume()
        assert (reactor.state().paused, sample.seen) == (False, [(2, None)])


async def test_resume_without_news_fires_nothing() -> None:
    """G-13; pausing twice and resuming twice does no harm."""
    sample = pair()
    async with tm.testing.node(load=sample.load) as node:
        for _ in range(2):
            await node.reactor("r").pause()
        for _ in range(2):
            await node.reactor("r").resume()
        await node.push("a", 1)
    assert sample.seen == [(1, None)]


async def test_pause_lets_a_running_firing_finish() -> None:
    """G-13."""
    gate = asyncio.Event()
    sample = slow(lambda value: gate.wait())
    async with tm.testing.node(load=sample.load) as node, asyncio.timeout(5):
        await node.push("a", 1)
        await node.advance(0)
        await node.reactor("r").pause()
        await node.push("a", 2)
        gate.set()
        await node.settle()
        assert node.reactor("r").state().fires == 1
        await node.reactor("r").resume()
        await node.settle()
    assert sample.seen == [1, 2]


async def test_force_fire_fires_with_the_cache_and_is_flagged_manual() -> None:
    """G-13, behaviour 44: irrespective of criteria; clears the flags."""
    sample = pair(when="all")
    async with tm.testing.node(load=sample.load) as node:
        await node.push("a", 1)
        firing = await node.reactor("r").force_fire()
        dirty = node.reactor("r").state().dirty
        await node.push("b", 2)
    assert (firing.manual, firing.inputs, firing.ok) == (True, {"a": 1}, True)
    assert firing.results["g"].outputs == {"out": (1, None)}
    assert dirty == {"a": False, "b": False}
    assert sample.seen == [(1, None)]


async def test_manual_firings_work_while_paused() -> None:
    """G-13."""
    sample = pair()
    async with tm.testing.node(load=sample.load) as node:
        await node.reactor("r").pause()
        await node.push("a", 1)
        await node.reactor("r").force_fire()
        await node.reactor("r").fire_with({"b": 5})
        await node.reactor("r").resume()
    assert sample.seen == [(1, None), (None, 5)]


async def test_manual_firings_work_while_warming_and_degraded() -> None:
    """G-13."""
    sample = pair()
    async with tm.testing.node(load=sample.load, disconnected=["b"]) as node:
        warming = await node.reactor("r").force_fire()
        await node.reconnect("b")
        await node.disconnect("b")
        degraded = await node.reactor("r").force_fire()
    assert (warming.degraded, degraded.degraded) == (False, True)
    assert sample.seen == [(None, None), (None, None)]


async def test_fire_with_replaces_the_whole_cache() -> None:
    """G-13, behaviour 45: sources not given are absent afterwards."""
    sample = pair()
    async with tm.testing.node(load=sample.load) as node:
        await node.push("a", 1)
        await node.push("b", 1)
        firing = await node.reactor("r").fire_with({"b": 9})
        assert node.reactor("r").state().cache == {"b": 9}
        await node.push("b", 10)
    assert (firing.manual, firing.inputs) == (True, {"b": 9})
    assert sample.seen[-2:] == [(None, 9), (None, 10)]


async def test_fire_with_keeps_the_queue() -> None:
    """API."""
    sample = pair(strategy="sequential")
    async with tm.testing.node(load=sample.load) as node:
        await node.reactor("r").pause()
        await node.push("a", 1)
        await node.reactor("r").fire_with({"b": 9})
        assert node.reactor("r").state().queued == 1
        await node.reactor("r").resume()
    assert sample.seen == [(None, 9), (1, 9)]


async def test_fire_with_converts_like_a_push() -> None:
    """API: values are validated against what the accumulator emits."""

    class Book(tm.Boundary):
        bid: float

    @tm.passthrough
    def book(event: Book) -> Book:
        return event

    async with tm.testing.node(load=[tm.Reactor("r", [book])]) as node:
        firing = await node.reactor("r").fire_with({"book": {"bid": 1}})
        with pytest.raises(tm.RequestError) as caught:
            await node.reactor("r").fire_with({"book": {"bid": "x"}})
        assert node.reactor("r").state().cache == {"book": {"bid": 1.0}}
    assert firing.inputs == {"book": Book(1.0)}
    assert caught.value.code == "invalid_input"


@pytest.mark.parametrize(
    ("inputs", "code"),
    [({}, "empty_inputs"), ({"zzz": 1}, "accumulator_not_found"), ({"a": "x"}, "invalid_input")],
)
async def test_fire_with_refuses_bad_inputs_and_changes_nothing(inputs: dict[str, Any], code: str) -> None:
    """G-13, behaviour 46."""
    sample = single()
    async with tm.testing.node(load=sample.load) as node:
        await node.push("a", 1)
        with pytest.raises(tm.RequestError) as caught:
            await node.reactor("r").fire_with(inputs)
        assert node.reactor("r").state().cache == {"a": 1}
    assert caught.value.code == code
    assert 400 <= caught.value.status < 500
    assert sample.seen == [1]


async def test_a_manual_firing_names_a_missing_required_input() -> None:
    """G-13: `incomplete_inputs`; nothing has changed."""
    sample = single()
    async with tm.testing.node(load=sample.load) as node:
        with pytest.raises(tm.RequestError, match="'a'") as caught:
            await node.reactor("r").force_fire()
        assert node.reactor("r").state().fires == 0
    assert caught.value.code == "incomplete_inputs"


async def test_a_manual_firing_is_refused_while_starting() -> None:
    """G-13: `not_ready` between a crash and the restart."""
    async with tm.testing.node(load=pair().load) as node:
        await node.break_reactor("r")
        for command in (node.reactor("r").force_fire(), node.reactor("r").fire_with({"a": 1})):
            with pytest.raises(tm.RequestError) as caught:
                await command
            assert caught.value.code == "not_ready"


async def test_a_manual_firing_waits_for_the_running_one() -> None:
    """G-1: one firing at a time."""
    gate = asyncio.Event()
    sample = slow(lambda value: gate.wait())
    async with tm.testing.node(load=sample.load) as node, asyncio.timeout(5), asyncio.TaskGroup() as group:
        await node.push("a", 1)
        await node.advance(0)
        manual = group.create_task(node.reactor("r").force_fire())
        await node.advance(0)
        assert sample.seen == [1]
        gate.set()
        assert (await manual).manual
    assert sample.seen == [1, 1]


async def test_a_manual_firing_goes_on_when_its_caller_gives_up() -> None:
    """G-13, G-21: waiting ends, the firing does not."""
    gate = asyncio.Event()
    sample = slow(lambda value: gate.wait())
    async with tm.testing.node(load=sample.load) as node, asyncio.timeout(5):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await node.reactor("r").fire_with({"a": 1})
        gate.set()
        await node.settle()
        (firing,) = node.reactor("r").firings()
    assert (firing.manual, sample.seen) == (True, [1])


async def test_state_is_json_all_the_way_down() -> None:
    """G-13: regardless of the cache."""

    @tm.passthrough
    def a(event: object) -> Any:
        return event

    values = [{1: {2}}, Decimal("1.5"), b"\x00", object(), [object()], float("inf"), {"x": (1, 2)}, Exception("x")]
    async with tm.testing.node(load=[tm.Reactor("r", [a])]) as node:
        for value in values:
            await node.push("a", [value])
            state = node.reactor("r").state()
            assert json.loads(msgspec.json.encode(state))["name"] == "r"
            assert json.dumps(state.cache)
            assert json.dumps(msgspec.to_builtins(state))


@pytest.mark.parametrize(("strategy", "buffered"), [("latest", 1), ("sequential", 3)])
async def test_a_paused_reactor_says_how_much_it_has_buffered(strategy: Any, buffered: int) -> None:
    """S-8: the queue, or of strategy `latest` the inputs with news."""
    sample = pair(strategy=strategy)
    async with tm.testing.node(load=sample.load) as node:
        reactor = node.reactor("r")
        await reactor.pause()
        for value in range(3):
            await node.push("a", value)
        state = reactor.state()
        assert (state.strategy, state.when, state.buffered) == (strategy, "any", buffered)
        await reactor.resume()
        assert reactor.state().buffered == 0


async def test_a_batch_says_how_many_events_it_holds() -> None:
    """S-8: own lag."""

    @tm.batch(every="1m")
    def fills(events: list[int]) -> int:
        return sum(events)

    async with tm.testing.node(load=[tm.Reactor("r", [fills], when=tm.all_of(fills))]) as node:
        await node.push("fills", 1)
        await node.push("fills", 2)
        state = node.reactor("r").state()
        assert (state.when, state.accumulators["fills"].buffered) == ("all of fills", 2)
        await node.advance("1m")
        assert node.reactor("r").state().accumulators["fills"].buffered == 0


async def test_state_tells_everything() -> None:
    """API: the fields of tm.ReactorState and tm.AccumulatorState."""
    sample = single()
    async with tm.testing.node(load=[*sample.load, observer(sample.reactor)]) as node:
        await node.push("a", 1)
        await node.advance("1m")
        state = node.reactor("r").state()
        last = state.accumulators["a"].last_event_at
        assert last is not None
        assert (node.clock.now() - last).total_seconds() == 60
    assert (state.name, state.paused, state.queued, state.fires, state.failures) == ("r", False, 0, 1, 0)
    assert state.subscribers == ["g", "observer"]
    accumulator = state.accumulators["a"]
    assert (accumulator.name, accumulator.kind, accumulator.pushes) == ("a", "passthrough", 1)
    assert (accumulator.upstream_lag, accumulator.buffered) == (None, 0)
    assert (last - state.since).total_seconds() == 0


async def test_an_unknown_reactor_is_an_error_that_suggests_the_right_one() -> None:
    """G-4: bad input gets its own error."""
    market = tm.Reactor("market", single().reactor.accumulators)
    async with tm.testing.node(load=[market]) as node:
        with pytest.raises(tm.RequestError, match="did you mean 'market'") as caught:
            node.reactor("marker")
    assert caught.value.status == 404


async def test_pause_resume_and_restart_return_the_state_afterwards() -> None:
    """Issue 24: a change answers the changed thing, on a node as on a client."""
    async with tm.testing.node(load=single().load) as node:
        reactor = node.reactor("r")
        assert [(await command()).paused for command in (reactor.pause, reactor.restart, reactor.resume)] == [
            True,
            True,
            False,
        ]
