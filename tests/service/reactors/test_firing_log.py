"""The firing log: what fired, when, how long, and what came of it."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

import tidemill as tm
from tests.service.samples import raising, single, slow

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize("count", [199, 200, 201, 450])
async def test_the_newest_200_are_kept_newest_first(count: int) -> None:
    """G-16, behaviour 48."""
    async with tm.testing.node(load=single().load) as node:
        push = node.handle("a")
        for value in range(count):
            push(value)
        firings = node.reactor("r").firings(limit=200)
    assert [firing.inputs["a"] for firing in firings] == list(range(count))[::-1][:200]


async def test_fifty_are_shown_unless_asked_otherwise() -> None:
    """Behaviour 48: default 50, at most 200."""
    async with tm.testing.node(load=single().load) as node:
        for value in range(300):
            await node.push("a", value)
        reactor = node.reactor("r")
        shown = [len(reactor.firings()), len(reactor.firings(limit=7)), len(reactor.firings(limit=1000))]
        with pytest.raises(tm.RequestError):
            reactor.firings(limit=0)
    assert shown == [50, 7, 200]


async def test_a_firing_tells_when_and_what() -> None:
    """API: the fields of tm.Firing and tm.GraphResult."""
    async with tm.testing.node(load=single().load, start=START) as node:
        await node.advance("90s")
        await node.push("a", 4)
        (firing,) = node.reactor("r").firings()
    assert (firing.reactor, firing.at) == ("r", START + timedelta(seconds=90))
    assert (firing.manual, firing.degraded, firing.ok, firing.duration) == (False, False, True, 0)
    result = firing.results["g"]
    assert (result.outputs, result.ran, result.skipped, result.error) == ({"out": 40}, ("out",), (), None)


async def test_ids_are_unique_also_between_lives() -> None:
    """API: `id`."""
    sample = single()
    ids = []
    for _ in range(2):
        async with tm.testing.node(load=sample.load) as node:
            for value in range(5):
                await node.push("a", value)
            ids += [firing.id for firing in node.reactor("r").firings()]
    assert len(set(ids)) == 10


async def test_the_context_knows_the_id_of_its_firing() -> None:
    """API: `ctx.firing_id`."""
    sample = single()
    graph = tm.Graph("aware", reactor=sample.reactor)

    @graph.node
    def out(a: int, ctx: tm.Context) -> str:
        ctx.log.info("seen")
        return ctx.firing_id

    async with tm.testing.node(load=[sample.reactor, graph]) as node:
        await node.push("a", 1)
        (firing,) = node.reactor("r").firings()
    assert firing.results["aware"].outputs == {"out": firing.id}


async def test_a_failure_is_logged_with_error_node_and_inputs() -> None:
    """G-15, behaviour 41: the next boundary still fires."""
    sample = single(raising(when=lambda value: value == 1))
    async with tm.testing.node(load=sample.load) as node:
        for value in (0, 1, 2):
            await node.push("a", value)
        firings = node.reactor("r").firings()
        state = node.reactor("r").state()
    failed = firings[1]
    error = failed.results["g"].error
    assert error is not None
    assert [firing.ok for firing in firings] == [True, False, True]
    assert (failed.inputs, error.node, type(error.cause)) == ({"a": 1}, "out", ValueError)
    assert "cannot take 1" in str(error)
    assert (state.fires, state.failures) == (3, 1)


async def test_minutes_are_counted_oldest_first_and_zero_filled() -> None:
    """G-16, behaviour 49."""
    async with tm.testing.node(load=single().load, start=START) as node:
        assert node.reactor("r").timeseries() == [0] * 60
        await node.push("a", 1)
        await node.push("a", 2)
        await node.advance("1m")
        await node.push("a", 3)
        await node.advance("10m")
        series = node.reactor("r").timeseries()
        await node.advance("59m")
        assert sum(node.reactor("r").timeseries()) == 0
    assert len(series) == 60
    assert series[-12:] == [2, 1, *[0] * 10]


async def test_minutes_are_counted_for_handles_as_for_pushes() -> None:
    """G-16: a run of fast firings over several minutes is split."""
    async with tm.testing.node(load=single().load, start=START) as node:
        push = node.handle("a")
        for minute in range(5):
            for value in range(minute):
                push(value)
            await node.advance("1m")
        series = node.reactor("r").timeseries()
    assert series[-6:] == [0, 1, 2, 3, 4, 0]


async def test_latency_is_that_of_the_newest_firings() -> None:
    """G-16: p50 and p99."""
    spans = iter([1, 1, 1, 9])
    gates: list[asyncio.Event] = []

    async def act(value: int) -> None:
        gates.append(asyncio.Event())
        await gates[-1].wait()

    sample = slow(act)
    async with tm.testing.node(load=sample.load) as node, asyncio.timeout(5):
        assert node.reactor("r").latency() == (0, 0)
        for value, seconds in enumerate(spans):
            await node.push("a", value)
            await node.advance(seconds)
            gates[-1].set()
            await node.settle()
        latency = node.reactor("r").latency()
        assert node.reactor("r").firings()[0].duration == 9
        state = node.reactor("r").state()
    assert (latency.p50, latency.p99) == (state.p50, state.p99) == (1, 9)


async def test_next_firing_hands_out_the_oldest_not_handed_out() -> None:
    """API: a cursor, waiting only if there is none."""
    async with tm.testing.node(load=single().load) as node, asyncio.timeout(5):
        for value in range(3):
            await node.push("a", value)
        handed = [(await node.reactor("r").next_firing()).inputs["a"] for _ in range(3)]
    assert handed == [0, 1, 2]


async def test_next_firing_waits_for_one() -> None:
    """API: also while the fast path was open."""
    async with tm.testing.node(load=single().load) as node, asyncio.timeout(5), asyncio.TaskGroup() as group:
        push = node.handle("a")
        push(0)
        await node.reactor("r").next_firing()
        waiting = group.create_task(node.reactor("r").next_firing())
        await node.settle()
        assert not waiting.done()
        push(1)
        assert (await waiting).inputs == {"a": 1}


async def test_next_firing_gives_up_after_its_timeout_and_loses_nothing() -> None:
    """API: `timeout`, in the node's own time."""
    async with tm.testing.node(load=single().load) as node, asyncio.timeout(5):
        waiting = asyncio.gather(node.reactor("r").next_firing(timeout=5))
        await node.advance("4s")
        assert not waiting.done()
        await node.advance("1s")
        with pytest.raises(TimeoutError):
            await waiting
        await node.push("a", 1)
        assert (await node.reactor("r").next_firing(timeout=1)).inputs == {"a": 1}


async def test_two_who_wait_get_one_firing_each() -> None:
    """API: the oldest firing not yet handed out."""
    async with tm.testing.node(load=single().load) as node, asyncio.timeout(5):
        async with asyncio.TaskGroup() as group:
            waiting = [group.create_task(node.reactor("r").next_firing()) for _ in range(2)]
            await node.settle()
            await node.push("a", 1)
            await node.push("a", 2)
        assert [task.result().inputs["a"] for task in waiting] == [1, 2]


async def test_what_the_log_no_longer_holds_is_passed_over() -> None:
    """G-16: the newest 200."""
    async with tm.testing.node(load=single().load) as node, asyncio.timeout(5):
        push = node.handle("a")
        for value in range(500):
            push(value)
        first = (await node.reactor("r").next_firing()).inputs["a"]
        second = (await node.reactor("r").next_firing()).inputs["a"]
    assert 0 <= first <= 300
    assert second == first + 1


async def test_unloading_sends_home_who_waits_for_a_firing() -> None:
    """G-29: no caller waits without end."""
    async with tm.testing.node(load=[single().reactor]) as node, asyncio.timeout(5):
        with pytest.raises(tm.RequestError) as caught:
            await asyncio.gather(node.reactor("r").next_firing(), node.unload("reactor:r"))
    assert caught.value.code == "reactor_not_found"


@pytest.mark.parametrize("count", [1, 30, 49, 51])
async def test_a_log_that_is_not_full_shows_all_it_has(count: int) -> None:
    """G-16."""
    async with tm.testing.node(load=single().load) as node:
        for value in range(count):
            await node.push("a", value)
        assert len(node.reactor("r").firings()) == min(count, 50)
        assert len(node.reactor("r").firings(limit=200)) == count


async def test_firings_follow_the_wall_clock_and_past_ones_stay_where_they_were() -> None:
    """G-16: `at` is when it was, by the wall clock of that moment, for firings logged whole too."""
    for sample in (single(), slow(lambda value: asyncio.sleep(0))):
        clock = SteppingClock()
        async with tm.testing.TestNode(load=sample.load, clock=clock) as node:
            await node.push("a", 1)
            await node.settle()
            await node.reactor("r").pause()
            clock.step = timedelta(hours=1)
            await node.reactor("r").resume()
            await node.push("a", 2)
            await node.settle()
            second, first = node.reactor("r").firings()
        assert second.at - first.at == timedelta(hours=1)
        assert first.at == EPOCH


class SteppingClock(tm.testing.VirtualClock):
    """A virtual clock whose wall time can be set."""

    step = timedelta()

    def now(self) -> datetime:
        return super().now() + self.step


async def test_the_duration_of_a_replay_is_that_of_its_graphs() -> None:
    """G-16: not of the wait for its turn."""
    gate, mood = asyncio.Event(), {"bad": True}

    async def act(value: int) -> None:
        if value == 1 and mood["bad"]:
            raise ValueError
        if value == 2:
            await gate.wait()

    sample = slow(act)
    async with tm.testing.node(load=sample.load) as node, asyncio.timeout(5):
        await node.push("a", 1)
        await node.settle()
        mood["bad"] = False
        (letter,) = await node.reactor("r").dead_letters()
        await node.push("a", 2)
        await node.advance(0)
        replay = asyncio.gather(node.reactor("r").replay(letter.id))
        await node.advance("10s")
        gate.set()
        (firing,) = await replay
    assert isinstance(firing, tm.Firing)
    assert firing.duration == 0


async def test_bursts_and_whole_firings_are_read_in_order() -> None:
    """G-16: for every limit, and for every way of logging."""
    sample = single(raising(when=lambda value: value % 7 == 0))
    async with tm.testing.node(load=sample.load) as node:
        push = node.handle("a")
        for value in range(300):
            push(value)
        reactor = node.reactor("r")
        for limit in (1, 6, 7, 8, 200):
            assert [one.inputs["a"] for one in reactor.firings(limit)] == list(range(299, 299 - limit, -1))
        handed = [(await reactor.next_firing()).inputs["a"] for _ in range(200)]
    assert handed == list(range(handed[0], handed[0] + 200))
