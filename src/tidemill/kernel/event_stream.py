"""The format text/event-stream: lines of fields, and a blank line after each event. Pure: bytes in, events out."""

import re
import sys
from typing import NamedTuple

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class ServerEvent(NamedTuple):
    """One event of a server."""

    type: str
    data: bytes
    id: str | None
    """The id of the event itself; None if it has none, and empty if it resets the position."""


class EventStreamParser:
    """Parses an event stream in parts of any size. An event of more than `max_size` bytes is cut."""

    def __init__(self, max_size: int = sys.maxsize) -> None:
        self._max_size = max_size
        self._rest = b""
        self._is_skipping = False  # whether the rest of a line that is too long is dropped
        self._is_beginning = True
        self._ended_with_return = False
        self._type = ""
        self._data: list[bytes] = []
        self._size = 0
        self._id: str | None = None
        self.retry: float | None = None
        """The seconds that the server wants clients to wait before they connect again."""

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """Return the events that this part completes."""
        found: list[ServerEvent] = []
        for line in self._lines(chunk):
            if line:
                self._read_field(line)
            elif (event := self._finish_event()) is not None:
                found.append(event)
        return found

    def _lines(self, chunk: bytes) -> list[bytes]:
        """Return the lines that this part completes."""
        if chunk and self._ended_with_return:  # a line feed is the second half of the line end before it
            chunk = chunk.removeprefix(b"\n")
        self._ended_with_return = chunk.endswith(b"\r") if chunk else False
        text = self._rest + chunk
        if self._is_beginning:
            if _BYTE_ORDER_MARK.startswith(text[:3]) and len(text) < len(_BYTE_ORDER_MARK):
                self._rest = text
                return []
            text, self._is_beginning = text.removeprefix(_BYTE_ORDER_MARK), False
        *lines, rest = _LINE_END.split(text)
        if lines and self._is_skipping:
            lines, self._is_skipping = lines[1:], False
        if len(rest) > self._max_size:
            lines, rest = [*lines, *([] if self._is_skipping else [rest])], b""
            self._is_skipping = True
        self._rest = rest
        return [line[: self._max_size] for line in lines]

    def _read_field(self, line: bytes) -> None:
        """Read a line; one that begins with a colon is a comment."""
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data" and self._size < self._max_size:
            self._data.append(value)
            self._size += len(value) + 1
        elif name == b"event":
            self._type = value.decode(errors="replace")
        elif name == b"id" and b"\0" not in value:
            self._id = value.decode(errors="replace")
        elif name == b"retry" and value.isdigit():
            self.retry = int(value) / 1000

    def _finish_event(self) -> ServerEvent | None:
        event = ServerEvent(self._type or "message", b"\n".join(self._data), self._id) if self._data else None
        if event is None and self._id is not None:  # an id without data moves the position all the same
            event = ServerEvent("", b"", self._id)
        self._type, self._data, self._size, self._id = "", [], 0, None
        return event
