"""What an attempt says, line by line, in bounded memory.

The first 8 MiB are passed on as they come. Of what follows, the newest MiB is kept and passed on at the end, after a
line that says how much was left out. So a gigabyte of output costs no more memory than that, and the process that
writes it never waits for a reader.
"""

from collections import deque
from collections.abc import Callable

from tidemill.engine.workflows.executors.interface import LINE, LogRecord
from tidemill.kernel.clock import Clock

HEAD = 8 * 1024 * 1024
TAIL = 1024 * 1024
RECORD = 128
"""Bytes that a record takes besides its text: so many that all of one attempt may wait together to be written."""


class Output:
    """The log of one attempt in the making."""

    def __init__(self, clock: Clock, take: Callable[[list[LogRecord]], None]) -> None:
        self._clock = clock
        self._take = take
        self._lines = {stream: _Lines() for stream in ("stdout", "stderr")}
        self._room = HEAD
        self._tail: deque[tuple[str, bytes] | LogRecord] = deque()
        self._tail_size = 0
        self._left_out = 0

    def write(self, stream: str, data: bytes) -> None:
        """Take bytes that a process wrote."""
        if self._room > 0:
            self._room -= len(data)
            self._pass_on(stream, self._lines[stream].feed(data))
        else:
            self._keep((stream, data))

    def add(self, record: LogRecord) -> None:
        """Take a record that the author's code made."""
        if self._room > 0:
            self._room -= _size(record)
            self._take([record])
        else:
            self._keep(record)

    def end(self) -> None:
        """Pass on what is left: the tail, and lines that were not ended."""
        tail, self._tail = self._tail, deque()
        if self._left_out:
            self._pass_on_rest()
            note = f"[... {self._left_out} bytes left out ...]"
            self._take([LogRecord(at=self._clock.now(), message=note, level="warning")])
        for one in tail:
            if isinstance(one, LogRecord):
                self._take([one])
            else:
                self._pass_on(one[0], self._lines[one[0]].feed(one[1]))
        self._pass_on_rest()

    def _pass_on_rest(self) -> None:
        for stream, lines in self._lines.items():
            self._pass_on(stream, lines.rest())

    def _pass_on(self, stream: str, lines: list[bytes]) -> None:
        if lines:
            now = self._clock.now()
            self._take([LogRecord(at=now, message=one.decode(errors="replace"), stream=stream) for one in lines])

    def _keep(self, one: tuple[str, bytes] | LogRecord) -> None:
        self._tail.append(one)
        self._tail_size += _size(one)
        while self._tail_size > TAIL and len(self._tail) > 1:
            dropped = self._tail.popleft()
            self._tail_size -= _size(dropped)
            self._left_out += len(_text(dropped))


def _size(one: tuple[str, bytes] | LogRecord) -> int:
    return len(_text(one)) + (RECORD if isinstance(one, LogRecord) else 0)


def _text(one: tuple[str, bytes] | LogRecord) -> str | bytes:
    return one.message if isinstance(one, LogRecord) else one[1]


class _Lines:
    """Bytes taken apart into lines; what is longer than a line may be is cut."""

    def __init__(self) -> None:
        self._part = b""
        self._is_cut = False

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that have ended."""
        *ended, rest = data.split(b"\n")
        lines = [self._close(one) for one in ended]
        self._extend(rest)
        return lines

    def rest(self) -> list[bytes]:
        """Return the line that has not ended, if there is one."""
        return [self._close(b"")] if self._part else []

    def _extend(self, data: bytes) -> None:
        room = LINE - len(self._part)
        self._is_cut = self._is_cut or len(data) > room
        self._part += data[:room]

    def _close(self, data: bytes) -> bytes:
        self._extend(data)
        line = self._part.removesuffix(b"\r") + (b" [... cut]" if self._is_cut else b"")
        self._part, self._is_cut = b"", False
        return line
