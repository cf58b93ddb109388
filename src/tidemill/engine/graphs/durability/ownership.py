"""Ownership of reactors: one node of a store runs a durable reactor and its accumulators.

A node acquires the parts of a reactor before it reads their state, and renews its ownership while it runs. Every
checkpoint and every write to the journal carries the epochs under which the node owns the parts. So a node that was
frozen, and was replaced meanwhile, cannot overwrite anything when it wakes up: its writes are refused, and it stops.

Another node may acquire a part when its owner has released it, when the process of its owner is known to be gone, and
otherwise when the node has not seen a renewal for a whole `lease_ttl` of its own monotonic clock.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Sequence

import msgspec

from tidemill.engine.loop_watch import HeldLeases
from tidemill.engine.silence import SilenceWatch
from tidemill.engine.tasks import FOREVER, TaskScope, Wakeup
from tidemill.graphs.definition import Reactor
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import RequestError, StoreError
from tidemill.storage.graph_ports import PartFence, PartKey, PartOwner, PartOwners, fenced_error
from tidemill.storage.workflow_ports import NodeRow
from tidemill.telemetry import events

logger = logging.getLogger(__name__)

_closed_owners: set[str] = set()
"""The nodes of this process that have closed. A node that closes while its store is away cannot release its parts."""


class ReactorOwnedError(RequestError):
    """Another node of the store owns a reactor."""

    def __init__(self, part: PartKey, situation: str, keys: Collection[PartKey], owner: str) -> None:
        super().__init__(f"{part.kind} '{part.name}' {situation}", code="reactor_owned", status=409, owner=owner)
        self._situation = situation
        self.keys = keys
        """The parts that were to be acquired."""

    def naming(self, part: PartKey) -> "ReactorOwnedError":
        """Return the error for a caller that has asked for one of the parts: it names that part."""
        return ReactorOwnedError(part, self._situation, self.keys, self.facts["owner"])


class OwnershipListener:
    """Follows what this node owns."""

    def on_owned(self) -> None:
        """Act on what this node owns: after each renewal, and when something that it has acquired runs."""

    def on_lost(self, keys: Collection[PartKey]) -> None:
        """Act on the loss of parts that another node has acquired."""


class ReactorOwnership:
    """The parts that this node owns."""

    def __init__(
        self,
        part_owners: PartOwners,
        is_dead: Callable[[NodeRow], bool],
        *,
        owner: NodeRow,
        ttl: float,
        is_shared: bool,
        clock: Clock,
        tasks: TaskScope,
    ) -> None:
        self.fences: dict[PartKey, PartFence] = {}
        """The fence of each part that this node owns."""
        self._listeners: list[OwnershipListener] = []
        self._part_owners = part_owners
        self._is_dead = is_dead
        self.owner = _encode_owner(owner)
        """This node, as it is stored."""
        self.node = owner
        """This node."""
        self.owner_id = owner.id
        self._ttl = ttl
        self._silence = SilenceWatch(clock)
        self._is_shared = is_shared
        self._tasks = tasks
        self._wakeup = Wakeup(clock)
        self._is_renewing = False
        self._unreleased: dict[PartKey, PartFence] = {}  # parts whose release has failed: it is tried again
        self._change_lock = asyncio.Lock()  # a part that is acquired again keeps its epoch: no release may follow

    @property
    def _renewal_interval(self) -> float:
        """The seconds between renewals. A node that has the store to itself never renews its ownership."""
        return self._ttl / 3 if self._is_shared else FOREVER

    def listen(self, listener: OwnershipListener) -> None:
        """Tell a listener what this node owns and loses."""
        self._listeners.append(listener)

    def start_sharing(self) -> None:
        """Renew the ownership from now on: another node uses the store."""
        self._is_shared = True
        self._wakeup.notify()

    async def acquire(self, keys: Collection[PartKey]) -> None:
        """Acquire parts, all or none; RequestError names the node that owns one of them."""
        missing = sorted(set(keys) - self.fences.keys())
        if not missing:
            return
        async with self._change_lock:
            abandoned = self.abandoned_among(await self._part_owners.owners_of(missing))
            acquired = await self._part_owners.acquire(missing, self.owner, abandoned)
            if isinstance(acquired, PartOwner):
                raise _owned_elsewhere(acquired, missing)
            for fence in acquired:
                self.fences[fence.key] = fence
                self._unreleased.pop(fence.key, None)
        if not self._is_renewing:
            self._is_renewing = True
            self._tasks.start("reactor ownership", self._keep_renewing())

    async def release(self, keys: Collection[PartKey]) -> None:
        """Release parts that this node no longer needs, so that another node can acquire them at once."""
        released = [fence for key, fence in self.fences.items() if key in keys]
        for fence in released:
            self._unreleased[fence.key] = self.fences.pop(fence.key)
        if released:
            await self._release_pending()

    async def _release_pending(self) -> None:
        """Release what this node no longer needs; while that fails, it goes on renewing, or it would look dead."""
        async with self._change_lock:
            pending = list(self._unreleased.values())
            try:
                await self._part_owners.release(pending)
            except StoreError as error:
                logger.warning(events.REACTOR_RENEWAL_FAILED, extra={"error": str(error)})
                return
            for fence in pending:
                del self._unreleased[fence.key]
        if not self.fences and not self._unreleased:
            self._wakeup.notify()  # nothing is left to renew

    def close(self) -> None:
        """Let other nodes of this process acquire the parts, even if they could not be released."""
        _closed_owners.add(self.owner)

    async def is_free(self, keys: Collection[PartKey]) -> bool:
        """Return whether parts could be acquired now."""
        others = [one for one in await self._part_owners.owners_of(sorted(keys)) if one.owner != self.owner]
        return self.abandoned_among(others) == others

    def fences_for(self, keys: Iterable[PartKey]) -> list[PartFence]:
        """Return the fences of parts that are about to be written; FencedError if this node does not own one."""
        fences = [self.fences.get(key) for key in keys]
        if None in fences:
            raise fenced_error()
        return [fence for fence in fences if fence is not None]

    # -- other nodes

    def id_of(self, owner: PartOwner) -> str:
        """Return the id of the node that owns a part."""
        return node_of(owner).id

    def abandoned_among(self, owners: Sequence[PartOwner]) -> list[PartOwner]:
        """Return the owners that are gone, or that have not renewed their ownership for a whole ttl.

        A node renews all its parts in one statement. So one part that it has not renewed tells about all of them, even
        about those that this node has not looked at before.
        """
        silent = [one.owner for one in owners if self._silence.lasts(one.key, one, self._ttl)]
        abandoned = {*silent, *(owner for owner in {one.owner for one in owners} if self._is_gone(owner))}
        return [one for one in owners if one.owner in abandoned]

    def _is_gone(self, owner: str) -> bool:
        return owner in _closed_owners or self._is_dead(_decode_owner(owner))

    # -- renewal

    async def _keep_renewing(self) -> None:
        try:
            while self.fences or self._unreleased:
                await self._wakeup.wait(self._renewal_interval)
                if self._unreleased:
                    await self._release_pending()
                if self.fences or self._unreleased:
                    await self.renew()
        finally:
            self._is_renewing = False

    @property
    def held(self) -> HeldLeases:
        """The ownership of all parts; what the node has lost meanwhile shows when the event loop renews it."""
        return HeldLeases(self._ttl / 3, lambda: bool(self.fences), lambda store: store.part_owners.renew(self.owner))

    async def renew(self) -> None:
        """Renew the ownership of all parts, and report those that another node has acquired."""
        held = dict(self.fences)
        try:
            renewed = await self._part_owners.renew(self.owner)
        except StoreError as error:
            logger.warning(events.REACTOR_RENEWAL_FAILED, extra={"error": str(error)})
            return
        self.drop(fence for fence in held.values() if fence not in renewed)
        self.announce()

    def announce(self) -> None:
        """Tell the listeners that this node may own and run more than before."""
        for listener in self._listeners:
            listener.on_owned()

    def drop(self, fences: Iterable[PartFence]) -> None:
        """Stop owning parts that another node has acquired, and report them."""
        lost = [fence.key for fence in fences if self.fences.get(fence.key) == fence]
        for key in lost:
            del self.fences[key]
        for listener in self._listeners if lost else ():
            listener.on_lost(lost)


def _encode_owner(owner: NodeRow) -> str:
    """Return an owner as it is stored: with what identifies its process, so that any node can tell if it is gone."""
    return msgspec.json.encode(owner).decode()


def _decode_owner(text: str) -> NodeRow:
    return msgspec.json.decode(text, type=NodeRow)


def node_of(owner: PartOwner) -> NodeRow:
    """Return the node that owns a part."""
    return _decode_owner(owner.owner)


def _owned_elsewhere(found: PartOwner, keys: Collection[PartKey]) -> ReactorOwnedError:
    owner = node_of(found)
    node = f"node {owner.id} (process {owner.pid} on {owner.host.partition(' ')[0]})"
    remedy = "a durable reactor runs on one node of a store: use that node, or stop it"
    return ReactorOwnedError(found.key, f"is owned by {node}; {remedy}", keys, owner.id)


def reactor_part_keys(tenant: str, reactor: Reactor) -> set[PartKey]:
    """Return the keys of the parts of a reactor and its accumulators."""
    accumulators = {PartKey(tenant, "accumulator", one.name) for one in reactor.accumulators}
    return {PartKey(tenant, "reactor", reactor.name), *accumulators}
