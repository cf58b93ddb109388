"""An imitation of a pooler that deals out one session of the server to all its clients."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

SSL_REQUEST = 80877103
READY = b"Z\x00\x00\x00\x05I"  # the server waits for a statement
GOODBYE = b"X"


class Pooler:
    """Lets clients take turns on one connection; the server sees one client."""

    def __init__(self, server_port: int, tasks: asyncio.TaskGroup) -> None:
        self._server_port = server_port
        self._tasks = tasks
        self._server: asyncio.StreamWriter | None = None
        self._greeting = b""
        self._speaker: asyncio.StreamWriter | None = None
        self._writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one client until it says goodbye."""
        self._writers.append(writer)
        with suppress(asyncio.IncompleteReadError):
            start = await _start(reader, writer)
            server = self._server or await self._connected(start)
            writer.write(self._greeting)
            while (data := await _read(reader)) and data[:1] != GOODBYE:
                self._speaker = writer
                server.write(data)
        writer.close()

    def end(self) -> None:
        """End all connections."""
        for writer in self._writers:
            writer.transport.abort()

    async def _connected(self, start: bytes) -> asyncio.StreamWriter:
        reader, self._server = await asyncio.open_connection("127.0.0.1", self._server_port)
        self._writers.append(self._server)
        self._server.write(start)
        self._greeting = await reader.readuntil(READY)
        self._tasks.create_task(self._answer(reader), name="pooler: answers")
        return self._server

    async def _answer(self, reader: asyncio.StreamReader) -> None:
        """Forward replies to the client that sent last."""
        while data := await _read(reader):
            assert self._speaker is not None
            self._speaker.write(data)


async def _start(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """Return a client's first message; encryption is declined."""
    while True:
        head = await reader.readexactly(8)
        length, code = struct.unpack("!ii", head)
        if code != SSL_REQUEST:
            return head + await reader.readexactly(length - 8)
        writer.write(b"N")


async def _read(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(65536)
    except ConnectionError:
        return b""


@asynccontextmanager
async def pooler_to(server_port: int) -> AsyncIterator[int]:
    """Run a pooler in front of a port; return its own."""
    async with asyncio.TaskGroup() as tasks:
        pooler = Pooler(server_port, tasks)
        server = await asyncio.start_server(pooler.serve, "127.0.0.1", 0)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()
            pooler.end()
