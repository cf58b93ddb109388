"""Reports the state of a command to the service manager that has started it, by the protocol of systemd's sd_notify.

Nothing is sent unless a service manager waits for reports.
"""

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tidemill.kernel.errors import OperationError

READY = "READY=1"
STOPPING = "STOPPING=1"
_ALIVE = "WATCHDOG=1"
_MICROSECONDS = 1_000_000
_TIMEOUT = 5.0
"""Seconds within which the service manager must take a report."""


def report_state(state: str) -> None:
    """Report a state to the service manager."""
    try:
        _send(state, timeout=_TIMEOUT)
    except OSError as error:
        address, reason = os.environ["NOTIFY_SOCKET"], error.strerror or error
        raise OperationError(
            f"the service manager does not listen on {address}, its NOTIFY_SOCKET: {reason}"
        ) from error


def _report_life() -> None:
    """Report that the command lives, without waiting: the event loop calls this."""
    with suppress(OSError):  # unread reports say the same; a service manager that restarts gets the next one
        _send(_ALIVE, timeout=0)


def _send(state: str, timeout: float) -> None:
    """Send a state, if there is a service manager; it may take as long as the reports before it are not read."""
    if address := os.environ.get("NOTIFY_SOCKET"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.settimeout(timeout)
            sender.sendto(state.encode(), f"\0{address[1:]}" if address.startswith("@") else address)


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
        next_feed = loop.call_later(interval / 2, feed)
        _report_life()

    next_feed = loop.call_soon(feed)
    try:
        yield
    finally:
        next_feed.cancel()
