"""Partitions that the nodes of a store share: each node runs those that are assigned to it.

Every node computes the same assignment from the same rows. A node hands over a partition that is assigned to another
one: it takes nothing new for it, lets its firing end, writes its state, and releases it. The other node then acquires
it, restores its state, and goes on. The other partitions run on meanwhile. The ownership in the store decides: a node
with an outdated view acquires nothing that another one owns, and writes nothing.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager, nullcontext, suppress

from tidemill.engine.graphs.durability.ownership import ReactorOwnedError, ReactorOwnership
from tidemill.engine.graphs.partitions.membership import ClusterView, Membership
from tidemill.engine.graphs.partitions.partitioned import PartitionedReactor
from tidemill.engine.graphs.partitions.relays import ReaderListener, SourceRelays
from tidemill.engine.graphs.partitions.sharing import PartitionRunner, PartitionSharing, running_numbers
from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.engine.registry import Key
from tidemill.engine.tasks import Wakeup
from tidemill.graphs.partitions import assign_partitions
from tidemill.kernel.errors import StoreError, TidemillError
from tidemill.storage.graph_ports import PartKey
from tidemill.storage.store import Store
from tidemill.telemetry import events

logger = logging.getLogger(__name__)

LOOK_INTERVAL_SHARE = 1 / 6
"""The share of `lease_ttl` after which a node looks at the hosts and the owners again."""
MOVE_LOOK_INTERVAL = 0.1
"""Seconds until the next look while partitions move: the next owner must not keep events waiting."""


class SharedPartitions(PartitionSharing):
    """This node's share of the partitions of all keyed reactors that it has loaded."""

    def __init__(
        self,
        runner: PartitionRunner,
        runtime: GraphRuntime,
        store: Store,
        ownership: ReactorOwnership,
        *,
        finish_requests: Callable[[Collection[PartKey]], Awaitable[None]],
        listener: ReaderListener,
    ) -> None:
        """Share partitions; `finish_requests` waits until the requests of other nodes for some parts are answered."""
        self._runner = runner
        self._runtime = runtime
        self._ownership = ownership
        self._pauses = store.pauses
        self.membership = Membership(store.part_owners, ownership, runtime.clock, runtime.settings)
        self._look_interval = runtime.settings.lease_ttl * LOOK_INTERVAL_SHARE
        self._wakeup = Wakeup(runtime.clock)
        self.relays = SourceRelays(runtime, store.checkpoints, ownership, listener=listener)
        self._joined: dict[Key, PartitionedReactor] = {}
        self._is_active = False  # until everything that loads with the node is there
        self._is_running = self._is_moving = False
        # an unload overlaps with other changes, and must not miss a partition
        self._move_locks: defaultdict[Key, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._finish_requests = finish_requests

    # -- taking part

    async def join(self, keyed: PartitionedReactor) -> list[int]:
        self._joined[keyed.key] = keyed
        await self.membership.offer(keyed)
        numbers = await self._acquire_assigned(keyed, await self.membership.view(keyed))
        if not self._is_running:
            self._is_running = True
            self._runtime.tasks.start("partitions", self._run())
        return numbers

    def replace(self, newer: PartitionedReactor) -> None:
        self._joined[newer.key] = newer
        self._wakeup.notify()

    def activate(self) -> None:
        self._is_active = True
        self._wakeup.notify()

    async def confirm_pause(self, keyed: PartitionedReactor) -> None:
        with suppress(StoreError):  # what was restored counts then
            is_paused = await self._pauses.is_paused(keyed.tenant, keyed.name)
            for one in self._runner.loaded.partitions_of(keyed):
                one.reactor.pausing.follow(is_paused)

    async def leave(self, keyed: PartitionedReactor) -> None:
        self._joined.pop(keyed.key, None)
        async with self._move_locks[keyed.key]:
            await self.relays.stop_for(keyed)
            await self.membership.withdraw(keyed)
            await self._ownership.release(keyed.part_keys)
            for number in running_numbers(self._runner.loaded, keyed):
                await self._hand_over(keyed, number)
            await self._ownership.release({part for number in keyed.numbers for part in keyed.partition_keys(number)})

    async def view(self, keyed: PartitionedReactor) -> ClusterView:
        return await self.membership.view(keyed)

    def wake(self) -> None:
        self._wakeup.notify()

    async def _run(self) -> None:
        while True:
            await self._wakeup.wait(MOVE_LOOK_INTERVAL if self._is_moving else self._look_interval)
            self._is_moving = False
            for key in tuple(self._joined):
                if (keyed := self._joined.get(key)) is not None:
                    await self._rebalance_safely(keyed)

    async def _rebalance_safely(self, keyed: PartitionedReactor) -> None:
        try:
            await self.rebalance(keyed)
            await self._relay(keyed)
        except StoreError as error:
            logger.warning(events.REBALANCE_FAILED, extra={"reactor": keyed.name, "error": str(error)})
        except TidemillError as error:  # a partition that cannot start here: its state, or its source
            logger.error(events.REBALANCE_FAILED, exc_info=error, extra={"reactor": keyed.name, "error": str(error)})

    # -- moving partitions

    async def _relay(self, keyed: PartitionedReactor) -> None:
        """Read the sources that cannot be split, if this node answers for the reactor as a whole."""
        if self._is_active and self._ownership.fences.keys() >= keyed.part_keys:
            await self.relays.run_for(keyed)
        else:
            await self.relays.stop_for(keyed)

    async def rebalance(self, keyed: PartitionedReactor) -> None:
        """Hand over the partitions that are assigned to other nodes, and start those that are assigned to this one."""
        view = await self.membership.view(keyed)
        target = assign_partitions(view.owners, view.hosts)
        self._is_moving |= target != dict(view.owners)
        host, running = self.membership.host, set(running_numbers(self._runner.loaded, keyed))
        lost = {number for number in running if self._is_lost(keyed, number)}
        for number in sorted(lost | {number for number in running if target.get(number, host) != host}):
            async with self._moving(keyed) as is_joined:
                if is_joined:
                    await self._hand_over(keyed, number)
        if view.is_front_free or any(owner == host and number not in running for number, owner in target.items()):
            async with self._moving(keyed) as is_joined:
                if is_joined:
                    await self._start(keyed, await self._acquire_assigned(keyed, view))

    @asynccontextmanager
    async def _moving(self, keyed: PartitionedReactor) -> AsyncIterator[bool]:
        """Keep package changes and an unload of the reactor from overlapping; tell whether the reactor is still loaded.

        One that leaves is not waited for: its drains may take long, and every package change would wait, too.
        """
        async with self._runner.changes.exclude():
            is_joined = self._joined.get(keyed.key) is keyed
            async with self._move_locks[keyed.key] if is_joined else nullcontext():
                yield is_joined

    def _is_lost(self, keyed: PartitionedReactor, number: int) -> bool:
        """Return whether another node has acquired a partition that runs here: what this node has is outdated."""
        return not self._ownership.fences.keys() >= keyed.partition_keys(number)

    async def _start(self, keyed: PartitionedReactor, numbers: Collection[int]) -> None:
        if not numbers:
            return
        try:
            await self._runner.start_partitions(keyed, numbers)
        except BaseException:
            await self._ownership.release([part for number in numbers for part in keyed.partition_keys(number)])
            raise
        logger.info(events.PARTITIONS_TAKEN, extra={"reactor": keyed.name, "partitions": sorted(numbers)})
        self._ownership.announce()  # requests for the partitions may be waiting

    async def _acquire_assigned(self, keyed: PartitionedReactor, view: ClusterView) -> list[int]:
        """Acquire the partitions that are assigned to this node and free; return them."""
        if view.is_front_free and self.membership.host in view.hosts:
            await self._try_acquire(keyed.part_keys)
        running, target = running_numbers(self._runner.loaded, keyed), assign_partitions(view.owners, view.hosts)
        wanted = [
            number
            for number, host in target.items()
            if host == self.membership.host and view.owners[number] in (None, host) and number not in running
        ]
        if len(wanted) > 1 and await self._try_acquire({part for one in wanted for part in keyed.partition_keys(one)}):
            return wanted
        return [number for number in wanted if await self._try_acquire(keyed.partition_keys(number))]

    async def _try_acquire(self, parts: Collection[PartKey]) -> bool:
        """Acquire parts, all or none; another node may have been faster."""
        try:
            await self._ownership.acquire(parts)
        except ReactorOwnedError:
            return False
        return True

    async def _hand_over(self, keyed: PartitionedReactor, number: int) -> None:
        """Stop a partition in order. Events for it wait for its next owner from now on."""
        parts = keyed.partition_keys(number)
        self._runner.loaded.leaving |= parts
        try:
            await self._finish_requests(parts)
            await self._runner.stop_partition(keyed, number)
        finally:
            self._runner.loaded.leaving -= parts
        logger.info(events.PARTITION_HANDED_OVER, extra={"reactor": keyed.name, "partition": number})
