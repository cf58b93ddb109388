"""WebSocket: reads the messages that a server sends."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from tidemill.kernel.author_errors import AUTHOR_ERRORS
from tidemill.kernel.durations import Duration
from tidemill.sources.http import Headers, check_url, public_address, refusal, resolve_headers
from tidemill.sources.interface import Delivery, Disconnected, Encoding, Moved, SourceContext, read_checkpoint
from tidemill.sources.options import check_choice, check_duration
from tidemill.sources.sequence import FindNumber, SequenceTracker, number_at

Message = str | bytes | Mapping[str, Any]
"""A message to the server: as it is, or an object that is encoded in the format of the feed."""
Messages = Message | Iterable[Message]

QUEUE_LIMIT = 64  # messages that are read ahead; then TCP makes the server wait
CLOSING_TIMEOUT = 1.0  # seconds for the closing handshake


class WebSocket:
    """Reads the messages of a WebSocket server, such as a market data feed: one event per message.

    `subscribe` is what to send after connecting: a message, several, or a function of the last sequence number that
    was delivered (None at first) which returns them. `sequence` finds the number of a message: the path of a field,
    such as "data.seq", or a function of the decoded message. With it, repeated messages are dropped, and missing ones
    reported. `where` is a function of the decoded message that says which messages are events.

    What a server sends while the connection is lost is gone, unless the server replays it on request: `sequence` shows
    that it is missing. `ping` is the interval of pings; `silence` the longest time without a message.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Headers | None = None,
        subscribe: Messages | Callable[[int | None], Messages] = (),
        sequence: str | FindNumber | None = None,
        where: Callable[[Any], bool] | None = None,
        format: Encoding = "json",
        ping: Duration | None = "20s",
        silence: Duration | None = None,
        max_size: int = 1_048_576,
    ) -> None:
        check_url("WebSocket", url, ("ws", "wss"))
        check_choice("WebSocket", "format", format, ("json", "msgpack"))
        self.encoding = format
        self.replays = callable(subscribe)
        self._url = url
        self._headers = headers
        self._subscribe = subscribe if callable(subscribe) else _as_tuple(subscribe)
        self._find_number = number_at(sequence) if isinstance(sequence, str) else sequence
        self._where = where
        self._ping = None if ping is None else check_duration("WebSocket", "ping", ping)
        self._silence = None if silence is None else check_duration("WebSocket", "silence", silence)
        self._max_size = max_size
        self._decode = msgspec.msgpack.decode if format == "msgpack" else msgspec.json.decode

    def __repr__(self) -> str:
        return f"WebSocket({public_address(self._url)!r})"

    async def start(self, checkpoint: Any, context: SourceContext) -> AsyncIterator[Delivery]:
        """Connect, subscribe, and return the messages."""
        last = read_checkpoint(checkpoint, int, public_address(self._url))
        connection = await self._connect(context)
        try:
            for message in self._subscriptions(last):
                await connection.send(message)
        except ConnectionClosed as error:
            raise self._lost(error) from error
        except BaseException:
            await connection.close()
            raise
        return self._deliveries(connection, self._track(last, context))

    async def _connect(self, context: SourceContext) -> ClientConnection:
        try:
            return await connect(
                self._url,
                additional_headers=await resolve_headers(self._headers),
                ping_interval=None,  # its answers are not read while a slow reactor makes the server wait: see `_probe`
                close_timeout=CLOSING_TIMEOUT,
                max_size=self._max_size,
                max_queue=QUEUE_LIMIT,
            )
        except InvalidStatus as error:
            answer = error.response
            pause = answer.headers.get("Retry-After")
            raise refusal(self._url, answer.status_code, pause, self._headers, context.clock) from error
        except (OSError, WebSocketException) as error:  # TimeoutError is an OSError
            raise self._lost(error) from error

    def _lost(self, error: Exception) -> Disconnected:
        return Disconnected(f"{public_address(self._url)}: {str(error) or 'no answer in time'}")

    def _subscriptions(self, last: int | None) -> list[str | bytes]:
        messages = _as_tuple(self._subscribe(last)) if callable(self._subscribe) else self._subscribe
        return [one if isinstance(one, str | bytes) else self._encode(one) for one in messages]

    def _encode(self, message: Mapping[str, Any]) -> str | bytes:
        return msgspec.msgpack.encode(message) if self.encoding == "msgpack" else msgspec.json.encode(message).decode()

    def _track(self, last: int | None, context: SourceContext) -> SequenceTracker | None:
        if self._find_number is None:
            return None
        return SequenceTracker(self._find_number, last, replays=self.replays, report_gap=context.report_gap)

    async def _deliveries(
        self, connection: ClientConnection, tracker: SequenceTracker | None
    ) -> AsyncIterator[Delivery]:
        kept = tracker and tracker.last
        try:
            while True:
                arrived = await self._receive(connection)
                events = [(data, tracker and tracker.last) for data in arrived if self._is_new(data, tracker)]
                if events:
                    kept = events[-1][1]
                    yield events
                if tracker is not None and tracker.last != kept:  # messages that are not events have moved it
                    kept = tracker.last
                    yield Moved(kept)
        finally:
            await connection.close()

    async def _receive(self, connection: ClientConnection) -> list[bytes]:
        """Wait for a message, and return it together with those that have arrived behind it."""
        try:
            messages = [await self._receive_first(connection)]
        except ConnectionClosed as error:
            raise self._lost(error) from error
        with suppress(ConnectionClosed):  # the next call reports the loss
            while len(messages) < QUEUE_LIMIT and (message := await _receive_within(connection, 0)) is not None:
                messages.append(message)
        return messages

    async def _receive_first(self, connection: ClientConnection) -> bytes:
        """Wait for a message, and make sure that the server is alive meanwhile."""
        try:
            async with asyncio.timeout(self._silence):  # real time: of the network
                while (message := await _receive_within(connection, self._ping)) is None:
                    if (message := await self._probe(connection)) is not None:
                        break
                return message
        except TimeoutError:
            raise Disconnected(f"{public_address(self._url)}: no message for {self._silence:g} s") from None

    async def _probe(self, connection: ClientConnection) -> bytes | None:
        """Send a ping: return None when it is answered, or a message as soon as one comes before the answer."""
        assert self._ping is not None, "without pings, a message is waited for without end"
        answer = await connection.ping()
        assert isinstance(answer, asyncio.Future), "its annotation is wider"
        try:
            async with asyncio.timeout(self._ping) as limit:  # real time: of the network
                with _calling_back(answer, lambda: limit.reschedule(0)):
                    return await connection.recv(decode=False)
        except TimeoutError:
            if not answer.done():
                raise Disconnected(f"{public_address(self._url)} does not answer pings") from None
        return None

    def _is_new(self, data: bytes, tracker: SequenceTracker | None) -> bool:
        """Return whether a message is an event that was not delivered yet. One that cannot be decoded is.

        Every number counts, even that of a message that is not an event: heartbeats may share the sequence.
        """
        if tracker is None and self._where is None:
            return True
        try:
            message = self._decode(data)
            if tracker is not None and not tracker.admits(message):
                return False
            return self._where is None or bool(self._where(message))
        except AUTHOR_ERRORS:  # author code, or no valid message: the annotation decides, and a dead letter shows it
            return True


@contextmanager
def _calling_back(future: "asyncio.Future[Any]", call: Callable[[], None]) -> Iterator[None]:
    """Call a function when a future is done, if that is within the block."""
    is_within = True

    def call_within(_: Any) -> None:
        if is_within:
            call()

    future.add_done_callback(call_within)
    try:
        yield
    finally:
        is_within = False
        future.remove_done_callback(call_within)


def _as_tuple(messages: Messages) -> tuple[Message, ...]:
    return (messages,) if isinstance(messages, str | bytes | Mapping) else tuple(messages)


async def _receive_within(connection: ClientConnection, seconds: float | None) -> bytes | None:
    """Return the next message; None if there is none within this time. 0 returns only what is there."""
    try:
        async with asyncio.timeout(seconds):  # real time: of the network
            return await connection.recv(decode=False)
    except TimeoutError:
        return None
