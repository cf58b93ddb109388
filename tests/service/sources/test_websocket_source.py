"""`tm.sources.WebSocket` on a server in this process: subscriptions, sequences, formats, refusals, silence."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

import msgspec
import pytest
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.http11 import Request, Response

import tidemill as tm
from tidemill.kernel.clock import SystemClock
from tidemill.kernel.settings import Settings
from tidemill.testing.sources.reading import wait_until

Handler = Callable[[ServerConnection], Awaitable[None]]


@asynccontextmanager
async def serving(handler: Handler, **options: Any) -> AsyncIterator[str]:
    """Run a server, and return its address."""
    async with serve(handler, "127.0.0.1", 0, **options) as server:
        yield address(server)


def address(server: Server) -> str:
    (socket, *_) = server.sockets
    return f"ws://127.0.0.1:{socket.getsockname()[1]}"


def sending(*messages: Any) -> Handler:
    """Return a handler that sends messages, and then waits."""

    async def handle(connection: ServerConnection) -> None:
        for message in messages:
            await connection.send(message)
        await connection.wait_closed()

    return handle


class Reading:
    """Reads a source directly."""

    def __init__(self) -> None:
        self.gaps: list[str] = []
        self.progress: list[Any] = []
        """The checkpoints that came without an event."""
        self.context = tm.sources.SourceContext("feed", Settings(), SystemClock(), self.gaps.append)

    async def read(self, source: tm.Source, count: int, checkpoint: Any = None) -> list[tuple[Any, Any]]:
        """Return the first `count` events and their checkpoints; a checkpoint without an event counts, too."""
        found: list[tuple[Any, Any]] = []
        async with asyncio.timeout(10):
            deliveries: Any = await source.start(checkpoint, context=self.context)  # type: ignore[misc]
            async for delivery in deliveries:
                if isinstance(delivery, tm.sources.Moved):
                    self.progress.append(delivery.checkpoint)
                else:
                    found += delivery
                if len(found) + len(self.progress) >= count:
                    break
            await deliveries.aclose()
        return found


async def test_missing_messages_are_reported_and_repeated_ones_dropped() -> None:
    async with serving(sending('{"seq": 1}', '{"seq": 1}', '{"seq": 4}', '{"seq": 3}', '{"seq": 5}')) as url:
        reading = Reading()
        found = await reading.read(tm.sources.WebSocket(url, sequence="seq"), 3)
    assert found == [(b'{"seq": 1}', 1), (b'{"seq": 4}', 4), (b'{"seq": 5}', 5)]
    assert reading.gaps == ["the sequence continues at 4 after 1: 2 missing"]


async def test_heartbeats_that_share_the_sequence_are_no_gap() -> None:
    """G-24: they are no events, and move the position all the same."""
    messages = [f'{{"seq": {n}, "type": "{"trade" if n in (1, 5) else "heartbeat"}"}}' for n in range(1, 8)]
    async with serving(sending(*messages)) as url:
        reading = Reading()
        source = tm.sources.WebSocket(url, sequence="seq", where=lambda message: message["type"] == "trade")
        found: list[Any] = []
        async with asyncio.timeout(10):
            deliveries: Any = await source.start(None, reading.context)
            while reading.progress[-1:] != [7]:
                delivery = await anext(deliveries)
                if isinstance(delivery, tm.sources.Moved):
                    reading.progress.append(delivery.checkpoint)
                else:
                    found += delivery
            await deliveries.aclose()
    assert [checkpoint for _, checkpoint in found] == [1, 5]
    assert reading.gaps == []


async def test_a_checkpoint_of_another_source_is_refused() -> None:
    """An accumulator whose source was replaced must not guess where to continue."""
    for source in (tm.sources.WebSocket("ws://127.0.0.1:1"), tm.sources.ServerSentEvents("http://127.0.0.1:1")):
        with pytest.raises(tm.Fail, match=r"127.0.0.1:1.*: the checkpoint \['a', 1\] is of another source; rename"):
            await source.start(["a", 1], Reading().context)


async def test_a_gap_shows_in_the_events_of_the_reactor() -> None:
    """G-20: a feed that cannot be resumed says what it has lost."""
    async with serving(sending('{"seq": 1}', '{"seq": 9}')) as url:

        @tm.stream(tm.sources.WebSocket(url, sequence="seq"))
        def ticks(event: dict[str, int]) -> int:
            return event["seq"]

        async with tm.Node(load=[tm.Reactor("r", [ticks])]) as node:
            await wait_until(lambda: bool(node.reactor("r").events()), lambda: "no event was recorded")
            recorded = node.reactor("r").events()
    assert [(one.action, one.reason) for one in recorded] == [("gap", "the sequence continues at 9 after 1: 7 missing")]


async def test_subscriptions_are_sent_in_order_with_the_headers() -> None:
    seen: list[Any] = []

    async def handle(connection: ServerConnection) -> None:
        assert connection.request is not None
        seen.append(connection.request.headers["X-Key"])
        seen.extend([await connection.recv(), await connection.recv()])
        await connection.send("{}")
        await connection.wait_closed()

    async def headers() -> dict[str, str]:
        return {"X-Key": "fresh"}

    async with serving(handle) as url:
        source = tm.sources.WebSocket(url, headers=headers, subscribe=iter([{"op": "subscribe"}, "go"]))
        for _ in range(2):  # each connection subscribes
            await Reading().read(source, 1)
    assert seen == ["fresh", '{"op":"subscribe"}', "go"] * 2


async def test_msgpack_messages_and_a_condition() -> None:
    wanted, other = msgspec.msgpack.encode({"n": 1}), msgspec.msgpack.encode({"heartbeat": 1})
    async with serving(sending(other, wanted, b"\xc1")) as url:
        source = tm.sources.WebSocket(url, format="msgpack", where=lambda message: "n" in message)
        assert source.encoding == "msgpack"
        found = await Reading().read(source, 2)
    assert found == [(wanted, None), (b"\xc1", None)], "what cannot be decoded is delivered: the annotation decides"


async def test_messages_that_are_there_are_delivered_together() -> None:
    """With durability "boundary" they share a commit."""
    async with serving(sending(*(str(number) for number in range(40)))) as url:
        deliveries: Any = await tm.sources.WebSocket(url).start(None, Reading().context)
        sizes = [len(await anext(deliveries))]
        while sum(sizes) < 40:
            await asyncio.sleep(0.05)  # a slow consumer
            sizes.append(len(await anext(deliveries)))
        await deliveries.aclose()
    assert len(sizes) < 20


async def test_a_slow_reactor_does_not_cost_the_connection() -> None:
    """The server waits while nothing takes its messages; that its pongs wait, too, is no sign of its death."""
    messages = [f'{{"seq": {number}, "filler": "{"x" * 50_000}"}}' for number in range(1, 401)]
    async with serving(sending(*messages), ping_interval=None) as url:
        reading = Reading()
        source = tm.sources.WebSocket(url, ping="50ms", sequence="seq")
        deliveries: Any = await source.start(None, reading.context)
        last, pauses = 0, 0
        while last < 400:
            ((_, last), *_) = (await anext(deliveries))[-1:]
            if pauses < 3:
                await asyncio.sleep(0.2)  # several pings long
                pauses += 1
        await deliveries.aclose()
    assert reading.gaps == []


async def answer_with(status: HTTPStatus, **headers: str) -> Any:
    def refuse(connection: ServerConnection, request: Request) -> Response:
        response = connection.respond(status, "no\n")
        for name, value in headers.items():
            response.headers[name.replace("_", "-")] = value
        return response

    return refuse


@pytest.mark.parametrize("status", [HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN])
async def test_refused_credentials_are_final_unless_a_function_makes_new_ones(status: HTTPStatus) -> None:
    """G-20: a retry cannot help."""
    async with serving(sending(), process_request=await answer_with(status)) as url:
        with pytest.raises(tm.Fail, match=f"answers with status {status}; correct the credentials in headers="):
            await tm.sources.WebSocket(url + "?token=secret").start(None, Reading().context)
        with pytest.raises(tm.sources.Disconnected) as raised:
            await tm.sources.WebSocket(url + "?token=secret", headers=dict).start(None, Reading().context)
    assert "secret" not in str(raised.value)


async def test_a_server_may_ask_for_a_pause() -> None:
    refuse = await answer_with(HTTPStatus.SERVICE_UNAVAILABLE, Retry_After="7")
    async with serving(sending(), process_request=refuse) as url:
        with pytest.raises(tm.sources.Disconnected) as raised:
            await tm.sources.WebSocket(url).start(None, Reading().context)
    assert raised.value.retry_after == 7.0


async def test_a_connection_without_messages_counts_as_lost_after_a_while() -> None:
    async with serving(sending()) as url:
        with pytest.raises(tm.sources.Disconnected, match=r"no message for 0.05 s"):
            await Reading().read(tm.sources.WebSocket(url, silence="50ms"), 1)


async def test_a_server_that_cannot_be_reached_is_named_with_the_reason() -> None:
    async with serving(sending()) as url:
        pass
    with pytest.raises(tm.sources.Disconnected, match=f"{url}: .*Connect call failed"):
        await tm.sources.WebSocket(f"{url}?key=secret").start(None, Reading().context)


async def test_a_connection_that_the_server_closes_is_lost_with_its_reason() -> None:
    async def handle(connection: ServerConnection) -> None:
        await connection.close(1001, "maintenance")

    async with serving(handle) as url:
        with pytest.raises(tm.sources.Disconnected, match="maintenance"):
            await Reading().read(tm.sources.WebSocket(url), 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"url": "http://feed"}, "it begins with ws:// or wss://"),
        ({"url": "ws://"}, "followed by a host"),
        ({"url": "ws://feed", "format": "jsn"}, "did you mean 'json'"),
        ({"url": "ws://feed", "ping": "soon"}, "ping=: 'soon' is not a duration"),
    ],
)
def test_a_mistake_shows_when_the_source_is_declared(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(tm.DefinitionError, match=message):
        tm.sources.WebSocket(**arguments)


async def test_a_message_does_not_wait_for_the_answer_to_a_ping() -> None:
    """A server may send messages, and answer pings late or never: each message is delivered as it comes."""

    class Unanswering:
        """A connection whose pings are not answered."""

        async def ping(self) -> Awaitable[float]:
            return asyncio.get_running_loop().create_future()

        async def recv(self, *, decode: bool) -> bytes:
            assert not decode
            await asyncio.sleep(0)
            return b"message"

    connection: Any = Unanswering()
    async with asyncio.timeout(10):
        assert await tm.sources.WebSocket("ws://feed", ping="1h")._probe(connection) == b"message"


async def test_a_ping_that_is_answered_ends_the_wait_for_a_message() -> None:
    """The next ping is due an interval after the answer."""

    class Quiet:
        """A connection without messages, whose pings are answered a moment later."""

        async def ping(self) -> Awaitable[float]:
            loop = asyncio.get_running_loop()
            answer: asyncio.Future[float] = loop.create_future()
            loop.call_soon(answer.set_result, 0.0)
            return answer

        async def recv(self, *, decode: bool) -> bytes:
            assert not decode
            await asyncio.Event().wait()
            raise AssertionError("no message comes")

    connection: Any = Quiet()
    async with asyncio.timeout(10):
        assert await tm.sources.WebSocket("ws://feed", ping="1h")._probe(connection) is None
