"""Pauses between tries, and deadlines, in real time: the server that a client waits for runs in it."""

import asyncio
import threading
import time

from tidemill.kernel.durations import Duration, parse_duration
from tidemill.kernel.errors import RequestError


async def async_pause(seconds: float) -> None:
    """Wait for some seconds without blocking the loop."""
    await asyncio.sleep(seconds)  # real time: the server is another process


def pause(seconds: float) -> None:
    """Block for some seconds."""
    threading.Event().wait(seconds)


class Deadline:
    """The end of a wait."""

    def __init__(self, timeout: Duration | None) -> None:
        try:
            self._ends_at = None if timeout is None else time.monotonic() + parse_duration(timeout)
        except ValueError as error:
            raise RequestError(f"timeout: {error}", code="invalid_timeout") from None

    def remaining(self, limit: float) -> float:
        """Return the seconds that remain, `limit` at most and 0 at least."""
        return limit if self._ends_at is None else max(0.0, min(limit, self._ends_at - time.monotonic()))
