"""Nodes that die in the middle of a move: at each point, another node continues with all that was accepted."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

import tidemill as tm
from tests.service.keyed_samples import PARTITIONS, keyed, order, running_partitions
from tests.service.partitions.test_shared_partitions import KEYS, is_shared_by, until

PATIENCE = 30.0  # seconds until a test gives up
ROUNDS = 3  # events of each key before the move


class CrashPoint:
    """Holds a node at the beginning of one of its functions, until the node is killed there."""

    def __init__(self, owner: Any, name: str) -> None:
        self.is_reached = False
        setattr(owner, name, self._hold)

    async def _hold(self, *_: Any, **__: Any) -> Any:
        self.is_reached = True
        await asyncio.Event().wait()


BEFORE_THE_WRITE = (lambda node: node._checkpointer, "save_and_forget")
BETWEEN_WRITE_AND_RELEASE = (lambda node: node._checkpointer, "release")
DURING_THE_RESTORE = (lambda node: node.database.key_snapshots, "list_keys")


@pytest.fixture
async def nodes() -> AsyncIterator[AsyncExitStack]:
    """Nodes that end with the test."""
    async with asyncio.timeout(PATIENCE), AsyncExitStack() as stack:
        yield stack


async def kill(node: tm.testing.TestNode) -> None:
    """Kill a node: unlike a task that is cancelled, it releases nothing."""

    async def release(_: Any) -> None:
        return None

    ownership = node._parts.foundation.ownership
    assert ownership is not None
    ownership.release = release
    await node.kill()


@pytest.mark.parametrize(
    ("durability", "point"),
    [
        ("boundary", BEFORE_THE_WRITE),
        ("boundary", BETWEEN_WRITE_AND_RELEASE),
        ("fire", BETWEEN_WRITE_AND_RELEASE),
        ("interval", BETWEEN_WRITE_AND_RELEASE),
    ],
)
async def test_a_giver_is_killed_while_it_hands_a_partition_over(
    tmp_path: Any, nodes: AsyncExitStack, durability: Any, point: tuple[Callable[[Any], Any], str]
) -> None:
    """G-24, G-31: what the giver has written counts; events that wait for the partition are applied once."""
    sample, address = keyed(durability=durability), f"memory://{tmp_path.name}"
    giver = await nodes.enter_async_context(tm.testing.node(address, load=sample.load))
    for number in range(ROUNDS):
        for key in KEYS:
            await giver.push("placed", order(key, number))
    await giver.advance("1s")  # longer than a checkpoint interval
    crash_point = CrashPoint(point[0](giver), point[1])
    taker = await nodes.enter_async_context(tm.testing.node(address, load=sample.load))
    await until(lambda: crash_point.is_reached, giver, taker)
    await continue_without(giver, taker, sample.seen)


@pytest.mark.parametrize("durability", ["boundary", "fire", "interval"])
async def test_a_taker_is_killed_while_it_restores_a_partition(
    tmp_path: Any, nodes: AsyncExitStack, durability: Any
) -> None:
    """G-24, G-31: the giver gets the partition back, with the state that it had written."""
    sample, address = keyed(durability=durability), f"memory://{tmp_path.name}"
    giver = await nodes.enter_async_context(tm.testing.node(address, load=sample.load))
    for number in range(ROUNDS):
        for key in KEYS:
            await giver.push("placed", order(key, number))
    taker = await nodes.enter_async_context(tm.testing.node(address, load=sample.load))
    crash_point = CrashPoint(DURING_THE_RESTORE[0](taker), DURING_THE_RESTORE[1])
    await until(lambda: crash_point.is_reached, giver, taker)
    await continue_without(taker, giver, sample.seen)


async def continue_without(dead: tm.testing.TestNode, living: tm.testing.TestNode, seen: dict[str, list[int]]) -> None:
    """Kill a node while events of every key are on their way; the other one takes its partitions, and loses nothing."""
    assert len(running_partitions(living)) < PARTITIONS, "something moves"
    async with asyncio.TaskGroup() as group:
        pushes = [group.create_task(living.push("placed", order(key, ROUNDS)), name=f"push {key}") for key in KEYS]
        await asyncio.sleep(0)
        await kill(dead)
        await until(lambda: is_shared_by(living), living)
        await until(lambda: all(one.done() for one in pushes), living)
    assert all(one.result().accepted for one in pushes)
    await living.settle()
    assert seen == {key: list(range(ROUNDS + 1)) for key in KEYS}
    for key in KEYS:
        assert (await living.reactor("orders").state_of(key)).cache["placed"]["number"] == ROUNDS
