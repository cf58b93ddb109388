"""Replays of dead events: by the rules of any event, and each letter is its own."""

import asyncio

import tidemill as tm
from tests.service.samples import slow


async def test_a_list_that_is_no_batch_is_admitted_again_as_an_event() -> None:
    """G-7: the function never sees what does not fit."""
    got = []

    @tm.batch(every="1s")
    def b(events: list[int]) -> int:
        got.append(events)
        return len(events)

    async with tm.testing.node(load=[tm.Reactor("r", [b])]) as node:
        await node.push("b", ["junk"])
        (letter,) = await node.reactor("r").dead_letters()
        receipt = await node.reactor("r").replay(letter.id)
        (again,) = await node.reactor("r").dead_letters()
        assert node.reactor("r").state().accumulators["b"].events == 1
    assert (receipt.outcome, got) == ("dead_lettered", [])
    assert (again.id, again.attempts) == (letter.id, 2)


async def test_a_batch_is_replayed_in_turn() -> None:
    """G-7: one event at a time per accumulator, replayed or not, so that no state is lost."""
    gate = asyncio.Event()
    running, calls = [0, 0], []

    class Sum(tm.Boundary):
        total: int = 0

    @tm.batch(every="100s", max_size=1, state=Sum)
    async def b(events: list[int], state: Sum) -> Sum:
        calls.append(events)
        if len(calls) == 1:
            raise ValueError
        running[0] += 1
        running[1] = max(running)
        await gate.wait()
        running[0] -= 1
        return Sum(total=state.total + sum(events))

    async with tm.testing.node(load=[tm.Reactor("r", [b])]) as node, asyncio.timeout(5):
        await node.push("b", 1)
        (letter,) = await node.reactor("r").dead_letters()
        both = asyncio.gather(node.reactor("r").replay(letter.id), node.push("b", 2))
        await node.advance(0)
        gate.set()
        receipts = await both
        assert node.reactor("r").state().cache == {"b": {"total": 3}}
        assert await node.reactor("r").dead_letters() == []
    assert ([receipt.outcome for receipt in receipts], running[1]) == (["emitted", "emitted"], 1)


async def test_a_batch_is_not_replayed_into_an_accumulator_that_is_down() -> None:
    """G-4: it is turned away like any event, and stays a letter."""
    mood = {"bad": True}

    @tm.batch(every="100s", max_size=1)
    def b(events: list[int]) -> int:
        if mood["bad"]:
            raise ValueError
        return len(events)

    async with tm.testing.node(load=[tm.Reactor("r", [b])]) as node:
        await node.push("b", 1)
        mood["bad"] = False
        (letter,) = await node.reactor("r").dead_letters()
        await node.break_accumulator("b")
        receipt = await node.reactor("r").replay(letter.id)
        assert await node.reactor("r").dead_letters() == [letter]
        await node.advance("1s")
        again = await node.reactor("r").replay(letter.id)
        assert await node.reactor("r").dead_letters() == []
    assert (receipt.outcome, again.outcome) == ("rejected", "emitted")


async def test_a_replay_that_fails_touches_no_other_letter() -> None:
    """G-7: even if another event fails with the same words at the same time."""

    @tm.passthrough
    async def a(event: str) -> int:
        raise ValueError("no")

    async with tm.testing.node(load=[tm.Reactor("r", [a])]) as node, asyncio.timeout(5):
        await node.push("a", "x")
        (letter,) = await node.reactor("r").dead_letters()
        await asyncio.gather(node.reactor("r").replay(letter.id), node.push("a", "y"))
        letters = (await node.reactor("r").dead_letters())[::-1]
        assert node.metrics()["dead_letters_total"] == 2
    assert [(one.event, one.attempts) for one in letters] == [("x", 2), ("y", 1)]


async def test_a_letter_that_left_the_box_during_its_replay_does_not_come_back() -> None:
    """G-7: the list is bounded, and what it holds can be replayed."""
    gate, replaying = asyncio.Event(), []

    async def act(value: int) -> None:
        if value == 1 and replaying:
            await gate.wait()
        raise ValueError(value)

    sample = slow(act)
    async with tm.testing.node(load=sample.load, settings={"dead_letter_limit": 1}) as node, asyncio.timeout(5):
        await node.push("a", 1)
        await node.settle()
        (letter,) = await node.reactor("r").dead_letters()
        replaying.append(asyncio.gather(node.reactor("r").replay(letter.id)))
        replaying.append(asyncio.gather(node.reactor("r").replay(letter.id)))
        await node.push("a", 2)
        gate.set()
        await asyncio.gather(*replaying)
        await node.settle()
        (left,) = await node.reactor("r").dead_letters()
        await node.push("a", 3)
        await node.settle()
        await node.reactor("r").replay((await node.reactor("r").dead_letters())[0].id)
    assert left.inputs == {"a": 2}
