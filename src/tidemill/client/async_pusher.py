"""The pusher: sends events over a WebSocket, in order and in batches, and continues after a reconnect."""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.typing import Subprotocol

from tidemill.client.answers import error_of_close, read_failed_answer, unreachable
from tidemill.client.calls import name_in_path
from tidemill.client.connection import Connection
from tidemill.client.pauses import async_pause
from tidemill.client.push_window import Acknowledgement, PusherOptions, PushWindow, encode_event
from tidemill.graphs.pushes import PushProblem
from tidemill.kernel.errors import OperationError, RequestError, TidemillError

SUBPROTOCOL = Subprotocol("tidemill.msgpack")
RESUME_TIMEOUT = 10.0
"""Seconds that a server gets, once it has accepted a connection, to say where it continues."""


class AsyncEventPusher:
    """Pushes events to one accumulator; used as `async with client.pusher(name) as push: await push(event)`."""

    def __init__(self, connection: Connection, accumulator: str, options: PusherOptions) -> None:
        self._connection = connection
        self._accumulator = accumulator
        self._options = options
        self._linger = options.linger_seconds
        path = f"/ws/accumulators/{name_in_path(accumulator)}?client={uuid4().hex}"
        self._url = connection.socket_url(path)
        self._window = PushWindow(batch=options.batch, frames=options.window)
        self._socket: ClientConnection | None = None
        self._failure: TidemillError | None = None
        self._failures = 0
        self._progress = asyncio.Event()
        self._buffered = asyncio.Event()
        self._sending = asyncio.Lock()
        self._group = asyncio.TaskGroup()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def counts(self) -> dict[str, int]:
        """How many events were acknowledged, by outcome.

        "resumed" counts those that the server had processed before a reconnect, whose outcome did not arrive.
        """
        return dict(self._window.counts)

    @property
    def problems(self) -> list[PushProblem]:
        """The events that were not accepted so far; `index` counts all events of this pusher, from 0."""
        return list(self._window.problems)

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        name = f"pusher: {self._accumulator}"
        self._tasks = [
            self._group.create_task(self._keep_connected(), name=name),
            self._group.create_task(self._send_lingering(), name=f"{name}, linger"),
        ]
        try:
            await self._until(lambda: self._socket is not None)
        except BaseException as error:
            await self._stop(error)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None or isinstance(error, Exception):
                await self.flush()
        except TidemillError:
            if error is None:
                raise
        finally:
            await self._stop(error)
        if error is None and self._options.raises and self._window.problems:
            raise self._problems_error()

    async def _stop(self, error: BaseException | None) -> None:
        for task in self._tasks:
            task.cancel()
        cancelled = error if isinstance(error, asyncio.CancelledError) else None
        await self._group.__aexit__(None if cancelled is None else type(cancelled), cancelled, None)

    async def __call__(self, event: Any) -> None:
        """Push an event; wait while too many are on their way. What becomes of it is known at the end, or by flush."""
        encoded = encode_event(event)
        if self._failure is not None or not self._window.has_room:
            await self._until(lambda: self._window.has_room)
        if self._window.add(encoded):
            await self._send_frames()
        else:
            self._buffered.set()

    async def flush(self) -> None:
        """Send everything, and wait until the server has acknowledged it."""
        self._window.flush()
        await self._send_frames()
        await self._until(lambda: self._window.is_settled)

    async def _until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition; raise the failure that ended the connection for good."""
        while self._failure is None and not condition():
            self._progress.clear()
            await self._progress.wait()
        if self._failure is not None:
            raise self._failure

    async def _send_frames(self) -> None:
        """Send all complete frames; without a connection they are sent when there is one again."""
        async with self._sending:
            if (socket := self._socket) is None:
                return
            for data in self._window.frames_to_send():
                try:
                    await socket.send(data)
                except ConnectionClosed:
                    return  # the receiving task sees it too, and reconnects

    async def _send_lingering(self) -> None:
        """Send batches that are not full once their events have waited long enough."""
        while True:
            await self._buffered.wait()
            await async_pause(self._linger)
            self._buffered.clear()
            self._window.flush()
            await self._send_frames()

    async def _keep_connected(self) -> None:
        """Receive acknowledgements, across reconnects, until the pusher ends or fails."""
        retry = self._connection.retry
        try:
            while True:
                try:
                    await self._receive()
                except (OSError, TimeoutError, InvalidHandshake, ConnectionClosed) as error:
                    self._failures += 1
                    fatal = self._fatal_error(error)
                    if fatal is not None or self._failures > retry.times:
                        raise fatal or unreachable(self._connection.url, error) from error
                finally:
                    self._socket = None
                await async_pause(retry.delay_after(self._failures))
        except TidemillError as error:
            self._failure = error
            self._progress.set()

    async def _receive(self) -> None:
        """Connect, continue where the server says, and receive until the connection ends, which raises."""
        async with connect(
            self._url,
            additional_headers=self._connection.socket_headers(),
            subprotocols=[SUBPROTOCOL],
            compression=None,
            open_timeout=self._connection.timeout,
            ping_timeout=None,  # a server under back-pressure reads nothing, not even the answer to a ping
        ) as socket:
            first = await asyncio.wait_for(socket.recv(decode=False), RESUME_TIMEOUT)
            async with self._sending:  # a frame that is being sent on the old connection is sent again on this one
                self._window.resume(_decode(first).resume_after)
                self._socket, self._failures = socket, 0
            self._progress.set()
            await self._send_frames()
            while True:
                self._window.acknowledge(_decode(await socket.recv(decode=False)))
                self._progress.set()

    def _fatal_error(self, error: Exception) -> TidemillError | None:
        """Return the error to raise, if connecting again does not help."""
        if isinstance(error, ConnectionClosed):
            return error_of_close(error, "accumulator", self._accumulator)
        if isinstance(error, InvalidStatus):
            response = error.response
            failed = read_failed_answer(self._connection.url, response.status_code, bytes(response.body or b""))
            return failed.error if response.status_code < 500 else None
        return None

    def _problems_error(self) -> RequestError:
        problems = self._window.problems
        first = problems[0]
        message = (
            f"accumulator '{self._accumulator}' did not accept {len(problems)} of the pushed events; "
            f"event {first.index} was {first.outcome}: {first.reason}"
        )
        return RequestError(message, code="events_not_accepted", problems=list(problems))


def _decode(data: bytes) -> Acknowledgement:
    try:
        return msgspec.msgpack.decode(data, type=Acknowledgement)
    except msgspec.DecodeError as error:
        message = f"the server sent a frame that this client does not expect: {error}"
        raise OperationError(f"{message}; are client and server of the same version?") from error
