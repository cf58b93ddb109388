"""Retries: a failed firing is tried again by policy, then put aside."""

import asyncio
from collections.abc import Callable

import tidemill as tm
from tests.service.samples import observer, pair, raising, single, slow


def failing(times: int) -> Callable[[object], None]:
    """Return an action that raises the first few times it is called."""
    left = [None] * times

    def act(value: object) -> None:
        if left:
            left.pop()
            raise ConnectionError(f"cannot reach {value}")

    return act


async def test_a_failed_firing_is_tried_again_after_each_delay() -> None:
    """G-15: one log entry per attempt with the same firing id."""
    sample = single(failing(2), on_error=tm.Retry(3, delay="10s", backoff=2.0))
    async with tm.testing.node(load=sample.load) as node:
        await node.push("a", 1)
        await node.advance("9s")
        assert sample.seen == [1]
        await node.advance("1s")
        assert sample.seen == [1, 1]
        await node.advance("20s")
        firings = node.reactor("r").firings()
        state = node.reactor("r").state()
    assert sample.seen == [1, 1, 1]
    assert [(firing.attempt, firing.ok) for firing in firings] == [(3, True), (2, False), (1, False)]
    assert len({firing.id for firing in firings}) == 1
    assert (state.fires, state.failures) == (1, 1)


async def test_when_no_try_is_left_the_snapshot_is_a_dead_letter() -> None:
    """G-15, behaviour 42."""
    sample = single(failing(9), on_error=tm.Retry(2, delay="1s", backoff=1.0))
    async with tm.testing.node(load=sample.load) as node:
        await node.push("a", 7)
        await node.advance("1s")
        assert await node.reactor("r").dead_letters() == []
        await node.advance("1m")
        (letter,) = await node.reactor("r").dead_letters()
    assert (letter.kind, letter.source, letter.inputs, letter.attempts) == ("firing", "r", {"a": 7}, 3)
    assert "cannot reach 7" in letter.error
    assert sample.seen == [7, 7, 7]


async def test_other_errors_are_not_tried_again() -> None:
    """API: `on=` filters."""
    retry = tm.Retry(3, on=(ConnectionError,))
    sample = single(raising(when=lambda value: True, error=KeyError), on_error=retry)
    async with tm.testing.node(load=sample.load) as node:
        await node.push("a", 1)
        await node.advance("1h")
        (letter,) = await node.reactor("r").dead_letters()
    assert (sample.seen, letter.attempts) == ([1], 1)


async def test_without_retry_the_first_failure_is_final() -> None:
    """G-15: `on_error="dead_letter"` is the default."""
    sample = single(failing(1))
    async with tm.testing.node(load=sample.load) as node:
        await node.push("a", 1)
        assert len(await node.reactor("r").dead_letters()) == 1


async def test_latest_goes_on_while_a_firing_waits_for_its_next_try() -> None:
    """API: each try sees its own snapshot."""
    sample = single(failing(1), on_error=tm.Retry(1, delay="10s"))
    async with tm.testing.node(load=sample.load) as node:
        await node.push("a", 1)
        await node.push("a", 2)
        assert sample.seen == [1, 2]
        await node.advance("10s")
        newest = node.reactor("r").firings()[0]
        assert node.reactor("r").state().cache == {"a": 2}
    assert sample.seen == [1, 2, 1]
    assert (newest.inputs, newest.attempt, newest.ok) == ({"a": 1}, 2, True)


async def test_sequential_holds_its_queue_meanwhile() -> None:
    """API."""
    sample = single(failing(2), strategy="sequential", on_error=tm.Retry(5, delay="10s", backoff=1.0))
    async with tm.testing.node(load=sample.load) as node:
        for value in range(3):
            await node.push("a", value)
        assert (sample.seen, node.reactor("r").state().queued) == ([0], 2)
        await node.advance("10s")
        assert sample.seen == [0, 0]
        await node.advance("10s")
    assert sample.seen == [0, 0, 0, 1, 2]


async def test_a_held_queue_goes_on_after_the_dead_letter() -> None:
    """G-15: the reactor lives on."""
    act = raising(when=lambda value: value == 0)
    sample = single(act, strategy="sequential", on_error=tm.Retry(1, delay="10s"))
    async with tm.testing.node(load=sample.load) as node:
        for value in range(3):
            await node.push("a", value)
        await node.advance("10s")
        (letter,) = await node.reactor("r").dead_letters()
    assert sample.seen == [0, 0, 1, 2]
    assert letter.inputs == {"a": 0}


async def test_only_the_graphs_that_failed_run_again() -> None:
    """API."""
    sample = single(failing(1), on_error=tm.Retry(1, delay="1s"))
    other = tm.Graph("other", reactor=sample.reactor)
    calls = []

    @other.node
    def out(a: int) -> None:
        calls.append(a)

    async with tm.testing.node(load=[*sample.load, other]) as node:
        await node.push("a", 1)
        await node.advance("1s")
        second, first = node.reactor("r").firings()
    assert (sample.seen, calls) == ([1, 1], [1])
    assert (set(first.results), set(second.results)) == ({"g", "other"}, {"g"})


async def test_an_async_graph_is_tried_again_too() -> None:
    """G-15."""
    act = failing(1)

    async def later(value: int) -> None:
        await asyncio.sleep(0)
        act(value)

    sample = slow(later, on_error=tm.Retry(1, delay="1s"))
    async with tm.testing.node(load=sample.load) as node, asyncio.timeout(5):
        await node.push("a", 1)
        await node.settle()
        await node.advance("1s")
        await node.settle()
        assert node.reactor("r").firings()[0].ok
    assert sample.seen == [1, 1]


async def test_a_graph_unbound_before_its_next_try_leaves_a_dead_letter() -> None:
    """G-15: nothing is lost."""
    sample = single(failing(9), strategy="sequential", on_error=tm.Retry(3, delay="1s"))
    async with tm.testing.node(load=[*sample.load, observer(sample.reactor)]) as node:
        await node.push("a", 1)
        await node.push("a", 2)
        await node.unload("graph:g")
        await node.advance("1s")
        (letter,) = await node.reactor("r").dead_letters()
        assert node.reactor("r").state().queued == 0
    assert letter.inputs == {"a": 1}


async def test_a_push_from_inside_a_retry_is_fired_after_it() -> None:
    """G-1: a push during a firing leads to one more."""
    order = []
    box = {}
    fail = failing(1)

    def act(value: int) -> None:
        order.append(("begin", value))
        fail(value)
        if value == 0:
            box["push"](1)
        order.append(("end", value))

    sample = single(act, on_error=tm.Retry(1, delay="1s"))
    async with tm.testing.node(load=sample.load) as node:
        box["push"] = node.handle("a")
        box["push"](0)
        await node.advance("1s")
    assert order == [("begin", 0), ("begin", 0), ("end", 0), ("begin", 1), ("end", 1)]


async def test_pending_tries_end_with_the_node() -> None:
    """G-29: nothing outlives the node."""
    sample = pair(failing(9), on_error=tm.Retry(3, delay="1h"))
    async with asyncio.timeout(5), tm.testing.node(load=sample.load) as node:
        await node.push("a", 1)
    assert sample.seen == [(1, None)]


async def test_a_try_that_a_crash_cut_off_is_not_lost() -> None:
    """G-15, G-19: its inputs are fired again, ahead of the queue."""
    tries = []

    async def act(value: int) -> None:
        tries.append(value)
        if len(tries) == 1:
            raise ConnectionError(value)
        if len(tries) == 2:
            await asyncio.Event().wait()

    sample = slow(act, strategy="sequential", on_error=tm.Retry(2, delay="1s"))
    async with tm.testing.node(load=sample.load) as node, asyncio.timeout(5):
        await node.push("a", 1)
        await node.push("a", 2)
        await node.advance("1s")
        await node.break_reactor("r")
        await node.advance("1s")
        await node.settle()
    assert tries == [1, 1, 1, 2]


async def test_pending_tries_end_with_their_reactor() -> None:
    """G-29: a reactor loaded again starts without them."""
    sample = single(raising(when=lambda value: True), strategy="sequential", on_error=tm.Retry(5, delay="1s"))
    async with tm.testing.node(load=sample.load) as node:
        await node.push("a", 1)
        await node.unload("graph:g")
        await node.unload("reactor:r")
        for thing in sample.load:
            await node.load(thing)
        await node.push("a", 2)
        await node.advance("1s")
    assert sample.seen == [1, 2, 2]
