"""A TCP proxy in front of a server that cuts connections: at once, or when the server answers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit


class CuttingProxy:
    """Forwards everything, until a test changes that."""

    def __init__(self, server_port: int) -> None:
        self.url = ""
        self.lost_answers = 0
        """How many of the next answers are lost: the server gets the request, the client loses its connection."""
        self.connections = 0
        self.server: asyncio.Server | None = None
        self._server_port = server_port
        self._writers: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[None]] = set()

    def cut(self) -> None:
        """Cut all connections."""
        for writer in self._writers:
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection until it ends."""
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        self.connections += 1
        upstream_reader, upstream = await asyncio.open_connection("127.0.0.1", self._server_port)
        self._writers |= {writer, upstream}
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_forward(reader, upstream), name="proxy: requests")
            tasks.create_task(self._answers(upstream_reader, writer), name="proxy: answers")
        self._writers -= {writer, upstream}

    async def _answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await _read(reader):
            if self.lost_answers:
                self.lost_answers -= 1
                break
            writer.write(data)
        writer.transport.abort()

    async def stop(self) -> None:
        """Cut all connections, and take no more."""
        assert self.server is not None
        self.server.close()
        self.cut()

    async def end(self) -> None:
        """End all connections, and wait until nothing carries one."""
        self.cut()
        if self._serving:
            await asyncio.wait(self._serving)


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await _read(reader):
        writer.write(data)
    writer.transport.abort()


async def _read(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(65536)
    except ConnectionError:
        return b""


@asynccontextmanager
async def cutting_proxy(url: str) -> AsyncIterator[CuttingProxy]:
    """Run a proxy in front of a server."""
    proxy = CuttingProxy(urlsplit(url).port or 0)
    proxy.server = server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
        await proxy.end()
