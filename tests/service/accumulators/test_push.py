"""Pushing events: the outcome and the receipt of each."""

import msgspec
import pytest

import tidemill as tm
from tests.service.samples import pair, single


class Quote(tm.Boundary):
    symbol: str
    price: float


def quotes() -> tm.Reactor:
    @tm.passthrough
    def quote(event: Quote) -> Quote:
        return event

    return tm.Reactor("market", [quote])


async def test_a_push_is_answered_with_its_sequence_number() -> None:
    """G-4, behaviour 22: numbers rise by one per emitted boundary, from 1."""
    async with tm.testing.node(load=single().load) as node:
        receipts = [await node.push("a", value) for value in (5, 6, 7)]
    assert receipts == [tm.Receipt(True, number, "emitted") for number in (1, 2, 3)]


async def test_an_event_with_nothing_to_say_is_suppressed_and_takes_no_number() -> None:
    """Behaviours 1 and 22: None emits no boundary."""
    async with tm.testing.node(load=single().load) as node:
        await node.push("a", 1)
        suppressed = await node.push("a", -1)
        following = await node.push("a", 2)
    assert (suppressed.accepted, suppressed.outcome) == (True, "suppressed")
    assert following.sequence == 2


async def test_numbers_are_counted_per_accumulator() -> None:
    """Behaviour 22."""
    async with tm.testing.node(load=pair().load) as node:
        await node.push("a", 1)
        await node.push("a", 1)
        receipt = await node.push("b", 1)
    assert receipt.sequence == 1


async def test_a_push_to_an_idle_reactor_has_fired_when_it_returns() -> None:
    """G-1: accumulator, criteria and graph are direct calls."""
    sample = single()
    async with tm.testing.node(load=sample.load) as node:
        await node.push("a", 4)
        assert sample.seen == [4]


async def test_a_value_is_converted_to_the_annotated_type() -> None:
    """API: anything but an instance of the annotated class is converted."""
    async with tm.testing.node(load=[quotes()]) as node:
        await node.push("quote", {"symbol": "X", "price": 2})
        firing = await node.reactor("market").next_firing()
    assert firing.inputs == {"quote": Quote("X", 2.0)}


async def test_an_instance_passes_untouched() -> None:
    """G-1: no copy of payloads."""
    quote = Quote("X", 2.0)
    async with tm.testing.node(load=[quotes()]) as node:
        await node.push("quote", quote)
        firing = await node.reactor("market").next_firing()
    assert firing.inputs["quote"] is quote


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
async def test_bytes_are_read_as_json(kind: type) -> None:
    """API: event as Python value or bytes."""
    async with tm.testing.node(load=[quotes()]) as node:
        receipt = await node.push("quote", kind(b'{"symbol": "X", "price": 1.5}'))
        firing = await node.reactor("market").next_firing()
    assert receipt.outcome == "emitted"
    assert firing.inputs["quote"] == Quote("X", 1.5)


async def test_bytes_are_read_as_msgpack_when_asked() -> None:
    """API: `format="msgpack"`."""
    async with tm.testing.node(load=[quotes()]) as node:
        data = msgspec.msgpack.encode({"symbol": "X", "price": 1.5})
        receipt = await node.push("quote", data, format="msgpack")
    assert receipt.outcome == "emitted"


async def test_an_unknown_format_is_refused() -> None:
    """G-4: bad input gets its own error."""
    async with tm.testing.node(load=[quotes()]) as node:
        with pytest.raises(tm.RequestError) as caught:
            await node.push("quote", b"{}", format="xml")
    assert caught.value.code == "invalid_format"


@pytest.mark.parametrize("event", [{"symbol": "X"}, {"symbol": 1, "price": 1.0}, 7, None, b"{", b'{"price": 1}'])
async def test_a_misfit_is_a_dead_letter_and_not_an_exception(event: object) -> None:
    """G-7, behaviour 23 (dead letter here)."""
    async with tm.testing.node(load=[quotes()]) as node:
        receipt = await node.push("quote", event)
        letters = await node.reactor("market").dead_letters()
        good = await node.push("quote", Quote("X", 1.0))
    assert (receipt.accepted, receipt.outcome, receipt.sequence) == (False, "dead_lettered", 0)
    assert receipt.reason
    assert [letter.event for letter in letters] == [event]
    assert good.sequence == 1


async def test_an_unknown_accumulator_is_an_error_that_suggests_the_right_one() -> None:
    """G-4, behaviour 40: never fires."""
    async with tm.testing.node(load=[quotes()]) as node:
        with pytest.raises(tm.RequestError, match="did you mean 'quote'") as caught:
            await node.push("qoute", 1)
    assert (caught.value.code, caught.value.status) == ("accumulator_not_found", 404)


async def test_a_push_to_a_paused_reactor_is_accepted_and_kept() -> None:
    """G-4, G-13: pause keeps accumulating."""
    sample = single()
    async with tm.testing.node(load=sample.load) as node:
        await node.reactor("r").pause()
        receipt = await node.push("a", 3)
        state = node.reactor("r").state()
    assert receipt == tm.Receipt(True, 1, "emitted")
    assert (sample.seen, state.cache, state.dirty) == ([], {"a": 3}, {"a": True})


async def test_a_raising_function_makes_a_dead_letter_with_the_event() -> None:
    """G-7, behaviour 24: the accumulator lives on."""

    @tm.passthrough
    def ratio(event: int) -> float:
        return 1 / event

    async with tm.testing.node(load=[tm.Reactor("r", [ratio])]) as node:
        bad, good = await node.push("ratio", 0), await node.push("ratio", 2)
        (letter,) = await node.reactor("r").dead_letters()
    assert (bad.outcome, good.outcome) == ("dead_lettered", "emitted")
    assert (letter.kind, letter.source, letter.event) == ("event", "ratio", 0)
    assert "division by zero" in letter.error
    assert bad.reason == letter.error


async def test_a_function_that_breaks_its_own_promise_makes_a_dead_letter() -> None:
    """G-7: what a function returns is checked against its annotation."""

    @tm.passthrough
    def liar(event: int) -> str:
        return event

    sample = tm.Reactor("r", [liar])
    async with tm.testing.node(load=[sample]) as node:
        receipt = await node.push("liar", 1)
        assert receipt.outcome == "dead_lettered"
        assert node.reactor("r").state().fires == 0


async def test_sys_exit_in_an_accumulator_is_about_that_event_only() -> None:
    """G-7: an error of author code concerns that event only."""

    @tm.passthrough
    def leaving(event: int) -> int:
        raise SystemExit(event)

    async with tm.testing.node(load=[tm.Reactor("r", [leaving])]) as node:
        receipt = await node.push("leaving", 1)
    assert receipt.outcome == "dead_lettered"


async def test_one_accumulator_may_feed_several_reactors() -> None:
    """API: one accumulator definition may feed several reactors."""
    first = single()
    (source,) = first.reactor.accumulators
    second = tm.Reactor("s", [source])
    async with tm.testing.node(load=[*first.load, second]) as node:
        receipt = await node.push("a", 1)
        fires = [node.reactor(name).state().fires for name in ("r", "s")]
    assert receipt.sequence == 1
    assert fires == [1, 1]


async def test_counters_tell_what_became_of_every_event() -> None:
    """G-4: nothing is dropped silently."""
    async with tm.testing.node(load=single().load) as node:
        for event in (1, 2, -1, "x"):
            await node.push("a", event)
        state = node.reactor("r").state().accumulators["a"]
    assert (state.events, state.emitted, state.suppressed, state.dead_letters) == (4, 2, 1, 1)
