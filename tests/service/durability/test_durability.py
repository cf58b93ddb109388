"""When a reactor's state is written, by durability, and what each promises after the death of the process."""

import asyncio
from typing import Any

import pytest

import tidemill as tm
from tests.service.samples import pair, single

KEPT = ["interval", "fire", "boundary"]


def writes(node: tm.testing.TestNode) -> list[int]:
    """Return a list that grows by one number of parts with every snapshot the node's store takes from now on."""
    seen: list[int] = []
    checkpoints: Any = node.database.checkpoints
    original = checkpoints.save

    async def save(parts: Any, *rest: Any) -> None:
        await original(parts, *rest)
        seen.append(len(parts))

    checkpoints.save = save
    return seen


# -- whether


async def test_with_a_store_the_default_is_interval(store: str) -> None:
    """Durability: a reactor that says nothing is written within an interval."""
    sample = pair(when="all")
    async with tm.testing.node(store=store, load=sample.load) as node:
        await node.push("a", 1)
        await node.advance("200ms")
        node = await node.crash()
        state = node.reactor("r").state()
    assert (state.cache, state.dirty) == ({"a": 1}, {"a": True, "b": False})


async def test_interval_loses_what_came_since_the_last_snapshot(store: str) -> None:
    """Durability: a snapshot every 200 ms and no more; a crash in between is noticed in nothing but what is lost."""
    sample = pair(when="all", durability="interval")
    async with tm.testing.node(store=store, load=sample.load) as node:
        await node.push("a", 1)
        await node.advance("200ms")
        await node.push("a", 2)
        node = await node.crash()
        state = node.reactor("r").state()
    assert state.cache == {"a": 1}


async def test_none_keeps_nothing(store: str) -> None:
    """Durability: "none" keeps all in memory, also when time passes and a checkpoint is called for."""
    sample = pair(when="all", durability="none")
    async with tm.testing.node(store=store, load=sample.load) as node:
        written = writes(node)
        await node.push("a", 1)
        await node.advance("1s")
        await node.settle()
        node = await node.crash()
        state = node.reactor("r").state()
        sequence = (await node.push("a", 2)).sequence
    assert (state.cache, state.dirty, written) == ({}, {"a": False, "b": False}, [])
    assert sequence == 1


async def test_none_keeps_nothing_over_an_orderly_end(sqlite: str) -> None:
    """Durability, behaviour 63: nor is anything written at shutdown."""
    sample = pair(when="all", durability="none")
    async with tm.testing.node(store=sqlite, load=sample.load) as node:
        await node.push("a", 1)
    async with tm.testing.node(store=sqlite, load=sample.load) as node:
        assert node.reactor("r").state().cache == {}


@pytest.mark.parametrize("durability", ["none", *KEPT])
async def test_without_a_store_everything_works_and_starts_fresh(durability: Any) -> None:
    """G-25, behaviour 61."""
    sample = pair(durability=durability, strategy="sequential")
    async with tm.testing.node(load=sample.load) as node:
        assert (await node.push("a", 1)).accepted
        await node.advance("1s")
        await node.settle()
        node = await node.crash()
        state = node.reactor("r").state()
        assert (await node.push("b", 2)).sequence == 1
    assert (state.cache, state.dirty, state.queued) == ({}, {"a": False, "b": False}, 0)
    assert sample.seen == [(1, None), (None, 2)]


# -- when


async def test_interval_coalesces_to_one_snapshot_per_interval(store: str) -> None:
    """Durability: at most every 200 ms, however many boundaries come."""
    sample = single(durability="interval")
    settings = {"checkpoint_interval": "1s"}
    async with tm.testing.node(store=store, load=sample.load, settings=settings) as node:
        written = writes(node)
        counts = []
        for value in range(10):
            await node.push("a", value)
            await node.push("a", value + 100)
            await node.advance("250ms")
            counts.append(len(written))
    assert counts == [0, 0, 0, 1, 1, 1, 1, 2, 2, 2]


async def test_the_interval_is_a_setting(store: str) -> None:
    """API: checkpoint_interval."""
    sample = pair(when="all")
    settings = {"checkpoint_interval": "10s"}
    async with tm.testing.node(store=store, load=sample.load, settings=settings) as node:
        written = writes(node)
        await node.push("a", 1)
        await node.advance("9999ms")
        before = len(written)
        await node.advance("1ms")
        assert (before, len(written)) == (0, 1)


async def test_an_idle_reactor_is_not_written_again(store: str) -> None:
    """Durability: a snapshot is of changes; without any there is none."""
    async with tm.testing.node(store=store, load=pair(when="all").load) as node:
        written = writes(node)
        await node.push("a", 1)
        await node.advance("10m")
        assert len(written) == 1


async def test_settle_writes_once_without_time_passing(store: str) -> None:
    """API: settle returns when no checkpoint is dirty."""
    async with tm.testing.node(store=store, load=pair(when="all").load) as node:
        written = writes(node)
        for value in range(5):
            await node.push("a", value)
        now = node.clock.now()
        await node.settle()
        await node.settle()
        assert (len(written), node.clock.now()) == (1, now)
        node = await node.crash()
        assert node.reactor("r").state().cache == {"a": 4}


async def test_settle_returns_although_something_cannot_be_stored(store: str) -> None:
    """API: a failed write counts as done for now; G-26: graphs fire on."""
    seen = []

    @tm.passthrough
    def a(event: Any) -> Any:
        return {event}  # a set: nothing says what it was

    reactor = tm.Reactor("r", [a])
    graph = tm.Graph("g", reactor=reactor)

    @graph.node
    def out(a: Any) -> None:
        seen.append(a)

    async with tm.testing.node(store=store, load=[reactor, graph]) as node:
        await node.push("a", 1)
        async with asyncio.timeout(5):
            await node.settle()
        await node.push("a", 2)
        assert node.metrics()["checkpoint_failures_total"] >= 1
    assert seen == [{1}, {2}]


@pytest.mark.parametrize("is_async", [False, True])
async def test_fire_writes_after_each_firing_without_time_passing(store: str, is_async: bool) -> None:
    """Durability: "fire" writes after each firing."""

    @tm.passthrough
    def a(event: int) -> int:
        return event

    reactor = tm.Reactor("r", [a], durability="fire")
    graph = tm.Graph("g", reactor=reactor)

    def see(a: int) -> int:
        return a

    async def see_later(a: int) -> int:
        return a

    graph.node(see_later if is_async else see)
    async with tm.testing.node(store=store, load=[reactor, graph]) as node:
        written = writes(node)
        for value in range(3):
            await node.push("a", value)
            await node.advance(0)
        assert len(written) == 3
        node = await node.crash()
        state = node.reactor("r").state()
    assert (state.cache, state.dirty) == ({"a": 2}, {"a": False})


@pytest.mark.parametrize("pushes", range(1, 7))
@pytest.mark.parametrize("when", ["any", "all"])
async def test_a_crash_after_a_firing_keeps_it_under_fire(store: str, when: Any, pushes: int) -> None:
    """Durability: "fire" writes after each firing, also if a boundary before it has changed the state already."""
    sample = pair(when=when, durability="fire")
    async with tm.testing.node(store=store, load=sample.load) as node:
        for number in range(pushes):
            await node.push("ab"[number % 2], number)
            await node.advance(0)
        node = await node.crash()
        cache = node.reactor("r").state().cache
    fired = sample.seen[-1] if sample.seen else (None, None)
    assert fired == (None, None) if when == "all" and pushes == 1 else fired[0] is not None
    assert [cache.get(name) for name, value in zip("ab", fired, strict=True) if value is not None] == [
        value for value in fired if value is not None
    ]


async def test_firings_at_once_share_a_write_under_fire(store: str) -> None:
    """Durability: "fire" is group-committed: changes that come during a write join the next."""
    sample = single(durability="fire")
    async with tm.testing.node(store=store, load=sample.load) as node:
        written = writes(node)
        await asyncio.gather(*(node.push("a", value) for value in range(100)))
        await node.advance(0)
        node = await node.crash()
        assert node.reactor("r").state().cache == {"a": 99}
    assert 1 <= len(written) < 20


async def test_fire_flushes_batches_after_the_write(store: str) -> None:
    """G-5: after a firing persist, then flush: the sum is not in the snapshot that the flush follows."""
    order: list[str] = []

    @tm.batch(every="1h")
    def held(events: list[int]) -> int:
        order.append("flush")
        return sum(events)

    @tm.passthrough
    def a(event: int) -> int:
        return event

    reactor = tm.Reactor("r", [a, held], when=tm.any_of(a), durability="fire")
    async with tm.testing.node(store=store, load=[reactor]) as node:
        checkpoints: Any = node.database.checkpoints
        original = checkpoints.save

        async def save(*arguments: Any) -> None:
            await original(*arguments)
            order.append("write")

        checkpoints.save = save
        await node.push("held", 1)
        await node.push("a", 1)
        await node.advance(0)
        assert order[:2] == ["write", "flush"]


async def test_a_failed_write_does_not_keep_batches_from_flushing(store: str) -> None:
    """G-5, G-26: firings continue, and so do the flushes after them."""

    @tm.batch(every="1h")
    def held(events: list[int]) -> int:
        return sum(events)

    @tm.passthrough
    def a(event: int) -> int:
        return event

    reactor = tm.Reactor("r", [a, held], when=tm.any_of(a), durability="fire")
    async with tm.testing.node(store=store, load=[reactor]) as node:
        node.fail_store(1)
        await node.push("held", 1)
        await node.push("a", 1)
        await node.advance(0)
        assert node.reactor("r").state().cache == {"a": 1, "held": 1}


# -- at the end


@pytest.mark.parametrize("durability", KEPT)
async def test_an_orderly_shutdown_persists_the_final_state(sqlite: str, durability: Any) -> None:
    """Behaviour 63: without waiting for an interval."""
    sample = pair(when="all", durability=durability)
    async with tm.testing.node(store=sqlite, load=sample.load) as node:
        await node.push("a", 1)
        await node.push("a", 2)
    async with tm.testing.node(store=sqlite, load=sample.load) as node:
        state = node.reactor("r").state()
        assert (state.cache, state.dirty) == ({"a": 2}, {"a": True, "b": False})
        await node.push("b", 3)
    assert sample.seen == [(2, 3)]


@pytest.mark.parametrize("durability", KEPT)
async def test_unload_then_load_again_goes_on_where_it_stopped(store: str, durability: Any) -> None:
    """Behaviours 57, 58, 63, for one package in a living node."""
    sample = pair(when="all", durability=durability)
    async with tm.testing.node(store=store, load=sample.load) as node:
        await node.push("a", 1)
        await node.unload("graph:g")
        await node.unload("reactor:r")
        await node.load(sample.reactor)
        await node.load(sample.graph)
        state = node.reactor("r").state()
        assert (state.cache, state.dirty) == ({"a": 1}, {"a": True, "b": False})
        receipt = await node.push("b", 2)
        assert (await node.push("a", 3)).sequence == 2
    assert receipt.sequence == 1
    assert sample.seen == [(1, 2)]


async def test_what_crashed_never_writes_again(store: str) -> None:
    """API: after crash() what the old node ran never reports."""
    sample = pair(when="all")
    async with tm.testing.node(store=store, load=sample.load) as node:
        await node.push("a", 1)
        await node.advance("200ms")
        await node.push("a", 2)
        successor = await node.crash()
        with pytest.raises(tm.RequestError, match="not running"):
            await node.push("a", 3)
        await successor.advance("1s")
        successor = await successor.crash()
        assert successor.reactor("r").state().cache == {"a": 1}
