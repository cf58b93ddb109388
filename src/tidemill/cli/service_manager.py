"""Reports the state of a command to the service manager that has started it, by the protocol of systemd's sd_notify.

Nothing is sent unless a service manager waits for reports.
"""

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from tidemill.kernel.errors import OperationError

READY = "READY=1"
STOPPING = "STOPPING=1"
_ALIVE = "WATCHDOG=1"
_MICROSECONDS = 1_000_000


def report_state(state: str) -> None:
    """Report a state to the service manager."""
    if not (address := os.environ.get("NOTIFY_SOCKET")):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        try:
            sender.sendto(state.encode(), f"\0{address[1:]}" if address.startswith("@") else address)
        except OSError as error:
            message = f"the service manager does not listen on {address}, its NOTIFY_SOCKET: {error.strerror}"
            raise OperationError(message) from error


@contextmanager
def feeding_watchdog() -> Iterator[None]:
    """Report within the context that the command lives, if the service manager watches that.

    The reports come from the event loop, twice per interval: a blocked loop is what the watchdog looks for.
    """
    interval = int(os.environ.get("WATCHDOG_USEC", "0")) / _MICROSECONDS
    if not interval:
        yield
        return
    loop = asyncio.get_running_loop()
    next_feed: asyncio.Handle

    def feed() -> None:
        nonlocal next_feed
        report_state(_ALIVE)
        next_feed = loop.call_later(interval / 2, feed)

    next_feed = loop.call_soon(feed)
    try:
        yield
    finally:
        next_feed.cancel()
