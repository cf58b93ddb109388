"""The receiving side of forwarding: serves the requests for the parts that this node owns, from links and mailbox."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Collection
from datetime import timedelta

import msgspec

from tidemill.engine.forwarding.links import link_of, request_id
from tidemill.engine.forwarding.sender import MAX_REQUEST_AGE
from tidemill.engine.forwarding.wire import (
    CONNECT_TIMEOUT,
    NONCE_BYTES,
    Ask,
    Challenge,
    Hello,
    LinkIdentity,
    LinkRefusedError,
    Reply,
    Welcome,
    Wire,
    WireLostError,
    WireSender,
    check_hello,
    close_quietly,
)
from tidemill.engine.tasks import TaskScope, wait_until
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import StoreError
from tidemill.storage.graph_ports import PartKey
from tidemill.storage.mailbox_port import Mailbox, StoredAnswer, StoredRequest
from tidemill.storage.tables.peers import Peers
from tidemill.telemetry import events

IDLE_LIMIT = 60.0
"""Seconds without a frame after which a link is forgotten: its node is gone."""

BeginAsk = Callable[[str, Ask], Awaitable[Reply]]
"""Starts a request that has an id, and returns what serves it: no copy of it is started from now on."""
_ASKS = msgspec.msgpack.Decoder(list[Ask])
_HELLO = msgspec.msgpack.Decoder(Hello)


class Gate:
    """The links of other nodes to this one."""

    def __init__(
        self,
        identity: LinkIdentity,
        peers: Peers,
        begin: BeginAsk,
        on_undelivered: Callable[[], None],
        tasks: TaskScope,
    ) -> None:
        self._identity = identity
        self._peers = peers
        self._begin = begin
        self._on_undelivered = on_undelivered
        self._tasks = tasks
        self._links: dict[str, TakenLink] = {}

    @property
    def count(self) -> int:
        """How many links are open."""
        return len(self._links)

    async def admit(self, wire: Wire) -> "TakenLink":
        """Take a link; LinkRefusedError unless a node of the store opens it, and wants this node."""
        challenge = Challenge(os.urandom(NONCE_BYTES))
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):  # real time: the other side may be anyone
                await wire.send(msgspec.msgpack.encode(challenge))
                hello = _HELLO.decode(await wire.receive())
                await self._check(hello, challenge)
                await wire.send(msgspec.msgpack.encode(self._identity.welcome(challenge, hello)))
        except LinkRefusedError as error:
            await wire.send(msgspec.msgpack.encode(Welcome(refusal=str(error))))
            raise
        except (msgspec.DecodeError, TimeoutError) as error:
            raise LinkRefusedError("it did not say who it is") from error
        link = self._links[hello.link] = TakenLink(hello.link, wire, self._tasks, self._begin, self._on_undelivered)
        return link

    async def _check(self, hello: Hello, challenge: Challenge) -> None:
        if hello.node != self._identity.node:
            raise LinkRefusedError("another node answers at this address")
        try:
            peer = await self._peers.get(hello.sender)
        except StoreError as error:
            raise LinkRefusedError("the store cannot be read") from error
        if peer is None or hello.link in self._links:
            raise LinkRefusedError("the store does not have this node")
        check_hello(hello, challenge, peer.public_key)

    async def serve(self, link: "TakenLink") -> None:
        """Serve a link until it ends."""
        try:
            await link.serve()
        finally:
            self.end(link.id)

    def end(self, link: str) -> None:
        """End a link: what it has not delivered yet is not served."""
        if (found := self._links.pop(link, None)) is not None:
            found.end()

    def end_all(self) -> None:
        """End all links."""
        for link in list(self._links):
            self.end(link)


class TakenLink:
    """A link that another node has opened."""

    def __init__(
        self, id: str, wire: Wire, tasks: TaskScope, begin: BeginAsk, on_undelivered: Callable[[], None]
    ) -> None:
        self.id = id
        self._wire = wire
        self._tasks = tasks
        self._begin = begin
        self._on_undelivered = on_undelivered
        self._outbox = WireSender(wire, tasks, lambda _: self.end())
        self._is_ended = False

    async def serve(self) -> None:
        """Serve what the link brings, each request in a separate task, started in order."""
        try:
            while True:
                async with asyncio.timeout(IDLE_LIMIT):  # real time: that of another process
                    frame = await self._wire.receive()
                if self._is_ended or self._tasks.is_closed:
                    return
                asks = _ASKS.decode(frame)
                for ask in asks:
                    serving = self._begin(request_id(self.id, ask.number), ask)
                    self._tasks.start("link: request", self._answer(serving))
                if not asks:
                    self._outbox.ping()
        except (WireLostError, TimeoutError, msgspec.DecodeError):
            return

    async def _answer(self, serving: Awaitable[Reply]) -> None:
        reply = await serving
        if self._is_ended:
            self._on_undelivered()  # its sender may have put it into the mailbox
        else:
            self._outbox.put(reply)

    def end(self) -> None:
        """Serve nothing more of what the link brings."""
        if not self._is_ended:
            self._is_ended = True
            if not self._tasks.is_closed:
                self._tasks.start("link: close", close_quietly(self._wire))


logger = logging.getLogger(__name__)

ANSWER_RETRY_INTERVAL = 0.2
"""Seconds until an answer that could not be stored is stored again: the operation must not be repeated for it."""

Serve = Callable[[StoredRequest, bool], Awaitable[bytes | None]]
"""Serves a request and returns its answer; None if this node does not own the target, or no longer.

The flag says whether it may be a copy of a request that was served before."""


class ServedRequests:
    """The requests of other nodes that are being served here."""

    def __init__(self, timeout: float) -> None:
        self.targets: dict[str, PartKey] = {}
        """The targets of requests, by their ids."""
        self._timeout = timeout

    async def finish(self, parts: Collection[PartKey]) -> None:
        """Wait until those for some parts are answered, for as long as an unload may take."""
        await wait_until(lambda: not any(target in parts for target in self.targets.values()), self._timeout)


class RequestReceiver:
    """Serves the requests to one node, each in a separate task, started in the order in which they were sent."""

    def __init__(
        self,
        mailbox: Mailbox,
        owner: str,
        serve: Serve,
        end_link: Callable[[str], None],
        served: ServedRequests,
        clock: Clock,
        tasks: TaskScope,
    ) -> None:
        self._mailbox = mailbox
        self._owner = owner
        self._serve = serve
        self._end_link = end_link
        self._clock = clock
        self._tasks = tasks
        self._mail = asyncio.Event()
        self._in_progress = served.targets

    @property
    def is_idle(self) -> bool:
        """Whether no request is being served."""
        return not self._in_progress

    def on_mail(self) -> None:
        """Look for requests: some may have come, or this node may own their targets now."""
        self._mail.set()

    async def run(self) -> None:
        """Serve requests until cancelled."""
        while True:
            await self._mail.wait()
            self._mail.clear()
            try:
                requests = await self._mailbox.read_requests(self._owner, self._in_progress)
            except StoreError as error:  # the next renewal of the ownership looks again
                logger.warning(events.FORWARDING_FAILED, extra={"error": str(error)})
                continue
            oldest = self._clock.now() - timedelta(seconds=MAX_REQUEST_AGE)
            for request in requests:
                if request.at >= oldest:
                    self._begin_stored(request)

    def begin(self, request: StoredRequest) -> Awaitable[bytes | None]:
        """Serve a request that came over a link. No copy of it is served from now on until it is done."""
        self._in_progress[request.id] = request.target
        return self._serve_once(request)

    async def _serve_once(self, request: StoredRequest) -> bytes | None:
        try:
            return await self._serve(request, False)
        finally:
            del self._in_progress[request.id]

    def _begin_stored(self, request: StoredRequest) -> None:
        """Begin to serve a request of the mailbox. If it was sent over a link first, it cannot come over that now."""
        link = link_of(request.id)
        if link is not None:
            self._end_link(link)
        if request.id not in self._in_progress:  # it came over its link while the mailbox was read
            self._in_progress[request.id] = request.target
            self._tasks.start(f"forwarding: {request.operation}", self._answer(request, is_copy=link is not None))

    async def _answer(self, request: StoredRequest, *, is_copy: bool) -> None:
        """Serve a request. One that is not answered here is served by the next owner."""
        try:
            payload = await self._serve(request, is_copy)
            if payload is not None:
                await self._store_answer(StoredAnswer(request.id, payload))
        finally:
            del self._in_progress[request.id]

    async def _store_answer(self, answer: StoredAnswer) -> None:
        while True:
            try:
                await self._mailbox.answer(answer)
            except StoreError as error:
                logger.warning(events.FORWARDING_FAILED, extra={"error": str(error)})
                await self._clock.sleep(ANSWER_RETRY_INTERVAL)
            else:
                return
