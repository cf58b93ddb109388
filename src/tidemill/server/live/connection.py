"""One WebSocket connection: accepted, authorized, and closed with a code that says why."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import msgspec
from litestar import WebSocket
from litestar.datastructures import State
from litestar.exceptions import WebSocketDisconnect

from tidemill.access.principal import Caller, Principal
from tidemill.kernel.concurrency import FirstErrorGroup
from tidemill.kernel.errors import NotFoundError, TidemillError
from tidemill.server.authorization import authorize
from tidemill.server.live.closing import ClientGoneError, CloseCode, CloseError, close_for
from tidemill.server.live.codecs import JSON_CODEC, FrameCodec, choose_codec
from tidemill.server.requests import ServerContext, caller_of, context_of
from tidemill.storage.graph_ports import PartKind

CHECK_INTERVAL = 1.0
"""Seconds between two checks of a connection: whether it is read, and whether its endpoint is still there."""
REMOTE_ROUNDS = 15
"""Checks until another node is asked again whether it has the endpoint."""
SLOW_SECONDS = 10.0
"""Seconds that a frame may wait to be sent before the client counts as too slow."""
CLOSE_SECONDS = 5.0
"""Seconds that the last frame and the close may take."""

logger = logging.getLogger("tidemill.server")

LiveSocket: TypeAlias = WebSocket[Principal, Any, State]


class LiveConnection:
    """The frames of one connection. Any number of tasks may send."""

    def __init__(self, socket: LiveSocket, codec: FrameCodec) -> None:
        self._socket = socket
        self._sending: dict[object, float] = {}  # sends that wait for the client to read, with when they began
        self.codec = codec

    async def receive(self) -> Any:
        """Return the next message; ClientGoneError at the end of the connection."""
        try:
            message = await self._socket.receive()
        except WebSocketDisconnect as error:
            raise ClientGoneError from error
        if message["type"] != "websocket.receive":
            raise ClientGoneError
        return message

    async def send(self, value: Any) -> None:
        """Send a value as a frame; waits while the client does not read."""
        token = object()
        self._sending[token] = time.monotonic()
        try:
            await self._socket.send(self.codec.encode(value))  # type: ignore[arg-type]
        except (WebSocketDisconnect, OSError) as error:
            raise ClientGoneError from error
        finally:
            del self._sending[token]

    def check_read(self) -> None:
        """Raise CloseError if the client has not read for too long."""
        if self._sending and time.monotonic() - min(self._sending.values()) > SLOW_SECONDS:
            raise CloseError(CloseCode.TOO_SLOW, f"nothing was read for {SLOW_SECONDS:g} seconds")

    async def close(self, code: int, reason: str) -> None:
        """Close the connection; a client that does not even read that is left to the transport."""
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._socket.close(code, reason)
        except (WebSocketDisconnect, OSError, TimeoutError):
            return


class LiveSession(msgspec.Struct, frozen=True):
    """An authorized connection."""

    connection: LiveConnection
    context: ServerContext
    principal: Principal
    caller: Caller


Serve = Callable[[LiveSession, FirstErrorGroup], Awaitable[None]]
"""Serves a session until it returns, or something in the group raises."""


class Endpoint(msgspec.Struct, frozen=True):
    """The reactor or accumulator that a connection is about."""

    kind: PartKind
    name: str

    async def check(self, session: LiveSession) -> None:
        """Raise NotFoundError if it is not loaded, here or on another node."""
        client = session.context.node.graph_client
        check = client.check_reactor if self.kind == "reactor" else client.check_accumulator
        await check(session.caller, self.name)

    def is_here(self, session: LiveSession) -> bool:
        """Return whether this node runs it."""
        return session.context.node.graph_client.is_here(session.caller, self.kind, self.name)


async def serve_session(socket: LiveSocket, serve: Serve, endpoint: Endpoint | None = None) -> None:
    """Accept a connection, authorize it, and serve it until it ends; close it with the code that says why.

    The connection is accepted before it is authorized, because only then can it be closed with a code.
    """
    codec, refusal = _choose_codec(socket)
    await socket.accept(codec.subprotocol)
    connection = LiveConnection(socket, codec)
    try:
        if refusal is not None:
            raise refusal
        await _serve(await _authorize(socket, connection, context_of(socket.scope)), serve, endpoint)
        ending = CloseError(CloseCode.NORMAL, "")
    except ClientGoneError:
        return
    except CloseError as error:
        ending = error
    except TidemillError as error:
        ending = close_for(error)
    except Exception as error:  # a defect of ours: the log has the reason, and the server goes on
        logger.error("connection.crashed", exc_info=error)
        ending = CloseError(CloseCode.FAILED, "the server failed; its log has the reason")
    await connection.close(ending.code, ending.reason)


def _choose_codec(socket: LiveSocket) -> tuple[FrameCodec, CloseError | None]:
    """Return the codec of a connection, and why it is closed at once if it is."""
    try:
        return choose_codec(socket.scope.get("subprotocols", [])), None
    except CloseError as error:
        return JSON_CODEC, error


async def _authorize(socket: LiveSocket, connection: LiveConnection, context: ServerContext) -> LiveSession:
    principal = await authorize(socket, context)  # type: ignore[arg-type]
    assert principal is not None, "every WebSocket route needs a permission"
    return LiveSession(connection, context, principal, caller_of(principal))


async def _serve(session: LiveSession, serve: Serve, endpoint: Endpoint | None) -> None:
    if endpoint is not None:
        await endpoint.check(session)
    async with FirstErrorGroup() as group, _watched_credential(session, group):
        watch = group.start("connection: watch", _watch(session, endpoint))
        await serve(session, group)
        watch.cancel()


async def _watch(session: LiveSession, endpoint: Endpoint | None) -> None:
    """End a connection that is not read, or whose endpoint is gone."""
    rounds_elsewhere = 0
    while True:
        await asyncio.sleep(CHECK_INTERVAL)  # real time: sockets are read and written in real time
        session.connection.check_read()
        if endpoint is None:
            continue
        if endpoint.is_here(session):
            rounds_elsewhere = 0
            continue
        if rounds_elsewhere % REMOTE_ROUNDS == 0:
            await _check_loaded(session, endpoint)
        rounds_elsewhere += 1


async def _check_loaded(session: LiveSession, endpoint: Endpoint) -> None:
    try:
        await endpoint.check(session)
    except NotFoundError as error:
        raise CloseError(CloseCode.UNLOADED, str(error)) from error
    except TidemillError:
        return  # its owner is away or being replaced: the next push or command waits for the new one


@asynccontextmanager
async def _watched_credential(session: LiveSession, group: FirstErrorGroup) -> AsyncIterator[None]:
    """Count the connection of a key, and close it when the key is revoked or expires."""
    if session.principal.credential is None:
        yield
        return
    credential, ended = session.principal.credential, asyncio.Event()
    with session.context.limits.counting_connection(credential):
        unsubscribe = session.context.node.access.watch.subscribe(credential, ended.set)
        waiting = group.start("connection: credential", _close_when(ended))
        try:
            yield
        finally:
            unsubscribe()
            waiting.cancel()


async def _close_when(ended: asyncio.Event) -> None:
    await ended.wait()
    raise CloseError(CloseCode.NO_KEY, "the key or session of this connection has ended")
