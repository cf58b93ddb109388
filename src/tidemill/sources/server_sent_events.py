"""Server-sent events: reads an event stream over HTTP, and continues after the last event id."""

from collections.abc import AsyncIterator, Iterable
from typing import Any

import httpx

from tidemill.kernel.durations import Duration
from tidemill.kernel.errors import DefinitionError
from tidemill.kernel.event_stream import EventStreamParser, ServerEvent
from tidemill.sources.http import Headers, check_url, public_address, refusal, resolve_headers
from tidemill.sources.interface import Delivery, Disconnected, Moved, SourceContext, read_checkpoint
from tidemill.sources.options import check_duration
from tidemill.sources.read_ahead import ReadAhead, reading_ahead

CONNECT_TIMEOUT = 10.0  # seconds
MAX_EVENT_SIZE = 1_048_576  # bytes
MEDIA_TYPE = "text/event-stream"
DEFAULT_RETRY = 1.0  # seconds before the next connection, if the server does not say `retry:`


class ServerSentEvents:
    """Reads a stream of server-sent events: one event per event of the server, which is its data.

    `events` selects the types to read; all by default. The source sends the last event id when it connects again, so a
    server that numbers its events loses none. `silence` is the longest time without a byte: comments count as a sign
    of life, and None waits without end. A server ends the source with status 204.
    """

    replays = None  # the server decides what it sends again

    def __init__(
        self,
        url: str,
        *,
        headers: Headers | None = None,
        events: Iterable[str] | None = None,
        silence: Duration | None = "60s",
    ) -> None:
        check_url("ServerSentEvents", url, ("http", "https"))
        if isinstance(events, str):
            message = f'events= is a list of types: events=["{events}"]'
            raise DefinitionError.single("ServerSentEvents", message)
        self._url = url
        self._headers = headers
        self._types = None if events is None else frozenset(events)
        self._silence = None if silence is None else check_duration("ServerSentEvents", "silence", silence)
        self._retry: float | None = None
        """The pause that the server has last asked for, in whichever connection."""

    def __repr__(self) -> str:
        return f"ServerSentEvents({public_address(self._url)!r})"

    async def start(self, checkpoint: Any, context: SourceContext) -> AsyncIterator[Delivery]:
        """Connect, and return the events after the checkpoint, which is an event id."""
        last_id = read_checkpoint(checkpoint, str, public_address(self._url))
        timeout = httpx.Timeout(CONNECT_TIMEOUT, read=self._silence)
        client = httpx.AsyncClient(timeout=timeout, follow_redirects=True)
        try:
            response = await self._send_request(client, last_id)
            self._check_answer(response, context)
        except httpx.HTTPError as error:
            await client.aclose()
            raise self._lost(error) from error
        except BaseException:
            await client.aclose()
            raise
        return self._deliveries(client, response, last_id)

    async def _send_request(self, client: httpx.AsyncClient, last_id: str | None) -> httpx.Response:
        headers = {"Accept": MEDIA_TYPE, "Cache-Control": "no-store", **await resolve_headers(self._headers)}
        if last_id is not None:
            headers["Last-Event-ID"] = last_id
        encoded = [(name.encode(), value.encode()) for name, value in headers.items()]  # an id may be any text
        return await client.send(client.build_request("GET", self._url, headers=encoded), stream=True)

    def _check_answer(self, response: httpx.Response, context: SourceContext) -> None:
        if not response.is_success:
            pause = response.headers.get("Retry-After")
            raise refusal(self._url, response.status_code, pause, self._headers, context.clock)
        media_type = response.headers.get("Content-Type", "no type")
        if response.status_code != httpx.codes.NO_CONTENT and media_type.partition(";")[0].strip() != MEDIA_TYPE:
            raise Disconnected(f"{public_address(self._url)} answers with {media_type}, not with {MEDIA_TYPE}")

    def _lost(self, error: Exception, retry_after: float | None = None) -> Disconnected:
        message = f"{public_address(self._url)}: {type(error).__name__}: {error}"
        return Disconnected(message, retry_after=retry_after)

    async def _deliveries(
        self, client: httpx.AsyncClient, response: httpx.Response, last_id: str | None
    ) -> AsyncIterator[Delivery]:
        parser = EventStreamParser(MAX_EVENT_SIZE)
        selection = _Selection(last_id, self._types)
        try:
            async with reading_ahead(response.aiter_bytes(), f"source {public_address(self._url)}") as reading:
                while part := await self._take(reading, selection):
                    events = selection.select(parser.feed(part))
                    self._retry = self._retry if parser.retry is None else parser.retry
                    if events:
                        yield events
                    if selection.has_moved:
                        yield selection.take_move()
            if response.status_code != httpx.codes.NO_CONTENT:
                reason = f"{public_address(self._url)} has ended its answer"
                raise Disconnected(reason, retry_after=self._pause(selection))
        finally:
            await response.aclose()
            await client.aclose()

    async def _take(self, reading: ReadAhead, selection: "_Selection") -> bytes:
        try:
            part = await reading.take()
        except httpx.ReadTimeout:
            reason = f"{public_address(self._url)} was silent for {self._silence:g} s"
            raise Disconnected(reason, retry_after=self._pause(selection)) from None
        except httpx.HTTPError as error:  # the pause is kept if the server has asked for one, and else it is a failure
            raise self._lost(error, self._retry if selection.has_begun else None) from error
        selection.has_begun = selection.has_begun or bool(part)
        return part

    def _pause(self, selection: "_Selection") -> float | None:
        """Return the pause that the server wants; None if it has sent nothing: then the back-off decides."""
        if not selection.has_begun:
            return None
        return DEFAULT_RETRY if self._retry is None else self._retry


class _Selection:
    """The position in a stream, and the events that are delivered."""

    def __init__(self, last_id: str | None, types: frozenset[str] | None) -> None:
        self._last_id = last_id
        self._kept_id = last_id  # the position that was yielded last
        self._repeated_id = last_id  # until another event has come: a server may repeat the last one
        self._types = types
        self.has_begun = False

    def select(self, arrived: list[ServerEvent]) -> list[tuple[Any, Any]]:
        """Return the events to deliver, each with the id to continue from."""
        selected = []
        for event in arrived:
            if event.id is not None and event.id == self._repeated_id:
                continue
            self._repeated_id = None
            if event.id is not None:
                self._last_id = event.id or None  # an empty one resets the position
            if event.type and (self._types is None or event.type in self._types):
                selected.append((event.data, self._last_id))
                self._kept_id = self._last_id
        return selected

    @property
    def has_moved(self) -> bool:
        """Whether events that are not delivered have moved the position."""
        return self._last_id != self._kept_id

    def take_move(self) -> Moved:
        """Return the position that they have moved to."""
        self._kept_id = self._last_id
        return Moved(self._last_id)
