"""Pushes of many events, and pushes that their producers number."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest

import tidemill as tm
from tidemill.engine.graphs.durability.journal import MAX_SHARED_COMMIT
from tidemill.engine.graphs.durability.journal_blocks import unpack_blocks


class Ledger:
    """Reactor `r` over accumulator `a` of some kind; its graph writes down what it consumed."""

    def __init__(self, accumulator: tm.Accumulator, **options: Any) -> None:
        self.seen: list[tuple[str, Any]] = []
        settings = {"strategy": "sequential", "durability": "boundary", **options}
        reactor = tm.Reactor("r", [accumulator], **settings)
        graph = tm.Graph("g", reactor=reactor)

        @graph.node
        def note(a: Any, ctx: tm.Context) -> None:
            self.seen += [(ctx.firing_id, value) for _, value in ctx.consumed]

        self.load = [reactor, graph]

    @property
    def values(self) -> list[Any]:
        """What was consumed, each firing once: one that a crash interrupted runs again under its id."""
        return [value for _, value in dict(self.seen).items()]


def passthrough(*, is_async: bool = False) -> tm.Accumulator:
    """Return accumulator `a`: it suppresses 0, and raises for negative numbers."""

    def take(event: int) -> int | None:
        if event < 0:
            raise ValueError(f"negative: {event}")
        return event or None

    async def take_later(event: int) -> int | None:
        await asyncio.sleep(0)
        return take(event)

    function: Any = take_later if is_async else take
    function.__name__ = "a"
    return tm.passthrough(function)


def at(sequence: int, client: str = "c") -> tm.ProducerPosition:
    return tm.ProducerPosition(client, sequence)


def outcomes(summary: tm.PushSummary) -> list[str]:
    return [receipt.outcome for receipt in summary.receipts]


@pytest.mark.parametrize("durability", ["none", "interval", "boundary"])
@pytest.mark.parametrize("is_async", [False, True])
async def test_many_events_get_the_receipts_that_single_ones_get(store: str, durability: str, is_async: bool) -> None:
    """G-4: in order, whatever becomes of each."""
    events = [1, 0, "x", 2, -1, b"3", 4]
    loads = [Ledger(passthrough(is_async=is_async), durability=durability) for _ in range(3)]
    async with tm.testing.node(store="memory://", load=loads[0].load) as node:
        single = [await node.push("a", event) for event in events]
    async with tm.testing.node(store=store, load=loads[1].load) as node:
        summary = await node.push_many("a", events)
        await node.settle()
        assert len(await node.reactor("r").dead_letters()) == 2
    async with tm.testing.node(store="memory://", load=loads[2].load) as node:
        numbered = await node.push_many("a", events, position=at(1))
    for receipts in (summary.receipts, numbered.receipts):
        assert [(one.accepted, one.outcome, one.reason) for one in receipts] == [
            (one.accepted, one.outcome, one.reason) for one in single
        ]
        assert [one.sequence for one in receipts if one.outcome == "emitted"] == [1, 2, 3, 4]
    assert summary.counts == {"emitted": 4, "suppressed": 1, "dead_lettered": 2}
    assert [problem.index for problem in summary.problems] == [2, 4]
    assert (summary.first_sequence, summary.last_sequence) == (1, 4)
    assert loads[1].values == [1, 2, 3, 4]


async def test_journaled_events_share_a_commit(store: str) -> None:
    """G-24: one group commit for a push."""
    ledger = Ledger(passthrough())
    async with tm.testing.node(store=store, load=ledger.load) as node:
        await node.settle()
        appended = count_commits(node)
        await node.push_many("a", range(1, 101))
        await node.push_many("a", range(101, 201), position=at(1))
    assert appended == [100, 100]


def count_commits(node: tm.testing.TestNode) -> list[int]:
    """Return a list that gets the number of entries of each commit to the journal from now on."""
    appended: list[int] = []
    append = node.database.checkpoints.append

    async def count(blocks: Any, *rest: Any) -> None:
        appended.append(len(unpack_blocks(blocks)))
        await append(blocks, *rest)

    node.database.checkpoints.append = count
    return appended


@pytest.mark.parametrize("value", [1, 0], ids=["emitted", "suppressed"])
@pytest.mark.parametrize("strategy", ["latest", "sequential"])
async def test_a_long_durable_push_shares_the_loop_and_limits_its_commits(strategy: str, value: int) -> None:
    """G-24, G-31: the loop renews the leases of the node, so that no push may keep it for long."""
    count, taken, turns = 2 * MAX_SHARED_COMMIT + 10, 0, []

    @tm.passthrough
    def a(event: int) -> int | None:
        nonlocal taken
        taken += 1
        return event or None

    async def watch() -> None:
        while True:
            turns.append(taken)
            await asyncio.sleep(0)

    reactor = tm.Reactor("r", [a], strategy=strategy, durability="boundary", capacity=count)
    async with tm.testing.node(store="memory://", load=[reactor]) as node:
        await node.settle()
        appended = count_commits(node)
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(watch(), name="watch")
            summary = await node.push_many("a", [value] * count)
            watching.cancel()
    assert summary.counts == {"emitted" if value else "suppressed": count}
    assert max(after - before for before, after in pairwise(turns)) == MAX_SHARED_COMMIT
    assert appended == ([MAX_SHARED_COMMIT, MAX_SHARED_COMMIT, 10] if value else [])


async def test_no_events_are_no_problem(store: str) -> None:
    ledger = Ledger(passthrough())
    async with tm.testing.node(store=store, load=ledger.load) as node:
        assert await node.push_many("a", []) == tm.PushSummary(())
        assert await node.push_many("a", [], position=at(3)) == tm.PushSummary(())
        assert (await node.push_many("a", [5], position=at(4))).counts == {"emitted": 1}


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_full_queue_stops_the_pusher_in_the_middle(is_async: bool) -> None:
    """G-12: back-pressure as with single events; every event is there once, in order."""
    ledger = Ledger(passthrough(is_async=is_async), capacity=3)
    async with tm.testing.node(store="memory://", load=ledger.load) as node:
        await node.reactor("r").pause()
        async with asyncio.TaskGroup() as group:
            pushing = group.create_task(node.push_many("a", range(1, 11)), name="push")
            for _ in range(300):
                await asyncio.sleep(0)
            assert (pushing.done(), node.reactor("r").state().queued) == (False, 3)
            await node.reactor("r").resume()
        assert pushing.result().counts == {"emitted": 10}
        await node.settle()
    assert ledger.values == list(range(1, 11))


@pytest.mark.parametrize("act", ["cancel", "unload"])
async def test_an_interrupted_push_has_taken_the_events_before(act: str) -> None:
    """G-4, G-12: without a journal, a push that waits for space ends where it is; nothing comes twice or later."""
    ledger = Ledger(passthrough(), capacity=3, durability="none")
    async with tm.testing.node(load=ledger.load) as node:
        await node.reactor("r").pause()
        async with asyncio.TaskGroup() as group:
            pushing = group.create_task(node.push_many("a", range(1, 11)), name="push")
            for _ in range(50):
                await asyncio.sleep(0)
            if act == "cancel":
                pushing.cancel()
                await node.reactor("r").resume()
            else:
                await node.unload("graph:g")
                await node.unload("reactor:r")
        assert pushing.cancelled() or pushing.result().counts == {"emitted": 3, "rejected": 7}
        await node.settle()
    assert ledger.values == ([1, 2, 3] if act == "cancel" else [])


async def test_a_numbered_push_enters_the_queue_as_a_whole() -> None:
    """G-12, G-24: it waits for space, and may then exceed the capacity."""
    ledger = Ledger(passthrough(), capacity=3)
    async with tm.testing.node(store="memory://", load=ledger.load) as node:
        await node.reactor("r").pause()
        await node.push_many("a", [1, 2], position=at(1))
        await node.push_many("a", [3, 4, 5, 6], position=at(2))
        assert node.reactor("r").state().queued == 6
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(node.push_many("a", [7], position=at(3)), name="push")
            for _ in range(300):
                await asyncio.sleep(0)
            assert not waiting.done()
            await node.reactor("r").resume()
        await node.settle()
    assert ledger.values == [1, 2, 3, 4, 5, 6, 7]


# -- repetitions


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_repeated_push_gets_the_same_answer_and_is_not_applied(store: str, is_async: bool) -> None:
    """G-24: also after a crash."""
    ledger = Ledger(passthrough(is_async=is_async))
    async with tm.testing.node(store=store, load=ledger.load) as node:
        await node.push("a", 99)
        first = await node.push_many("a", [1, 0, "x", 2], position=at(7))
        assert not first.is_duplicate
        for _ in range(2):
            again = await node.push_many("a", [1, 0, "x", 2], position=at(7))
            assert (again.receipts, again.is_duplicate) == (first.receipts, True)
            node = await node.crash()
        assert len(await node.reactor("r").dead_letters()) == 1
        await node.settle()
    assert ledger.values == [99, 1, 2]


async def test_an_older_number_is_a_duplicate_whose_answer_is_gone(store: str) -> None:
    """G-4: accepted, suppressed, and the reason says why."""
    ledger = Ledger(passthrough())
    async with tm.testing.node(store=store, load=ledger.load) as node:
        for number in (3, 10):
            await node.push_many("a", [number], position=at(number))
        node = await node.crash()
        for number in (3, 5):
            late = await node.push_many("a", [1, 2], position=at(number))
            assert (outcomes(late), late.is_duplicate) == (["suppressed"] * 2, True)
            assert late.receipts[0].reason == f"push {number} of 'c' was taken before; its newest one is 10"
        await node.settle()
    assert ledger.values == [3, 10]


async def test_clients_count_for_themselves_and_per_accumulator(store: str) -> None:
    ledger = Ledger(passthrough())
    async with tm.testing.node(store=store, load=ledger.load) as node:
        for client in ("one", "two"):
            assert (await node.push_many("a", [1], position=at(1, client))).counts == {"emitted": 1}
        accumulator = node.probe.graphs.accumulator("a")
        assert [await accumulator.pushes.last_position(client) for client in ("one", "three")] == [1, None]


async def test_a_rejected_push_may_be_repeated(store: str) -> None:
    """G-26: nothing of it was stored, so its number is still free."""
    ledger = Ledger(passthrough())
    async with tm.testing.node(store=store, load=ledger.load) as node:
        await node.push_many("a", [1], position=at(1))
        node.fail_store(3)
        refused = await node.push_many("a", [2, 3], position=at(2))
        assert outcomes(refused) == ["rejected"] * 2
        assert "not stored" in (refused.receipts[0].reason or "")
        node.fail_store(0)
        again = await node.push_many("a", [2, 3], position=at(2))
        assert (again.counts, again.is_duplicate) == ({"emitted": 2}, False)
        await node.settle()
    assert ledger.values == [1, 2, 3]


async def test_repetitions_that_overlap_apply_once(store: str) -> None:
    """A client that reconnects repeats what may still be on its way to the store."""
    ledger = Ledger(passthrough())
    async with tm.testing.node(store=store, load=ledger.load) as node:
        answers = await asyncio.gather(*(node.push_many("a", [1, 2], position=at(1)) for _ in range(5)))
        assert sorted(one.is_duplicate for one in answers) == [False, True, True, True, True]
        assert len({one.receipts for one in answers}) == 1
        await node.settle()
    assert ledger.values == [1, 2]


async def test_a_cancelled_pusher_leaves_a_whole_push_or_none(store: str) -> None:
    ledger = Ledger(passthrough())
    async with tm.testing.node(store=store, load=ledger.load) as node:
        async with asyncio.TaskGroup() as group:
            pushing = group.create_task(node.push_many("a", [1, 2], position=at(1)), name="push")
            for _ in range(3):
                await asyncio.sleep(0)
            pushing.cancel()
        await node.push_many("a", [1, 2], position=at(1))
        await node.settle()
    assert ledger.values == [1, 2]


async def test_without_a_journal_numbers_last_as_long_as_the_process() -> None:
    """G-25: a repetition is recognized, a crash forgets the numbers together with the state."""
    ledger = Ledger(passthrough(), durability="none")
    async with tm.testing.node(store="memory://", load=ledger.load) as node:
        for expected in (False, True):
            assert (await node.push_many("a", [1], position=at(1))).is_duplicate is expected
        node = await node.crash()
        assert not (await node.push_many("a", [1], position=at(1))).is_duplicate


async def test_a_batch_buffers_the_events_of_a_push_once(store: str) -> None:
    """G-5, G-24."""

    @tm.batch(every="1h", max_size=5)
    def a(events: list[int]) -> list[int]:
        return events

    ledger = Ledger(a)
    async with tm.testing.node(store=store, load=ledger.load) as node:
        first = await node.push_many("a", [1, 2, 3], position=at(1))
        assert outcomes(first) == ["buffered"] * 3
        node = await node.crash()
        assert (await node.push_many("a", [1, 2, 3], position=at(1))).receipts == first.receipts
        await node.push_many("a", [4, 5], position=at(2))
        await node.settle()
    assert ledger.values == [[1, 2, 3, 4, 5]]


async def test_running_state_takes_every_event_of_a_push_once(store: str) -> None:
    """G-24: each event builds on the one before it, also if the function is asynchronous."""

    @tm.passthrough(state=int)
    async def a(event: int, state: int) -> int:
        await asyncio.sleep(0)
        return state + event

    ledger = Ledger(a)
    async with tm.testing.node(store=store, load=ledger.load) as node:
        await node.push_many("a", [1, 2, 3], position=at(1))
        node = await node.crash()
        await node.push_many("a", [1, 2, 3], position=at(1))
        await node.push_many("a", [4], position=at(2))
        await node.settle()
    assert ledger.values == [1, 3, 6, 10]


async def test_a_day_after_its_last_push_a_producer_is_forgotten(store: str) -> None:
    ledger = Ledger(passthrough())
    async with tm.testing.node(store=store, load=ledger.load) as node:
        await node.push_many("a", [1], position=at(1))
        await node.push_many("a", [2], position=at(1, "other"))
        await node.advance("23h")
        node = await node.crash()
        await node.push_many("a", [2], position=at(2, "other"))
        await node.advance("2h")
        node = await node.crash()
        assert not (await node.push_many("a", [1], position=at(1))).is_duplicate
        assert (await node.push_many("a", [2], position=at(2, "other"))).is_duplicate


@pytest.mark.parametrize("position", [at(-1), at(2**63), at(True), at(1.5), at(1, ""), at(1, "x" * 201), at(1, " a")])
async def test_a_number_that_no_store_can_hold_is_refused(position: tm.ProducerPosition) -> None:
    async with tm.testing.node(load=Ledger(passthrough()).load) as node:
        with pytest.raises(tm.RequestError, match=r"client|number") as caught:
            await node.push_many("a", [1], position=position)
        assert (caught.value.code, caught.value.status) == ("invalid_position", 400)
        with pytest.raises(tm.RequestError, match="format is 'json'"):
            await node.push_many("a", [1], format="xml")
        with pytest.raises(tm.RequestError, match="accumulator 'aa' not loaded"):
            await node.push_many("aa", [1])


@pytest.mark.parametrize("events", ["123", b"123", bytearray(b"123"), memoryview(b"123"), {"1": 2}])
async def test_one_event_that_python_can_iterate_over_is_refused(events: Any) -> None:
    """API: the characters of a text and the keys of a dict are not what the caller means."""
    async with tm.testing.node(load=Ledger(passthrough(), durability="none").load) as node:
        with pytest.raises(tm.RequestError, match="put it into a list"):
            await node.push_many("a", events)
        with pytest.raises(tm.RequestError, match=type(events).__name__):
            node.handle("a").many(events)
        assert node.reactor("r").state().accumulators["a"].events == 0
