"""Dead letters: bounded, to be looked at, and to be replayed."""

import asyncio

import msgspec
import pytest

import tidemill as tm
from tests.service.samples import observer, raising, single


async def test_letters_of_events_and_firings_come_together_newest_first() -> None:
    """G-7, G-15: one list per reactor."""
    sample = single(raising(when=lambda value: value == 13))
    async with tm.testing.node(load=sample.load) as node:
        for event in ("x", 13, "y"):
            await node.push("a", event)
            await node.advance("1s")
        letters = await node.reactor("r").dead_letters()
        assert await node.reactor("r").dead_letters(limit=1) == letters[:1]
    assert [(letter.kind, letter.source) for letter in letters] == [("event", "a"), ("firing", "r"), ("event", "a")]
    assert [letter.event for letter in letters] == ["y", None, "x"]
    assert letters[1].inputs == {"a": 13}
    assert len({letter.id for letter in letters}) == 3


async def test_letters_of_one_moment_keep_their_order() -> None:
    """G-7."""
    async with tm.testing.node(load=single().load) as node:
        for event in ("a", "b", "c"):
            await node.push("a", event)
        letters = (await node.reactor("r").dead_letters())[::-1]
    assert [letter.event for letter in letters] == ["a", "b", "c"]


async def test_the_list_is_bounded_and_says_what_it_lost() -> None:
    """G-4, G-7: the oldest goes, and is counted."""
    async with tm.testing.node(load=single().load, settings={"dead_letter_limit": 3}) as node:
        for event in "abcde":
            await node.push("a", event)
        letters = (await node.reactor("r").dead_letters())[::-1]
        state = node.reactor("r").state()
    assert [letter.event for letter in letters] == ["c", "d", "e"]
    assert sum(state.dropped.values()) == 2
    assert state.accumulators["a"].dead_letters == 3  # those that are stored


async def test_a_dead_firing_is_replayed_on_its_own_snapshot() -> None:
    """API: replay leaves the cache alone."""
    mood = {"bad": True}
    sample = single(raising(when=lambda value: mood["bad"]))
    async with tm.testing.node(load=sample.load) as node:
        await node.push("a", 1)
        mood["bad"] = False
        await node.push("a", 2)
        (letter,) = await node.reactor("r").dead_letters()
        firing = await node.reactor("r").replay(letter.id)
        state = node.reactor("r").state()
        assert await node.reactor("r").dead_letters() == []
    assert isinstance(firing, tm.Firing)
    assert (firing.ok, firing.inputs, firing.attempt) == (True, {"a": 1}, 2)
    assert firing.results["g"].outputs == {"out": 10}
    assert (state.cache, state.dirty, sample.seen) == ({"a": 2}, {"a": False}, [1, 2, 1])


async def test_a_replay_runs_only_the_graphs_that_failed() -> None:
    """G-15."""
    mood = {"bad": True}
    sample = single(raising(when=lambda value: mood["bad"]))
    async with tm.testing.node(load=[*sample.load, observer(sample.reactor)]) as node:
        await node.push("a", 1)
        mood["bad"] = False
        (letter,) = await node.reactor("r").dead_letters()
        firing = await node.reactor("r").replay(letter.id)
    assert isinstance(firing, tm.Firing)
    assert set(firing.results) == {"g"}


async def test_a_replay_that_fails_keeps_the_letter_and_counts_the_attempt() -> None:
    """G-15."""
    sample = single(raising(when=lambda value: True))
    async with tm.testing.node(load=sample.load) as node:
        await node.push("a", 1)
        (letter,) = await node.reactor("r").dead_letters()
        firing = await node.reactor("r").replay(letter.id)
        (again,) = await node.reactor("r").dead_letters()
        dead = node.metrics()["dead_letters_total"]
    assert isinstance(firing, tm.Firing)
    assert not firing.ok
    assert (again.id, again.attempts, dead) == (letter.id, 2, 1)


async def test_a_replay_is_a_firing_that_can_be_waited_for() -> None:
    """API: the cursor shows every log entry."""
    mood = {"bad": True}
    sample = single(raising(when=lambda value: mood["bad"]))
    async with tm.testing.node(load=sample.load) as node, asyncio.timeout(5):
        await node.push("a", 1)
        await node.reactor("r").next_firing()
        (letter,) = await node.reactor("r").dead_letters()
        mood["bad"] = False
        waited, replayed = await asyncio.gather(node.reactor("r").next_firing(), node.reactor("r").replay(letter.id))
    assert isinstance(replayed, tm.Firing)
    assert waited.id == replayed.id


async def test_a_replay_for_a_graph_that_is_gone_is_refused() -> None:
    """G-15: the letter stays."""
    sample = single(raising(when=lambda value: True))
    async with tm.testing.node(load=sample.load) as node:
        await node.push("a", 1)
        await node.unload("graph:g")
        (letter,) = await node.reactor("r").dead_letters()
        with pytest.raises(tm.RequestError, match="no longer bound"):
            await node.reactor("r").replay(letter.id)
        assert len(await node.reactor("r").dead_letters()) == 1


async def test_a_dead_event_is_replayed_through_its_accumulator() -> None:
    """G-7: with what the function makes of it now."""
    known: set[int] = set()

    @tm.passthrough
    def a(event: int) -> int:
        if event not in known:
            raise LookupError(event)
        return event

    async with tm.testing.node(load=[tm.Reactor("r", [a])]) as node:
        await node.push("a", 5)
        (letter,) = await node.reactor("r").dead_letters()
        known.add(5)
        receipt = await node.reactor("r").replay(letter.id)
        assert node.reactor("r").state().cache == {"a": 5}
        assert await node.reactor("r").dead_letters() == []
    assert receipt == tm.Receipt(True, 1, "emitted")


async def test_a_dead_event_that_fails_again_stays_one_letter() -> None:
    """G-7: same id, one more attempt."""
    async with tm.testing.node(load=single().load, settings={"dead_letter_limit": 1}) as node:
        await node.push("a", "x")
        (letter,) = await node.reactor("r").dead_letters()
        receipt = await node.reactor("r").replay(letter.id)
        (again,) = await node.reactor("r").dead_letters()
        state = node.reactor("r").state().accumulators["a"]
    assert isinstance(receipt, tm.Receipt)
    assert receipt.outcome == "dead_lettered"
    assert (again.id, again.attempts, again.event, state.dead_letters) == (letter.id, 2, "x", 1)


async def test_bytes_are_replayed_in_the_format_they_came_in() -> None:
    """API: `format="msgpack"`."""
    data = msgspec.msgpack.encode("x")
    async with tm.testing.node(load=single().load) as node:
        await node.push("a", data, format="msgpack")
        (letter,) = await node.reactor("r").dead_letters()
        receipt = await node.reactor("r").replay(letter.id)
        (again,) = await node.reactor("r").dead_letters()
    assert isinstance(receipt, tm.Receipt)
    assert (receipt.reason, again.error) == (letter.error, letter.error)


async def test_a_failed_batch_is_replayed_whole() -> None:
    """G-5, G-7."""
    mood = {"bad": True}

    @tm.batch(every="1s")
    def fills(events: list[int]) -> int:
        if mood["bad"]:
            raise ValueError("not now")
        return sum(events)

    async with tm.testing.node(load=[tm.Reactor("r", [fills])]) as node:
        await node.push("fills", 1)
        await node.push("fills", 2)
        await node.advance("1s")
        (letter,) = await node.reactor("r").dead_letters()
        mood["bad"] = False
        await node.reactor("r").replay(letter.id)
        assert node.reactor("r").state().cache == {"fills": 3}
        assert await node.reactor("r").dead_letters() == []


async def test_an_unknown_letter_is_an_error() -> None:
    """G-4."""
    async with tm.testing.node(load=single().load) as node:
        with pytest.raises(tm.RequestError) as caught:
            await node.reactor("r").replay("nothing")
    assert caught.value.status == 404


class Order(tm.Boundary):
    symbol: str
    size: int = 1


def strict_kinds() -> list[tm.Accumulator]:
    """Return an accumulator of each kind that refuses unknown fields of orders."""

    @tm.passthrough(extra="forbid")
    def passed(event: Order) -> int:
        return event.size

    @tm.stream(tm.Kafka(topic="orders"), extra="forbid")
    def streamed(event: Order) -> int:
        return event.size

    @tm.polling(every="1h", extra="forbid")
    def polled() -> Order | None:
        return None

    @tm.batch(every="1h", extra="forbid")
    def gathered(events: list[Order]) -> int:
        return len(events)

    return [passed, streamed, polled, gathered, tm.window("kept", Order, capacity=2, extra="forbid")]


@pytest.mark.parametrize("kind", strict_kinds(), ids=lambda one: str(one.kind))
async def test_an_event_with_an_unknown_field_is_a_dead_letter_with_the_suggestion(kind: tm.Accumulator) -> None:
    """G-7: `extra="forbid"` refuses it, as a value and as bytes; what fits is taken."""
    async with tm.testing.node(load=[tm.Reactor("r", [kind])]) as node:
        receipts = [
            await node.push(kind.name, {"symbol": "A", "sise": 2}),
            await node.push(kind.name, b'{"symbol": "A", "sise": 2}'),
            await node.push(kind.name, {"symbol": "A", "size": 2}),
            await node.push(kind.name, Order(symbol="A")),
        ]
        letters = (await node.reactor("r").dead_letters())[::-1]
    assert [receipt.accepted for receipt in receipts] == [False, False, True, True]
    assert len(letters) == 2
    for letter in letters:
        assert letter.error == "TypeMismatchError: expected Order: unknown field 'sise' (did you mean 'size'?)"


async def test_an_unknown_field_is_refused_on_a_handle_too() -> None:
    """G-1, G-7: the fast path takes instances; anything else is checked."""
    passed, *_ = strict_kinds()
    async with tm.testing.node(load=[tm.Reactor("r", [passed])]) as node:
        push = node.handle("passed")
        assert [push(Order(symbol="A")), push({"symbol": "A", "sise": 2}), push({"symbol": "A"})] == [1, None, 2]


async def test_a_dead_letter_is_read_edited_and_dropped_by_its_id() -> None:
    """The handle of a node has the verbs of the client's; the edited event is pushed, and the letter goes."""
    async with tm.testing.node(load=single(raising(when=lambda value: value == 13)).load) as node:
        reactor = node.reactor("r")
        for event in ("x", "y", 13):
            await node.push("a", event)
        await node.advance(0)
        firing, second, first = await reactor.dead_letters()
        assert await reactor.dead_letter(first.id) == first
        assert (await reactor.replay(first.id, "z")).outcome == "dead_lettered"
        assert await reactor.dead_letter(first.id) == first
        assert await reactor.replay(first.id, 7) == tm.Receipt(True, 2, "emitted")
        await reactor.drop(second.id)
        for call in (reactor.dead_letter(second.id), reactor.drop(first.id), reactor.replay(first.id, 1)):
            with pytest.raises(tm.RequestError) as raised:
                await call
            assert raised.value.code == "dead_letter_not_found"
        with pytest.raises(tm.RequestError) as raised:
            await reactor.replay(firing.id, 1)
        assert raised.value.code == "not_editable"


async def test_the_handle_of_an_accumulator_is_that_of_the_client() -> None:
    """Issue 24: one handle for node and client, over operations."""
    async with tm.testing.node(load=single().load) as node:
        await node.push("a", "x")
        accumulator = node.accumulator("a")
        (letter,) = await accumulator.dead_letters()
        assert ((await accumulator.state()).events, letter.event) == (1, "x")
        assert (await accumulator.dead_letter(letter.id)) == letter
        replayed = await accumulator.replay(letter.id, 5)
        assert replayed.receipt == tm.Receipt(True, 1, "emitted")
        await node.push("a", "y")
        for left in await accumulator.dead_letters():
            await accumulator.drop(left.id)
        assert await accumulator.dead_letters() == []
        assert (await accumulator.restart()).restarts == 1
        with pytest.raises(tm.RequestError) as raised:
            await node.accumulator("b").state()
        assert raised.value.code == "accumulator_not_found"
