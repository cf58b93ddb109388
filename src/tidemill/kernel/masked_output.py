"""Masks secrets in what code of this process prints: in `sys.stdout` and `sys.stderr`.

The streams are replaced when the first secret is about to be read, and never in a process that reads none.
"""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any
from weakref import WeakSet

from tidemill.kernel.copied_stream import CopiedStream
from tidemill.kernel.masking import MaskedStream, SecretMask

_STREAM_NAMES = ("stdout", "stderr")


class _MaskingStream:
    """Wraps a stream and masks secrets, even one that begins in one write and ends in a later one."""

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

    def write(self, data: Any) -> int:
        """Write a text, or bytes; an end with which a secret may begin waits for the next write, or for a flush."""
        encoded = self._encode(data)
        with self._entering() as is_nested:
            self._write(self.mask.mask_bytes(encoded) if is_nested else self._masked.feed(encoded))
        return len(data)

    def writelines(self, lines: Any) -> None:
        """Write one after the other."""
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

    def _write(self, encoded: bytes) -> None:
        if encoded:
            self.wrapped.write(self._decode(encoded))

    def _encode(self, data: Any) -> bytes:
        return memoryview(data).tobytes()

    def _decode(self, encoded: bytes) -> Any:
        return encoded


class MaskedBinaryStream(_MaskingStream):
    """Masks secrets in a binary stream, such as the buffer of a text stream."""

    @cached_property
    def raw(self) -> "MaskedBinaryStream":
        """The stream without a buffer."""
        return MaskedBinaryStream(self.wrapped.raw, self.mask)


class MaskedTextStream(_MaskingStream):
    """Masks secrets in a text stream, and in the binary stream below it."""

    @cached_property
    def buffer(self) -> MaskedBinaryStream:
        """The binary stream below the text."""
        return MaskedBinaryStream(self.wrapped.buffer, self.mask)

    def flush(self) -> None:
        """Write everything, including what was written to the buffer."""
        super().flush()
        if "buffer" in self.__dict__:
            self.buffer.flush()

    def _encode(self, data: Any) -> bytes:
        encoded: bytes = data.encode("utf-8", "surrogatepass")
        return encoded

    def _decode(self, encoded: bytes) -> Any:
        return encoded.decode("utf-8", "surrogatepass")


_streams: WeakSet[_MaskingStream] = WeakSet()


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
        """Mask what is printed from now on, even if other code has replaced a masked stream."""
        with self._lock:
            for name in _STREAM_NAMES:
                stream = getattr(sys, name, None)
                if stream is None or self._find_masked(stream) is not None:
                    continue
                if isinstance(stream, CopiedStream):  # a copy knows whose text it is, which a held back end does not
                    stream.wrapped = MaskedTextStream(stream.wrapped, self._mask)
                else:
                    setattr(sys, name, MaskedTextStream(stream, self._mask))

    def restore(self) -> None:
        """Put the streams back, unless they were replaced meanwhile."""
        with self._lock:
            for name in _STREAM_NAMES:
                stream = getattr(sys, name, None)
                masked = self._find_masked(stream)
                if stream is None or masked is None:
                    continue
                masked.flush()
                if stream is masked:
                    setattr(sys, name, masked.wrapped)
                elif isinstance(stream, CopiedStream) and stream.wrapped is masked:
                    stream.wrapped = masked.wrapped

    def _find_masked(self, stream: Any) -> MaskedTextStream | None:
        """Return the stream with this mask that a stream is, or wraps."""
        while stream is not None:
            if isinstance(stream, MaskedTextStream) and stream.mask is self._mask:
                return stream
            stream = getattr(stream, "wrapped", None)
        return None
