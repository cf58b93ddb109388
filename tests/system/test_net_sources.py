"""Sources on real servers and files: the contract of sources, and kills of server and node under load."""

import json
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import tidemill as tm
from tests.system.brokers import free_port
from tests.system.made_sources import make_folder, make_server_sent_events, make_tail, make_websocket
from tests.system.source_harness import ServerProcess, kill_repeatedly
from tidemill.graphs.definition import Durability
from tidemill.testing.sources import Check, SourceUnderTest, checks
from tidemill.testing.sources.reading import reading

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


class LogUnderTest(SourceUnderTest):
    """A log file that is rotated instead of a server that is killed."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "app.log"
        self.path.touch()
        self.rotations = 0

    def make_source(self) -> tm.Source:
        return make_tail(str(self.path))

    async def append(self, events: Sequence[Mapping[str, Any]]) -> None:
        with self.path.open("a") as file:
            file.writelines(json.dumps(event) + "\n" for event in events)

    async def append_invalid(self) -> None:
        await self.append([{"number": "seven"}])

    async def stop_server(self) -> None:
        self.rotations += 1
        self.path.rename(self.path.with_name(f"app.log-2026010{self.rotations}"))
        self.path.touch()

    async def start_server(self) -> None:
        pass


class FolderUnderTest(SourceUnderTest):
    """A folder that gets a new file with each call."""

    def __init__(self, folder: Path) -> None:
        self.path = folder
        self.count = 0

    def make_source(self) -> tm.Source:
        return make_folder(str(self.path))

    async def append(self, events: Sequence[Mapping[str, Any]]) -> None:
        self.count += 1
        hidden = self.path / "_new"
        hidden.write_text("number\n" + "".join(f"{event['number']}\n" for event in events))
        hidden.rename(self.path / f"{self.count:06}.csv")

    async def append_invalid(self) -> None:
        await self.append([{"number": "seven"}])


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


async def test_a_frozen_server_is_noticed(feed: FeedUnderTest) -> None:
    """G-9: its connection is open, and nothing comes: pings and the limit of silence find it out."""
    sources = {
        "websocket": tm.sources.WebSocket(f"ws://127.0.0.1:{feed.port}", subscribe={"after": 0}, ping="100ms"),
        "sse": tm.sources.ServerSentEvents(f"http://127.0.0.1:{feed.port}/", silence="200ms"),
    }
    reasons = {"websocket": "does not answer pings", "sse": "was silent for 0.2 s"}
    await feed.append([{"number": 0}])

    async def read_until_frozen() -> None:
        async with reading(sources[feed.protocol]) as consumer:
            await consumer.until_count(1)
            feed.server.freeze()
            await consumer.until_count(2)

    with pytest.raises(tm.sources.Disconnected, match=reasons[feed.protocol]):
        await read_until_frozen()


async def test_kills_of_server_and_node_lose_and_repeat_nothing(feed: FeedUnderTest, tmp_path: Path) -> None:
    """G-6, G-24: the position is committed with the state, and counts when either side comes back."""
    await kill_repeatedly(feed, tmp_path, MAKERS[feed.protocol], feed.port)


async def test_kills_of_the_node_between_rotations_lose_and_repeat_nothing(tmp_path: Path) -> None:
    """G-6, G-24: a file is finished under its new name, also by the next process."""
    log = LogUnderTest(tmp_path)
    await kill_repeatedly(log, tmp_path, make_tail, str(log.path))
    assert log.rotations > 0


async def test_kills_of_the_node_lose_and_repeat_no_row_of_a_folder(tmp_path: Path) -> None:
    """G-6, G-24: file and row are committed with the state."""
    (tmp_path / "rows").mkdir()
    subject = FolderUnderTest(tmp_path / "rows")
    await kill_repeatedly(subject, tmp_path, make_folder, str(subject.path), server_kills=0.0)


@pytest.mark.parametrize("durability", ["interval", "fire"])
async def test_kills_under_load_store_each_line_once_without_a_commit_per_event(
    durability: Durability, tmp_path: Path
) -> None:
    """G-6, G-23: whatever a kill undoes, the offset of a snapshot says which events it has."""
    log = LogUnderTest(tmp_path)
    await kill_repeatedly(log, tmp_path, make_tail, str(log.path), durability=durability)


async def test_kills_of_server_and_node_store_each_message_once_without_a_commit_per_event(tmp_path: Path) -> None:
    """G-6, G-23: the server sends again what comes after the number of the snapshot."""
    feed = FeedUnderTest("websocket", tmp_path)
    await feed.start_server()
    try:
        await kill_repeatedly(feed, tmp_path, make_websocket, feed.port, durability="interval")
    finally:
        feed.server.kill()
