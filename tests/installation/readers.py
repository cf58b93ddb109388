"""Readers of the event feed: by server-sent events, by WebSocket, and with the client, each across all servers."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
from websockets.asyncio.client import connect

from tests.installation.audit import READER_NAMES
from tests.installation.front import REQUEST_TIMEOUT, Front
from tests.installation.journal import RunSeen
from tests.installation.producers import CONNECTION_ERRORS
from tidemill.kernel.backoff import Retry
from tidemill.kernel.errors import TidemillError
from tidemill.kernel.event_stream import EventStreamParser

SILENCE = 5.0  # seconds after which a reader takes its server for dead: the schedule ends a run every second


class Reader:
    """Reads the ends of runs, and continues at another server after the last one that it has got."""

    def __init__(self, front: Front, name: str) -> None:
        self.front = front
        self.name = name
        self.after = ""
        self.seen = set[str]()

    def take(self, event: dict[str, Any]) -> None:
        """Write the end of a run into the journal."""
        self.after = event["id"] or self.after
        if event["type"] == "run.ended":
            self.seen.add(event["run"])
            self.front.journal.write(RunSeen(self.name, event["run"], event["id"]))


async def read_stream(reader: Reader) -> None:
    """Read one server-sent stream until it ends."""
    headers = {"accept": "text/event-stream", "authorization": f"Bearer {reader.front.key}"}
    if reader.after:
        headers["last-event-id"] = reader.after
    async with (
        httpx.AsyncClient(timeout=httpx.Timeout(REQUEST_TIMEOUT, read=SILENCE)) as client,
        client.stream("GET", f"{reader.front.url()}/api/v1/events?types=run.ended", headers=headers) as response,
    ):
        if not response.is_success:
            return
        parser = EventStreamParser()
        async for part in response.aiter_bytes():
            for event in parser.feed(part):
                if event.type != "error":
                    reader.take(json.loads(event.data))


async def read_socket(reader: Reader) -> None:
    """Read one WebSocket until it ends."""
    url = reader.front.url().replace("http", "ws", 1) + "/ws/events?types=run.ended"
    async with connect(
        f"{url}&after={reader.after}" if reader.after else url,
        additional_headers={"authorization": f"Bearer {reader.front.key}"},
        open_timeout=REQUEST_TIMEOUT,
        close_timeout=0.2,
        ping_timeout=None,
    ) as socket:
        while True:
            reader.take(json.loads(await asyncio.wait_for(socket.recv(), SILENCE)))


async def read_with_client(reader: Reader) -> None:
    """Read with the client of the library, which connects again by itself, until it raises."""
    async with reader.front.client(retry=Retry(3, delay=0.1)) as client:
        async for event in client.events("run.ended", after=reader.after):
            reader.take(event)


READERS: dict[str, Callable[[Reader], Awaitable[None]]] = dict(
    zip(READER_NAMES, (read_stream, read_socket, read_with_client), strict=True)
)


async def keep_reading(reader: Reader) -> None:
    """Read until cancelled, one connection after another."""
    while True:
        try:
            await READERS[reader.name](reader)
        except (*CONNECTION_ERRORS, httpx.TransportError, TidemillError):
            pass  # the next connection continues after the last event
        await reader.front.pause()
