"""Ctrl-C while a run goes: once asks for an end, twice is one."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

HANDLED_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """What was asked for by signal: the first is told to whoever listens, the second ends the process."""

    def __init__(self, on_second: Callable[[], None]) -> None:
        self.on_first: Callable[[], object] = lambda: None
        """What the first one calls, from within whatever runs just then."""
        self.exit_code: int | None = None
        """The exit code that the first one asks for; None as long as there was none."""
        self._on_second = on_second

    @contextmanager
    def handling_signals(self) -> Iterator[None]:
        """Take the signals for a while.

        Not through the loop: code that blocks it must not keep anybody from stopping it.
        """
        before = {one: signal.signal(one, self._handle_signal) for one in HANDLED_SIGNALS}
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)

    def _handle_signal(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002, as signal wants it
        if self.exit_code is None:
            self.exit_code = 128 + number
            self.on_first()
        else:
            self._on_second()
            os._exit(self.exit_code)  # threads that run author code would keep any other exit waiting
