"""`tm.sources.ServerSentEvents` on a server in this process: ids, pauses, types, silence, the end."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import tidemill as tm
from tests.service.sources.test_websocket_source import Reading
from tidemill.testing.sources.reading import wait_until

HEAD = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nConnection: close\r\n\r\n"


class EventServer:
    """Answers each request with the next of its answers; the last one stays open."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.requests: list[str] = []
        self.url = ""
        self.handlers: set[asyncio.Task[Any] | None] = set()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.handlers.add(asyncio.current_task())
        self.requests.append((await reader.readuntil(b"\r\n\r\n")).decode())
        is_last = len(self.answers) == 1
        writer.write((self.answers[0] if is_last else self.answers.pop(0)).encode())
        if is_last:
            await reader.read()
        writer.close()
        await writer.wait_closed()

    def last_ids(self) -> list[str | None]:
        return [
            next((line.partition(": ")[2] for line in request.split("\r\n") if line.startswith("Last-Event-ID")), None)
            for request in self.requests
        ]


@asynccontextmanager
async def answering(*answers: str) -> AsyncIterator[EventServer]:
    events = EventServer(*answers)
    server = await asyncio.start_server(events.handle, "127.0.0.1", 0)
    async with server:
        events.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/stream"
        yield events
    await asyncio.gather(*(task for task in events.handlers if task is not None))


async def test_the_next_connection_continues_after_the_last_id_and_keeps_the_pause() -> None:
    """G-6, G-20: `retry:` is honoured, and an event that the server repeats is dropped."""
    first = f"{HEAD}retry: 20\n\nid: a\ndata: 1\n\nid: ü\ndata: 2\n\n"
    second = f"{HEAD}id: ü\ndata: 2\n\nid: c\ndata: 3\n\n"
    seen: list[int] = []
    async with answering(first, second) as server:

        @tm.stream(tm.sources.ServerSentEvents(server.url))
        def numbers(event: int) -> int:
            seen.append(event)
            return event

        async with tm.Node(load=[tm.Reactor("r", [numbers])], settings={"backoff_base": "1h"}) as node:
            await wait_until(lambda: len(seen) >= 3, lambda: str(seen))
            assert node.reactor("r").state().accumulators["numbers"].restarts == 0
    assert seen == [1, 2, 3]
    assert server.last_ids() == [None, "ü"]


async def test_only_the_selected_types_are_events() -> None:
    text = f"{HEAD}: hello\n\nevent: price\nid: 1\ndata: 1\n\nevent: news\nid: 2\ndata: 2\n\nid: 3\ndata: 3\n\n"
    async with answering(text) as server:
        found = await Reading().read(tm.sources.ServerSentEvents(server.url, events=["price", "message"]), 2)
    assert found == [(b"1", "1"), (b"3", "3")]


async def test_events_that_are_left_out_move_the_position() -> None:
    """G-24: their ids are kept, and an empty id resets it."""
    text = f"{HEAD}event: price\nid: 1\ndata: 1\n\n" + "".join(
        f"event: tick\nid: {n}\ndata: 1\n\n" for n in range(2, 9)
    )
    async with answering(text) as server:
        reading = Reading()
        found = await reading.read(tm.sources.ServerSentEvents(server.url, events=["price"]), 2)
    assert (found, reading.progress) == ([(b"1", "1")], ["8"])
    async with answering(f"{HEAD}id: 7\ndata: 1\n\nid:\ndata: 2\n\n") as server:
        assert await Reading().read(tm.sources.ServerSentEvents(server.url), 2) == [(b"1", "7"), (b"2", None)]


async def test_the_pause_of_a_server_outlives_its_connection_and_counts_when_that_breaks() -> None:
    """G-20: whether the server ends its answer in good order, or is killed within it."""
    chunked = HEAD.replace("Connection: close", "Transfer-Encoding: chunked") + "5\r\n: hi\n\r\n"
    async with answering(f"{HEAD}retry: 7000\n\n", chunked, chunked) as server:
        source = tm.sources.ServerSentEvents(server.url)
        for reason in ("has ended its answer", "RemoteProtocolError"):
            with pytest.raises(tm.sources.Disconnected, match=reason) as raised:
                await Reading().read(source, 1)
            assert raised.value.retry_after == 7.0


async def test_status_204_ends_the_source() -> None:
    """The stream still takes pushes."""
    async with answering("HTTP/1.1 204 No Content\r\n\r\n") as server:

        @tm.stream(tm.sources.ServerSentEvents(server.url))
        def numbers(event: int) -> int:
            return event

        async with tm.Node(load=[tm.Reactor("r", [numbers])]) as node:
            states = node.reactor("r").state
            await wait_until(lambda: states().accumulators["numbers"].health == "socket_only", lambda: str(states()))
    assert len(server.requests) == 1


async def test_a_silent_server_is_left_and_comments_are_signs_of_life() -> None:
    async with answering(f"{HEAD}: hello\n\n") as server:
        source = tm.sources.ServerSentEvents(server.url, silence="50ms")
        with pytest.raises(tm.sources.Disconnected, match=r"was silent for 0.05 s") as raised:
            await Reading().read(source, 1)
    assert raised.value.retry_after == 1.0


async def test_an_answer_that_ends_without_a_byte_is_a_failure() -> None:
    """Else a server that ends every answer at once would be asked without a pause."""
    async with answering(HEAD, HEAD) as server:
        with pytest.raises(tm.sources.Disconnected, match="has ended its answer") as raised:
            await Reading().read(tm.sources.ServerSentEvents(server.url), 1)
    assert raised.value.retry_after is None


@pytest.mark.parametrize(
    ("answer", "error", "message", "pause"),
    [
        ("HTTP/1.1 401 Unauthorized\r\n\r\n", tm.Fail, "status 401; correct the credentials", None),
        ("HTTP/1.1 500 Oops\r\n\r\n", tm.sources.Disconnected, "status 500", None),
        ("HTTP/1.1 503 Busy\r\nRetry-After: 9\r\n\r\n", tm.sources.Disconnected, "status 503", 9.0),
        (
            "HTTP/1.1 503 Busy\r\nRetry-After: Thu, 01 Jan 1970 00:00:00 GMT\r\n\r\n",
            tm.sources.Disconnected,
            "status 503",
            0.0,
        ),
        ("HTTP/1.1 503 Busy\r\nRetry-After: later\r\n\r\n", tm.sources.Disconnected, "status 503", None),
        ("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n", tm.sources.Disconnected, "not with text/event", None),
        ("HTTP/1.1 ???\r\n\r\n", tm.sources.Disconnected, "RemoteProtocolError", None),
    ],
)
async def test_answers_that_are_no_event_stream(
    answer: str, error: type[Exception], message: str, pause: float | None
) -> None:
    """G-20: only refused credentials are final."""
    async with answering(answer, answer) as server:
        with pytest.raises(error, match=message) as raised:
            await tm.sources.ServerSentEvents(server.url + "?key=secret").start(None, Reading().context)
    assert getattr(raised.value, "retry_after", None) == pause
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"url": "ws://feed"}, "it begins with http:// or https://"),
        ({"url": "http://feed", "events": "price"}, 'events=\\["price"\\]'),
        ({"url": "http://feed", "silence": 0}, "silence=: 0 is not a duration longer than zero"),
    ],
)
def test_a_mistake_shows_when_the_source_is_declared(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(tm.DefinitionError, match=message):
        tm.sources.ServerSentEvents(**arguments)
