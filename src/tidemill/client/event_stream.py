"""Server-sent events, as the client reads them: lines in, messages out."""

from typing import NamedTuple


class StreamMessage(NamedTuple):
    """One server-sent event."""

    id: str
    """The id after which the stream can be continued; empty if none was sent yet."""
    type: str
    data: str


class StreamParser:
    """Collects the lines of a stream, and returns a message at each blank line that ends one."""

    def __init__(self) -> None:
        self._id = ""
        self._type = ""
        self._data: list[str] = []

    def feed(self, line: str) -> StreamMessage | None:
        """Take a line without its end; return the message that it completes."""
        if line:
            self._take_field(line)
            return None
        data, self._data = self._data, []
        type_, self._type = self._type or "message", ""
        return StreamMessage(self._id, type_, "\n".join(data)) if data else None

    def _take_field(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match name:
            case "data":
                self._data.append(value)
            case "event":
                self._type = value
            case "id":
                self._id = value
            case _:
                pass  # comments, which keep the connection open, have an empty name
