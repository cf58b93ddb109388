"""A standard stream that passes on what is written, and gives a copy of it to a function."""

from collections.abc import Callable
from typing import Any

CopyOutput = Callable[[str, bytes], None]
"""Accepts what was written, with the name of the stream."""


class CopiedStream:
    """Wraps `sys.stdout` or `sys.stderr`, and gives a copy of each write to a function."""

    def __init__(self, name: str, wrapped: Any, copy: CopyOutput) -> None:
        self.name = name
        self.wrapped = wrapped
        """The stream below; another one may be put in between, such as one that masks secrets."""
        self.copy = copy

    def __getattr__(self, name: str) -> Any:
        return getattr(self.wrapped, name)

    @property
    def buffer(self) -> "_CopiedBuffer":
        """The binary stream below the text."""
        return _CopiedBuffer(self)

    def write(self, text: str) -> Any:
        """Write a text."""
        written = self.wrapped.write(text)
        self.copy(self.name, text.encode("utf-8", "backslashreplace"))
        return written

    def writelines(self, lines: Any) -> None:
        """Write one after the other."""
        for line in lines:
            self.write(line)


class _CopiedBuffer:
    """The binary stream of a copied one."""

    def __init__(self, stream: CopiedStream) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream.wrapped.buffer, name)

    def write(self, data: Any) -> Any:
        """Write bytes."""
        encoded = memoryview(data).tobytes()
        written = self._stream.wrapped.buffer.write(data)
        self._stream.copy(self._stream.name, encoded)
        return written

    def writelines(self, lines: Any) -> None:
        """Write one after the other."""
        for line in lines:
            self.write(line)
