"""A server of a feed, for tests: sends the lines of a file, numbered from 1, over WebSocket or as server-sent events.

Its arguments are the protocol, a port and the file. The file is the server's memory: it survives a kill. Next to it, a
file with the suffix `.connections` has the number of open connections.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

INTERVAL = 0.005  # seconds between two looks at the file


class Feed:
    """The lines of the file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connections = 0

    @contextmanager
    def connection(self) -> Iterator[None]:
        """Count a connection."""
        self._count(+1)
        try:
            yield
        finally:
            self._count(-1)

    def _count(self, change: int) -> None:
        self._connections += change
        written = self._path.with_suffix(".written")
        written.write_text(str(self._connections))
        written.rename(self._path.with_suffix(".connections"))  # whole: the test reads it at any moment

    async def lines_after(self, number: int) -> AsyncIterator[tuple[int, str]]:
        """Yield the lines after this one, with their numbers, without end."""
        with self._path.open() as file:
            for _ in range(number):
                file.readline()
            while True:
                if line := file.readline():
                    number += 1
                    yield number, line.rstrip("\n")
                else:
                    await asyncio.sleep(INTERVAL)


async def serve_websocket(feed: Feed, port: int) -> None:
    """Wait for a message {"after": number} on each connection, and send the objects of the lines after it."""

    async def handle(connection: ServerConnection) -> None:
        with feed.connection():
            after = json.loads(await connection.recv())["after"]
            async with asyncio.TaskGroup() as tasks:
                sending = tasks.create_task(send(connection, after), name="sending")
                await connection.wait_closed()
                sending.cancel()

    async def send(connection: ServerConnection, after: int) -> None:
        try:
            async for number, line in feed.lines_after(after):
                await connection.send(json.dumps({"seq": number, **json.loads(line)}))
        except ConnectionClosed:
            pass

    async with serve(handle, "127.0.0.1", port, close_timeout=1):
        await asyncio.Event().wait()


Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


def event_stream(feed: Feed) -> Any:
    """Return an ASGI application that sends the lines after the header Last-Event-ID."""

    async def handle(scope: Any, receive: Receive, send: Send) -> None:
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        with feed.connection():
            await send(
                {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]}
            )
            await send({"type": "http.response.body", "body": b": welcome\n\n", "more_body": True})
            async with asyncio.TaskGroup() as tasks:
                sending = tasks.create_task(send_lines(send, int(headers.get("last-event-id", 0))), name="sending")
                while (await receive())["type"] != "http.disconnect":
                    pass
                sending.cancel()

    async def send_lines(send: Send, after: int) -> None:
        async for number, line in feed.lines_after(after):
            body = f"id: {number}\ndata: {line}\n\n".encode()
            await send({"type": "http.response.body", "body": body, "more_body": True})

    return handle


def main(protocol: str, port: str, path: str) -> None:
    """Serve until killed."""
    feed = Feed(Path(path))
    if protocol == "websocket":
        asyncio.run(serve_websocket(feed, int(port)))
    else:
        uvicorn.run(event_stream(feed), host="127.0.0.1", port=int(port), lifespan="off", log_level="error")


if __name__ == "__main__":
    main(*sys.argv[1:])
