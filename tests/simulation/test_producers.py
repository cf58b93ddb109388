"""Producers that repeat what was not acknowledged: kill -9 at every transaction, and random stories of faults."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidemill as tm
from tests.simulation.test_crash_points import TURNS, Killer

NAMES = ("plain", "awaiting", "batched")


class Factory:
    """Three kinds of accumulators, and a graph that writes down every value that firings consumed."""

    def __init__(self) -> None:
        self.consumed: dict[tuple[str, str], list[tuple[str, Any]]] = {}

        @tm.passthrough
        def plain(event: int) -> int:
            return event

        @tm.passthrough
        async def awaiting(event: int) -> int:
            await asyncio.sleep(0)
            return event

        @tm.batch(every="1s", max_size=3)
        def batched(events: list[int]) -> list[int]:
            return events

        reactor = tm.Reactor("r", [plain, awaiting, batched], strategy="sequential", durability="boundary")
        graph = tm.Graph("g", reactor=reactor)

        @graph.node
        def note(plain: int | None, awaiting: int | None, batched: list[int] | None, ctx: tm.Context) -> None:
            self.consumed["g", ctx.firing_id] = ctx.consumed  # a firing that runs again has the same id

        self.load = [reactor, graph]

    def applied(self, name: str) -> list[int]:
        """Return the values that took effect, in order."""
        values = [value for consumed in self.consumed.values() for source, value in consumed if source == name]
        return [one for value in values for one in (value if name == "batched" else [value])]


class Producer:
    """Numbers its pushes of three events, and repeats one until it is acknowledged."""

    def __init__(self, accumulator: str) -> None:
        self.accumulator = accumulator
        self.sequence = 1
        self.acknowledged: list[int] = []
        self.rejected: list[int] = []

    @property
    def events(self) -> list[int]:
        return [self.sequence * 3 + index for index in range(3)]

    async def push(self, node: tm.testing.TestNode) -> bool:
        """Push what is next, or again what was not acknowledged; return whether it is now."""
        position = tm.ProducerPosition("p", self.sequence)
        try:
            summary = await node.push_many(self.accumulator, self.events, position=position)
        except tm.OperationError:
            return False
        assert len({receipt.accepted for receipt in summary.receipts}) == 1, "all events of a push, or none"
        if summary.receipts[0].accepted:
            assert [receipt.outcome for receipt in summary.receipts] == [summary.receipts[0].outcome] * 3
            self.acknowledged += self.events
            self.sequence += 1
        else:
            self.rejected.append(self.sequence)
        return summary.receipts[0].accepted


async def work(node: tm.testing.TestNode, producers: list[Producer], until: int) -> None:
    for _ in range(until):
        await asyncio.gather(*(one.push(node) for one in producers if one.sequence <= until))
        await node.advance("100ms")


async def live_and_die(survive: int, *, takes_effect: bool) -> bool:
    """Push with one death in between, and go on in the next life; return whether the death was reached."""
    factory, producers = Factory(), [Producer(name) for name in NAMES]
    async with tm.testing.node(store="memory://", load=factory.load) as node:
        killer = Killer(node, survive, takes_effect=takes_effect)
        async with asyncio.TaskGroup() as group:
            working = group.create_task(work(node, producers, 3), name="work")
            while not working.done() and not killer.is_dead:  # noqa: ASYNC110 - either may come first
                await asyncio.sleep(0)
            for _ in range(TURNS if killer.is_dead else 0):
                await asyncio.sleep(0)
            working.cancel()
        killer.lift()
        node = await node.crash()
        await work(node, producers, 5)
        await node.advance("3s")
        await node.settle()
    for one in producers:
        assert factory.applied(one.accumulator) == one.acknowledged == list(range(3, 18)), one.accumulator
    return killer.is_dead


@pytest.mark.parametrize("takes_effect", [False, True])
async def test_a_death_at_any_transaction_applies_every_push_once(takes_effect: bool) -> None:
    """G-24: also the push whose answer was lost, of any kind of accumulator."""
    survive = 0
    while await live_and_die(survive, takes_effect=takes_effect):
        survive += 1
    assert survive >= 8


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("push"), st.lists(st.sampled_from(range(3)), min_size=1, max_size=4)),
        st.tuples(st.just("push"), st.lists(st.sampled_from(range(3)), min_size=1, max_size=4)),
        st.tuples(st.just("forget"), st.sampled_from(range(3))),
        st.tuples(st.just("fail_store"), st.integers(1, 3)),
        st.tuples(st.just("advance"), st.sampled_from(["0ms", "200ms", "1s"])),
        st.tuples(st.just("crash"), st.none()),
    ),
    max_size=20,
)


def check_rejections(factory: Factory, producer: Producer) -> None:
    """Require that a push was not applied before it was rejected."""
    if producer.rejected and producer.rejected[-1] == producer.sequence:
        assert not set(producer.events) & set(factory.applied(producer.accumulator)), "rejected, and applied before"


async def tell(steps: list[tuple[str, Any]]) -> tuple[Factory, list[Producer]]:
    factory, producers = Factory(), [Producer(name) for name in NAMES]
    async with asyncio.timeout(20), tm.testing.node(store="memory://", load=factory.load) as node:
        for kind, value in steps:
            if kind == "push":
                for index in value:
                    await producers[index].push(node)
                    check_rejections(factory, producers[index])
            elif kind == "forget" and producers[value].sequence > 1:  # its last acknowledgement was lost on the way
                producers[value].sequence -= 1
                del producers[value].acknowledged[-3:]
            elif kind == "fail_store":
                node.fail_store(value)
            elif kind == "advance":
                await node.advance(value)
            elif kind == "crash":
                node.fail_store(0)
                node = await node.crash()
        node.fail_store(0)
        for one in producers:
            await one.push(node)
        await node.advance("3s")
        await node.settle()
    return factory, producers


@settings(max_examples=max(1, settings().max_examples // 2))
@given(steps=STEPS)
def test_whatever_happens_every_acknowledged_push_is_applied_once_and_in_order(steps: list[tuple[str, Any]]) -> None:
    """G-11, G-24."""
    factory, producers = asyncio.run(tell(steps))
    for one in producers:
        assert factory.applied(one.accumulator) == one.acknowledged, one.accumulator
