"""A cancellation that comes out of author code is an error like any other: no one asked our tasks to end."""

import asyncio
from typing import Any, NoReturn

import pytest

import tidemill as tm
from tests.service.samples import raising, single, slow


async def await_what_was_cancelled(_: Any = None) -> None:
    """Await a future that other code cancelled."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


async def test_an_async_node_that_awaits_a_cancelled_future_fails_its_firing_and_no_more() -> None:
    """G-15: the reactor lives on."""

    async def act(value: int) -> None:
        if value == 1:
            await await_what_was_cancelled()

    sample = slow(act)
    async with tm.testing.node(load=sample.load) as node, asyncio.timeout(5):
        for value in (1, 2):
            await node.push("a", value)
            await node.settle()
        (letter,) = await node.reactor("r").dead_letters()
        second, first = node.reactor("r").firings()
    assert (first.ok, second.ok, sample.seen) == (False, True, [1, 2])
    assert "node 'out' failed: CancelledError" in letter.error


@pytest.mark.parametrize("graphs", [1, 2])
async def test_a_sync_node_that_raises_a_cancellation_is_called_once(graphs: int) -> None:
    """G-15: by the fast path and by the long one."""
    sample = single(raising(when=lambda value: value == 1, error=asyncio.CancelledError))
    other = tm.Graph("other", reactor=sample.reactor)

    @other.node
    def idle(a: int) -> None:
        return None

    async with tm.testing.node(load=[*sample.load, other][: graphs + 1]) as node, asyncio.timeout(5):
        for value in (0, 1, 2):
            assert (await node.push("a", value)).outcome == "emitted"
        await node.settle()
        assert len(await node.reactor("r").dead_letters()) == 1
    assert sample.seen == [0, 1, 2]


async def test_a_poll_that_awaits_a_cancelled_future_is_asked_again() -> None:
    """G-7: a raising poll makes it Disconnected until the next good one."""
    polls = []

    @tm.polling(every="1s")
    async def limits() -> int:
        polls.append(1)
        if len(polls) == 2:
            await await_what_was_cancelled()
        return len(polls)

    async with tm.testing.node(load=[tm.Reactor("r", [limits])]) as node:
        await node.advance("2s")
        bad = node.reactor("r").state().accumulators["limits"].health
        await node.advance("1s")
        good = node.reactor("r").state().accumulators["limits"].health
    assert (bad, good, len(polls)) == (tm.AccumulatorHealth.DISCONNECTED, tm.AccumulatorHealth.LIVE, 3)


async def test_an_event_whose_async_function_meets_a_cancellation_is_a_dead_letter() -> None:
    """G-4, G-7: nothing is dropped silently."""

    @tm.passthrough
    async def a(event: int) -> int:
        await await_what_was_cancelled()
        return event

    async with tm.testing.node(load=[tm.Reactor("r", [a])]) as node, asyncio.timeout(5):
        receipt = await node.push("a", 1)
        (letter,) = await node.reactor("r").dead_letters()
    assert (receipt.outcome, letter.event) == ("dead_lettered", 1)


@pytest.mark.parametrize("way", ["push", "handle"])
async def test_an_event_whose_sync_function_raises_a_cancellation_is_a_dead_letter(way: str) -> None:
    """G-7."""

    @tm.passthrough
    def a(event: int) -> int:
        raise asyncio.CancelledError

    async with tm.testing.node(load=[tm.Reactor("r", [a])]) as node, asyncio.timeout(5):
        if way == "push":
            await node.push("a", 1)
        else:
            assert node.handle("a")(1) is None
        assert [letter.event for letter in await node.reactor("r").dead_letters()] == [1]


def leave(_: Any) -> NoReturn:
    """Ask the process to end."""
    raise SystemExit(3)


async def cancelled(_: Any) -> None:
    """Meet a cancellation that other code caused."""
    await await_what_was_cancelled()


async def left(_: Any) -> None:
    """Ask the process to end, from a coroutine."""
    leave(_)


@pytest.mark.parametrize("act", [left, cancelled])
async def test_of_parallel_nodes_one_may_raise_what_is_no_exception(act: Any) -> None:
    """G-15, G-18: it is that node's error, and the process continues."""
    sample = slow(act)

    @sample.graph.node
    async def beside(a: int) -> None:
        await asyncio.Event().wait()

    async with tm.testing.node(load=sample.load) as node, asyncio.timeout(5):
        await node.push("a", 1)
        await node.settle()
        error = node.reactor("r").firings()[0].results["g"].error
    assert error is not None
    assert error.node == "out"
    assert isinstance(error.cause, SystemExit | asyncio.CancelledError)
