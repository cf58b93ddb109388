"""A keyed reactor on several nodes of a store: each runs some of the partitions, and they move as nodes come and go."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import tidemill as tm
from tests.service.keyed_samples import PARTITIONS, Order, keyed, order, running_partitions
from tests.service.samples import single
from tidemill.access.principal import Caller
from tidemill.graphs.keys import partition_of
from tidemill.storage.graph_ports import PartKey

PUBLIC = Caller("public", "test")
KEYS = [f"key {number}" for number in range(20)]
PATIENCE = 30.0  # seconds until a test gives up
STEPS = 200  # looks at the hosts until a test gives up


@pytest.fixture
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store that several nodes can use."""
    is_file = getattr(request, "param", "memory") == "sqlite"
    return f"sqlite:///{tmp_path}/tidemill.db" if is_file else f"memory://{tmp_path.name}"


ALL_DURABILITIES = pytest.mark.parametrize(
    ("address", "durability"),
    [("memory", "none"), ("memory", "interval"), ("memory", "fire"), ("memory", "boundary"), ("sqlite", "boundary")],
    indirect=["address"],
)


@pytest.fixture
async def nodes() -> AsyncIterator[AsyncExitStack]:
    """Nodes that end with the test."""
    async with asyncio.timeout(PATIENCE), AsyncExitStack() as stack:
        yield stack


async def until(condition: Callable[[], bool], *nodes: tm.testing.TestNode) -> None:
    """Let time pass on these nodes until a condition holds."""
    for _ in range(STEPS):
        if condition():
            return
        for node in nodes:
            await node.advance("200ms")
    raise AssertionError([running_partitions(node) for node in nodes])


def is_shared_by(*nodes: tm.testing.TestNode) -> bool:
    """Return whether these nodes run all partitions, each once, and about as many each."""
    shares = [running_partitions(node) for node in nodes]
    counts = [len(one) for one in shares]
    running = sorted(number for share in shares for number in share)
    return running == list(range(PARTITIONS)) and max(counts) - min(counts) <= 1


@ALL_DURABILITIES
async def test_a_node_that_joins_takes_its_share(address: str, nodes: AsyncExitStack, durability: Any) -> None:
    """G-31: partitions move with their state; pushes at any node reach them, in order for each key."""
    sample = keyed(durability=durability)
    first = await nodes.enter_async_context(tm.testing.node(address, load=sample.load))
    assert running_partitions(first) == list(range(PARTITIONS))
    for key in KEYS:
        await first.push("placed", order(key, 1))
    second = await nodes.enter_async_context(tm.testing.node(address, load=sample.load))
    stranger = await nodes.enter_async_context(tm.testing.node(address))
    await until(lambda: is_shared_by(first, second), first, second)
    for number, node in enumerate((first, second, stranger), 2):
        for key in KEYS:
            assert (await node.push("placed", order(key, number))).accepted
    await first.settle()
    await second.settle()
    assert sample.seen == {key: [1, 2, 3, 4] for key in KEYS}
    for node in (first, second, stranger):
        state = await node.graph_client.reactor_state(PUBLIC, "orders")
        owners = {one.number: one.owner for one in state.partitions}
        assert {number for number, owner in owners.items() if owner == second._owner.id} == set(
            running_partitions(second)
        )
        assert [one.name for one in await node.graph_client.list_reactors(PUBLIC)] == ["orders"]
        assert (await node.graph_client.accumulator(PUBLIC, "placed")).name == "placed"


@pytest.mark.parametrize("durability", ["interval", "fire", "boundary"])
async def test_a_node_that_closes_hands_its_partitions_over(
    address: str, nodes: AsyncExitStack, durability: Any
) -> None:
    """G-31, G-23: in order, with everything that was accepted, whatever the durability."""
    sample = keyed(durability=durability)
    first = await nodes.enter_async_context(tm.testing.node(address, load=sample.load))
    second = await nodes.enter_async_context(tm.testing.node(address, load=sample.load))
    await until(lambda: is_shared_by(first, second), first, second)
    await first.reactor("orders").pause()
    for number in range(3):
        for key in KEYS:
            assert (await first.push("placed", order(key, number))).accepted
    assert sample.seen == {}
    await first._close()
    await until(lambda: is_shared_by(second), second)
    assert second.reactor("orders").state().paused, "a pause holds for partitions that move"
    await second.reactor("orders").resume()
    await second.settle()
    assert sample.seen == {key: [0, 1, 2] for key in KEYS}


@pytest.mark.parametrize("durability", ["fire", "boundary"])
async def test_the_partitions_of_a_node_that_dies_are_taken_over(
    address: str, nodes: AsyncExitStack, durability: Any
) -> None:
    """G-24, G-31: by lease. With "boundary" nothing that was accepted is lost."""
    sample = keyed(durability=durability)
    first = await nodes.enter_async_context(tm.testing.node(address, load=sample.load))
    second = await nodes.enter_async_context(tm.testing.node(address, load=sample.load))
    await until(lambda: is_shared_by(first, second), first, second)
    for number in range(3):
        for key in KEYS:
            await first.push("placed", order(key, number))
    await first.settle()
    await until(lambda: is_shared_by(second), second)  # the first one is frozen
    for key in KEYS:
        await second.push("placed", order(key, 3))
    await second.settle()
    assert sample.seen == {key: [0, 1, 2, 3] for key in KEYS}
    await first.advance("1s")  # it wakes up, and notices
    for key in KEYS:
        assert (await first.push("placed", order(key, 4))).accepted
    await until(lambda: is_shared_by(first, second), first, second)
    for key in KEYS:
        await first.push("placed", order(key, 5))
    await first.settle()
    await second.settle()
    assert sample.seen == {key: [0, 1, 2, 3, 4, 5] for key in KEYS}


async def test_the_partitions_of_a_frozen_node_are_taken_over_after_one_lease(
    address: str, nodes: AsyncExitStack
) -> None:
    """G-31: all of them, with their accumulators, after `lease_ttl` and a third of it at most."""
    sample = keyed(durability="boundary")
    frozen = await nodes.enter_async_context(tm.testing.node(address, load=sample.load))
    second = await nodes.enter_async_context(tm.testing.node(address, load=sample.load))
    await until(lambda: is_shared_by(frozen, second), frozen, second)
    for _ in range(20):
        await second.advance("200ms")  # 4 s; nothing is pushed, so nothing but the renewals tells
    assert is_shared_by(second)


async def test_events_wait_for_the_next_owner_of_their_partition(address: str, nodes: AsyncExitStack) -> None:
    """G-31: between two owners a push waits, and is then answered."""
    sample = keyed(durability="boundary")
    first = await nodes.enter_async_context(tm.testing.node(address, load=sample.load))
    second = await nodes.enter_async_context(tm.testing.node(address, load=sample.load))
    await until(lambda: is_shared_by(first, second), first, second)
    key = next(key for key in KEYS if partition_of(key, PARTITIONS) in running_partitions(first))
    await first._close()
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(second.push("placed", order(key, 1)), name="waiting push")
        await asyncio.sleep(0)
        assert not waiting.done()
        await until(waiting.done, second)
    assert waiting.result().accepted
    await second.settle()
    assert sample.seen == {key: [1]}


async def test_a_node_without_weight_hosts_nothing(address: str, nodes: AsyncExitStack) -> None:
    """It forwards, and shows the state of all partitions."""
    sample = keyed(durability="fire")
    front = await nodes.enter_async_context(
        tm.testing.node(address, load=sample.load, settings={"partition_weight": 0})
    )
    host = await nodes.enter_async_context(tm.testing.node(address, load=sample.load))
    await until(lambda: is_shared_by(host), host, front)
    assert running_partitions(front) == []
    for key in KEYS:
        assert (await front.push("placed", order(key, 1))).accepted
    await host.settle()
    assert sample.seen == {key: [1] for key in KEYS}
    state = await front.graph_client.reactor_state(PUBLIC, "orders")
    assert (state.fires, state.health) == (20, "live")
    own = front.reactor("orders").state()
    assert (own.partitions, own.fires, own.health) == ([], 0, "starting"), "nothing of it runs here"
    with pytest.raises(tm.RequestError, match="runs on another node") as raised:
        front.handle("placed")(order("a", 1))
    assert raised.value.code == "needs_push"


async def test_a_node_that_comes_and_goes_moves_nothing(address: str, nodes: AsyncExitStack) -> None:
    """Others follow only a node that has been there for `rebalance_delay`."""
    sample = keyed(durability="fire")
    settings = {"rebalance_delay": "10s"}
    first = await nodes.enter_async_context(tm.testing.node(address, load=sample.load, settings=settings))
    async with tm.testing.node(address, load=sample.load, settings=settings) as second:
        for _ in range(10):
            await first.advance("200ms")
            await second.advance("200ms")
        assert (len(running_partitions(first)), running_partitions(second)) == (PARTITIONS, [])
    assert len(running_partitions(first)) == PARTITIONS


async def test_a_partition_runs_the_version_of_its_node(address: str, nodes: AsyncExitStack) -> None:
    """A rolling update: each node brings its own version, and a partition that moves continues with the other one."""
    sample, newer = keyed(durability="boundary"), keyed(durability="boundary")
    first = await nodes.enter_async_context(tm.testing.node(address, load=sample.load))
    second = await nodes.enter_async_context(tm.testing.node(address, load=newer.load))
    await until(lambda: is_shared_by(first, second), first, second)
    share = running_partitions(second)
    await first._close()
    await until(lambda: is_shared_by(second), second)
    assert set(share) <= set(running_partitions(second))
    for key in KEYS:
        await second.push("placed", order(key, 1))
    await second.settle()
    assert (sample.seen, newer.seen) == ({}, {key: [1] for key in KEYS})


async def test_a_slow_unload_holds_up_no_other_reactor(address: str, nodes: AsyncExitStack) -> None:
    """G-31: nor a package load. The partitions of one reactor drain, and those of another one move meanwhile."""

    @tm.passthrough
    def paid(event: Order) -> Order:
        return event

    slow, sample = tm.Reactor("payments", [paid], key="key", partitions=2, strategy="sequential"), keyed()
    first = await nodes.enter_async_context(tm.testing.node(address, load=[slow, *sample.load]))
    draining, may_end = asyncio.Event(), asyncio.Event()

    async def finish_requests(parts: Collection[PartKey]) -> None:
        if any("payments" in part.name for part in parts):
            draining.set()
            await may_end.wait()

    first._scheduler.sharing._finish_requests = finish_requests  # type: ignore[attr-defined]
    async with asyncio.TaskGroup() as group:
        group.create_task(first.unload("reactor:payments"))
        await draining.wait()
        try:
            second = await nodes.enter_async_context(tm.testing.node(address, load=sample.load))
            await until(lambda: is_shared_by(first, second), first, second)
            await first.load(single().reactor)
        finally:
            may_end.set()
