"""Masks secrets in what code of this process prints: in `sys.stdout` and `sys.stderr`.

The streams are replaced when the first secret is about to be read, and never in a process that reads none.
"""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

from tidemill.kernel.masking import MaskedStream, SecretMask

_STREAM_NAMES = ("stdout", "stderr")


class MaskedTextStream:
    """Wraps a text stream and masks secrets, also one that begins in one write and ends in a later one."""

    def __init__(self, wrapped: Any, mask: SecretMask) -> None:
        self.wrapped = wrapped
        self.mask = mask
        self._masked = MaskedStream(mask)
        self.unlock()
        _streams.add(self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.wrapped, name)

    def unlock(self) -> None:
        """Forget who writes: after a fork, the thread that did may not exist."""
        self._lock = threading.RLock()
        self._is_busy = False

    def write(self, text: str) -> int:
        """Write a text; an end with which a secret may begin waits for the next write, or for a flush."""
        with self._entering() as is_nested:
            if is_nested:
                self.wrapped.write(self.mask.mask(text))
            else:
                self._write(self._masked.feed(text.encode("utf-8", "surrogatepass")))
        return len(text)

    def writelines(self, lines: Any) -> None:
        """Write texts one after the other."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Write everything."""
        with self._entering() as is_nested:
            if not is_nested:
                self._write(self._masked.flush())
        self.wrapped.flush()

    @contextmanager
    def _entering(self) -> Iterator[bool]:
        """Lock the stream, and yield whether this thread writes already: the garbage collector can run a finalizer."""
        with self._lock:
            is_nested, self._is_busy = self._is_busy, True
            try:
                yield is_nested
            finally:
                self._is_busy = is_nested

    def _write(self, data: bytes) -> None:
        if data:
            self.wrapped.write(data.decode("utf-8", "surrogatepass"))


_streams: WeakSet[MaskedTextStream] = WeakSet()


def _unlock_streams() -> None:
    for stream in _streams:
        stream.unlock()


os.register_at_fork(after_in_child=_unlock_streams)


class MaskedOutput:
    """The standard output and error of this process, masked from the first secret on until it is restored."""

    def __init__(self, mask: SecretMask) -> None:
        self._mask = mask
        self._lock = threading.RLock()

    def install(self) -> None:
        """Mask what is printed from now on, also if other code has replaced a masked stream."""
        with self._lock:
            for name in _STREAM_NAMES:
                if (stream := getattr(sys, name, None)) is not None and self._find_masked(stream) is None:
                    setattr(sys, name, MaskedTextStream(stream, self._mask))

    def restore(self) -> None:
        """Put the streams back, unless they were replaced meanwhile."""
        with self._lock:
            for name in _STREAM_NAMES:
                if (masked := self._find_masked(getattr(sys, name, None))) is not None:
                    masked.flush()
                    if getattr(sys, name) is masked:
                        setattr(sys, name, masked.wrapped)

    def _find_masked(self, stream: Any) -> MaskedTextStream | None:
        """Return the stream with this mask that a stream is, or wraps."""
        while stream is not None:
            if isinstance(stream, MaskedTextStream) and stream.mask is self._mask:
                return stream
            stream = getattr(stream, "wrapped", None)
        return None
