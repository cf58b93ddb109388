"""kill -9 at every transaction between a push and the run that its firing starts."""

import asyncio
from typing import Any

import msgspec
import pytest

import tidemill as tm
from tests.simulation.test_crash_points import TURNS, Killer
from tidemill.storage.workflow_ports import RunFilter


class Shop:
    """Reactor `r` over `a`, a workflow that its firings or their values start, and what was acknowledged."""

    def __init__(self, durability: Any, trigger: Any) -> None:
        self.accepted: list[int] = []

        @tm.passthrough
        def a(event: int) -> int:
            return event

        reactor = tm.Reactor("r", [a], strategy="sequential", durability=durability)
        graph = tm.Graph("g", reactor=reactor)

        @graph.node
        def look(a: int) -> int:
            return a

        flow = tm.Workflow("w", triggers=[trigger])

        @flow.task
        def note() -> None:
            return None

        self.load = [reactor, graph, flow]

    async def push(self, node: tm.testing.TestNode, *values: int) -> None:
        """Push values concurrently and record which were acknowledged."""
        receipts = await asyncio.gather(*(node.push("a", value) for value in values))
        self.accepted += [value for value, receipt in zip(values, receipts, strict=True) if receipt.accepted]

    async def story(self, node: tm.testing.TestNode) -> None:
        """Push one by one, concurrently, and after everything was processed."""
        await self.push(node, 1)
        await self.push(node, 2, 3, 4, 5, 6)
        await node.settle()
        await node.advance("300ms")
        await self.push(node, 7)


async def runs(node: tm.testing.TestNode) -> list[tuple[int, str]]:
    """Return what every run was started with, oldest first."""
    rows = await node.probe.workflows.store.runs.find(RunFilter(tenant="public"))
    params = [msgspec.msgpack.decode(row.params) for row in rows]
    return [(one["payload"]["a"] if "payload" in one else one["output"], one["firing_id"]) for one in params]


async def live_and_die(durability: Any, trigger: Any, survive: int, *, takes_effect: bool) -> bool:
    """Tell the story with one death in it; return whether it was reached."""
    shop = Shop(durability, trigger)
    async with tm.testing.node(store="memory://", load=shop.load) as node:
        killer = Killer(node, survive, takes_effect=takes_effect)
        async with asyncio.TaskGroup() as group:
            telling = group.create_task(shop.story(node), name="story")
            while not telling.done() and not killer.is_dead:  # noqa: ASYNC110 - either may come first
                await asyncio.sleep(0)
            for _ in range(TURNS if killer.is_dead else 0):
                await asyncio.sleep(0)
            telling.cancel()
        killer.lift()
        node = await node.crash()
        await node.advance("2s")
        await shop.push(node, 100)
        await node.settle()
        await node.advance("2s")
        check(durability, shop, await runs(node))
    return killer.is_dead


def check(durability: str, shop: Shop, found: list[tuple[int, str]]) -> None:
    """No firing and no boundary has two runs; what was acknowledged under "boundary" has one, in order."""
    values = [value for value, _ in found]
    assert len({firing for _, firing in found}) == len(found), found
    assert values == sorted(set(values)), found
    assert values[-1] == 100
    if durability == "boundary":
        assert {value for value in shop.accepted if value != 5} <= set(values), (shop.accepted, values)


@pytest.mark.parametrize("takes_effect", [False, True])
@pytest.mark.parametrize("durability", ["interval", "fire", "boundary"])
@pytest.mark.parametrize(
    "trigger",
    [
        tm.on_firing("r", when="payload.a != 5"),
        tm.on_output("g", "look", when="output != 5"),
        tm.on_output("g", "look", when="output != 5", dedup="output", cooldown="1h"),
    ],
    ids=["on_firing", "on_output", "cooldown"],
)
async def test_a_death_at_any_transaction_neither_loses_nor_doubles_a_run(
    trigger: Any, durability: str, takes_effect: bool
) -> None:
    """graphs.md, Reactor -> workflow: at least once, and effectively once."""
    survive = 0
    while await live_and_die(durability, trigger, survive, takes_effect=takes_effect):
        survive += 1
    assert survive > 8
