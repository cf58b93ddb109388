"""Commands to a keyed reactor on several nodes: they reach every partition, also one that moves, or say which not."""

import asyncio
import pickle
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import tidemill as tm
from tests.service.keyed_samples import PARTITIONS, KeyedSample, Order, keyed, order, running_partitions
from tests.service.partitions.test_killed_moves import kill
from tests.service.partitions.test_shared_partitions import KEYS, is_shared_by, until
from tidemill.graphs.keys import partition_of

PATIENCE = 30.0  # seconds until a test gives up


class Held:
    """A function that waits until a test lets it go on."""

    def __init__(self, owner: Any, name: str) -> None:
        self.is_reached = False
        self._call: Callable[..., Any] = getattr(owner, name)
        self._released = asyncio.Event()
        setattr(owner, name, self._hold)

    async def _hold(self, *arguments: Any, **options: Any) -> Any:
        result = await self._call(*arguments, **options)
        self.is_reached = True
        await self._released.wait()
        return result

    def release(self) -> None:
        """Let it go on."""
        self._released.set()


@pytest.fixture
async def nodes() -> AsyncIterator[AsyncExitStack]:
    """Nodes that end with the test."""
    async with asyncio.timeout(PATIENCE), AsyncExitStack() as stack:
        yield stack


@pytest.fixture
async def sample() -> KeyedSample:
    """A keyed reactor that the nodes share."""
    return keyed(durability="fire")


async def opened(nodes: AsyncExitStack, folder: Path, sample: KeyedSample) -> tm.testing.TestNode:
    """Start a node on the store of a test."""
    return await nodes.enter_async_context(tm.testing.node(f"memory://{folder.name}", load=sample.load))


async def done(work: Any, *nodes: tm.testing.TestNode) -> Any:
    """Await something while time passes on some nodes."""

    async def attempt() -> Any:
        try:
            return await work
        except tm.RequestError as error:  # a task group would raise it among others
            return error

    async with asyncio.TaskGroup() as group:
        task = group.create_task(attempt(), name="work")
        await until(task.done, *nodes)
    if isinstance(task.result(), tm.RequestError):
        raise task.result()
    return task.result()


@pytest.mark.parametrize("command", ["pause", "resume"])
async def test_a_partition_that_is_restored_does_not_miss_a_pause(
    nodes: AsyncExitStack, tmp_path: Path, sample: KeyedSample, command: str
) -> None:
    """G-13, G-31: the command comes after the partition has read whether it is paused, and before it runs."""
    giver = await opened(nodes, tmp_path, sample)
    if command == "resume":
        await giver.reactor("orders").pause()
    taker = await opened(nodes, tmp_path, sample)
    reads = [Held(taker.database.pauses, name) for name in ("is_paused", "list_paused")]
    await until(lambda: any(one.is_reached for one in reads), giver, taker)
    await done(getattr(giver.reactor("orders"), command)(), giver, taker)
    for one in reads:
        one.release()
    await until(lambda: is_shared_by(giver, taker), giver, taker)
    for node in (giver, taker):
        reactors = [
            one.reactor
            for one in node._scheduler.loaded.partitions_of(node._scheduler.loaded.keyed["public", "orders"])
        ]
        assert {one.firing_loop.paused for one in reactors} == {command == "pause"}
    for key in KEYS:
        await giver.push("placed", order(key, 1))
    await giver.settle()
    await taker.settle()
    assert sample.seen == ({} if command == "pause" else {key: [1] for key in KEYS})


async def test_the_partitions_of_a_dead_host_are_paused_where_they_continue(
    nodes: AsyncExitStack, tmp_path: Path, sample: KeyedSample
) -> None:
    """G-13, G-31: a host that is replaced while it does not answer is no reason for an error."""
    first, dead = await opened(nodes, tmp_path, sample), await opened(nodes, tmp_path, sample)
    await until(lambda: is_shared_by(first, dead), first, dead)
    await kill(dead)
    await done(first.reactor("orders").pause(), first)
    assert running_partitions(first) == list(range(PARTITIONS))
    assert first.reactor("orders").state().paused
    for key in KEYS:
        await first.push("placed", order(key, 1))
    await first.settle()
    assert sample.seen == {}


async def test_a_host_that_does_not_follow_a_command_is_named(
    nodes: AsyncExitStack, tmp_path: Path, sample: KeyedSample
) -> None:
    """G-13, G-31: the others have followed, and the command can be given again."""
    first, second = await opened(nodes, tmp_path, sample), await opened(nodes, tmp_path, sample)
    await until(lambda: is_shared_by(first, second), first, second)
    held = Held(second.database.pauses, "set_paused")
    reactor = first.reactor("orders")
    with pytest.raises(tm.RequestError, match="1 of 2 hosts of reactor 'orders' have not confirmed 'pause'") as raised:
        await done(reactor.pause(), first, second)
    assert (raised.value.code, raised.value.facts["hosts"]) == ("hosts_unreached", [second._owner.id])
    held.release()
    await done(reactor.pause(), first, second)
    for key in KEYS:
        await first.push("placed", order(key, 1))
    await first.settle()
    await second.settle()
    assert sample.seen == {}


async def test_a_handle_fires_and_reads_keys_of_every_node(
    nodes: AsyncExitStack, tmp_path: Path, sample: KeyedSample
) -> None:
    """G-31, G-13: as the API does. What comes from another node has plain values."""
    first, second = await opened(nodes, tmp_path, sample), await opened(nodes, tmp_path, sample)
    await until(lambda: is_shared_by(first, second), first, second)
    key = next(key for key in KEYS if partition_of(key, PARTITIONS) in running_partitions(second))
    reactor = first.reactor("orders")
    fired = await done(reactor.fire_with({"placed": Order(key, 1)}, key=key), first, second)
    assert (fired.key, fired.ok, fired.manual, fired.inputs) == (key, True, True, {"placed": order(key, 1)})
    result = fired.results["ledger"]
    assert (result.outputs, result.ran, result.skipped) == ({"enter": 1}, ("enter",), ())
    again = await done(reactor.force_fire(key=key), first, second)
    assert again.id == second.reactor("orders").firings(1)[0].id
    assert sample.seen == {key: [1, 1]}
    state = await done(reactor.state_of(key), first, second)
    assert (state.name, state.cache) == ("orders", {"placed": order(key, 1)})
    with pytest.raises(tm.RequestError, match="another node runs the partition") as raised:
        reactor.state(key=key)
    assert raised.value.code == "reactor_owned"
    with pytest.raises(tm.RequestError, match="no accumulator 'place'"):
        await done(reactor.fire_with({"place": Order(key, 1)}, key=key), first, second)


async def test_a_handle_replays_dead_letters_of_every_node(nodes: AsyncExitStack, tmp_path: Path) -> None:
    """G-15, G-31: a firing that fails again says so, with the message and the traceback of its node."""
    is_open = False

    def refuse(_: Order) -> None:
        if not is_open:
            raise ValueError("the book is closed")

    sample = keyed(refuse, durability="fire")
    first, second = await opened(nodes, tmp_path, sample), await opened(nodes, tmp_path, sample)
    await until(lambda: is_shared_by(first, second), first, second)
    key = next(key for key in KEYS if partition_of(key, PARTITIONS) in running_partitions(second))
    await first.push("placed", order(key, 1))
    await second.settle()
    (letter,) = await second.reactor("orders").dead_letters()
    failed = await done(first.reactor("orders").replay(letter.id), first, second)
    error = failed.results["ledger"].error
    assert (failed.ok, error.node, failed.results["ledger"].skipped) == (False, "enter", ())
    assert "the book is closed" in str(error)
    assert "refuse" in error.traceback
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    is_open = True
    assert (await done(first.reactor("orders").replay(letter.id), first, second)).ok
    with pytest.raises(tm.RequestError, match="there is no dead letter"):
        await done(first.reactor("orders").replay(letter.id), first, second)
