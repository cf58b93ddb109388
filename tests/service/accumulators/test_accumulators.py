"""The kinds of accumulator: passthrough, stream, polling, and what all of them share."""

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

import tidemill as tm

Health = tm.AccumulatorHealth


def health(node: tm.Node, name: str) -> tm.AccumulatorHealth:
    """Return the health of an accumulator of reactor `r`."""
    return node.reactor("r").state().accumulators[name].health


class Total(tm.Boundary):
    value: int = 0


async def test_a_passthrough_is_socket_only_at_once() -> None:
    """Behaviour 2."""

    @tm.passthrough
    def a(event: int) -> int:
        return event

    async with tm.testing.node(load=[tm.Reactor("r", [a])]) as node:
        assert health(node, "a") is Health.SOCKET_ONLY


async def test_batch_window_and_polling_are_live_at_once() -> None:
    """G-5: health of kinds without a connection."""

    @tm.batch(every="1s")
    def gathered(events: list[int]) -> int:
        return sum(events)

    @tm.polling(every="1s")
    def polled() -> int:
        return 1

    window = tm.window("window", int, capacity=3)
    async with tm.testing.node(load=[tm.Reactor("r", [gathered, polled, window])]) as node:
        assert {health(node, name) for name in ("gathered", "polled", "window")} == {Health.LIVE}


async def test_every_kind_takes_pushed_events() -> None:
    """Behaviour 4."""

    @tm.stream(tm.Kafka(topic="t"))
    def streamed(event: int) -> int:
        return event

    @tm.batch(every="1s", max_size=1)
    def gathered(events: list[int]) -> int:
        return sum(events)

    @tm.polling(every="1h")
    def polled() -> int:
        return 1

    window = tm.window("window", int, capacity=3)
    async with tm.testing.node(load=[tm.Reactor("r", [streamed, gathered, polled, window])]) as node:
        for name in ("streamed", "gathered", "polled", "window"):
            assert (await node.push(name, 5)).outcome == "emitted"
        assert node.reactor("r").state().cache == {"streamed": 5, "gathered": 5, "polled": 5, "window": [5]}


async def test_polling_first_asks_after_one_interval() -> None:
    """Behaviour 5."""
    asked = []

    @tm.polling(every="5s")
    def limits() -> int:
        asked.append(1)
        return len(asked)

    async with tm.testing.node(load=[tm.Reactor("r", [limits])]) as node:
        await node.advance("4.9s")
        assert asked == []
        await node.advance("100ms")
        assert asked == [1]
        await node.advance("10s")
        assert node.reactor("r").state().cache == {"limits": 3}


async def test_polling_none_means_nothing_changed() -> None:
    """Behaviour 6."""
    answers = iter([1, None, 2])

    @tm.polling(every="1s")
    def limits() -> int | None:
        return next(answers)

    async with tm.testing.node(load=[tm.Reactor("r", [limits])]) as node:
        await node.advance("3s")
        state = node.reactor("r").state()
    assert (state.fires, state.cache) == (2, {"limits": 2})
    assert state.accumulators["limits"].emitted == 2


async def test_a_raising_poll_is_disconnected_until_the_next_good_one() -> None:
    """G-5: polling health; the reactor is degraded meanwhile."""
    answers: list[Any] = [1, OSError("down"), 2]

    @tm.polling(every="1s")
    def limits() -> int:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return int(answer)

    async with tm.testing.node(load=[tm.Reactor("r", [limits])]) as node:
        await node.advance("2s")
        assert health(node, "limits") is Health.DISCONNECTED
        assert node.reactor("r").state().health is tm.ReactorHealth.DEGRADED
        assert node.reactor("r").state().disconnected == ["limits"]
        await node.advance("1s")
        assert health(node, "limits") is Health.LIVE
        assert node.reactor("r").state().health is tm.ReactorHealth.LIVE


async def test_an_async_poll_is_awaited() -> None:
    """G-5: functions may be sync or async."""

    @tm.polling(every="1s")
    async def limits() -> int:
        await asyncio.sleep(0)
        return 7

    async with tm.testing.node(load=[tm.Reactor("r", [limits])]) as node:
        await node.advance("1s")
        assert node.reactor("r").state().cache == {"limits": 7}


async def test_a_blocking_poll_runs_on_a_thread() -> None:
    """API: `thread=True`."""
    threads = []

    @tm.polling(every="1s", thread=True)
    def limits() -> int:
        threads.append(threading.get_ident())
        return 7

    async with tm.testing.node(load=[tm.Reactor("r", [limits])]) as node:
        await node.advance("1s")
        await node.settle()
        assert node.reactor("r").state().cache == {"limits": 7}
    assert threads != [threading.get_ident()]


async def test_a_hanging_poll_is_stuck_and_keeps_no_push_out() -> None:
    """G-22, behaviour 4: the pushed value is the boundary itself."""
    never = asyncio.Event()

    @tm.polling(every="1s")
    async def limits() -> int:
        await never.wait()
        return 1

    async with tm.testing.node(load=[tm.Reactor("r", [limits])]) as node, asyncio.timeout(5):
        began = node.clock.now()
        await node.advance("15s")
        receipt = await node.push("limits", 9)
        state = node.reactor("r").state()
    assert receipt.outcome == "emitted"
    assert state.cache == {"limits": 9}
    assert state.accumulators["limits"].stuck_since is not None
    assert state.accumulators["limits"].stuck_since > began


async def test_state_is_new_state_and_boundary_in_one() -> None:
    """API: `state=T` starts as T(); None leaves both."""

    @tm.passthrough(state=Total)
    def total(event: int, state: Total) -> Total | None:
        return Total(state.value + event) if event else None

    async with tm.testing.node(load=[tm.Reactor("r", [total])]) as node:
        outcomes = [(await node.push("total", value)).outcome for value in (2, 0, 3)]
        assert node.reactor("r").state().cache == {"total": {"value": 5}}
    assert outcomes == ["emitted", "suppressed", "emitted"]


async def test_state_works_on_polling() -> None:
    """G-5: state works on every kind but window."""

    @tm.polling(every="1s", state=Total)
    def ticks(state: Total) -> Total:
        return Total(state.value + 1)

    async with tm.testing.node(load=[tm.Reactor("r", [ticks])]) as node:
        await node.advance("3s")
        assert node.reactor("r").state().cache == {"ticks": {"value": 3}}


async def test_state_works_on_batch_and_stream() -> None:
    """G-5: state works on every kind but window."""

    @tm.batch(every="1s", state=Total)
    def gathered(events: list[int], state: Total) -> Total:
        return Total(state.value + sum(events))

    @tm.stream(tm.Kafka(topic="t"), state=Total)
    def streamed(event: int, state: Total) -> Total:
        return Total(state.value + event)

    async with tm.testing.node(load=[tm.Reactor("r", [gathered, streamed])]) as node:
        for value in (1, 2):
            await node.push("gathered", value)
            await node.push("streamed", value)
            await node.advance("1s")
        assert node.reactor("r").state().cache == {"gathered": {"value": 3}, "streamed": {"value": 3}}


async def test_a_failed_event_leaves_state_alone() -> None:
    """G-7: the accumulator lives on as it was."""

    @tm.passthrough(state=Total)
    def total(event: int, state: Total) -> Total:
        return Total(state.value + 10 // event)

    async with tm.testing.node(load=[tm.Reactor("r", [total])]) as node:
        for value in (5, 0, 10):
            await node.push("total", value)
        assert node.reactor("r").state().cache == {"total": {"value": 3}}


async def test_a_stream_on_a_test_node_is_live_and_fed_by_push() -> None:
    """API: no broker is contacted."""

    @tm.stream(tm.Kafka(topic="prices", group="maker"))
    def pricing(event: int) -> int:
        return event * 2

    async with tm.testing.node(load=[tm.Reactor("r", [pricing])]) as node:
        assert health(node, "pricing") is Health.LIVE
        await node.push("pricing", b"21")
        assert node.reactor("r").state().cache == {"pricing": 42}


async def test_async_events_are_taken_one_at_a_time_in_order() -> None:
    """G-5, behaviour 3."""
    inside: list[int] = []
    most = 0

    @tm.passthrough
    async def a(event: int) -> int:
        nonlocal most
        inside.append(event)
        most = max(most, len(inside))
        await asyncio.sleep(0)
        inside.remove(event)
        return event

    async with tm.testing.node(load=[tm.Reactor("r", [a], strategy="sequential")]) as node, asyncio.timeout(5):
        receipts = await asyncio.gather(*(node.push("a", value) for value in range(5)))
        fired = [firing.inputs["a"] for firing in reversed(node.reactor("r").firings())]
    assert most == 1
    assert [receipt.sequence for receipt in receipts] == [1, 2, 3, 4, 5]
    assert fired == [0, 1, 2, 3, 4]


async def test_an_async_event_goes_on_when_its_pusher_gives_up() -> None:
    """G-4: what was begun is accounted for."""
    gate = asyncio.Event()

    @tm.passthrough
    async def a(event: int) -> int:
        await gate.wait()
        return event

    async with tm.testing.node(load=[tm.Reactor("r", [a])]) as node:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await node.push("a", 1)
        gate.set()
        await node.settle()
        assert node.reactor("r").state().cache == {"a": 1}


async def test_an_event_that_hangs_is_noticed_and_a_restart_puts_it_aside() -> None:
    """G-22, G-20: `stuck_since`, then `restart_accumulator` revives."""
    never = asyncio.Event()

    @tm.passthrough
    async def a(event: int) -> int:
        if event == 0:
            await never.wait()
        return event

    async with tm.testing.node(load=[tm.Reactor("r", [a])]) as node, asyncio.timeout(5):
        async with asyncio.TaskGroup() as group:
            hung = group.create_task(node.push("a", 0))
            waiting = group.create_task(node.push("a", 1))
            since = node.clock.now()
            await node.advance("10s")
            assert node.reactor("r").state().accumulators["a"].stuck_since == since
            await node.restart_accumulator("a")
        (letter,) = await node.reactor("r").dead_letters()
        state = node.reactor("r").state()
    assert (hung.result().outcome, waiting.result().outcome) == ("dead_lettered", "emitted")
    assert letter.event == 0
    assert (state.accumulators["a"].stuck_since, state.cache) == (None, {"a": 1})


async def test_an_event_in_time_is_not_called_stuck() -> None:
    """G-22: only what makes no progress."""
    gate = asyncio.Event()

    @tm.passthrough
    async def a(event: int) -> int:
        await gate.wait()
        return event

    async with tm.testing.node(load=[tm.Reactor("r", [a])]) as node, asyncio.TaskGroup() as group:
        group.create_task(node.push("a", 0))
        await node.advance("4s")
        assert node.reactor("r").state().accumulators["a"].stuck_since is None
        gate.set()
        await node.settle()


class Numbers:
    """A source that counts; it can fail once, and it waits for leave to begin."""

    def __init__(self, until: int, fail_at: int | None = None) -> None:
        self.until = until
        self.fail_at = fail_at
        self.may_begin = asyncio.Event()
        self.begun_after: list[Any] = []

    async def start(self, checkpoint: Any) -> AsyncIterator[tuple[int, int]]:
        self.begun_after.append(checkpoint)
        await self.may_begin.wait()
        for number in range(checkpoint or 0, self.until):
            if number == self.fail_at:
                self.fail_at = None
                raise ConnectionError("lost")
            yield number, number + 1


def followed(source: Any) -> tuple[list[int], tm.Reactor, asyncio.Event]:
    """Return what a stream over a source takes, its reactor, and an event set with the value 4."""
    taken: list[int] = []
    last = asyncio.Event()

    @tm.stream(source)
    def numbers(event: int) -> int:
        taken.append(event)
        if event == 4:
            last.set()
        return event

    return taken, tm.Reactor("r", [numbers], strategy="sequential"), last


async def test_a_stream_is_connecting_until_its_source_delivers_and_then_opens_the_gate() -> None:
    """G-5, G-8, behaviour 20: Live only when really connected."""
    source = Numbers(5)
    taken, reactor, last = followed(source)
    async with tm.Node(load=[reactor]) as node, asyncio.timeout(5):
        assert health(node, "numbers") is Health.CONNECTING
        assert node.reactor("r").state().health is tm.ReactorHealth.WARMING
        assert node.reactor("r").state().waiting == ["numbers"]
        source.may_begin.set()
        await last.wait()
        assert node.reactor("r").state().fires == 5
    assert taken == [0, 1, 2, 3, 4]


async def test_a_source_that_raises_is_started_again_after_the_last_checkpoint() -> None:
    """G-19, behaviour 20: nothing is lost, nothing comes twice."""
    source = Numbers(5, fail_at=3)
    source.may_begin.set()
    taken, reactor, last = followed(source)
    async with tm.Node(load=[reactor], settings={"backoff_base": "1ms"}) as node, asyncio.timeout(5):
        await last.wait()
        actions = [event.action for event in node.reactor("r").events()[::-1]]
    assert taken == [0, 1, 2, 3, 4]
    assert source.begun_after == [None, 3]
    assert actions == ["crashed", "restarted"]


async def test_a_source_that_ends_leaves_an_accumulator_that_is_still_fed_by_push() -> None:
    """Behaviour 4: the socket is always active."""
    source = Numbers(5)
    source.may_begin.set()
    taken, reactor, last = followed(source)
    async with tm.Node(load=[reactor]) as node, asyncio.timeout(5):
        await last.wait()
        await node.settle()
        receipt = await node.push("numbers", 9)
        assert health(node, "numbers").is_healthy
    assert receipt.outcome == "emitted"
    assert taken[-1] == 9


async def test_a_source_may_be_a_coroutine_that_returns_its_events() -> None:
    """API: `async def start(self, checkpoint) -> AsyncIterator`; it is connected once that returns."""
    silent = asyncio.Event()

    class Quiet:
        async def start(self, checkpoint: Any) -> AsyncIterator[tuple[int, int]]:
            return self.wait_without_end()

        async def wait_without_end(self) -> AsyncIterator[tuple[int, int]]:
            await silent.wait()
            yield 4, 1

    taken, reactor, last = followed(Quiet())
    async with tm.Node(load=[reactor]) as node, asyncio.timeout(5):
        await node.settle()
        assert node.reactor("r").state().health is tm.ReactorHealth.LIVE
        silent.set()
        await last.wait()
    assert taken == [4]


async def test_a_source_is_closed_with_its_node() -> None:
    """G-29: nothing is left behind."""
    closed = asyncio.Event()
    begun = asyncio.Event()

    class Endless:
        async def start(self, checkpoint: Any) -> AsyncIterator[tuple[int, int]]:
            try:
                for number in range(1_000_000):
                    begun.set()
                    yield number, number
                    await asyncio.sleep(0)
            finally:
                closed.set()

    _, reactor, _ = followed(Endless())
    async with asyncio.timeout(5), tm.Node(load=[reactor]):
        await begun.wait()
    assert closed.is_set()


async def test_a_full_queue_holds_the_source_back() -> None:
    """G-12: back-pressure reaches the source."""
    yielded: list[int] = []
    paused = asyncio.Event()

    class Eager:
        async def start(self, checkpoint: Any) -> AsyncIterator[tuple[int, int]]:
            await paused.wait()
            for number in range(5):
                yielded.append(number)
                yield number, number

    @tm.stream(Eager())
    def numbers(event: int) -> int:
        return event

    reactor = tm.Reactor("r", [numbers], strategy="sequential", capacity=2)
    async with tm.Node(load=[reactor]) as node, asyncio.timeout(5):
        await node.reactor("r").pause()
        paused.set()
        await node.settle()
        assert yielded == [0, 1, 2]
        await node.reactor("r").resume()
        fired = [(await node.reactor("r").next_firing()).inputs["numbers"] for _ in range(5)]
    assert fired == [0, 1, 2, 3, 4]
