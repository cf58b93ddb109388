"""Many events and many keys at once."""

import asyncio
from typing import Any

import pytest

import tidemill as tm
from tests.service.keys.market import KEYS, Market, Tick
from tidemill.graphs.pushes import ProducerPosition


@pytest.mark.parametrize("has_slow_totals", [False, True])
@pytest.mark.parametrize("durability", ["interval", "boundary"])
async def test_a_push_of_many_events_goes_to_their_keys(store: str, durability: str, has_slow_totals: bool) -> None:
    """G-1, G-31: in order, each event once, also of keys that are not in memory; a repetition changes nothing."""
    market = Market(keyed=True, durability=durability, has_slow_totals=has_slow_totals)
    async with tm.testing.node(store=store, load=market.load, settings={"active_keys": 1}) as node:
        totals = node.probe.graphs.accumulator("totals[0]")
        events: list[Any] = [Tick(key, value) for value in (1, 2, 3) for key in KEYS]
        for number in (1, 1, 2):
            position = ProducerPosition("client", number)
            summary = await totals.pushes.push_many([*events, {"key": None}], position=position)
            assert summary.counts == {"emitted": 9, "dead_lettered": 1}
            await node.settle()
        await totals.pushes.push_many(events)
        await node.settle()
        reactor = node.reactor("market")
        assert [(await reactor.state_of(key)).cache["totals"]["value"] for key in KEYS] == [18, 18, 18]


async def test_a_hundred_thousand_keys_are_one_loop_and_little_memory() -> None:
    """A key is a small state: no task, no ring, no compiled function."""

    @tm.passthrough
    def ticks(event: Tick) -> Tick:
        return event

    market = tm.Reactor("market", [ticks], key="value", partitions=1)
    graph = tm.Graph("doubles", reactor=market)

    @graph.node
    def double(ticks: Tick) -> int:
        return 2 * ticks.value

    async with tm.testing.node(load=[market, graph]) as node:
        tasks = len(asyncio.all_tasks())
        push = node.handle("ticks")
        for number in range(100_000):
            push(Tick("", number))
        for number in range(0, 100_000, 1000):
            push(Tick("again", number))
        state = node.reactor("market").state()
        assert state.keys is not None
        assert (state.fires, state.keys.active) == (100_100, 100_000)
        assert len(asyncio.all_tasks()) == tasks
        newest = node.reactor("market").firings(1)[0]
        assert (newest.key, newest.inputs["ticks"].key) == (99_000, "again")
