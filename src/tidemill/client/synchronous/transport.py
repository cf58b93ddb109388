# Written by scripts/blocking_client.py from the asynchronous module of this name: change it there.
"""Sends calls over HTTP, and repeats those that may be repeated; follows streams across reconnects."""

from collections.abc import Generator, Iterator
from contextlib import closing
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx
from msgspec.structs import replace

from tidemill.api.paging import Page
from tidemill.client.answers import FailedAnswer, StreamRefusedError, read_failed_answer, unreachable
from tidemill.client.calls import ApiCall
from tidemill.client.connection import Connection, tls_context
from tidemill.client.pauses import pause
from tidemill.kernel.errors import TidemillError
from tidemill.kernel.event_stream import EventStreamParser, ServerEvent

Answer = TypeVar("Answer")

PAGE_LIMIT = 500
"""The largest page that the server gives."""
STREAM_IDLE_LIMIT = 45.0
"""Seconds without even a comment after which a stream is taken for dead; the server sends one every 15 seconds."""


class Transport:
    """The HTTP connections of a client to one server."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._http = httpx.Client(
            base_url=connection.url,
            headers=connection.headers(),
            auth=connection.authorize,
            timeout=connection.timeout,
            limits=httpx.Limits(max_connections=None),
            verify=tls_context(),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def send(self, call: ApiCall[Answer]) -> Answer:
        """Send a call, again if need be, and return its answer; raises what a node would raise."""
        retry, attempts = self.connection.retry, 0
        while True:
            attempts += 1
            try:
                response = self._http.request(
                    call.method, call.path, params=dict(call.query), content=call.content, headers=dict(call.headers)
                )
            except httpx.TransportError as error:
                if attempts > retry.times or not _may_repeat_after(error, call):
                    raise unreachable(self.connection.url, error) from error
                pause(retry.delay_after(attempts))
                continue
            if response.is_success:
                return call.read(response.content)
            failed = self._read_failed(response)
            if failed.is_in_progress:
                attempts = 0
            if attempts > retry.times or not failed.may_repeat(call):
                raise failed.error
            pause(failed.delay(retry, attempts))

    def items(self, call: ApiCall[Page[Answer]], limit: int | None = None) -> Iterator[Answer]:
        """Yield the items of a list, page by page, `limit` at most."""
        left, cursor = limit, None
        while left is None or left > 0:
            query = {**call.query, "limit": str(min(left or PAGE_LIMIT, PAGE_LIMIT))}
            if cursor is not None:
                query["cursor"] = cursor
            page = self.send(replace(call, query=query))
            for item in page.items:
                yield item
            left = None if left is None else left - len(page.items)
            cursor = page.next
            if cursor is None:
                return

    def collect(self, call: ApiCall[Page[Answer]], limit: int | None = None) -> list[Answer]:
        """Return the items of a list, `limit` at most."""
        return [item for item in self.items(call, limit)]

    def follow(
        self, call: ApiCall[Any], *, ends: bool, idle_limit: float = STREAM_IDLE_LIMIT, after: str = ""
    ) -> Generator[ServerEvent, None]:
        """Yield the events of a stream, across reconnects; one that `ends` is over when the server ends it.

        A shorter `idle_limit` raises a TimeoutError when nothing comes for that many seconds.
        """
        retry, attempts = self.connection.retry, 0
        while True:
            failure: TidemillError
            delay = 0.0
            try:
                with closing(self._stream(call, idle_limit, after)) as events:
                    for event in events:
                        if event.type == "error":  # asking again continues, or answers with the error
                            raise httpx.RemoteProtocolError(event.data.decode())
                        attempts, after = 0, event.id or after
                        if event.type:  # else it only moves the position
                            yield event
                if ends:
                    return
                failure = unreachable(self.connection.url, ConnectionError("it ended the stream"))
            except httpx.ReadTimeout as error:
                if idle_limit < STREAM_IDLE_LIMIT:
                    raise TimeoutError from error
                failure = unreachable(self.connection.url, error)
            except httpx.TransportError as error:
                failure = unreachable(self.connection.url, error)
            except StreamRefusedError as refused:
                failure, delay = refused.answer.error, refused.answer.delay(retry, attempts + 1)
                if not refused.answer.may_repeat(call):
                    raise failure from None
            attempts += 1
            if attempts > retry.times:
                raise failure
            pause(max(delay, retry.delay_after(attempts)))

    def _stream(self, call: ApiCall[Any], idle_limit: float, after: str) -> Generator[ServerEvent, None]:
        """Yield the events of one connection."""
        headers = {"accept": "text/event-stream"} | ({"last-event-id": after} if after else {})
        timeout = httpx.Timeout(self.connection.timeout, read=idle_limit)
        with self._http.stream("GET", call.path, params=dict(call.query), headers=headers, timeout=timeout) as response:
            if not response.is_success:
                response.read()
                raise StreamRefusedError(self._read_failed(response))
            parser = EventStreamParser()
            for part in response.iter_bytes():
                for event in parser.feed(part):
                    yield event

    def _read_failed(self, response: httpx.Response) -> FailedAnswer:
        url, headers = self.connection.url, response.headers
        return read_failed_answer(url, response.status_code, response.content, headers.get("retry-after"))


def _may_repeat_after(error: httpx.TransportError, call: ApiCall[Any]) -> bool:
    """Return whether a call may be sent again: it was not sent, or a second one changes nothing more."""
    return call.is_repeatable or isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
