"""Sources of the network on real servers: the contract of sources, and kills of server and node under load."""

import json
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import tidemill as tm
from tests.system.brokers import free_port
from tests.system.source_harness import ServerProcess, kill_repeatedly
from tidemill.testing.sources import Check, SourceUnderTest, checks


def make_websocket(port: int) -> tm.Source:
    """Return a source on a feed that replays."""
    return tm.sources.WebSocket(
        f"ws://127.0.0.1:{port}", sequence="seq", subscribe=lambda last: {"after": last or 0}, ping="1s"
    )


def make_server_sent_events(port: int) -> tm.Source:
    return tm.sources.ServerSentEvents(f"http://127.0.0.1:{port}/events")


MAKERS = {"websocket": make_websocket, "sse": make_server_sent_events}


class FeedUnderTest(SourceUnderTest):
    """A feed, and a source on it."""

    def __init__(self, protocol: str, folder: Path) -> None:
        self.protocol = protocol
        self.path = folder / "feed.ndjson"
        self.path.touch()
        self.port = free_port()
        command = [sys.executable, "-m", "tests.system.feed_server", protocol, str(self.port), str(self.path)]
        self.server = ServerProcess(self.port, command)

    def make_source(self) -> tm.Source:
        return MAKERS[self.protocol](self.port)

    async def append(self, events: Sequence[Mapping[str, Any]]) -> None:
        with self.path.open("a") as file:
            file.writelines(json.dumps(event) + "\n" for event in events)

    async def append_invalid(self) -> None:
        await self.append([{"number": "seven"}])

    async def stop_server(self) -> None:
        self.server.kill()

    async def start_server(self) -> None:
        await self.server.start()

    async def open_connections(self) -> int | None:
        return int(self.path.with_suffix(".connections").read_text())


@pytest.fixture(params=MAKERS)
async def feed(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[FeedUnderTest]:
    """Run a server of each protocol."""
    subject = FeedUnderTest(request.param, tmp_path)
    await subject.start_server()
    yield subject
    subject.server.kill()


@pytest.mark.parametrize("check", checks())
async def test_the_source_keeps_the_contract(check: Check, feed: FeedUnderTest) -> None:
    """G-6, G-9, G-20, G-22."""
    await check(feed)


async def test_kills_of_server_and_node_lose_and_repeat_nothing(feed: FeedUnderTest, tmp_path: Path) -> None:
    """G-6, G-24: the position is committed with the state, and counts when either side comes back."""
    make = f"{__name__}:{MAKERS[feed.protocol].__name__}"
    await kill_repeatedly(feed, tmp_path, make, feed.port)
