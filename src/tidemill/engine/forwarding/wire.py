"""Wires between nodes: the handshake of a link, its messages, and answers and errors as they pass."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

import msgspec

from tidemill.engine.tasks import TaskScope
from tidemill.graphs.outcomes import Receipt, to_jsonable
from tidemill.graphs.pushes import PushSummary, ReceiptRun, decode_runs, encode_runs
from tidemill.kernel.errors import (
    FullError,
    NotFoundError,
    OperationError,
    RequestError,
    StoreError,
    TidemillError,
    rebuild_request_error,
)

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


LINK_PATH = "/ws/links"
"""Where a server takes links."""
CONNECT_TIMEOUT = 3.0
"""Seconds that opening a connection may take, with its handshake."""
MAX_REPLY_BYTES = 256 * 1024 * 1024
FRAME_BYTES = 1024 * 1024
"""Bytes of a frame with several messages, at most."""
PING = b"\x90"
"""A frame without messages: the other side sends one back."""


class WireLostError(Exception):
    """The wire has ended, or could not be opened."""


class Wire(Protocol):
    """A connection that carries frames in order."""

    async def send(self, frame: bytes) -> None:
        """Send a frame; WireLostError if the wire has ended."""

    async def receive(self) -> bytes:
        """Return the next frame; WireLostError at the end."""

    async def close(self) -> None:
        """End the wire, on both sides."""


OpenWire = Callable[[str], Awaitable[Wire]]
"""Opens a wire to the node at a URL; WireLostError says why it cannot."""


class _WebSocketWire(Wire):
    """A WebSocket connection that this node has opened."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def send(self, frame: bytes) -> None:
        await _guarded(self._connection.send(frame))

    async def receive(self) -> bytes:
        frame: bytes = await _guarded(self._connection.recv(decode=False))
        return frame

    async def close(self) -> None:
        await _guarded(self._connection.close())


async def _guarded(work: Awaitable[Any]) -> Any:
    from websockets.exceptions import WebSocketException  # on use: only nodes that have links need it

    try:
        return await work
    except (OSError, TimeoutError, WebSocketException) as error:
        raise WireLostError(str(error) or type(error).__name__) from error


async def open_websocket(url: str) -> Wire:
    """Open a WebSocket connection to the node at a URL."""
    from websockets.asyncio.client import connect  # on use: only nodes that have links need it

    address = urlsplit(url)
    target = address._replace(
        scheme="wss" if address.scheme == "https" else "ws", path=address.path.rstrip("/") + LINK_PATH
    ).geturl()
    connecting = connect(
        target,
        compression=None,
        max_size=MAX_REPLY_BYTES,
        open_timeout=CONNECT_TIMEOUT,
        close_timeout=1.0,
        ping_interval=None,  # the link asks on its own, and gives up sooner
        proxy=None,  # servers of one store reach each other directly
    )
    return _WebSocketWire(await _guarded(connecting))


class WireSender:
    """Sends messages over a wire in order; those that come while a frame is being sent share the next one."""

    def __init__(self, wire: Wire, tasks: TaskScope, on_lost: Callable[[str], None]) -> None:
        self._wire = wire
        self._tasks = tasks
        self._on_lost = on_lost
        self._unsent: list[msgspec.Raw] = []
        self._has_ping = self._is_sending = False

    def put(self, message: msgspec.Struct) -> None:
        """Send a message soon."""
        self._unsent.append(msgspec.Raw(msgspec.msgpack.encode(message)))
        self._start()

    def ping(self) -> None:
        """Send a frame soon, even if it is empty."""
        self._has_ping = True
        self._start()

    def _start(self) -> None:
        if not self._is_sending and not self._tasks.is_closed:
            self._is_sending = True
            self._tasks.start("link: send", self._send())

    async def _send(self) -> None:
        try:
            while self._unsent or self._has_ping:
                self._has_ping = False
                await self._wire.send(msgspec.msgpack.encode(self._take()))
        except WireLostError as error:
            self._on_lost(str(error))
        finally:
            self._is_sending = False

    def _take(self) -> list[msgspec.Raw]:
        """Take messages for one frame."""
        size = count = 0
        for message in self._unsent:
            size += len(bytes(message))
            if count and size > FRAME_BYTES:
                break
            count += 1
        taken, self._unsent = self._unsent[:count], self._unsent[count:]
        return taken


async def close_quietly(wire: Wire) -> None:
    """Close a wire that may have ended."""
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT):  # real time: the other side may not answer
            await wire.close()
    except (WireLostError, TimeoutError):
        return


PROTOCOL = 1
"""Of the frames of a link. A node that has another one is reached through the mailbox."""
NONCE_BYTES = 32


class Challenge(msgspec.Struct, frozen=True):
    """The first frame, from the node that takes the link."""

    nonce: bytes
    protocol: int = PROTOCOL


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of the node that opens the link."""

    node: str
    """The node that it wants to reach."""
    sender: str
    link: str
    """The id of the new link."""
    nonce: bytes
    signature: bytes

    def signed(self, challenge: Challenge) -> tuple[object, ...]:
        """Return what both sides sign."""
        return (challenge.protocol, challenge.nonce, self.nonce, self.node, self.sender, self.link)


class Welcome(msgspec.Struct, frozen=True):
    """The last frame of the handshake."""

    signature: bytes = b""
    refusal: str | None = None


class LinkRefusedError(RequestError):
    """A node does not take a link, or is not the node that it should be."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, code="link_refused", status=401)


class LinkIdentity:
    """The key pair of a node; it is made on first use, and ends with the process."""

    def __init__(self, node: str) -> None:
        self.node = node

    @cached_property
    def _private_key(self) -> "Ed25519PrivateKey":
        from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # on use: only nodes that have links need it
            Ed25519PrivateKey,
        )

        return Ed25519PrivateKey.generate()

    @property
    def public_key(self) -> bytes:
        """What the store has."""
        return self._private_key.public_key().public_bytes_raw()

    def sign(self, role: str, content: tuple[object, ...]) -> bytes:
        """Sign something in a role, so that the signature of one side is of no use on the other."""
        return self._private_key.sign(_message(role, content))

    def hello(self, challenge: Challenge, node: str, link: str) -> Hello:
        """Return what opens a link to a node."""
        if challenge.protocol != PROTOCOL:
            raise LinkRefusedError(f"it has version {challenge.protocol} of links, and this node version {PROTOCOL}")
        unsigned = Hello(node=node, sender=self.node, link=link, nonce=os.urandom(NONCE_BYTES), signature=b"")
        return msgspec.structs.replace(unsigned, signature=self.sign("open", unsigned.signed(challenge)))

    def welcome(self, challenge: Challenge, hello: Hello) -> Welcome:
        """Return what accepts a link."""
        return Welcome(self.sign("take", hello.signed(challenge)))


def check_hello(hello: Hello, challenge: Challenge, public_key: bytes) -> None:
    """Raise LinkRefusedError unless the sender has signed."""
    _check(public_key, hello.signature, "open", hello.signed(challenge))


def check_welcome(welcome: Welcome, hello: Hello, challenge: Challenge, public_key: bytes) -> None:
    """Raise LinkRefusedError unless the wanted node has signed."""
    if welcome.refusal is not None:
        raise LinkRefusedError(welcome.refusal)
    _check(public_key, welcome.signature, "take", hello.signed(challenge))


def _check(public_key: bytes, signature: bytes, role: str, content: tuple[object, ...]) -> None:
    from cryptography.exceptions import InvalidSignature  # on use: only nodes that have links need it
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # on use: as above

    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, _message(role, content))
    except (InvalidSignature, ValueError) as error:
        raise LinkRefusedError("its signature does not belong to the key that the store has of it") from error


def _message(role: str, content: tuple[object, ...]) -> bytes:
    return msgspec.msgpack.encode(("tidemill link", role, *content))


_REQUEST_ERRORS: dict[str, type[RequestError]] = {one.__name__: one for one in (RequestError, NotFoundError, FullError)}


class ErrorReport(msgspec.Struct, frozen=True):
    """An error that an operation raised at the owner."""

    kind: str
    """The name of its class."""
    message: str
    code: str | None = None
    status: int = 0
    facts: dict[str, Any] = {}

    @classmethod
    def of(cls, error: TidemillError) -> "ErrorReport":
        """Report an error."""
        kind = type(error).__name__
        if isinstance(error, RequestError):
            return cls(kind, str(error), error.code, error.status, to_jsonable(error.facts))
        return cls(kind, str(error))

    def to_error(self) -> TidemillError:
        """Return the error to raise at the caller; that of a class which is not known here has the nearest one."""
        if self.code is not None:
            kind = _REQUEST_ERRORS.get(self.kind, RequestError)
            return rebuild_request_error(kind, self.message, self.code, self.status, self.facts)
        return StoreError(self.message) if self.kind == StoreError.__name__ else OperationError(self.message)


class ForwardedAnswer(msgspec.Struct, frozen=True):
    """What an operation returned, or the error that it raised."""

    result: msgspec.Raw = msgspec.Raw(b"\xc0")  # nil
    error: ErrorReport | None = None


class _EncodedPush(msgspec.Struct, frozen=True):
    """The result of a push: receipts in their stored form, which is short and keeps their classes."""

    receipts: bytes
    is_duplicate: bool = False


def encode_result(result: Any) -> bytes:
    """Encode what an operation returned."""
    if isinstance(result, Receipt):
        result = _EncodedPush(encode_runs([ReceiptRun.of(result)]))
    elif isinstance(result, PushSummary):
        result = _EncodedPush(encode_runs(result.runs), result.is_duplicate)
    encoded = msgspec.msgpack.encode(result, enc_hook=to_jsonable)
    return msgspec.msgpack.encode(ForwardedAnswer(msgspec.Raw(encoded)))


def encode_error(error: TidemillError) -> bytes:
    """Encode the error that an operation raised."""
    return msgspec.msgpack.encode(ForwardedAnswer(error=ErrorReport.of(error)))


def decode_answer(payload: bytes, result_type: Any) -> Any:
    """Return the result of an operation, or raise its error."""
    answer = msgspec.msgpack.decode(payload, type=ForwardedAnswer)
    if answer.error is not None:
        raise answer.error.to_error()
    if result_type not in (Receipt, PushSummary):
        return msgspec.msgpack.decode(answer.result, type=result_type)
    push = msgspec.msgpack.decode(answer.result, type=_EncodedPush)
    return decode_push(push.receipts, result_type, is_duplicate=push.is_duplicate)


def decode_push(receipts: bytes, result_type: Any, *, is_duplicate: bool = False) -> Receipt | PushSummary:
    """Return what a push returns that got these receipts."""
    runs = decode_runs(receipts)
    return runs[0].receipt(0) if result_type is Receipt else PushSummary(runs, is_duplicate)


class Ask(msgspec.Struct, frozen=True, array_like=True):
    """A request over a link."""

    number: int
    tenant: str
    kind: str
    name: str
    epoch: int
    """Of the ownership for which it is: an owner with another epoch refuses it."""
    operation: str
    payload: bytes


class Reply(msgspec.Struct, frozen=True, array_like=True):
    """The answer to a request over a link."""

    number: int
    payload: bytes | None
    """None if there is no answer."""
    is_refused: bool = False
    """Whether the request was not started, because its target is not here."""
