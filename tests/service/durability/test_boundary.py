"""durability="boundary": everything acknowledged survives kill -9, in order, under the same firing ids."""

import asyncio
from typing import Any

import pytest

import tidemill as tm
from tests.service.samples import single

Firings = list[tuple[str, tuple[int | None, ...], list[tuple[str, Any]]]]


def recording(*, is_async: bool = False, **options: Any) -> tuple[list[Any], Firings]:
    """Return reactor `r` over `a` and `b` with durability="boundary", and what its graph noted of each firing."""
    firings: Firings = []

    @tm.passthrough
    def a(event: int) -> int | None:
        return event or None

    @tm.passthrough
    def b(event: int) -> int:
        return event

    reactor = tm.Reactor("r", [a, b], **{"durability": "boundary", **options})
    graph = tm.Graph("g", reactor=reactor)

    def note(a: int | None, b: int | None, ctx: tm.Context) -> None:
        firings.append((ctx.firing_id, (a, b), ctx.consumed))

    async def note_later(a: int | None, b: int | None, ctx: tm.Context) -> None:
        await asyncio.sleep(0)
        note(a, b, ctx)

    graph.node(note_later if is_async else note)
    return [reactor, graph], firings


def agree_on_ids(firings: Firings, strategy: str = "latest") -> None:
    """Require that an id never stands for two different inputs; of sequential also that it consumed the same."""
    known: dict[str, Any] = {}
    for firing_id, inputs, consumed in firings:
        said = (inputs, consumed if strategy == "sequential" else None)
        assert known.setdefault(firing_id, said) == said, firing_id


@pytest.mark.parametrize("is_async", [False, True])
async def test_an_acknowledged_push_survives_a_crash_at_once(store: str, is_async: bool) -> None:
    """G-24: no settle, no time passing; order kept over both accumulators."""
    load, firings = recording(strategy="sequential", is_async=is_async)
    async with tm.testing.node(store=store, load=load, disconnected=["b"]) as node:
        for name, value in (("a", 1), ("b", 2), ("b", 3), ("a", 4)):
            assert (await node.push(name, value)).outcome == "emitted"
        node = await node.crash()
        await node.settle()
    assert [consumed for _, _, consumed in firings] == [[("a", 1)], [("b", 2)], [("b", 3)], [("a", 4)]]


async def test_no_commit_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """G-24: events that come at once share one, and the next events need not wait for one without events."""
    load, _ = recording(strategy="sequential")
    async with tm.testing.node(store="memory://", load=load) as node:
        checkpoints: Any = node.database.checkpoints
        append, sizes = checkpoints.append, []

        async def count(blocks: Any, *rest: Any) -> None:
            sizes.append(len(blocks))
            await append(blocks, *rest)

        async def push_after(turns: int) -> None:
            for _ in range(turns):
                await asyncio.sleep(0)
            await node.push("ab"[turns % 2], turns + 1)

        monkeypatch.setattr(checkpoints, "append", count)
        await asyncio.gather(*(push_after(turns) for turns in range(8)))
        await push_after(20)
    assert 0 not in sizes
    assert 2 <= len(sizes) < 9


async def test_a_push_returns_after_its_commit_and_the_firing_follows_it(store: str) -> None:
    """API: push awaits the group commit, and the firing follows the commit."""
    order: list[str] = []
    sample = single(lambda value: order.append("fired"), durability="boundary")
    async with tm.testing.node(store=store, load=sample.load) as node:
        checkpoints: Any = node.database.checkpoints
        append = checkpoints.append

        async def slow_append(entries: Any, *rest: Any) -> None:
            order.append("begun")
            await append(entries, *rest)
            order.append("committed")

        checkpoints.append = slow_append
        await node.push("a", 1)
        order.append("returned")
    assert order == ["begun", "committed", "fired", "returned"]


async def test_pushes_at_once_share_commits(store: str) -> None:
    """Durability: group-committed; numbers and order are as pushed."""
    load, firings = recording(strategy="sequential")
    async with tm.testing.node(store=store, load=load) as node:
        receipts = await asyncio.gather(*(node.push("a", value) for value in range(1, 101)))
        node = await node.crash()
        await node.settle()
    assert [receipt.sequence for receipt in receipts] == list(range(1, 101))
    assert [inputs for _, inputs, _ in firings][:100] == [(value, None) for value in range(1, 101)]
    agree_on_ids(firings, "sequential")


async def test_a_handle_is_refused(store: str) -> None:
    """API: a push that must await its commit cannot be synchronous."""
    load, _ = recording()
    async with tm.testing.node(store=store, load=load) as node:
        with pytest.raises(tm.RequestError, match="boundary"):
            node.handle("a")


async def test_what_is_suppressed_stays_so(store: str) -> None:
    """Behaviour 1: no boundary, no number, no entry that a restart could emit."""
    load, firings = recording()
    async with tm.testing.node(store=store, load=load) as node:
        assert (await node.push("a", 0)).outcome == "suppressed"
        node = await node.crash()
        await node.settle()
        assert (await node.push("a", 5)).sequence == 1
    assert [inputs for _, inputs, _ in firings] == [(5, None)]


def test_drop_oldest_contradicts_boundary() -> None:
    """G-24."""
    with pytest.raises(tm.DefinitionError, match="drop_oldest"):
        single(durability="boundary", overflow="drop_oldest")


# -- firing ids


@pytest.mark.parametrize("is_async", [False, True])
async def test_sequential_firings_run_again_under_their_ids(store: str, is_async: bool) -> None:
    """G-24: a firing that a crash repeats is recognised by its id."""
    load, firings = recording(strategy="sequential", is_async=is_async)
    async with tm.testing.node(store=store, load=load) as node:
        for value in range(1, 4):
            await node.push("a", value)
        await node.advance(0)
        first = list(firings)
        node = await node.crash()
        await node.settle()
        again = firings[len(first) :]
        await node.push("b", 9)
        await node.advance(0)
        node = await node.crash()
        await node.settle()
    assert [inputs for _, inputs, _ in first] == [(1, None), (2, None), (3, None)]
    assert again == first[len(first) - len(again) :]
    agree_on_ids(firings, "sequential")


@pytest.mark.parametrize("strategy", ["latest", "sequential"])
@pytest.mark.parametrize("settles", [False, True])
async def test_a_manual_firing_takes_no_id_that_a_journal_gives_again(store: str, strategy: Any, settles: bool) -> None:
    """G-24: the same id is the same inputs, with manual firings in between, in every process."""
    load, firings = recording(strategy=strategy)
    async with tm.testing.node(store=store, load=load) as node:
        for process in range(3):
            await node.push("a", 10 * process + 1)
            await node.reactor("r").force_fire()
            await node.push("b", 10 * process + 2)
            await node.reactor("r").fire_with({"a": 10 * process + 3})
            await node.push("a", 10 * process + 4)
            if settles:
                await node.settle()
            node = await node.crash()
            await node.settle()
    agree_on_ids(firings, strategy)


@pytest.mark.parametrize("durability", ["none", "interval", "fire", "boundary"])
@pytest.mark.parametrize("strategy", ["latest", "sequential"])
async def test_ids_never_collide_across_crashes(store: str, durability: Any, strategy: Any) -> None:
    """G-24: in any durability an id stands for one set of inputs."""
    load, firings = recording(strategy=strategy, durability=durability)
    async with tm.testing.node(store=store, load=load) as node:
        for value in range(1, 13):
            await node.push("a" if value % 3 else "b", value)
            if value % 4 == 0:
                await node.settle()
            if value % 5 == 0:
                node = await node.crash()
        await node.settle()
    agree_on_ids(firings, strategy)
    assert {value for _, inputs, _ in firings for value in inputs if value} == set(range(1, 13))


async def test_what_latest_saw_has_an_id_of_its_own(store: str) -> None:
    """G-24: values that were merged before the crash may be fired apart after it, never under an old id."""
    load, firings = recording()
    async with tm.testing.node(store=store, load=load) as node:
        await node.reactor("r").pause()
        for value in (1, 2, 3):
            await node.push("a", value)
        await node.reactor("r").resume()
        await node.push("b", 4)
        node = await node.crash()
        await node.settle()
        await node.push("b", 5)
        await node.settle()
    agree_on_ids(firings)
    assert firings[-1][1] == (3, 5)


async def test_a_window_fed_by_another_reactor_takes_no_id_that_the_journal_gives_again(store: str) -> None:
    """G-24: what other graphs feed is not in the journal, and still an id stands for one set of inputs."""
    firings: Firings = []

    @tm.passthrough
    def a(event: int) -> int:
        return event

    @tm.passthrough
    def b(event: int) -> int:
        return event

    past = tm.window("past", int, capacity=3)
    feeder = tm.Reactor("feeder", [a, past], when=tm.any_of(a), durability="none")
    reader = tm.Reactor("r", [b, past], durability="boundary", strategy="sequential")
    feeding, reading = tm.Graph("feeding", reactor=feeder), tm.Graph("reading", reactor=reader)

    @feeding.node(feeds=past)
    def keep(a: int) -> int:
        return a

    @reading.node
    def note(b: int | None, past: list[int], ctx: tm.Context) -> None:
        firings.append((ctx.firing_id, (b, *past), ctx.consumed))

    async with tm.testing.node(store=store, load=[feeder, feeding, reader, reading]) as node:
        for process in range(2):
            await node.push("b", 10 * process + 1)
            await node.push("a", 10 * process + 2)
            await node.push("b", 10 * process + 3)
            node = await node.crash()
            await node.settle()
    agree_on_ids(firings, "sequential")


# -- room


async def test_reject_turns_away_and_what_was_taken_survives(store: str) -> None:
    """G-12, G-24: commits on their way count; nothing acknowledged is dropped, nothing else comes back."""
    load, firings = recording(strategy="sequential", capacity=3, overflow="reject")
    async with tm.testing.node(store=store, load=load) as node:
        await node.reactor("r").pause()
        receipts = await asyncio.gather(*(node.push("a", value) for value in range(1, 7)))
        node = await node.crash()
        assert node.reactor("r").state().queued == 3
        assert (await node.push("a", 9)).outcome == "rejected"
        await node.reactor("r").resume()
        await node.settle()
        assert (await node.push("a", 10)).accepted
    assert [receipt.outcome for receipt in receipts] == ["emitted"] * 3 + ["rejected"] * 3
    assert "full" in str(receipts[3].reason)
    assert [inputs for _, inputs, _ in firings] == [(1, None), (2, None), (3, None), (10, None)]


async def test_block_waits_and_keeps_the_order(store: str) -> None:
    """G-12, G-24: who waits for room is not acknowledged, and a crash forgets them alone."""
    load, firings = recording(strategy="sequential", capacity=2, overflow="block")
    async with tm.testing.node(store=store, load=load) as node:
        await node.reactor("r").pause()
        async with asyncio.TaskGroup() as group:
            pushes = [group.create_task(node.push("a", value), name="push") for value in range(1, 6)]
            await node.advance(0)
            acknowledged = [push.done() for push in pushes]
            for push in pushes[2:]:
                push.cancel()
        node = await node.crash()
        assert node.reactor("r").state().queued == 2
        async with asyncio.timeout(5), asyncio.TaskGroup() as group:
            late = [group.create_task(node.push("a", value), name="push") for value in (6, 7)]
            await node.advance(0)
            await node.reactor("r").resume()
    assert acknowledged == [True, True, False, False, False]
    assert [push.result().sequence for push in late] == [3, 4]
    assert [inputs for _, inputs, _ in firings] == [(value, None) for value in (1, 2, 6, 7)]


# -- at the end


async def test_pushes_on_their_way_when_the_node_closes_are_answered_and_kept(sqlite: str) -> None:
    """G-4, G-24: an orderly stop answers every pusher; every accepted event is restored."""
    load, firings = recording(strategy="sequential")
    first_life = tm.testing.node(store=sqlite, load=load, disconnected=["b"])
    async with asyncio.timeout(10), asyncio.TaskGroup() as group, first_life as node:
        pushes = [group.create_task(node.push("a", value), name="push") for value in range(1, 30)]
        await asyncio.sleep(0)
    accepted = [value for value, push in enumerate(pushes, 1) if push.result().accepted]
    async with tm.testing.node(store=sqlite, load=load) as node:
        await node.settle()
    assert [inputs for _, inputs, _ in firings] == [(value, None) for value in accepted]
    assert accepted
