"""What a package prints while it is imported in the node: some of it is heard, and the rest is left out.

Its output is that of the whole process, which may be a terminal, or a log that somebody pays for. `sys.stdout` and
`sys.stderr` are a matter of the process too: so there is a stand-in for them while anything is imported, which lets
other threads through untouched, and counts what the importing ones write.
"""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_LEFT_OUT = "\n[... the rest of what is printed at import is left out ...]\n"

_room: dict[int, int] = {}
"""How many characters each thread that imports may still write."""
_changing = threading.Lock()


class _Bounded:
    """A stream that takes no more from a thread than it has room for. In all else it is the stream below."""

    def __init__(self, below: Any) -> None:
        self.below = below

    def __getattr__(self, name: str) -> Any:
        return getattr(self.below, name)

    def write(self, text: str) -> int:
        thread = threading.get_ident()
        room = _room.get(thread)
        if room is None or len(text) <= room:
            if room is not None:
                _room[thread] = room - len(text)
            self.below.write(text)
        elif room >= 0:
            _room[thread] = -1
            self.below.write(f"{text[:room]}{_LEFT_OUT}")
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)


def plain_stream(stream: Any) -> Any:
    """Return what stands behind a stream while something is imported; else the stream itself."""
    return stream.below if isinstance(stream, _Bounded) else stream


def put_stream(name: str, stream: Any) -> None:
    """Make a stream the standard output or error, bounded for who imports."""
    with _changing:
        setattr(sys, name, _Bounded(stream) if _room and stream is not None else stream)


@contextmanager
def bounded_output(limit: int) -> Iterator[None]:
    """Let this thread write so many characters to standard output and error, and lose what is more."""
    thread = threading.get_ident()
    with _changing:
        _room[thread] = limit
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name, None)
            if stream is not None and not isinstance(stream, _Bounded):
                setattr(sys, name, _Bounded(stream))
    try:
        yield
    finally:
        with _changing:
            del _room[thread]
            for name in ("stdout", "stderr") if not _room else ():
                stream = getattr(sys, name, None)
                if isinstance(stream, _Bounded):  # else somebody has put another one there meanwhile
                    setattr(sys, name, stream.below)
