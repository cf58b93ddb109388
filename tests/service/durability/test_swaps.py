"""What happens to commits on their way when something changes around them: swaps, joins, refusals, ends."""

import asyncio
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import msgspec
import pytest

import tidemill as tm
from tidemill.engine.graphs.accumulators.batch import Batch
from tidemill.graphs.definition import Durability
from tidemill.kernel.errors import StoreError
from tidemill.testing.faults.stores import intercept_transactions

MEMORY = "memory://"


class Sum(tm.Boundary):
    """A running state."""

    total: int = 0
    count: int = 0


class Gate:
    """Holds the transactions of a node's memory store back, then lets them through or fails them."""

    def __init__(self, node: tm.testing.TestNode) -> None:
        self._opened = asyncio.Event()
        self._fails = False
        self.remove = intercept_transactions(node.database, self._wait)

    async def _wait(self, transact: Any, units: Sequence[Any]) -> Any:
        await self._opened.wait()
        if self._fails:
            raise StoreError("down")
        return await transact(units)

    def open(self, *, fails: bool = False) -> None:
        """Let everything through, or fail what waits."""
        self._fails = fails
        self._opened.set()


def package(**definitions: Any) -> ModuleType:
    """Return a package that can be swapped."""
    module = ModuleType("package")
    module.__dict__.update(definitions)
    return module


def summing(durability: Durability | None) -> tuple[tm.Accumulator, tm.Reactor]:
    """Return an accumulator with state, and a reactor on it."""

    @tm.passthrough(state=Sum)
    def total(event: int, state: Sum) -> Sum:
        return Sum(state.total + event, state.count + 1)

    return total, tm.Reactor("r", [total], durability=durability)


async def a_moment() -> None:
    """Run everything that can run while the store may not answer."""
    for _ in range(50):
        await asyncio.sleep(0)


async def test_state_is_kept_when_a_reactor_with_a_journal_joins() -> None:
    """G-6, G-23: a refusal, or a snapshot, knows the state that was reached before there was a journal."""
    total, first = summing(None)
    second = tm.Reactor("second", [total], durability="boundary")
    async with tm.testing.node(store=MEMORY, load=[first]) as node:
        for _ in range(5):
            await node.push(total, 1)
        await node.load(second)
        node.fail_store(1)
        assert (await node.push(total, 1)).outcome == "rejected"
        await node.push(total, 1)
        await node.settle()
        node = await node.crash()
        await node.push(total, 1)
        assert node.reactor("r").state().cache == {"total": {"total": 7, "count": 7}}


async def test_a_swap_waits_for_what_is_being_committed() -> None:
    """G-24: an event that is refused leaves nothing behind in the newer version's state."""
    async with tm.testing.node(store=MEMORY, load=[package(definitions=summing("boundary")[1])]) as node:
        await node.push("total", 1)
        await node.settle()
        gate = Gate(node)
        async with asyncio.TaskGroup() as tasks:
            push = tasks.create_task(node.push("total", 100))
            await a_moment()
            swap = tasks.create_task(node.load(package(definitions=summing("boundary")[1])))
            await a_moment()
            assert not swap.done()
            late = tasks.create_task(node.push("total", 1))
            gate.open(fails=True)
            await push
            gate.remove()
        assert (push.result().outcome, late.result().outcome) == ("rejected", "emitted")
        assert node.reactor("r").state().cache == {"total": {"total": 2, "count": 2}}


def priced(price: type) -> ModuleType:
    """Return a version of a package whose boundary has a price of some type."""
    Quote = msgspec.defstruct("Quote", [("price", price)], bases=(tm.Boundary,))  # noqa: N806 - a class

    def quote(event: Any) -> Any:
        return Quote(price(event))

    quote.__annotations__ = {"event": int, "return": Quote}
    return package(definitions=tm.Reactor("r", [tm.passthrough(quote)], durability="boundary"))


async def test_a_swap_waits_for_the_commit_of_a_cancelled_push() -> None:
    """G-24: a value of the older class comes before the swap, which converts it, and not after it."""
    async with tm.testing.node(store=MEMORY, load=[priced(int)]) as node:
        await node.push("quote", 1)
        await node.settle()
        gate = Gate(node)
        async with asyncio.TaskGroup() as tasks:
            push = tasks.create_task(node.push("quote", 2))
            await a_moment()
            push.cancel()
            swap = tasks.create_task(node.load(priced(float)))
            await a_moment()
            has_waited = not swap.done()
            gate.open()
        gate.remove()
        await node.settle()
        (price,) = node.reactor("r").state().cache["quote"].values()
        assert (price, type(price), has_waited) == (2.0, float, True)
        assert node.reactor("r").state().accumulators["quote"].emitted == 2


@pytest.mark.parametrize("end", ["abandon", "crash"])
async def test_who_waits_for_commits_does_not_outwait_the_journal(end: str) -> None:
    """G-29: a node whose store does not answer closes all the same."""
    async with asyncio.timeout(10), tm.testing.node(store=MEMORY, load=[priced(int)]) as node:
        await node.settle()
        gate = Gate(node)
        quotes = node.probe.graphs.accumulator("quote")
        async with asyncio.TaskGroup() as tasks:
            push = tasks.create_task(node.push("quote", 2))
            await a_moment()
            push.cancel()
            waiting = tasks.create_task(quotes.emitter.wait_committed())
            await a_moment()
            assert not waiting.done()
            if end == "crash":
                gate.remove()
                node = await node.crash()
            else:
                assert quotes.runtime.durability.journal is not None
                quotes.runtime.durability.journal.abandon()
        gate.open()
        gate.remove()


async def test_a_reactor_that_joins_during_a_commit_has_its_room() -> None:
    """G-12: room that was reserved for one reactor is not given back to another."""

    @tm.passthrough
    def a(event: int) -> int:
        return event

    first = tm.Reactor("first", [a], strategy="sequential", durability="boundary")
    second = tm.Reactor("second", [a], strategy="sequential", capacity=2, overflow="reject")
    async with tm.testing.node(store=MEMORY, load=[first]) as node:
        gate = Gate(node)
        async with asyncio.TaskGroup() as tasks:
            pushes = [tasks.create_task(node.push(a, number)) for number in range(3)]
            await a_moment()
            tasks.create_task(node.load(second))
            await a_moment()
            gate.open()
        assert all(push.result().accepted for push in pushes)
        await node.reactor("second").pause()
        outcomes = [(await node.push(a, number)).outcome for number in range(3)]
        assert outcomes == ["emitted", "emitted", "rejected"]


@pytest.mark.parametrize(("before", "after"), [("boundary", "interval"), ("interval", "boundary")])
async def test_a_batch_survives_a_change_of_durability_while_its_function_runs(
    before: Durability, after: Durability
) -> None:
    """G-5: each event is in exactly one sum, whichever way the buffer was emptied."""
    go = asyncio.Event()

    def version(durability: Durability) -> ModuleType:
        @tm.batch(max_size=2, every="1s")
        async def sums(events: list[int]) -> int:
            await go.wait()
            return sum(events)

        return package(sums=sums, reactor=tm.Reactor("r", [sums], durability=durability, strategy="sequential"))

    async with tm.testing.node(store=MEMORY, load=[version(before)]) as node, asyncio.TaskGroup() as tasks:
        for event in (1, 2):
            tasks.create_task(node.push("sums", event))
        await a_moment()
        await node.load(version(after))
        for event in (10, 20, 40):
            tasks.create_task(node.push("sums", event))
        await a_moment()
        go.set()
        for _ in range(5):
            await node.advance("2s")
        sums = [firing.inputs["sums"] for firing in node.reactor("r").firings()]
        assert (sum(sums), sums[-1]) == (73, 3)


async def test_a_batch_that_is_turned_away_after_its_function_is_tried_again() -> None:
    """G-5, G-12: overflow="reject" may find the queue full when an asynchronous sum is ready."""
    go = asyncio.Event()

    @tm.batch(max_size=2, every="1s")
    async def sums(events: list[int]) -> int:
        await go.wait()
        return sum(events)

    @tm.passthrough
    def a(event: int) -> int:
        return event

    options: dict[str, Any] = {"strategy": "sequential", "capacity": 1, "overflow": "reject"}
    reactor = tm.Reactor("r", [sums, a], durability="boundary", **options)
    async with tm.testing.node(store=MEMORY, load=[reactor]) as node:
        await node.reactor("r").pause()
        for event in (1, 2):
            await node.push(sums, event)
        await a_moment()
        await node.push(a, 7)
        go.set()
        await a_moment()
        await node.reactor("r").resume()
        await node.advance("5s")
        assert node.reactor("r").state().cache == {"a": 7, "sums": 3}


async def test_a_batch_under_a_journal_is_as_large_as_declared_and_waits_for_more() -> None:
    """G-5, behaviour 9: pushed at once, fifteen events are one sum of ten and five that wait."""

    @tm.batch(max_size=10, every="60s")
    def counts(events: list[int]) -> int:
        return len(events)

    reactor = tm.Reactor("r", [counts], durability="boundary", strategy="sequential")
    async with tm.testing.node(store=MEMORY, load=[reactor]) as node:
        await node.reactor("r").pause()  # so that no firing flushes what is left
        await asyncio.gather(*(node.push(counts, number) for number in range(15)))
        await node.settle()
        running = node.probe.graphs.accumulator("counts").kind
        assert isinstance(running, Batch)
        assert (node.reactor("r").state().queued, len(running.emitter.held.events)) == (1, 5)


async def test_what_ends_late_is_not_written_over_its_successor() -> None:
    """G-29, G-23: a firing that outlived the grace of its unload ends when another reactor has its name."""
    ends = asyncio.Event()

    @tm.passthrough
    def a(event: int) -> int:
        return event

    def version(*, hangs: bool) -> ModuleType:
        reactor = tm.Reactor("r", [a])
        graph = tm.Graph("g", reactor=reactor)

        @graph.node
        async def out(a: int) -> int:
            while hangs and not ends.is_set():
                try:
                    await ends.wait()
                except asyncio.CancelledError:
                    continue
            return a

        return package(a=a, reactor=reactor, graph=graph)

    async with tm.testing.node(store=MEMORY, load=[version(hangs=True)], settings={"unload_timeout": "100ms"}) as node:
        await node.push(a, 1)
        async with asyncio.TaskGroup() as tasks:
            unload = tasks.create_task(node.unload("package"))
            while not unload.done():
                await node.advance("1s")
        await node.load(version(hangs=False))
        await node.reactor("r").pause()
        for event in (2, 3, 4):
            await node.push(a, event)
            await node.settle()
        ends.set()
        await a_moment()
        await node.settle()
        node = await node.crash()
        assert node.reactor("r").state().cache == {"a": 4}


async def test_settle_may_be_cancelled_while_it_writes() -> None:
    """G-23, G-26: what it had taken to write is still written, letters included."""

    @tm.passthrough
    def a(event: int) -> int:
        if event < 0:
            raise ValueError("negative")
        return event

    async with tm.testing.node(store=MEMORY, load=[tm.Reactor("r", [a])]) as node:
        await node.push(a, 1)
        await node.settle()
        await node.push(a, 2)
        await node.push(a, -1)
        gate = Gate(node)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await node.settle()
        gate.open(fails=True)
        await a_moment()
        gate.remove()
        await node.advance("1s")
        node = await node.crash()
        assert node.reactor("r").state().cache == {"a": 2}
        assert [letter.event for letter in await node.reactor("r").dead_letters()] == [-1]


async def test_an_offset_waits_for_a_letter_that_is_still_being_written() -> None:
    """G-6, G-7: an event is never passed over whose letter did not make it into the store."""

    @tm.stream(tm.Kafka(topic="t"))
    def a(event: int) -> int:
        if event < 0:
            raise ValueError("negative")
        return event

    reactor = tm.Reactor("r", [a], durability="boundary", strategy="sequential")
    async with tm.testing.node(store=MEMORY, load=[reactor]) as node:
        running: Any = node.probe.graphs.accumulator("a").kind
        await running.on_event(1, 1)
        await node.settle()
        gate = Gate(node)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(running.on_event(-1, 2))
            await a_moment()
            next_event = tasks.create_task(running.on_event(3, 3))
            await a_moment()
            gate.open(fails=True)
            await a_moment()
            gate.remove()
            while not next_event.done():
                await node.advance("200ms")
        node = await node.crash()
        again: Any = node.probe.graphs.accumulator("a")
        assert (again.emitter.offset, [letter.event for letter in again.dead_letters.entries()]) == (3, [-1])


async def test_one_refused_push_does_not_degrade_for_long() -> None:
    """G-26: five in a row, or a store that stays silent; and a store that is well again is noticed without a push."""
    _, reactor = summing("boundary")
    async with tm.testing.node(store=MEMORY, load=[reactor]) as node:
        node.fail_store(1)
        assert (await node.push("total", 1)).outcome == "rejected"
        for _ in range(10):
            await node.advance("500ms")
            assert node.reactor("r").state().health is tm.ReactorHealth.LIVE


async def test_a_reactor_that_cannot_be_stored_does_not_slow_down_others() -> None:
    """G-23, G-26: "fire" is written at once although a neighbour fails again and again."""

    @tm.passthrough
    def odd(event: int) -> Any:
        return {event}

    @tm.passthrough
    def a(event: int) -> int:
        return event

    bad, good = tm.Reactor("bad", [odd]), tm.Reactor("good", [a], durability="fire")
    async with tm.testing.node(store=MEMORY, load=[bad, good]) as node:
        await node.push(odd, 1)
        await node.advance("1s")
        await node.push(a, 1)
        await node.advance(0)
        node = await node.crash()
        assert node.reactor("good").state().cache == {"a": 1}


async def test_reactors_that_take_turns_in_the_journal_name_their_firings_by_it() -> None:
    """G-24, G-16: numbers have gaps where another reactor's events lie; a re-execution finds the same ones."""

    @tm.passthrough
    def left(event: int) -> int:
        return event

    @tm.passthrough
    def right(event: int) -> int:
        return event

    options: dict[str, Any] = {"strategy": "sequential", "durability": "boundary"}
    reactors = [tm.Reactor(f"{one.name}_reactor", [one], **options) for one in (left, right)]
    on_left, on_right = (tm.Graph(f"{one.name}_graph", reactor=one) for one in reactors)

    @on_left.node
    def seen_left(left: int) -> int:
        return left

    @on_right.node
    def seen_right(right: int) -> int:
        return right

    async with tm.testing.node(store=MEMORY, load=[*reactors, on_left, on_right]) as node:
        for number in range(1, 9):
            await node.push("left" if number % 3 else "right", number)
        before = {name: _named(node, name) for name in ("left", "right")}
        node = await node.crash()
        await node.settle()
        after = {name: _named(node, name) for name in ("left", "right")}
        assert after == before
        assert [number for number, _ in before["right"]] == [3, 6]


def _named(node: tm.testing.TestNode, source: str) -> list[tuple[int, Any]]:
    """Return a reactor's firings, oldest first, by number."""
    firings = node.reactor(f"{source}_reactor").firings()
    return [(int(firing.id.rpartition("-")[2]), firing.inputs[source]) for firing in reversed(firings)]
