"""The pusher of the blocking client: a thread runs the asynchronous one, and takes events from a bounded buffer."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Self

import msgspec

from tidemill.client.async_pusher import AsyncEventPusher
from tidemill.client.connection import Connection
from tidemill.client.push_window import PusherOptions, encode_event
from tidemill.graphs.pushes import PushProblem


class EventPusher:
    """Pushes events to one accumulator; used as `with client.pusher(name) as push: push(event)`.

    Threads may share it.
    """

    def __init__(self, connection: Connection, accumulator: str, options: PusherOptions) -> None:
        self._make = partial(AsyncEventPusher, connection, accumulator, options)
        self._limit = 2 * options.batch
        self._buffer: list[msgspec.Raw] = []
        self._changed = threading.Condition()
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=f"pusher: {accumulator}")
        self._ended: Future[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._arrived = asyncio.Event()
        self._pusher: AsyncEventPusher | None = None
        self._flushes_wanted = self._flushes_done = 0
        self._is_closing = False

    @property
    def counts(self) -> dict[str, int]:
        """How many events were acknowledged, by outcome; "resumed" if the outcome did not arrive."""
        return {} if self._pusher is None else self._pusher.counts

    @property
    def problems(self) -> list[PushProblem]:
        """The events that were not accepted so far; `index` counts all events of this pusher, from 0."""
        return [] if self._pusher is None else self._pusher.problems

    def __enter__(self) -> Self:
        self._ended = self._executor.submit(asyncio.run, self._serve())
        self._ended.add_done_callback(self._notify_end)
        try:
            self._wait(lambda: self._loop is not None)
        except BaseException:
            self._executor.shutdown()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._ended is not None
        with self._changed:
            self._is_closing = True
        self._wake()
        try:
            if error is None:
                self._ended.result()
        finally:
            self._executor.shutdown()

    def __call__(self, event: Any) -> None:
        """Push an event; block while too many are on their way. What becomes of it is known at the end, or by flush."""
        encoded = encode_event(event)
        with self._changed:
            if len(self._buffer) >= self._limit or self._has_ended:
                self._wait(lambda: len(self._buffer) < self._limit)
            self._buffer.append(encoded)
            is_first = len(self._buffer) == 1
        if is_first:
            self._wake()

    def flush(self) -> None:
        """Send everything, and block until the server has acknowledged it."""
        with self._changed:
            self._flushes_wanted += 1
            number = self._flushes_wanted
        self._wake()
        self._wait(lambda: self._flushes_done >= number)

    @property
    def _has_ended(self) -> bool:
        return self._ended is None or self._ended.done()

    def _wait(self, condition: Callable[[], bool]) -> None:
        """Block until a condition holds; raise the failure that ended the pusher."""
        with self._changed:
            self._changed.wait_for(lambda: condition() or self._has_ended)
            if self._has_ended and self._ended is not None:
                self._ended.result()

    def _wake(self) -> None:
        """Let the thread look at the buffer."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has been closed: the pusher has failed, which the next call raises
                self._loop.call_soon_threadsafe(self._arrived.set)

    def _notify_end(self, _: Future[None]) -> None:
        with self._changed:
            self._changed.notify_all()

    # -- in the thread

    async def _serve(self) -> None:
        """Push what arrives in the buffer, until the pusher is closed; then wait for all acknowledgements."""
        async with self._make() as push:
            with self._changed:
                self._pusher, self._loop = push, asyncio.get_running_loop()
                self._changed.notify_all()
            while True:
                with self._changed:
                    events, self._buffer = self._buffer, []
                    flushes, is_closing = self._flushes_wanted, self._is_closing
                    self._changed.notify_all()
                for event in events:
                    await push(event)
                if flushes > self._flushes_done:
                    await push.flush()
                    with self._changed:
                        self._flushes_done = flushes
                        self._changed.notify_all()
                if is_closing:
                    return
                await self._arrived.wait()
                self._arrived.clear()
