"""Dead letters and recoveries outlive the process."""

import asyncio
from typing import Any

import pytest

import tidemill as tm
from tests.service.samples import Sample, observer, pair, raising, single

ALL = ["none", "interval", "fire", "boundary"]


def moody(**options: Any) -> tuple[Sample, dict[str, bool]]:
    """Return a sample whose graph raises while the mood is bad."""
    mood = {"bad": True}
    return single(raising(when=lambda value: mood["bad"] and value > 10), **options), mood


@pytest.mark.parametrize("durability", ALL)
async def test_letters_of_events_and_firings_survive(store: str, durability: Any) -> None:
    """G-7, G-15, API: in the store when there is one, without an interval having to pass, as they were."""
    sample, _ = moody(durability=durability)
    async with tm.testing.node(store=store, load=sample.load) as node:
        await node.push("a", "x")
        await node.push("a", 13)
        await node.push("a", b"{broken")
        await node.advance(0)
        before = (await node.reactor("r").dead_letters())[::-1]
        node = await node.crash()
        assert (await node.reactor("r").dead_letters())[::-1] == before
    assert [(letter.kind, letter.source) for letter in before] == [("event", "a"), ("firing", "r"), ("event", "a")]
    assert [letter.event for letter in before] == ["x", None, b"{broken"]
    assert before[1].inputs == {"a": 13}


@pytest.mark.parametrize("durability", ALL)
async def test_a_dead_firing_of_an_earlier_life_is_replayed_on_its_snapshot(store: str, durability: Any) -> None:
    """G-15: only the graphs that failed; cache and flags stay; gone for good when it went well."""
    sample, mood = moody(durability=durability)
    async with tm.testing.node(store=store, load=[*sample.load, observer(sample.reactor)]) as node:
        await node.push("a", 13)
        (failed,) = node.reactor("r").firings()
        await node.push("a", 2)
        await node.settle()
        node = await node.crash()
        (letter,) = await node.reactor("r").dead_letters()
        again = await node.reactor("r").replay(letter.id)
        (kept,) = await node.reactor("r").dead_letters()
        await node.settle()
        node = await node.crash()
        mood["bad"] = False
        (stored,) = await node.reactor("r").dead_letters()
        firing = await node.reactor("r").replay(letter.id)
        cache = node.reactor("r").state().cache
        await node.settle()
        node = await node.crash()
        assert await node.reactor("r").dead_letters() == []
    assert isinstance(again, tm.Firing)
    assert isinstance(firing, tm.Firing)
    assert (again.ok, kept.attempts, stored.attempts) == (False, 2, 2)
    assert (firing.ok, firing.inputs, firing.attempt, set(firing.results)) == (True, {"a": 13}, 3, {"g"})
    assert firing.id == failed.id
    assert cache == ({} if durability == "none" else {"a": 2})


class Quote(tm.Boundary):
    """A boundary with a class of its own."""

    bid: float


async def test_the_inputs_of_a_dead_firing_come_back_as_their_types(store: str) -> None:
    """G-15: with its exact snapshot."""
    seen: list[Any] = []

    @tm.passthrough
    def quote(event: Quote) -> Quote:
        return event

    @tm.passthrough
    def fine(event: int) -> int:
        return event

    reactor = tm.Reactor("r", [quote, fine], strategy="sequential", durability="boundary")
    graph = tm.Graph("g", reactor=reactor)

    @graph.node
    def out(quote: Quote, fine: int | None) -> None:
        seen.append((quote, fine))
        if len(seen) == 1:
            raise ValueError("once")

    async with tm.testing.node(store=store, load=[reactor, graph]) as node:
        await node.push("quote", Quote(1.5))
        await node.settle()
        node = await node.crash()
        (letter,) = await node.reactor("r").dead_letters()
        await node.reactor("r").replay(letter.id)
    assert seen == [(Quote(1.5), None), (Quote(1.5), None)]
    assert letter.inputs == {"quote": Quote(1.5)}


async def test_a_union_in_a_dead_firing_comes_back_as_its_variant(store: str) -> None:
    """G-15, API: its exact snapshot, also where only the class tells two variants apart."""
    # Open bug: letters hold plain values, so a variant of a union comes back as a dict.
    seen: list[Any] = []

    class Up(tm.Boundary):
        by: float

    class Down(tm.Boundary):
        by: float

    @tm.passthrough
    def move(event: float) -> Up | Down:
        return Up(event) if event > 0 else Down(-event)

    reactor = tm.Reactor("r", [move])
    graph = tm.Graph("g", reactor=reactor)

    @graph.node
    def out(move: Up | Down) -> None:
        seen.append(move)
        if len(seen) == 1:
            raise ValueError("once")

    async with tm.testing.node(store=store, load=[reactor, graph]) as node:
        await node.push("move", -2.0)
        await node.settle()
        node = await node.crash()
        (letter,) = await node.reactor("r").dead_letters()
        await node.reactor("r").replay(letter.id)
    assert seen == [Down(2.0), Down(2.0)]


@pytest.mark.parametrize("durability", ALL)
async def test_a_dead_event_of_an_earlier_life_is_replayed_through_its_accumulator(store: str, durability: Any) -> None:
    """G-7: bytes in their format too."""
    known: set[int] = set()

    @tm.passthrough
    def a(event: int) -> int:
        if event not in known:
            raise LookupError(event)
        return event

    reactor = tm.Reactor("r", [a], durability=durability)
    async with tm.testing.node(store=store, load=[reactor]) as node:
        await node.push("a", 1)
        await node.push("a", b"2")
        await node.push("a", b"\x03", format="msgpack")
        await node.settle()
        node = await node.crash()
        known.update((1, 2, 3))
        receipts = [
            await node.reactor("r").replay(letter.id) for letter in (await node.reactor("r").dead_letters())[::-1]
        ]
        await node.settle()
        node = await node.crash()
        assert await node.reactor("r").dead_letters() == []
    assert [getattr(receipt, "sequence", None) for receipt in receipts] == [1, 2, 3]


async def test_the_limit_holds_across_restarts(store: str) -> None:
    """G-7: bounded; the oldest are dropped, whichever process added them."""
    settings = {"dead_letter_limit": 3}
    async with tm.testing.node(store=store, load=single().load, settings=settings) as node:
        for event in "abcd":
            await node.push("a", event)
        await node.settle()
        node = await node.crash()
        for event in "ef":
            await node.push("a", event)
        await node.settle()
        node = await node.crash()
        letters = (await node.reactor("r").dead_letters())[::-1]
    assert [letter.event for letter in letters] == ["d", "e", "f"]


async def test_a_lower_limit_holds_at_once_and_for_good(sqlite: str) -> None:
    """G-7: also for dead letters that an earlier process kept under a higher limit, or that a crash left."""
    async with tm.testing.node(store=sqlite, load=single().load) as node:
        for event in "abcd":
            await node.push("a", event)
    async with tm.testing.node(store=sqlite, load=single().load, settings={"dead_letter_limit": 2}) as node:
        at_first = [letter.event for letter in (await node.reactor("r").dead_letters())[::-1]]
        await node.push("a", "e")
    async with tm.testing.node(store=sqlite, load=single().load) as node:
        at_last = [letter.event for letter in (await node.reactor("r").dead_letters())[::-1]]
    assert (at_first, at_last) == (["c", "d"], ["d", "e"])


async def test_letters_that_could_not_be_written_are_written_later(store: str) -> None:
    """G-7, G-26: kept in memory until the store works again."""
    async with tm.testing.node(store=store, load=single().load) as node:
        node.fail_store(2)
        await node.push("a", "x")
        await node.advance("1s")
        node = await node.crash()
        assert [letter.event for letter in await node.reactor("r").dead_letters()] == ["x"]


async def test_a_letter_whose_event_cannot_be_stored_is_still_a_letter(store: str) -> None:
    """G-7: after any push the accumulator keeps running, and the dead letter is there after a crash."""
    async with tm.testing.node(store=store, load=single().load) as node:
        receipt = await node.push("a", {1: object(), "x": [lambda: None]})
        assert (await node.push("a", 1)).accepted
        await node.settle()
        node = await node.crash()
        (letter,) = await node.reactor("r").dead_letters()
    assert (receipt.outcome, letter.kind) == ("dead_lettered", "event")


async def test_letters_of_tenants_are_kept_apart(store: str) -> None:
    """G-30: equal names, other people's letters."""
    async with tm.testing.node(store=store, load=single().load) as node:
        for definition in single().load:
            await node.load(definition, tenant="acme")
        await node.push("a", "ours")
        await node.push("a", "theirs", tenant="acme")
        await node.settle()
        node = await node.crash()
        ours = await node.reactor("r").dead_letters()
        theirs = await node.reactor("r", tenant="acme").dead_letters()
    assert ([letter.event for letter in ours], [letter.event for letter in theirs]) == (["ours"], ["theirs"])


# -- recoveries


async def test_recoveries_survive(store: str) -> None:
    """G-20: every recovery is an event in the store; oldest first, none twice."""
    sample = pair()
    async with tm.testing.node(store=store, load=sample.load) as node, asyncio.timeout(5):
        await node.break_accumulator("a")
        await node.advance("1s")
        await node.break_reactor("r")
        await node.advance("10s")
        before = node.reactor("r").events()[::-1]
        node = await node.crash()
        after = node.reactor("r").events()[::-1]
        await node.break_accumulator("b")
        await node.advance("10s")
        await node.settle()
        node = await node.crash()
        last = node.reactor("r").events()[::-1]
    assert len(before) >= 2
    assert after == before
    assert (last[: len(before)], {event.name for event in last[len(before) :]}) == (before, {"b"})
    assert [event.at for event in last] == sorted(event.at for event in last)
