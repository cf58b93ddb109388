"""The process guard: limits what the import of a package prints, and reverts what it changes in the whole process.

The standard streams, the working folder and `sys.path` are shared by the whole process. A package that changes them at
import, as a program may do, would silence the node or make other code read other files. So they are restored, and a
warning is logged. Other changes cannot be undone: threads, environment variables, the state of other modules.
"""

import logging
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, Self

from tidemill.kernel.copied_stream import CopiedStream
from tidemill.kernel.masked_output import MaskedTextStream
from tidemill.telemetry import events

_TRUNCATION_NOTICE = "\n[... the rest of what is printed at import is left out ...]\n"

_remaining_chars: dict[int, int] = {}
"""How many characters each importing thread may still write."""
_streams_lock = threading.Lock()


class _BoundedStream:
    """Wraps a stream and drops what an importing thread writes beyond its limit."""

    def __init__(self, wrapped: Any) -> None:
        self.wrapped = wrapped

    def __getattr__(self, name: str) -> Any:
        return getattr(self.wrapped, name)

    def write(self, text: str) -> int:
        thread = threading.get_ident()
        remaining = _remaining_chars.get(thread)
        if remaining is None or len(text) <= remaining:
            if remaining is not None:
                _remaining_chars[thread] = remaining - len(text)
            self.wrapped.write(text)
        elif remaining >= 0:
            _remaining_chars[thread] = -1
            self.wrapped.write(f"{text[:remaining]}{_TRUNCATION_NOTICE}")
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)


def unwrap_stream(stream: Any) -> Any:
    """Return the stream that a limiting stream wraps, or the stream itself."""
    return stream.wrapped if isinstance(stream, _BoundedStream) else stream


def install_stream(name: str, stream: Any) -> None:
    """Make a stream the standard output or error, limited while packages are imported."""
    with _streams_lock:
        setattr(sys, name, _BoundedStream(stream) if _remaining_chars and stream is not None else stream)


@contextmanager
def limiting_output(limit: int) -> Iterator[None]:
    """Limit how many characters this thread writes to standard output and error; drop the rest."""
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
                if isinstance(stream, _BoundedStream):  # else it was replaced meanwhile
                    setattr(sys, name, stream.wrapped)


logger = logging.getLogger(__name__)

_STREAM_NAMES = ("stdout", "stderr")


class _ImportGuard:
    """Tracks the imports in progress, each on its own thread; any of them may have caused a change.

    There is one guard for the whole process, since the state it guards belongs to the process.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._importing: list[str] = []
        self._saved_state: _ProcessState | None = None

    @contextmanager
    def reverting_process_state(self, package: str) -> Iterator[None]:
        """Restore the shared state of the process when the import of a package has ended, and log what was changed."""
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
                reason = f"importing it {', '.join(changes)}; this was reverted, as the whole process shares it"
                logger.warning(events.PACKAGE_IMPORT_SIDE_EFFECTS_REVERTED, extra={"package": names, "reason": reason})


class _ProcessState(NamedTuple):
    """A snapshot of the state that the whole process shares."""

    streams: dict[str, Any]
    path_list: list[str]
    path_entries: list[str]
    working_folder: str | None

    @classmethod
    def capture(cls) -> Self:
        streams = {name: unwrap_stream(getattr(sys, name, None)) for name in _STREAM_NAMES}
        return cls(streams, sys.path, list(sys.path), _working_folder())

    def restore(self) -> Iterator[str]:
        """Restore everything that has changed, and yield a description of each change."""
        for name, stream in self.streams.items():
            if unwrap_stream(_without_wrapper(getattr(sys, name, None), stream)) is not stream:
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


def _without_wrapper(now: Any, before: Any) -> Any:
    """Return the stream below what Tidemill has installed meanwhile, for the first secret or the output of a task."""
    while isinstance(now, MaskedTextStream | CopiedStream) and now is not before:
        now = now.wrapped
    return now


def _working_folder() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # it is gone
        return None


reverting_process_state = _ImportGuard().reverting_process_state
