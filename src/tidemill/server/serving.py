"""Serves an application on a socket, until the server stops."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import uvicorn

from tidemill.kernel.errors import OperationError

if TYPE_CHECKING:
    from litestar.types import ASGIApp

logger = logging.getLogger("tidemill.server")

LOOPBACK = "127.0.0.1"
BACKLOG = 2048
DRAIN_SECONDS = 5
"""Seconds that open requests and connections get to end when the server stops."""
CLOSE_POLL_INTERVAL = 0.005
"""Seconds between two looks whether they have ended."""
DATE_INTERVAL = 1.0
"""Seconds between two changes of the date that answers carry."""
FRAME_LIMIT = 4 * 1024 * 1024
"""Bytes of a WebSocket message."""


class _Server(uvicorn.Server):
    """A server that leaves signals to the command that runs it, says when it answers, and stops without delay."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_answering = asyncio.Event()
        self._is_stopping = asyncio.Event()

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
        await super().startup(sockets)
        self.is_answering.set()

    async def main_loop(self) -> None:
        """Keep the date of answers until the server stops; uvicorn's own looks ten times a second whether it does."""
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                async with asyncio.timeout(DATE_INTERVAL):
                    await self._is_stopping.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen no more, and end the connections; uvicorn's own takes 0.1 s at least, and twice that as a rule."""
        for server in self.servers:
            server.close()
        for listener in sockets or []:
            listener.close()
        state = self.server_state
        for connection in list(state.connections):
            connection.shutdown()
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                while state.connections or state.tasks:  # noqa: ASYNC110 - uvicorn signals neither
                    await asyncio.sleep(CLOSE_POLL_INTERVAL)  # real time: that of clients
                for server in self.servers:
                    await server.wait_closed()
        except TimeoutError:
            logger.error(
                "%d requests had not ended %g s after the server began to stop", len(state.tasks), DRAIN_SECONDS
            )
            for task in state.tasks:
                task.cancel()


@asynccontextmanager
async def serving(app: "ASGIApp", host: str, port: int) -> AsyncIterator[str]:
    """Serve an application; yield its URL once it answers. Port 0 takes a free one."""
    with bind(host, port) as listener:
        async with serving_on(app, listener) as url:
            yield url


@asynccontextmanager
async def serving_on(app: "ASGIApp", listener: socket.socket) -> AsyncIterator[str]:
    """Serve an application on a socket of `bind`; yield its URL once it answers."""
    with _explaining(*listener.getsockname()[:2]):
        listener.listen(BACKLOG)
    config = uvicorn.Config(
        app,
        http="auto",
        ws="websockets-sansio",
        ws_max_size=FRAME_LIMIT,
        ws_ping_timeout=None,  # a client that waits for queue space is not read, and cannot answer
        ws_per_message_deflate=False,  # it costs more time than it saves on a local network
        lifespan="off",
        log_config=None,
        log_level="warning",  # below it, the paths of WebSocket connections are logged with their tickets
        access_log=False,
        server_header=False,
    )
    server = _Server(config)
    async with asyncio.TaskGroup() as group:
        serve = group.create_task(server.serve([listener]), name="server: serve")
        try:
            await server.is_answering.wait()
            yield url_of(listener)
        finally:
            server.stop()
            await asyncio.shield(serve)
            listener.close()


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
