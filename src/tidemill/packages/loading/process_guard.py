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

from tidemill.telemetry import events

_TRUNCATION_NOTICE = "\n[... the rest of what is printed at import is left out ...]\n"

_remaining_chars: dict[int, int] = {}
"""How many characters each thread that imports may still write."""
_streams_lock = threading.Lock()


class _BoundedStream:
    """A stream that takes no more from a thread than it has room for. In all else it is the stream below."""

    def __init__(self, wrapped: Any) -> None:
        self.wrapped = wrapped

    def __getattr__(self, name: str) -> Any:
        return getattr(self.wrapped, name)

    def write(self, text: str) -> int:
        thread = threading.get_ident()
        room = _remaining_chars.get(thread)
        if room is None or len(text) <= room:
            if room is not None:
                _remaining_chars[thread] = room - len(text)
            self.wrapped.write(text)
        elif room >= 0:
            _remaining_chars[thread] = -1
            self.wrapped.write(f"{text[:room]}{_TRUNCATION_NOTICE}")
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)


def unwrap_stream(stream: Any) -> Any:
    """Return what stands behind a stream while something is imported; else the stream itself."""
    return stream.wrapped if isinstance(stream, _BoundedStream) else stream


def install_stream(name: str, stream: Any) -> None:
    """Make a stream the standard output or error, bounded for who imports."""
    with _streams_lock:
        setattr(sys, name, _BoundedStream(stream) if _remaining_chars and stream is not None else stream)


@contextmanager
def limiting_output(limit: int) -> Iterator[None]:
    """Let this thread write so many characters to standard output and error, and lose what is more."""
    thread = threading.get_ident()
    with _streams_lock:
        _remaining_chars[thread] = limit
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name, None)
            if stream is not None and not isinstance(stream, _BoundedStream):
                setattr(sys, name, _BoundedStream(stream))
    try:
        yield
    finally:
        with _streams_lock:
            del _remaining_chars[thread]
            for name in ("stdout", "stderr") if not _remaining_chars else ():
                stream = getattr(sys, name, None)
                if isinstance(stream, _BoundedStream):  # else somebody has put another one there meanwhile
                    setattr(sys, name, stream.wrapped)


logger = logging.getLogger(__name__)

_STREAM_NAMES = ("stdout", "stderr")


class _ImportGuard:
    """The imports that are under way, by one thread each: what changes meanwhile may be of any of them.

    There is one for the whole process, as there is one of everything that it minds.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._importing: list[str] = []
        self._saved_state: _ProcessState | None = None

    @contextmanager
    def reverting_process_state(self, package: str) -> Iterator[None]:
        """Put back what everybody shares when the import of a package has ended, however it has; log what that was."""
        with self._lock:
            if self._saved_state is None:
                self._saved_state = _ProcessState.capture()
            self._importing.append(package)
        try:
            yield
        finally:
            with self._lock:
                changes = [] if self._saved_state is None else list(self._saved_state.restore())
                names = ", ".join(sorted(set(self._importing)))
                self._importing.remove(package)
                if not self._importing:
                    self._saved_state = None
            if changes:
                reason = f"importing it {', '.join(changes)}; that is put back, as everything in this process shares it"
                logger.warning(events.PACKAGE_IMPORT_SIDE_EFFECTS_REVERTED, extra={"package": names, "reason": reason})


class _ProcessState(NamedTuple):
    """What belongs to everybody, at one moment."""

    streams: dict[str, Any]
    path_list: list[str]
    path_entries: list[str]
    working_folder: str | None

    @classmethod
    def capture(cls) -> Self:
        streams = {name: unwrap_stream(getattr(sys, name, None)) for name in _STREAM_NAMES}
        return cls(streams, sys.path, list(sys.path), _working_folder())

    def restore(self) -> Iterator[str]:
        """Put everything back that is not as it was, and yield what was done to it."""
        for name, stream in self.streams.items():
            if unwrap_stream(getattr(sys, name, None)) is not stream:
                install_stream(name, stream)
                yield f"replaced sys.{name}"
        if sys.path is not self.path_list or self.path_list != self.path_entries:
            self.path_list[:] = self.path_entries
            sys.path = self.path_list
            yield "changed sys.path"
        if self.working_folder is not None and (now := _working_folder()) != self.working_folder:
            with suppress(OSError):  # it is gone
                os.chdir(self.working_folder)
                yield f"moved the process to {now or 'a folder that is gone'}"


def _working_folder() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # it is gone
        return None


reverting_process_state = _ImportGuard().reverting_process_state
