"""A TCP proxy in front of PostgreSQL that fails on demand: at the commit, or altogether."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Literal

Fault = Literal["cut before", "cut after", "swallow", "delay"]
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]

COMMIT = b"Q\x00\x00\x00\x0bCOMMIT\x00"  # the message of the simple query


class Proxy:
    """Forwards everything, until a test changes that.

    What `at_commit` makes of the next COMMIT, or of the next message that contains `commit`, once; the client always
    loses its connection:

    * "cut before": the server does not get it, and loses the connection as well;
    * "cut after": the server gets it and answers, but the answer is lost;
    * "swallow": the server does not get it, and still believes in its client;
    * "delay": the server gets it when `release` is set.
    """

    def __init__(self, server_port: int) -> None:
        self.at_commit: Fault | None = None
        self.commit = COMMIT
        self.requests = 0
        self.is_stalled = False  # takes everything, and forwards nothing
        self.release = asyncio.Event()
        self._server_port = server_port
        self._streams: list[asyncio.StreamWriter] = []
        self._serving: set[asyncio.Task[None]] = set()
        self._deaf: set[asyncio.StreamWriter] = set()  # clients that lose the next answer

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection until it ends."""
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        self._streams.append(writer)
        client, server = (reader, writer), await asyncio.open_connection("127.0.0.1", self._server_port)
        self._streams.append(server[1])
        if writer.is_closing():  # the proxy ended while it connected
            server[1].transport.abort()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._requests(client, server), name="proxy: requests")
            tasks.create_task(self._answers(client, server), name="proxy: answers")

    async def end(self) -> None:
        """End all connections, and wait until their sockets are closed."""
        self.release.set()
        streams, self._streams = self._streams, []  # clients may connect again meanwhile: those connections live
        for stream in streams:
            stream.transport.abort()
        if self._serving:
            await asyncio.wait(self._serving)
        for stream in streams:
            with suppress(OSError):  # it was cut: that is how it ends here
                await stream.wait_closed()

    async def _requests(self, client: Stream, server: Stream) -> None:
        while data := await _read(client):
            self.requests += 1
            if self.at_commit is not None and self.commit in data:
                await self._fail(data, client[1], server[1])
                return
            if not self.is_stalled:
                server[1].write(data)
        server[1].close()

    async def _answers(self, client: Stream, server: Stream) -> None:
        while data := await _read(server):
            if client[1] in self._deaf:
                break
            if not self.is_stalled:
                client[1].write(data)
        client[1].transport.abort()

    async def _fail(self, data: bytes, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        fault, self.at_commit = self.at_commit, None
        if fault == "cut after":
            self._deaf.add(client)
            server.write(data)
            return
        client.transport.abort()
        if fault == "cut before":
            server.transport.abort()
        elif fault == "delay":
            await self.release.wait()
            server.write(data)


@asynccontextmanager
async def proxy_to(server_port: int) -> AsyncIterator[tuple[Proxy, int]]:
    """Run a proxy in front of a port; it listens on its own."""
    proxy = Proxy(server_port)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    try:
        yield proxy, server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await proxy.end()


async def _read(stream: Stream) -> bytes:
    try:
        return await stream[0].read(65536)
    except ConnectionError:
        return b""
