"""Records of CSV files. One that cannot be read is given as it is, and those after it are read. Blocking; for a thread.

A cell in quotes may go over many lines, so a quote that is never closed would swallow the rest of the file. If a record
grows too large, or the file ends within it, only its first line is damaged, and the next line begins a new record.
"""

import csv
from collections import deque
from collections.abc import Iterator
from io import TextIOWrapper
from typing import IO

MAX_ROW = 1_048_576  # characters; a cell of the parser holds up to 131,072 of them

Record = list[str] | bytes
"""The cells of a record; its bytes if it is damaged."""


class _RowTooLongError(Exception):
    """A record has more than MAX_ROW characters."""


class _Lines:
    """The lines of a file, which the parser takes for one record after the other."""

    def __init__(self, file: TextIOWrapper) -> None:
        self._file = file
        self._returned: deque[str] = deque()
        self._record: list[str] = []
        self._size = 0
        self.ends_within_record = False

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> str:
        line = self._returned.popleft() if self._returned else self._file.readline(MAX_ROW)
        if not line:
            self.ends_within_record = bool(self._record)
            raise StopIteration
        self._record.append(line)
        self._size += len(line)
        if self._size >= MAX_ROW:
            self._skip_line_end(line)
            raise _RowTooLongError
        return line

    def _skip_line_end(self, line: str) -> None:
        """Skip the rest of a line that is longer than a record may be."""
        while not self._returned and line and not line.endswith(("\n", "\r")):
            line = self._file.readline(MAX_ROW)

    def begin_record(self) -> None:
        """Forget the lines of the record before."""
        self._record, self._size = [], 0
        self.ends_within_record = False

    @property
    def is_text(self) -> bool:
        """Whether all bytes of the record are UTF-8."""
        return all(line.isascii() or _is_text(line) for line in self._record)

    def take_record(self) -> bytes:
        """Return the record as it is in the file."""
        return _to_bytes("".join(self._record))

    def take_first_line(self) -> bytes:
        """Return the first line of the record, and give the others back."""
        self._returned.extendleft(reversed(self._record[1:]))
        return _to_bytes(self._record[0])


def open_text(file: IO[bytes]) -> TextIOWrapper:
    """Return a file as text; bytes that are not UTF-8 can be told apart, and be written as they were."""
    return TextIOWrapper(file, "utf-8-sig", errors="surrogateescape", newline="")


def read_records(file: TextIOWrapper) -> Iterator[Record]:
    """Yield the records of a file, the first line included."""
    lines = _Lines(file)
    parser = csv.reader(lines)
    while True:
        lines.begin_record()
        try:
            cells = next(parser)
            is_damaged = lines.ends_within_record
        except StopIteration:
            return
        except (csv.Error, _RowTooLongError):
            is_damaged = True
        if is_damaged:
            yield lines.take_first_line()
            parser = csv.reader(lines)
        else:
            yield cells if lines.is_text else lines.take_record()


def _is_text(line: str) -> bool:
    try:
        line.encode()
    except UnicodeEncodeError:  # it has bytes that are not UTF-8
        return False
    return True


def _to_bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape").rstrip(b"\r\n")
