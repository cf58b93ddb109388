"""Work on a key is handed its state: what happens to other keys meanwhile does not matter."""

import asyncio
from types import ModuleType
from typing import Any

import pytest

import tidemill as tm
from tests.service.triggers.alerts import Plant, Reading, cooler
from tidemill.access.principal import Caller
from tidemill.graphs.pushes import ProducerPosition

PUBLIC = Caller("public", "test")


class Spend(tm.Boundary):
    customer: str
    amount: float


class Total(tm.Boundary):
    spent: float = 0.0


async def test_a_start_that_fails_later_is_a_dead_letter_of_the_key_that_fired() -> None:
    """G-27: other keys have been pushed since."""

    def fail(alert: Any) -> bool:
        raise RuntimeError("moody")

    async with tm.testing.node(load=[*Plant(key="sensor", partitions=1).load, cooler([], when=fail)]) as node:
        await node.push("reading", Reading(sensor="a", celsius=101.0))
        await node.push("reading", Reading(sensor="b", celsius=1.0))
        await node.advance("1m")
        (dead,) = await node.reactor("r").dead_letters()
        assert (dead.kind, dead.key) == ("start", "a")


async def test_an_event_that_a_restart_gives_up_is_a_dead_letter_of_its_key() -> None:
    """G-22: other keys wait behind it."""

    @tm.passthrough
    async def total(event: Spend) -> Spend:
        if event.customer == "slow":
            await asyncio.Event().wait()
        return event

    reactor = tm.Reactor("r", [total], key="customer", partitions=1)
    async with tm.testing.node(load=[reactor]) as node, asyncio.TaskGroup() as pushes:
        pushes.create_task(node.push("total", Spend("slow", 1.0)))
        pushes.create_task(node.push("total", Spend("other", 1.0)))
        await asyncio.sleep(0.01)
        assert node.reactor("r").state(key="other").cache == {}
        node.probe.graphs.accumulator("total[0]").restart()
        await node.settle()
        (dead,) = await node.reactor("r").dead_letters()
        assert (dead.key, dead.event) == ("slow", Spend("slow", 1.0))


async def test_a_running_state_that_a_new_version_adds_is_one_for_each_key() -> None:
    """G-27, P-6: the accumulator kept nothing for its keys before."""

    def version(*, with_state: bool) -> ModuleType:
        def plain(event: Spend) -> Total:
            return Total(event.amount)

        def summing(event: Spend, state: Total) -> Total:
            return Total(state.spent + event.amount)

        plain.__name__ = summing.__name__ = "total"
        total = tm.passthrough(state=Total)(summing) if with_state else tm.passthrough(plain)
        module = ModuleType("package")
        vars(module).update(total=total, r=tm.Reactor("r", [total], key="customer", partitions=1))
        return module

    async with tm.testing.node(load=[version(with_state=False)]) as node:
        await node.push("total", Spend("a", 1.0))
        await node.load(version(with_state=True))
        for customer, amount in (("a", 1.0), ("b", 10.0), ("a", 2.0), ("b", 20.0)):
            await node.push("total", Spend(customer, amount))
        spent = [node.reactor("r").state(key=key).cache["total"]["spent"] for key in ("a", "b")]
        assert spent == [3.0, 30.0]


@pytest.mark.parametrize("way", ["numbered", "many", "stream"])
async def test_no_way_to_push_overfills_the_queue_of_a_key(way: str) -> None:
    """G-27, G-9: an event waits for the queue of its key, whatever key came before it."""
    may_fire = asyncio.Event()
    events = [Spend(customer, 1.0) for _ in range(8) for customer in ("a", "b")]

    def total(event: Spend) -> Spend:
        return event

    declared = tm.stream(tm.Kafka(topic="spends"))(total) if way == "stream" else tm.passthrough(total)
    options: dict[str, Any] = {"strategy": "sequential", "capacity": 2, "durability": "boundary"}
    reactor = tm.Reactor("r", [declared], key="customer", partitions=1, **options)
    graph = tm.Graph("g", reactor=reactor)

    @graph.node
    async def wait(total: Spend) -> None:
        await may_fire.wait()

    sources = {"total": events} if way == "stream" else {}
    async with tm.testing.node("memory://", load=[reactor, graph], sources=sources) as node:
        async with asyncio.TaskGroup() as tasks:
            for number in range(8 if way == "numbered" else 0):
                position, part = ProducerPosition("producer", number + 1), events[2 * number :][:2]
                tasks.create_task(node.graph_client.push_many(PUBLIC, "total", part, position=position))
            if way == "many":
                tasks.create_task(node.push_many("total", events))
            for _ in range(20):
                await node.advance("100ms")
            queued = [node.reactor("r").state(key=key).queued for key in ("a", "b")]
            assert 0 < max(queued) <= 3  # a numbered push is taken as a whole
            may_fire.set()
        await node.advance("1s")
        assert node.reactor("r").state().fires == len(events)
