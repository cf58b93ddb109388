"""Links: requests to the owners of parts over connections that are opened in the background."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from ipaddress import ip_address
from itertools import count
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec

from tidemill.engine.audit_findings import Finding, format_time, note_finding
from tidemill.engine.forwarding.wire import (
    Ask,
    Challenge,
    LinkIdentity,
    LinkRefusedError,
    OpenWire,
    Reply,
    Welcome,
    Wire,
    WireLostError,
    WireSender,
    check_welcome,
    close_quietly,
)
from tidemill.engine.graphs.durability.ownership import node_of
from tidemill.engine.tasks import TaskScope
from tidemill.engine.workflows.process_identity import HostLiveness, ProcessLiveness
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import StoreError
from tidemill.kernel.ids import new_sortable_id
from tidemill.storage.graph_ports import PartKey, PartOwner, PartOwners
from tidemill.storage.mailbox_port import StoredRequest
from tidemill.storage.store import Store
from tidemill.storage.tables.peers import Peer, Peers, UnreachedPeer
from tidemill.storage.workflow_ports import NodeRow
from tidemill.telemetry import events

WATCH_INTERVAL = 1.0
"""Seconds between two pings while an answer is due."""
SILENCE_LIMIT = 3.0
"""Seconds without a frame after which a link is given up that owes one."""
IDLE_PING_ROUNDS = 15
"""Intervals between two pings while no answer is due: the other side forgets a link that is silent for longer."""


class LinkLostError(Exception):
    """There is no answer: whether the request was served is not known."""


class OverdueError(Exception):
    """There is no answer yet, and the caller waits no longer."""


class RefusedError(Exception):
    """The request was not started: its target is not where its sender took it to be."""


class _Asked(msgspec.Struct, eq=False):
    """A caller that waits for the answer to a request."""

    reply: asyncio.Future[Reply | None]
    """None if the link has ended, or leads to the wrong node by now."""
    target: PartKey
    epoch: int
    deadline: float

    def resolve(self, reply: Reply | None) -> None:
        if not self.reply.done():
            self.reply.set_result(reply)


_REPLIES = msgspec.msgpack.Decoder(list[Reply])


def request_id(link: str, number: int) -> str:
    """Return the id of a request over a link; it sorts by the age of the link, then by number."""
    return f"{link}.{number:08x}"


def link_of(request: str) -> str | None:
    """Return the link over which a request was sent first; None if it was sent over none."""
    return request.rpartition(".")[0] or None


class Link:
    """A link that this node has opened."""

    def __init__(self, id: str, wire: Wire, clock: Clock, tasks: TaskScope, on_end: Callable[[str], None]) -> None:
        self.id = id
        self.is_open = True
        self._wire = wire
        self._clock = clock
        self._tasks = tasks
        self._on_end = on_end
        self._outbox = WireSender(wire, tasks, self.end)
        self._numbers = count(1)
        self._waiting: dict[int, _Asked] = {}
        self._owed_since: float | None = None  # when the other side began to owe a frame

    def start(self) -> None:
        """Receive answers from now on."""
        self._tasks.start("link: receive", self._receive())
        self._tasks.start("link: watch", self._watch())

    def next_number(self) -> int:
        """Return the number of the next request."""
        return next(self._numbers)

    async def ask(self, number: int, request: StoredRequest, epoch: int, deadline: float) -> bytes:
        """Send a request, and return its answer."""
        if not self.is_open:
            raise LinkLostError
        waiter = self._waiting[number] = _Asked(
            asyncio.get_running_loop().create_future(), request.target, epoch, deadline
        )
        self._outbox.put(Ask(number, *request.target, epoch, request.operation, request.payload))
        self._owe()
        try:
            reply = await waiter.reply
        finally:
            del self._waiting[number]
        if reply is not None and reply.is_refused:
            raise RefusedError
        if reply is None or reply.payload is None:
            raise LinkLostError
        return reply.payload

    @property
    def targets(self) -> set[PartKey]:
        """The parts of which answers are awaited."""
        return {one.target for one in self._waiting.values()}

    def give_up(self, target: PartKey, epoch: int) -> None:
        """Await no answers about a part from ownerships before an epoch: they cannot store anything now."""
        for one in self._waiting.values():
            if one.target == target and one.epoch != epoch:
                one.resolve(None)

    def end(self, reason: str) -> None:
        """End the link: nothing that it still brings counts."""
        if not self.is_open:
            return
        self.is_open = False
        for waiter in self._waiting.values():
            waiter.resolve(None)
        if not self._tasks.is_closed:
            self._tasks.start("link: close", close_quietly(self._wire))
        self._on_end(reason)

    def _owe(self) -> None:
        if self._owed_since is None:
            self._owed_since = self._clock.monotonic()

    async def _receive(self) -> None:
        reason = "this node closes"
        try:
            while self.is_open:
                replies = _REPLIES.decode(await self._wire.receive())
                self._owed_since = None
                for reply in replies:
                    if (waiter := self._waiting.get(reply.number)) is not None:
                        waiter.resolve(reply)
        except WireLostError as error:
            reason = str(error)
        except msgspec.DecodeError as error:
            reason = f"an answer cannot be decoded: {error}"
        finally:
            self.end(reason)

    async def _watch(self) -> None:
        """Ask for a frame now and then, and end the link if none comes."""
        idle_rounds = 0
        while self.is_open:
            await self._clock.sleep(WATCH_INTERVAL)
            now = self._clock.monotonic()
            if self._owed_since is not None and now - self._owed_since >= SILENCE_LIMIT:
                self.end(f"nothing came for {now - self._owed_since:.0f} s")
                return
            self._expire(now)
            idle_rounds = 0 if self._waiting else idle_rounds + 1
            if self.is_open and (self._waiting or idle_rounds >= IDLE_PING_ROUNDS):
                idle_rounds = 0
                self._outbox.ping()
                self._owe()

    def _expire(self, now: float) -> None:
        for waiter in self._waiting.values():
            if now >= waiter.deadline and not waiter.reply.done():
                waiter.reply.set_exception(OverdueError())


logger = logging.getLogger(__name__)

ADDRESS_INTERVAL = 5.0
"""Seconds until a node is looked up again that has no address."""
RETRY_INTERVALS = (1.0, 5.0, 15.0, 30.0)
"""Seconds until a link is tried again, by the number of failures before."""
REPORTED_FAILURES = 2
"""Failures in a row after which operators learn of them: the node may be about to end, or to answer."""
LISTING_INTERVAL = 300.0
"""Seconds between two times at which a node that has an address writes it."""
GONE_AGE = timedelta(hours=1)
"""The age of the row of a node that is gone, from which it is deleted."""
MAX_NODES = 1_000
"""Nodes that are remembered."""


class _Reach(msgspec.Struct):
    """What is known about the way to one node."""

    link: Link | None = None
    is_opening: bool = False
    retry_at: float = 0.0
    failures: int = 0
    is_reported: bool = False


class Links:
    """The links from this node."""

    def __init__(
        self, identity: LinkIdentity, own: NodeRow, peers: Peers, open_wire: OpenWire, clock: Clock, tasks: TaskScope
    ) -> None:
        self._identity = identity
        self._own = own
        self._peers = peers
        self._open_wire = open_wire
        self._clock = clock
        self._tasks = tasks
        self._nodes: dict[str, _Reach] = {}
        self._url: str | None = None
        self._is_listed = False

    @property
    def open_count(self) -> int:
        """How many links are open."""
        return len(self.open_links)

    @property
    def unreached_count(self) -> int:
        """How many nodes with an address cannot be reached."""
        return sum(one.is_reported for one in self._nodes.values())

    @property
    def open_links(self) -> list[Link]:
        """The links that are open."""
        return [one.link for one in self._nodes.values() if one.link is not None]

    async def list_self(self) -> None:
        """Let other nodes know this one: its key, and its address if it has one."""
        row = Peer(node=self._own.id, url=self._url, public_key=self._identity.public_key, at=self._clock.now())
        await self._peers.put(row)
        self._is_listed = True

    async def take_links_at(self, url: str) -> None:
        """Let other nodes open links to this one, which answers at a URL, until it closes."""
        self._url, self._is_listed = url, False
        await self._write(self.list_self())
        self._tasks.start("links: address", self._keep_listed())

    async def _keep_listed(self) -> None:
        """Write the own row again now and then: it may not have been written, or be gone with a restored backup."""
        while True:
            await self._clock.sleep(LISTING_INTERVAL if self._is_listed else ADDRESS_INTERVAL)
            await self._write(self.list_self())
            await self._write(self._peers.prune(self._clock.now() - GONE_AGE))

    async def unlist_self(self) -> None:
        """Let no other node open a link to this one from now on."""
        if self._is_listed:
            self._is_listed = False
            await self._peers.delete(self._own.id)

    def find(self, node: NodeRow) -> Link | None:
        """Return the open link to a node; if there is none, one may be opened in the background."""
        reach = self._nodes.get(node.id)
        if reach is None:
            reach = self._nodes[node.id] = _Reach()
            self._forget_oldest()
        is_due = reach.link is None and not reach.is_opening and self._clock.monotonic() >= reach.retry_at
        if is_due and not self._tasks.is_closed:
            reach.is_opening = True
            self._tasks.start("link: open", self._open(node, reach))
        return reach.link

    def _forget_oldest(self) -> None:
        if len(self._nodes) > MAX_NODES:
            unused = (name for name, one in self._nodes.items() if one.link is None and not one.is_opening)
            if (oldest := next(unused, None)) is not None:
                del self._nodes[oldest]

    async def _open(self, node: NodeRow, reach: _Reach) -> None:
        peer: Peer | None = None
        try:
            peer = await self._peers.get(node.id)
            if peer is None or not self._is_reachable(node, peer.url):
                reach.retry_at = self._clock.monotonic() + ADDRESS_INTERVAL
                return
            if not self._is_listed:
                await self.list_self()
            reach.link = await self._connect(peer, reach)
        except (WireLostError, LinkRefusedError, StoreError, msgspec.DecodeError) as error:
            self._is_listed = self._is_listed and not isinstance(error, LinkRefusedError)
            await self._note_failure(node, peer, reach, str(error))
        else:
            await self._note_success(node, reach)
        finally:
            reach.is_opening = False

    def _is_reachable(self, node: NodeRow, url: str | None) -> bool:
        """Return whether an address may lead to a node: a loopback address leads to those of the same host only."""
        return url is not None and (node.host == self._own.host or not is_loopback(url))

    async def _connect(self, peer: Peer, reach: _Reach) -> Link:
        wire = await self._open_wire(str(peer.url))
        name = new_sortable_id(self._clock.now())
        try:
            await self._shake_hands(wire, peer, name)
        except BaseException:
            await close_quietly(wire)
            raise

        def on_end(reason: str) -> None:
            reach.link = None
            reach.retry_at = self._clock.monotonic() + RETRY_INTERVALS[0]
            if not self._tasks.is_closed:
                logger.info(events.LINK_LOST, extra={"peer": peer.node, "url": peer.url, "reason": reason})

        link = Link(name, wire, self._clock, self._tasks, on_end)
        link.start()
        return link

    async def _shake_hands(self, wire: Wire, peer: Peer, link: str) -> None:
        challenge = msgspec.msgpack.decode(await wire.receive(), type=Challenge)
        hello = self._identity.hello(challenge, peer.node, link)
        await wire.send(msgspec.msgpack.encode(hello))
        welcome = msgspec.msgpack.decode(await wire.receive(), type=Welcome)
        check_welcome(welcome, hello, challenge, peer.public_key)

    async def _note_failure(self, node: NodeRow, peer: Peer | None, reach: _Reach, reason: str) -> None:
        pause = RETRY_INTERVALS[min(reach.failures, len(RETRY_INTERVALS) - 1)]
        reach.retry_at = self._clock.monotonic() + pause
        reach.failures += 1
        if reach.failures < REPORTED_FAILURES or reach.is_reported or peer is None:
            return
        reach.is_reported = True
        url = str(peer.url)
        logger.warning(events.LINK_UNREACHED, extra={"peer": node.id, "url": url, "reason": reason})
        unreached = UnreachedPeer(node=self._own.id, peer=node.id, url=url, reason=reason, at=self._clock.now())
        await self._write(self._peers.set_unreached(unreached))

    async def _note_success(self, node: NodeRow, reach: _Reach) -> None:
        reach.failures = 0
        if reach.is_reported:
            reach.is_reported = False
            logger.info(events.LINK_REACHED, extra={"peer": node.id})
            await self._write(self._peers.set_reached(self._own.id, node.id))

    async def _write(self, writing: Awaitable[None]) -> None:
        """Write what operators learn from; a store that fails has other messages."""
        try:
            await writing
        except StoreError as error:
            logger.warning(events.FORWARDING_FAILED, extra={"error": str(error)})


async def audit_links(store: Store, liveness: ProcessLiveness | None = None) -> list[Finding]:
    """Find nodes that cannot reach each other, although both run."""
    is_dead = (liveness or HostLiveness()).is_dead
    running = {one.id: one for one in await store.owners.list_all() if not is_dead(one)}
    return [
        note_finding(
            f"node {running[one.node].name}",
            f"cannot reach {running[one.peer].name} at {one.url} since {format_time(one.at)}: {one.reason}.",
            "Requests for its reactors take the slower way, through the store. Let the nodes reach each other, or set "
            "`peer_url` there.",
        )
        for one in await store.peers.list_unreached()
        if one.node in running and one.peer in running
    ]


def is_loopback(url: str) -> bool:
    """Return whether a URL leads to the machine that uses it."""
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


ROUTE_AGE = 1.0
"""Seconds after which the owner of a part is read again."""
ROUTE_LIMIT = 3.0
"""Seconds after which a route is not used that was not read again."""
MAX_ROUTES = 10_000


class LinkRoute(NamedTuple):
    """A link, and the epoch of the ownership that the node at its end has."""

    link: Link
    epoch: int


class _Known(msgspec.Struct):
    """The owner of a part, as it was read last."""

    node: NodeRow
    epoch: int
    read_at: float
    is_used: bool = True


class OwnerRoutes:
    """The owners of parts, read again every second while they are used.

    An owner refuses what has another epoch, so a route may be old. But an owner that is cut off from the store does not
    know that it was replaced: for its sake the routes are read again.
    """

    def __init__(self, links: Links, part_owners: PartOwners, clock: Clock, tasks: TaskScope) -> None:
        self._links = links
        self._part_owners = part_owners
        self._clock = clock
        self._tasks = tasks
        self._known: dict[PartKey, _Known] = {}
        self._is_refreshing = False

    def find(self, part: PartKey) -> LinkRoute | None:
        """Return the route to the owner of a part; None if no link leads there, as far as is known."""
        known = self._known.get(part)
        if known is None or self._clock.monotonic() > known.read_at + ROUTE_LIMIT:
            return None
        if (link := self._links.find(known.node)) is None:
            return None
        known.is_used = True
        if not self._is_refreshing and not self._tasks.is_closed:
            self._is_refreshing = True
            self._tasks.start("links: routes", self._keep_fresh())
        return LinkRoute(link, known.epoch)

    async def _keep_fresh(self) -> None:
        try:
            while used := await self._next_used():
                await self._refresh(used)
        finally:
            self._is_refreshing = False

    async def _next_used(self) -> set[PartKey]:
        """Return the parts whose routes were used in the last second, or are waited on."""
        for known in self._known.values():
            known.is_used = False
        await self._clock.sleep(ROUTE_AGE)
        used = {part for part, known in self._known.items() if known.is_used}
        return used.union(*(link.targets for link in self._links.open_links))

    async def _refresh(self, parts: set[PartKey]) -> None:
        try:
            owners = await self._part_owners.owners_of(sorted(parts))
        except StoreError as error:  # who owns what is not known now
            logger.warning(events.FORWARDING_FAILED, extra={"error": str(error)})
            self._known.clear()
            return
        for owner in owners:
            self.learn(owner)
            for link in self._links.open_links:
                link.give_up(owner.key, owner.epoch)

    def is_known(self, part: PartKey) -> bool:
        """Return whether the owner of a part was read just now."""
        known = self._known.get(part)
        return known is not None and self._clock.monotonic() < known.read_at + ROUTE_AGE

    def learn(self, owner: PartOwner) -> None:
        """Remember the owner of a part."""
        if len(self._known) >= MAX_ROUTES:
            self._known.clear()
        self._known[owner.key] = _Known(node_of(owner), owner.epoch, self._clock.monotonic())

    def forget(self, part: PartKey) -> None:
        """Forget the owner of a part: it has another one."""
        self._known.pop(part, None)
