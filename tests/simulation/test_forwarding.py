"""Pushes at a node that does not own the reactor, while the owner dies at every one of its transactions."""

import asyncio
from collections.abc import Sequence
from itertools import count
from typing import Any

import pytest

import tidemill as tm
from tests.service.nodes.network import LinkedNode, MemoryWire, Network
from tests.simulation.test_crash_points import TURNS
from tests.simulation.test_producers import NAMES, Factory
from tidemill.kernel.errors import StoreError
from tidemill.storage.committer import Transactor

PUSHES = 3
PATIENCE = 20.0  # seconds until a test gives up
_stores = count()


class Dying(Transactor[Any]):
    """Runs the transactions of one node until one of them is the last, before or after it took effect."""

    def __init__(self, node: tm.testing.TestNode, survive: int, *, takes_effect: bool) -> None:
        self._committer: Any = node.database._committer  # type: ignore[attr-defined]
        self._rows = self._committer.transactor  # which the nodes share
        self._left = survive
        self._takes_effect = takes_effect
        self.is_dead = False
        self._released = asyncio.Event()
        self._committer.transactor = self

    async def transact(self, units: Sequence[Any]) -> Any:
        if self._left == 0:
            if self._takes_effect and not self.is_dead:
                await self._rows.transact(units)
            self.is_dead = True
            await self._released.wait()
            raise StoreError("the node is dead")
        self._left -= 1
        return await self._rows.transact(units)

    async def was_committed(self, token: Any) -> bool:
        raise AssertionError(f"a transaction in memory is never ambiguous: {token}")

    def lift(self) -> None:
        """Let the node go on, so that it can close: what it still wants to write is refused."""
        self._left = -1
        self._released.set()


async def push_all(node: tm.testing.TestNode, name: str, receipts: list[tm.Receipt]) -> None:
    """Push batches of numbers that grow, each after the one before it was acknowledged."""
    for first in range(0, 2 * PUSHES, 2):
        summary = await node.push_many(name, [first, first + 1])
        receipts += summary.receipts


async def live_and_die(survive: int, *, takes_effect: bool, is_linked: bool) -> bool:
    """Push at a stranger while the owner dies, and let the waiting node take over; return whether it died."""
    factory, address, network = Factory(), f"memory://forwarding-{next(_stores)}", Network()
    receipts: dict[str, list[tm.Receipt]] = {name: [] for name in NAMES}
    async with (
        LinkedNode(network, address, factory.load) as owner,
        LinkedNode(network, address, factory.load) as waiting,
        LinkedNode(network, address, []) as stranger,
    ):
        if is_linked:
            await network.attach(owner)
            await stranger.link_to("plain")
        killer = Dying(owner, survive, takes_effect=takes_effect)
        try:
            async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
                pushing = [group.create_task(push_all(stranger, name, receipts[name]), name=name) for name in NAMES]
                await until_dead_or_done(killer, pushing)
                while not all(one.done() for one in pushing):
                    await waiting.advance("1s")
                    await stranger.advance("1s")  # it looks for answers of which no notification came
            if not killer.is_dead:
                killer.lift()  # it does not die after the story
            running = waiting if killer.is_dead else owner
            await running.advance("8s")
            await running.settle()
            assert is_linked or "link" not in stranger.sent
        finally:
            killer.lift()
    for name in NAMES:
        assert factory.applied(name) == list(range(2 * PUSHES)), (name, survive)
        assert [receipt.accepted for receipt in receipts[name]] == [True] * 2 * PUSHES, (name, survive)
    return killer.is_dead


async def until_dead_or_done(killer: Dying, pushing: Sequence[asyncio.Task[None]]) -> None:
    """Wait until the owner is dead, and everything that it had begun has come to a halt; or until all is pushed."""
    while not killer.is_dead and not all(one.done() for one in pushing):  # noqa: ASYNC110 - either may come first
        await asyncio.sleep(0)
    for _ in range(TURNS if killer.is_dead else 0):
        await asyncio.sleep(0)


@pytest.mark.parametrize("is_linked", [False, True])
@pytest.mark.parametrize("takes_effect", [False, True])
async def test_an_owner_that_dies_at_any_transaction_loses_and_doubles_nothing(
    takes_effect: bool, is_linked: bool
) -> None:
    """G-31, G-24: callers at another node wait for the next owner, which applies what the first one had not.

    A link to it stays open: the owner is not known to be dead, it is cut off from the store.
    """
    survive = 0
    while await live_and_die(survive, takes_effect=takes_effect, is_linked=is_linked):
        survive += 1
    assert survive > 5


class Cut:
    """Cuts a wire at one of its frames: the frame arrives, or it is lost, or it arrives when all is over."""

    def __init__(self, network: Network, survive: int, how: str) -> None:
        self._left = survive
        self._how = how
        self._late: MemoryWire | None = None
        self.has_happened = False
        network.before_frame = self._on_frame

    def _on_frame(self, end: MemoryWire) -> None:
        self._left -= 1
        if self._left != -1:
            return
        self.has_happened = True
        if self._how == "late":
            self._late = end
            end.is_held = True
            end.other.end()
        else:
            end.is_mute = self._how == "lost"
            asyncio.get_running_loop().call_soon(end.cut)

    def lift(self) -> None:
        """Let the frame arrive that is late."""
        if self._late is not None:
            self._late.release()


async def push_over_a_cut_link(survive: int, how: str) -> bool:
    """Push while the link ends at one of its frames; return whether it did."""
    factory, address, network = Factory(), f"memory://forwarding-{next(_stores)}", Network()
    receipts: dict[str, list[tm.Receipt]] = {name: [] for name in NAMES}
    async with (
        LinkedNode(network, address, factory.load) as owner,
        LinkedNode(network, address, []) as stranger,
    ):
        await network.attach(owner)
        await stranger.link_to("plain")
        cut = Cut(network, survive, how)
        async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
            pushing = [group.create_task(push_all(stranger, name, receipts[name]), name=name) for name in NAMES]
            while not all(one.done() for one in pushing):
                await owner.advance("1s")
                await stranger.advance("1s")
        await stranger.advance("2s")  # the numbers of the pushes are deleted
        cut.lift()
        await owner.advance("8s")
        await owner.settle()
    for name in NAMES:
        assert factory.applied(name) == list(range(2 * PUSHES)), (name, survive)
        assert [receipt.accepted for receipt in receipts[name]] == [True] * 2 * PUSHES, (name, survive)
    return cut.has_happened


@pytest.mark.parametrize("how", ["arrives", "lost", "late"])
async def test_a_link_that_ends_at_any_frame_loses_and_doubles_nothing(how: str) -> None:
    """G-31, G-24: the frame of a request or of an answer; what was in it goes through the mailbox."""
    survive = 0
    while await push_over_a_cut_link(survive, how):
        survive += 1
    assert survive > 5
