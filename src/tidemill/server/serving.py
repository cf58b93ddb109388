"""The node of a server, and what serves an application on a socket until the server stops."""

import asyncio
import errno
import logging
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from ipaddress import IPv4Network, ip_address, ip_network
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import uvicorn
from h11 import LocalProtocolError
from websockets.exceptions import InvalidState

from tidemill.kernel.errors import OperationError
from tidemill.node import Node
from tidemill.node_arguments import NodeProfile
from tidemill.server.connections import Connections
from tidemill.server.http_protocol import HttpConnection, WebSocketConnection

if TYPE_CHECKING:
    from litestar.types import ASGIApp

logger = logging.getLogger("tidemill.server")

LOOPBACK = "127.0.0.1"
NO_PEER_URL = "off"
"""The setting of a server that other nodes reach through the store only."""
UNROUTED = {False: "192.0.2.1", True: "2001:db8::1"}
"""Addresses for documentation, by whether they are of IPv6: no machine has them."""
BACKLOG = 2048
ACCEPTS_PER_TURN = 32
"""Connections that are accepted before others have their turn; those that made room for them are closed by then."""
OUT_OF_RESOURCES = frozenset([errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM])
"""Errors of accepting that concern all connections; others concern one that has failed."""
ACCEPT_PAUSE = 0.1
"""Seconds until the next try after the system had no descriptor for a connection."""
ACCEPT_LOG_INTERVAL = 60.0
"""Seconds between two log lines about that."""
DRAIN_SECONDS = 5
"""Seconds that open requests and connections get to end when the server stops."""
CLOSE_POLL_INTERVAL = 0.005
"""Seconds between two looks whether they have ended."""
DATE_INTERVAL = 1.0
"""Seconds between two changes of the date that answers carry."""
MAPPED_BITS = 96
"""Bits before the IPv4 address in its IPv6 form."""
FRAME_LIMIT = 4 * 1024 * 1024
"""Bytes of a WebSocket message."""


class _Server(uvicorn.Server):
    """A server that leaves signals to the command that runs it, says when it answers, and stops without delay."""

    def __init__(self, config: uvicorn.Config, connections: Connections, group: asyncio.TaskGroup) -> None:
        super().__init__(config)
        self.is_answering = asyncio.Event()
        self._is_stopping = asyncio.Event()
        self._connections = connections
        self._group = group
        self._acceptors: list[_Acceptor] = []

    def stop(self) -> None:
        """Begin to stop; `serve` returns when that is done."""
        self.should_exit = True
        self._is_stopping.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen."""
        self._acceptors = [_Acceptor(one, self._make_protocol, self._connections, self._group) for one in sockets or []]
        for acceptor in self._acceptors:
            acceptor.start()
        self.started = True
        self.is_answering.set()

    def _make_protocol(self) -> HttpConnection:
        return HttpConnection(self._connections, self.config, self.server_state, self.lifespan.state)

    async def main_loop(self) -> None:
        """Keep the date of answers until the server stops; uvicorn's own looks ten times a second whether it does."""
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                async with asyncio.timeout(DATE_INTERVAL):
                    await self._is_stopping.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:  # noqa: ARG002 - the acceptors have them
        """Listen no more, and end the connections; uvicorn's own takes 0.1 s at least, and twice that as a rule."""
        for acceptor in self._acceptors:
            acceptor.stop()
        self._connections.drop_waiting()
        state = self.server_state
        for connection in list(state.connections):
            try:
                connection.shutdown()
            except (AssertionError, InvalidState, LocalProtocolError):  # it is in no state to say goodbye
                connection.transport.abort()
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                while state.connections or state.tasks:  # noqa: ASYNC110 - uvicorn signals neither
                    await asyncio.sleep(CLOSE_POLL_INTERVAL)  # real time: that of clients
        except TimeoutError:
            logger.error(
                "%d requests had not ended %g s after the server began to stop", len(state.tasks), DRAIN_SECONDS
            )
            for task in state.tasks:
                task.cancel()


class _Acceptor:
    """Accepts the connections of a socket, and makes room for them.

    The event loops accept all that wait before the first of them is looked at, and log each one that fails.
    """

    def __init__(
        self,
        listener: socket.socket,
        make_protocol: Callable[[], HttpConnection],
        connections: Connections,
        group: asyncio.TaskGroup,
    ) -> None:
        self._listener = listener
        self._make_protocol = make_protocol
        self._connections = connections
        self._group = group
        self._loop = asyncio.get_running_loop()
        self._retry: asyncio.TimerHandle | None = None
        self._logged_at = -ACCEPT_LOG_INTERVAL

    def start(self) -> None:
        """Accept connections from now on."""
        self._listener.setblocking(False)
        self._loop.add_reader(self._listener, self._accept)

    def stop(self) -> None:
        """Accept no more, and close the socket."""
        if self._retry is not None:
            self._retry.cancel()
        self._loop.remove_reader(self._listener)
        self._listener.close()

    def _accept(self) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            try:
                accepted, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno not in OUT_OF_RESOURCES:  # this connection is gone already
                    continue
                self._pause(error)
                return
            self._connections.make_room()
            accepted.setblocking(False)
            self._group.create_task(self._open(accepted), name="server: connection")

    async def _open(self, accepted: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._make_protocol, accepted)
        except OSError:  # it is gone already
            accepted.close()

    def _pause(self, error: OSError) -> None:
        """Free descriptors of strangers, for the store too, and try again a little later."""
        self._connections.count_accept_error()
        for _ in range(ACCEPTS_PER_TURN):
            self._connections.drop_stranger("no_room")
        now = self._loop.time()
        if now >= self._logged_at + ACCEPT_LOG_INTERVAL:
            self._logged_at = now
            logger.error(
                "the server cannot accept connections: %s; raise the limit of open files, or lower max_connections",
                error.strerror,
                extra={"errors": self._connections.accept_errors, "connections": self._connections.count},
            )
        self._loop.remove_reader(self._listener)
        self._retry = self._loop.call_later(ACCEPT_PAUSE, self.start)


@asynccontextmanager
async def serving(app: "ASGIApp", host: str, port: int, connections: Connections | None = None) -> AsyncIterator[str]:
    """Serve an application; yield its URL once it answers. Port 0 takes a free one."""
    with bind(host, port) as listener:
        async with serving_on(app, listener, connections or Connections()) as url:
            yield url


@asynccontextmanager
async def serving_on(app: "ASGIApp", listener: socket.socket, connections: Connections) -> AsyncIterator[str]:
    """Serve an application on a socket of `bind`; yield its URL once it answers."""
    with _explaining(*listener.getsockname()[:2]):
        listener.listen(BACKLOG)
    config = uvicorn.Config(
        app,
        http=HttpConnection,
        ws=WebSocketConnection,
        ws_max_size=FRAME_LIMIT,
        ws_ping_timeout=None,  # a client that waits for queue space is not read, and cannot answer
        ws_per_message_deflate=False,  # it costs more time than it saves on a local network
        lifespan="off",
        log_config=None,
        log_level="warning",  # below it, the paths of WebSocket connections are logged with their tickets
        access_log=False,
        server_header=False,
        timeout_keep_alive=connections.settings.keep_alive_timeout,  # type: ignore[arg-type] # passed to call_later
        forwarded_allow_ips=_with_mapped(connections.settings.trusted_proxies),
    )
    async with asyncio.TaskGroup() as group:
        server = _Server(config, connections, group)
        serve = group.create_task(server.serve([listener]), name="server: serve")
        try:
            await server.is_answering.wait()
            yield url_of(listener)
        finally:
            server.stop()
            await asyncio.shield(serve)
            listener.close()


def _with_mapped(networks: str) -> str:
    """Add the IPv6 form of each IPv4 network, as a socket for both families names it."""
    parts = [part.strip() for part in networks.split(",") if part.strip()]
    ipv4 = [one for one in map(ip_network, parts) if isinstance(one, IPv4Network)]
    mapped = [f"::ffff:{one.network_address}/{MAPPED_BITS + one.prefixlen}" for one in ipv4]
    return ", ".join(parts + mapped)


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that has an address, and does not listen yet; OperationError says why it cannot have it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # asyncio sets TCP_NODELAY only if named
    try:
        with _explaining(host, port):
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
    except OperationError:
        listener.close()
        raise
    return listener


def bind_preferring(host: str, port: int) -> socket.socket:
    """Return a socket that listens on a port, or one with a free port if another program has that one."""
    try:
        listener = bind(host, port)
    except OperationError:
        return bind(host, 0)
    try:
        listener.listen(BACKLOG)  # of two that have bound it at the same moment, one can listen
    except OSError:
        listener.close()
        return bind(host, 0)
    return listener


@contextmanager
def _explaining(host: str, port: int) -> Iterator[None]:
    """Raise an OperationError with a remedy if an address cannot be used."""
    try:
        yield
    except (OSError, OverflowError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise OperationError(f"the server cannot listen on {host}:{port}: {reason}; choose another --port") from error


def url_of(listener: socket.socket) -> str:
    """Return the address of a socket as a URL."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def reachable_url(url: str) -> str | None:
    """Return the address of a server if other machines can use it: neither a loopback address nor all addresses."""
    host = ip_address(urlsplit(url).hostname or LOOPBACK)
    return None if host.is_loopback or host.is_unspecified else url


def own_url(url: str) -> str:
    """Return an address of a server that leads to it from other machines, if it listens on more than loopback."""
    parts = urlsplit(url)
    if not ip_address(parts.hostname or LOOPBACK).is_unspecified:
        return url
    is_ipv6 = ":" in (parts.hostname or "")
    with socket.socket(socket.AF_INET6 if is_ipv6 else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((UNROUTED[is_ipv6], 9))  # sends nothing: the system chooses the address to send from
            host = str(probe.getsockname()[0])
        except OSError:
            host = "::1" if is_ipv6 else LOOPBACK
    return f"http://[{host}]:{parts.port}" if is_ipv6 else f"http://{host}:{parts.port}"


class ServerNode(Node):
    """A node that is served over the network; it takes what `Node` takes."""

    def __init__(self, store: str | None = None, **options: Any) -> None:
        super().__init__(store, **options, _profile=NodeProfile(kind="server"))

    async def _start(self) -> None:
        await super()._start()
        self.start_serving()

    async def take_links_at(self, url: str) -> None:
        """Let other nodes on the store forward to this one directly: it answers at `url`, or where `peer_url` says."""
        address = self.settings.peer_url or url
        if address != NO_PEER_URL and self.forwarding is not None:
            await self.forwarding.take_links_at(address)
