"""Batches over crashes: what was buffered is there again, what was summed up is not summed up twice."""

import asyncio
from typing import Any

import pytest

import tidemill as tm
from tidemill.testing.faults.stores import intercept_transactions

KEPT = ["interval", "fire", "boundary"]


class Gathering:
    """Reactor `r` over batch `held` and passthrough `go`; the batch raises while `bad`, returns None for zeros."""

    def __init__(self, max_size: int | None = None, *, is_async: bool = False, **options: Any) -> None:
        self.bad = False
        self.given: list[list[int]] = []
        self.seen: list[tuple[int | None, int | None]] = []

        def held(events: list[int]) -> int | None:
            self.given.append(events)
            if self.bad:
                raise ValueError("bad mood")
            return sum(events) or None

        async def held_later(events: list[int]) -> int | None:
            await asyncio.sleep(0)
            return held(events)

        chosen = held_later if is_async else held
        chosen.__name__ = "held"
        batch = tm.batch(every="1s", max_size=max_size)(chosen)

        @tm.passthrough
        def go(event: int) -> int:
            return event

        self.reactor = tm.Reactor("r", [batch, go], **options)
        graph = tm.Graph("g", reactor=self.reactor)

        @graph.node
        def out(held: int | None, go: int | None) -> None:
            self.seen.append((held, go))
            if go == 13:
                raise ValueError("unlucky")

        self.load = [self.reactor, graph]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("durability", KEPT)
async def test_buffered_events_are_restored(store: str, durability: Any, is_async: bool) -> None:
    """Behaviour 13: as far as a checkpoint, or under "boundary" the journal, holds them."""
    world = Gathering(durability=durability, is_async=is_async)
    async with tm.testing.node(store=store, load=world.load) as node:
        for value in (1, 2, 3):
            assert (await node.push("held", value)).outcome == "buffered"
        if durability != "boundary":
            await node.settle()
        node = await node.crash()
        assert world.given == []
        await node.advance("1s")
        await node.settle()
    assert (world.given, world.seen) == ([[1, 2, 3]], [(6, None)])


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("durability", KEPT)
async def test_flushed_events_are_not_emitted_again(store: str, durability: Any, is_async: bool) -> None:
    """Behaviour 14, G-5: not twice after a crash."""
    world = Gathering(durability=durability, is_async=is_async)
    async with tm.testing.node(store=store, load=world.load) as node:
        await node.push("held", 1)
        await node.push("held", 2)
        await node.settle()
        await node.advance("1s")
        if durability != "boundary":
            await node.settle()
        node = await node.crash()
        await node.advance("10s")
        await node.settle()
        state = node.reactor("r").state()
    assert (world.given, state.cache) == ([[1, 2]], {"held": 3})
    assert state.accumulators["held"].emitted == 1


@pytest.mark.parametrize("durability", KEPT)
async def test_a_sum_of_nothing_clears_the_buffer_for_good(store: str, durability: Any) -> None:
    """Behaviour 15: None suppresses, and a crash does not bring the events back."""
    world = Gathering(durability=durability)
    async with tm.testing.node(store=store, load=world.load) as node:
        await node.push("held", 0)
        await node.advance("1s")
        if durability != "boundary":
            await node.settle()
        node = await node.crash()
        await node.advance("10s")
    assert (world.given, world.seen) == ([[0]], [])


@pytest.mark.parametrize("durability", KEPT)
async def test_an_orderly_end_sums_up_once(sqlite: str, durability: Any) -> None:
    """Behaviours 12, 14, 63: the sum is in the final state, the events are not."""
    world = Gathering(durability=durability)
    async with tm.testing.node(store=sqlite, load=world.load) as node:
        await node.push("held", 1)
        await node.push("held", 2)
    async with tm.testing.node(store=sqlite, load=world.load) as node:
        await node.advance("10s")
        assert node.reactor("r").state().cache == {"held": 3}
    assert (world.given, world.seen) == ([[1, 2]], [(3, None)])


@pytest.mark.parametrize("durability", KEPT)
async def test_size_and_firings_flush_under_every_durability(store: str, durability: Any) -> None:
    """G-5, behaviours 9 and 11; a failed firing does not flush."""
    world = Gathering(max_size=3, durability=durability)
    async with tm.testing.node(store=store, load=world.load) as node:
        for value in (1, 2, 3):
            await node.push("held", value)
        await node.advance(0)
        sized = list(world.given)
        await node.push("held", 4)
        await node.push("go", 13)
        await node.advance(0)
        failed = list(world.given)
        await node.push("go", 7)
        await node.advance(0)
        assert world.seen == [(6, None), (6, 13), (6, 7), (4, 7)]
    assert (sized, failed, world.given) == ([[1, 2, 3]], [[1, 2, 3]], [[1, 2, 3], [4]])


async def test_events_pushed_at_once_are_each_in_one_sum(store: str) -> None:
    """G-5, G-24: size flushes while commits are on their way lose and double nothing."""
    world = Gathering(max_size=4, durability="boundary")
    async with tm.testing.node(store=store, load=world.load) as node:
        receipts = await asyncio.gather(*(node.push("held", value) for value in range(1, 31)))
        await node.advance("2s")
        given = list(world.given)
        node = await node.crash()
        await node.advance("2s")
        emitted = node.reactor("r").state().accumulators["held"].emitted
    assert all(receipt.accepted for receipt in receipts)
    assert [value for events in given for value in events] == list(range(1, 31))
    assert (max(map(len, given)), world.given, emitted) == (4, given, len(given))


async def test_a_sum_that_the_store_refuses_is_tried_again_with_its_events(store: str) -> None:
    """G-24: the events stay held, and are summed up once the store works."""
    world = Gathering(durability="boundary")
    async with tm.testing.node(store=store, load=world.load) as node:
        await node.push("held", 1)
        await node.push("held", 2)
        await node.settle()
        node.fail_store(1)
        await node.advance("1s")
        refused = list(world.seen)
        await node.advance("1s")
        assert node.reactor("r").state().cache == {"held": 3}
        node = await node.crash()
        await node.advance("2s")
        assert node.reactor("r").state().accumulators["held"].emitted == 1
    assert (refused, world.given[-1]) == ([], [1, 2])


@pytest.mark.parametrize("durability", KEPT)
async def test_a_batch_that_died_is_a_letter_after_the_crash(store: str, durability: Any) -> None:
    """G-7, behaviour 14: neither lost nor held again; a replay sums it up."""
    world = Gathering(durability=durability)
    async with tm.testing.node(store=store, load=world.load) as node:
        await node.push("held", 1)
        await node.push("held", 2)
        world.bad = True
        await node.advance("1s")
        await node.settle()
        node = await node.crash()
        world.bad = False
        await node.advance("10s")
        (letter,) = await node.reactor("r").dead_letters()
        receipt = await node.reactor("r").replay(letter.id)
        await node.settle()
        node = await node.crash()
        assert await node.reactor("r").dead_letters() == []
        assert node.reactor("r").state().cache == {"held": 3}
    assert isinstance(receipt, tm.Receipt)
    assert (receipt.outcome, letter.event, world.given) == ("emitted", [1, 2], [[1, 2], [1, 2]])


@pytest.mark.parametrize("after", [0, 1, 2, 3, 4, 5, 6])
async def test_a_batch_that_died_is_lost_at_no_moment(after: int) -> None:
    """G-24: kill -9 while the batch is put aside: its acknowledged events are held, or in the letter."""
    world = Gathering(durability="boundary")
    async with tm.testing.node(store="memory://", load=world.load) as node:
        await node.push("held", 1)
        await node.push("held", 2)
        await node.settle()
        world.bad = True
        left = [after]

        async def dying(transact: Any, units: Any) -> Any:
            if not left[0]:
                await asyncio.Event().wait()
            left[0] -= 1
            for _ in range(20):  # so that the batch dies while a checkpoint is being written
                await asyncio.sleep(0)
            return await transact(units)

        undo = intercept_transactions(node.database, dying)
        await node.push("go", 13) if after else None
        node.clock.advance_to(1.0)
        for _ in range(300):
            await asyncio.sleep(0)
        undo()
        world.bad = False
        node = await node.crash()
        await node.advance("1s")
        letters = await node.reactor("r").dead_letters()
        state = node.reactor("r").state()
    held = [letter.event for letter in letters]
    assert [1, 2] in held or state.cache.get("held") == 3, (held, state.cache)


async def test_a_lone_event_that_is_replayed_into_a_batch_waits_there(store: str) -> None:
    """G-7, G-24: a dead letter is removed only when the outcome of its replay is stored."""
    mood = {"bad": True}

    class Fill(tm.Boundary):
        value: int

        def __post_init__(self) -> None:
            if mood["bad"]:
                raise ValueError("bad mood")

    @tm.batch(every="1h")
    def held(events: list[Fill]) -> int:
        return sum(event.value for event in events)

    reactor = tm.Reactor("r", [held], durability="boundary")
    async with tm.testing.node(store=store, load=[reactor]) as node:
        assert (await node.push("held", {"value": 3})).outcome == "dead_lettered"
        await node.settle()
        mood["bad"] = False
        (letter,) = await node.reactor("r").dead_letters()
        node.fail_store(1)
        refused = await node.reactor("r").replay(letter.id)
        kept = await node.reactor("r").dead_letters()
        taken = await node.reactor("r").replay(letter.id)
        await node.settle()
        node = await node.crash()
        assert await node.reactor("r").dead_letters() == []
        await node.advance("1h")
        assert node.reactor("r").state().cache == {"held": 3}
    assert isinstance(refused, tm.Receipt)
    assert isinstance(taken, tm.Receipt)
    assert (refused.outcome, len(kept), taken.outcome) == ("rejected", 1, "buffered")
