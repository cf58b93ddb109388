"""Handles Ctrl-C: the first asks for an orderly end, the second ends the process."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

HANDLED_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """Handles SIGINT and SIGTERM: the first calls a callback, the second ends the process."""

    def __init__(self, on_second: Callable[[], None]) -> None:
        self.exit_code: int | None = None
        """The exit code for the first signal; None before it."""
        self._on_first: Callable[[], object] = lambda: None
        self._on_second = on_second

    def on_first(self, callback: Callable[[], object]) -> None:
        """Call this at the first signal, from a signal handler; now, if it has already come."""
        self._on_first = callback
        if self.exit_code is not None:
            callback()

    @contextmanager
    def handling_signals(self) -> Iterator[None]:
        """Handle the signals within the context.

        Not through the event loop: code that blocks the loop must not block Ctrl-C.
        """
        previous = {one: signal.signal(one, self._handle_signal) for one in HANDLED_SIGNALS}
        try:
            yield
        finally:
            for one, handler in previous.items():
                signal.signal(one, handler)

    def _handle_signal(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002, the signature of signal
        if self.exit_code is None:
            self.exit_code = 128 + number
            self._on_first()
        else:
            self._on_second()
            os._exit(self.exit_code)  # any other exit waits for threads that run author code
