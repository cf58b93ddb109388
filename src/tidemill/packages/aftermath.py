"""What the import of a package has changed in the whole process, and what of that is put back.

The standard streams, the working folder and `sys.path` belong to everybody: a package that changes them at import, as a
program may do, would make the node mute, or let others read other files. So they are put back, and a warning says so.
What was done elsewhere cannot be undone: threads, the environment, what other modules hold.
"""

import logging
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, Self

from tidemill.packages.import_output import plain_stream, put_stream
from tidemill.telemetry import events

logger = logging.getLogger(__name__)

_STREAMS = ("stdout", "stderr")


class _Imports:
    """The imports that are under way, by one thread each: what changes meanwhile may be of any of them.

    There is one for the whole process, as there is one of everything that it minds.
    """

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._packages: list[str] = []
        self._before: _Belongings | None = None

    @contextmanager
    def put_back_after(self, package: str) -> Iterator[None]:
        """Put back what everybody shares when the import of a package has ended, however it has; log what that was."""
        with self._changing:
            if self._before is None:
                self._before = _Belongings.now()
            self._packages.append(package)
        try:
            yield
        finally:
            with self._changing:
                changes = [] if self._before is None else list(self._before.put_back())
                names = ", ".join(sorted(set(self._packages)))
                self._packages.remove(package)
                if not self._packages:
                    self._before = None
            if changes:
                reason = f"importing it {', '.join(changes)}; that is put back, as everything in this process shares it"
                logger.warning(events.PACKAGE_TIDIED, extra={"package": names, "reason": reason})


class _Belongings(NamedTuple):
    """What belongs to everybody, at one moment."""

    streams: dict[str, Any]
    path: list[str]
    entries: list[str]
    folder: str | None

    @classmethod
    def now(cls) -> Self:
        streams = {name: plain_stream(getattr(sys, name, None)) for name in _STREAMS}
        return cls(streams, sys.path, list(sys.path), _folder())

    def put_back(self) -> Iterator[str]:
        """Put everything back that is not as it was, and yield what was done to it."""
        for name, stream in self.streams.items():
            if plain_stream(getattr(sys, name, None)) is not stream:
                put_stream(name, stream)
                yield f"replaced sys.{name}"
        if sys.path is not self.path or self.path != self.entries:
            self.path[:] = self.entries
            sys.path = self.path
            yield "changed sys.path"
        if self.folder is not None and (now := _folder()) != self.folder:
            with suppress(OSError):  # it is gone
                os.chdir(self.folder)
                yield f"moved the process to {now or 'a folder that is gone'}"


def _folder() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # it is gone
        return None


put_back_after = _Imports().put_back_after
