"""Keyed reactors: one cache, queue and running state for each key."""

from types import ModuleType
from typing import Any

import pytest

import tidemill as tm
from tests.service.keys.market import Market, Tick
from tidemill.engine.graphs.client.operations import GraphOperations
from tidemill.engine.graphs.keys import keyed_kinds
from tidemill.engine.graphs.keys.keyed_loop import KeyedFiringLoop
from tidemill.graphs.definition import AccumulatorKind


class Quote(tm.Boundary):
    symbol: str
    price: float


class Symbol(tm.Boundary):
    name: str


def watch(reactor: tm.Reactor) -> tuple[tm.Graph, list[Any]]:
    graph, seen = tm.Graph("watch", reactor=reactor), []

    @graph.node
    def note(quotes: Quote, ctx: tm.Context) -> None:
        seen.append((ctx.key, quotes.price))

    return graph, seen


async def test_an_event_without_a_key_becomes_a_dead_letter_that_says_why() -> None:
    """G-7: the accumulator lives on."""

    @tm.passthrough
    def quotes(event: Quote) -> Quote:
        return event

    market = tm.Reactor("market", [quotes], key=lambda event: event.symbol or None)
    graph, seen = watch(market)
    async with tm.testing.node(load=[market, graph]) as node:
        receipt = await node.push("quotes", Quote("", 1.0))
        assert (receipt.outcome, receipt.accepted) == ("dead_lettered", False)
        assert "the key function returned None" in (receipt.reason or "")
        (letter,) = await node.reactor("market").dead_letters()
        assert (letter.key, letter.event) == (None, Quote("", 1.0))
        assert node.handle("quotes")(Quote("", 2.0)) is None
        await node.push("quotes", Quote("A", 3.0))
        assert seen == [("A", 3.0)]


async def test_handles_fire_active_keys_straight_from_the_push() -> None:
    """G-1: the fast path finds the key, and logs it."""

    @tm.passthrough
    def quotes(event: Quote) -> Quote:
        return event

    market = tm.Reactor("market", [quotes], key="symbol", partitions=1)
    graph = tm.Graph("doubles", reactor=market)

    @graph.node
    def double(quotes: Quote) -> float:
        if quotes.price == 13:
            raise ValueError("thirteen")
        return 2 * quotes.price

    async with tm.testing.node(load=[market, graph]) as node:
        push = node.handle("quotes")
        numbers = [push(Quote(symbol, price)) for price in (1.0, 2.0, 13.0, 3.0) for symbol in ("A", "B")]
        assert numbers == [1, 2, 3, 4, 5, 6, 7, 8]
        firings = node.reactor("market").firings(key="B")[::-1]
        assert [(one.key, one.inputs["quotes"].price, one.ok) for one in firings] == [
            ("B", 1.0, True),
            ("B", 2.0, True),
            ("B", 13.0, False),
            ("B", 3.0, True),
        ]
        assert [one.key for one in (await node.reactor("market").dead_letters())[::-1]] == ["A", "B"]


async def test_true_is_not_the_key_one() -> None:
    @tm.passthrough
    def quotes(event: Quote) -> Quote:
        return event

    market = tm.Reactor("market", [quotes], key=lambda event: True if event.symbol == "true" else 1)
    graph, seen = watch(market)
    async with tm.testing.node(load=[market, graph]) as node:
        push = node.handle("quotes")
        for symbol in ("one", "one", "true"):
            push(Quote(symbol, 1.0))
        assert [key for key, _ in seen] == [1, 1]
        assert len(await node.reactor("market").dead_letters()) == 1


async def test_polls_go_to_the_key_of_what_they_return() -> None:
    answers = iter([Quote("A", 1.0), Quote("B", 2.0), None, Quote("A", 3.0)])

    @tm.polling(every="1s")
    async def quotes() -> Quote | None:
        return next(answers)

    market = tm.Reactor("market", [quotes], key="symbol")
    graph, seen = watch(market)
    async with tm.testing.node(load=[market, graph]) as node:
        await node.advance("4s")
        assert seen == [("A", 1.0), ("B", 2.0), ("A", 3.0)]


async def test_commands_need_a_key() -> None:
    async with tm.testing.node(load=Market(keyed=True).load) as node:
        reactor = node.reactor("market")
        await node.push("totals", Tick("a", 4))
        for command in (reactor.force_fire(), reactor.fire_with({"totals": {"value": 1}})):
            with pytest.raises(tm.RequestError) as raised:
                await command
            assert raised.value.code == "key_required"
        fired = await reactor.fire_with({"totals": {"value": 1}}, key="b")
        assert (fired.key, fired.manual) == ("b", True)
        assert reactor.state(key="b").cache["totals"] == {"value": 1}
        assert reactor.state(key="a").cache["totals"] == {"value": 4}
        assert reactor.state().cache == {"seen": []}
        with pytest.raises(tm.RequestError, match="no active key 'z'"):
            reactor.state(key="z")


async def test_a_full_queue_of_one_key_leaves_room_for_the_others() -> None:
    """G-12: `capacity` is for each key, also for pushers with limited patience."""
    async with tm.testing.node(load=Market(keyed=True, strategy="sequential", capacity=2).load) as node:
        await node.reactor("market").pause()
        operations = GraphOperations(node._scheduler, node._packages.reclaim, node.history)
        outcomes = [
            (await operations.push("public", "prices[0]", Tick(key, value), patience=0.0)).outcome
            for key, value in (("a", 1), ("a", 2), ("a", 3), ("b", 1), ("b", 2), ("b", 3))
        ]
        assert outcomes == ["emitted", "emitted", "rejected"] * 2
        assert node.reactor("market").state().queued == 4


async def test_a_reactor_without_keys_refuses_one() -> None:
    async with tm.testing.node(load=Market(keyed=False).load) as node:
        with pytest.raises(tm.RequestError) as raised:
            await node.reactor("market").force_fire(key="a")
        assert raised.value.code == "no_keys"


async def test_a_look_at_the_metrics_changes_no_key() -> None:
    """G-5: the events that the keys buffer are counted where they are, and the inputs stay those of their key."""

    @tm.batch(every="1h")
    def sizes(events: list[Tick]) -> int:
        return len(events)

    reactor = tm.Reactor("sizes", [sizes], key="key", partitions=1)
    async with tm.testing.node(load=[reactor]) as node:
        await node.push_many("sizes", [Tick("a", 1), Tick("a", 2), Tick("b", 3)])
        running = node.probe.graphs.reactor("sizes[0]")
        assert isinstance(running.firing_loop, KeyedFiringLoop)
        keys = running.firing_loop.keys
        for key in ("a", "b", None):
            inputs = running.inputs_of(key)
            cache = inputs.cache
            assert [one.kind.buffered_count for one in running.accumulators] == [3]
            assert inputs.cache is cache
            assert key is None or cache is keys.active[key].cache


async def test_a_kind_that_keyed_reactors_do_not_have_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """An accumulator kind that was added without a keyed form fails its load with a sentence, not with a KeyError."""
    monkeypatch.delitem(keyed_kinds.KEYED_KINDS, AccumulatorKind.WINDOW)
    reactor = tm.Reactor("recent", [tm.window("values", Tick, capacity=2)], key="key", partitions=1)
    async with tm.testing.node() as node:
        with pytest.raises(tm.OperationError, match="'values': a keyed reactor cannot have one of kind 'window'"):
            await node.load(reactor)


async def test_an_accumulator_of_a_keyed_reactor_belongs_to_it_alone() -> None:
    market = Market(keyed=True)
    other = tm.Reactor("other", [market.reactor.accumulators[0]])
    async with tm.testing.node(load=market.load) as node:
        with pytest.raises(tm.DefinitionError, match="belongs to the keyed reactor 'market' alone"):
            await node.load(other)


async def test_a_reload_keeps_the_keys() -> None:
    """G-19, G-27: a newer version of the same contract continues with the state of each key."""
    async with tm.testing.node() as node:
        await node.load(_module(Market(keyed=True)))
        for key, value in (("a", 1), ("b", 2), ("a", 3)):
            await node.push("totals", Tick(key, value))
        await node.load(_module(Market(keyed=True)))
        await node.push("totals", Tick("a", 10))
        await node.push("totals", Tick("b", 10))
        reactor = node.reactor("market")
        assert [reactor.state(key=key).cache["totals"]["value"] for key in ("a", "b")] == [14, 12]


async def test_a_reload_may_read_keys_in_another_way() -> None:
    """P-6: the newer version decides from its first event on, also on the fast path."""

    def version(key: Any) -> ModuleType:
        @tm.passthrough
        def quotes(event: Quote) -> Quote:
            return event

        market = tm.Reactor("market", [quotes], key=key)
        graph = tm.Graph("doubles", reactor=market)

        @graph.node
        def double(quotes: Quote) -> float:
            return 2 * quotes.price

        module = ModuleType("quotes_module")
        module.__dict__.update(market=market, graph=graph)
        return module

    async with tm.testing.node() as node:
        await node.load(version("symbol"))
        push = node.handle("quotes")
        push(Quote("A", 1.0))
        push(Quote("A", 2.0))
        await node.load(version(lambda event: event.symbol.lower()))
        await node.advance("1s")  # the keys are in different partitions: only the time orders their firings
        push(Quote("A", 3.0))
        push(Quote("A", 4.0))
        assert [one.key for one in node.reactor("market").firings()[::-1]] == ["A", "A", "a", "a"]


def _module(market: Market) -> Any:
    module = ModuleType("market_module")
    module.__dict__.update(reactor=market.reactor, graph=market.graph)
    return module
