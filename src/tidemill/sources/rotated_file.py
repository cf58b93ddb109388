"""Follows a growing file through rotations: complete lines, with the position after each. Blocking; for a thread.

A position is the inode of a file, an offset in it, and a checksum of its beginning: a file system gives the inode of a
deleted file to a new one. Files that were rotated by renaming stay readable under their new names, so a reader that was
away finishes them, in the order of their last writes, before it reads the current one. A file that was copied and then
truncated is finished in the copy, which has the same beginning. If the file of a position is gone, those that were
written to after it are read.
"""

import os
import re
from pathlib import Path
from typing import Literal, NamedTuple
from zlib import crc32

CHUNK_SIZE = 65_536
HEAD_SIZE = 256  # bytes at the beginning of a file that identify it, together with its inode
MAX_COUNTER_DIGITS = 4  # longer numbers are dates
_ROTATED_SUFFIX = re.compile(r"[.\-_]\d[\d.T:_\-]*")  # ".1", "-20261231", ".2026-12-31"


class FilePosition(NamedTuple):
    """The position after a line."""

    inode: int
    offset: int
    head_checksum: int
    written_at: int = 0
    """When the file was last written to, as of the reading, in nanoseconds."""
    is_cut: bool = False
    """Whether the rest of a line that is too long follows."""


NO_FILE = FilePosition(0, 0, 0)
"""The position of a reader that found no file: it reads the first one from its start."""


class RotatedFile:
    """Reads one path, under which one file after the other appears."""

    def __init__(self, path: Path, max_line: int) -> None:
        self._path = path
        self._max_line = max_line
        self._generation: _Generation | None = None
        self._is_rotated = False  # whether the path was another file when the current one had nothing more
        self._is_missing = False  # whether the file was deleted, and there was no other, when it was last looked at
        self.gap: str | None = None
        """What was lost, until the caller has reported it."""

    def open(self, position: FilePosition | None, begin: Literal["start", "end"]) -> None:
        """Open the file of a position, or the current one; raise OSError if there is none."""
        if position is None or position == NO_FILE:
            self._generation = _Generation(self._path, self._max_line)
            if position is None and begin == "end":
                self._generation.skip_to_end()
            return
        found = next((one for one in self._generation_paths() if _is_at(one, position)), None)
        self._generation = _Generation(found, self._max_line, position) if found else self._open_successor(position)

    def _open_successor(self, position: FilePosition) -> "_Generation":
        """Open what follows a position whose file is gone: its copy, or the first file that was written to after it."""
        rotated = [(path, _written_at(path)) for path in self._generation_paths()[:-1]]
        copies = (path for path, at in rotated if at >= position.written_at and _is_continued_in(path, position))
        if (copy := next(copies, None)) is not None:
            self.gap = (
                f"'{self._path}' was truncated after byte {position.offset} was read, and is finished in "
                f"'{copy.name}': lines that were written after that copy may be lost"
            )
            return _Generation(copy, self._max_line, position)
        self.gap = (
            f"'{self._path}' is not the file that was read before, which is gone, compressed or truncated: "
            f"lines after its byte {position.offset} may be lost"
        )
        newer = (path for path, at in rotated if at > position.written_at)
        return _Generation(next(newer, self._path), self._max_line)

    @property
    def position(self) -> FilePosition:
        """The position after the last line."""
        assert self._generation is not None, "the file is opened first"
        return self._generation.position

    def read_lines(self) -> list[tuple[bytes, FilePosition]]:
        """Return the next complete lines; an empty list if there are none for now. OSError if the file was deleted."""
        current = self._generation
        assert current is not None, "the file is opened first"
        if current.is_truncated:
            current = self._leave_truncated(current)
        if lines := current.read_lines():
            self._is_rotated = self._is_missing = False
            return lines
        was_missing, self._is_missing = self._is_missing, current.is_deleted and not self._path.exists()
        if was_missing and self._is_missing:  # twice: another file may appear a moment after the first was deleted
            raise FileNotFoundError(f"'{self._path}' was deleted")
        return self._read_next_generation(current) if self._is_replaced(current) else []

    def _leave_truncated(self, current: "_Generation") -> "_Generation":
        """Continue in the copy of a file that was truncated, or at its beginning."""
        self._generation = successor = self._open_successor(current.position)
        if successor.inode == current.inode:
            self.gap = (
                f"'{current.path}' was truncated after byte {current.offset} was read: "
                "lines that were written shortly before may be lost"
            )
        current.close()
        return successor

    def _is_replaced(self, current: "_Generation") -> bool:
        """Return whether lines are written to another file now: an empty one may not be noticed by its writer yet."""
        try:
            if os.stat(self._path).st_ino == current.inode:
                return False
            successor = self._path_after(current.inode)
            return successor != self._path or os.stat(successor).st_size > 0
        except FileNotFoundError:  # between two steps of a rotation
            return False

    def _read_next_generation(self, current: "_Generation") -> list[tuple[bytes, FilePosition]]:
        """Continue with the next file, unless its predecessor may still be written to."""
        if not self._is_rotated:  # other writers may not have noticed the rotation yet: look again after the next pause
            self._is_rotated = True
            return []
        self._is_rotated = False
        self._generation = _Generation(self._path_after(current.inode), self._max_line)
        last = current.take_rest()
        current.close()
        return last or self._generation.read_lines()

    def _path_after(self, inode: int) -> Path:
        paths = self._generation_paths()
        later = [index + 1 for index, path in enumerate(paths) if _inode(path) == inode]
        return paths[later[0]] if later and later[0] < len(paths) else self._path

    def _generation_paths(self) -> list[Path]:
        """Return the files that were rotated away by renaming, oldest first, and the current one."""
        rotated = [
            (entry.stat().st_mtime_ns, _age_rank(suffix), entry.name)
            for entry in os.scandir(self._path.parent)
            if entry.name.startswith(self._path.name)
            and _ROTATED_SUFFIX.fullmatch(suffix := entry.name.removeprefix(self._path.name))
            and entry.is_file()
        ]
        return [*(self._path.with_name(name) for *_, name in sorted(rotated)), self._path]

    def close(self) -> None:
        """Close the file."""
        if self._generation is not None:
            self._generation.close()


class _Generation:
    """One open file, read from an offset."""

    def __init__(self, path: Path, max_line: int, position: FilePosition | None = None) -> None:
        self.path = path
        self._max_line = max_line
        self._descriptor = os.open(path, os.O_RDONLY)
        status = os.fstat(self._descriptor)
        self.inode = status.st_ino
        self._written_at = status.st_mtime_ns
        self.offset = 0 if position is None else position.offset
        """The byte after the last complete line."""
        self._rest = b""  # the beginning of the line after it
        self._is_skipping = position is not None and position.is_cut
        """Whether the rest of a line that is too long is read and dropped."""
        self._head_size = 0
        self._head_checksum = 0
        self._update_head()

    @property
    def position(self) -> FilePosition:
        """The position after the last complete line."""
        self._update_head()
        return FilePosition(self.inode, self.offset, self._head_checksum, self._written_at, self._is_skipping)

    @property
    def is_deleted(self) -> bool:
        """Whether the file no longer has a name."""
        return os.fstat(self._descriptor).st_nlink == 0

    def _update_head(self) -> None:
        size = min(self.offset, HEAD_SIZE)
        if size != self._head_size:
            self._head_size, self._head_checksum = size, self._compute_checksum(size)

    def _compute_checksum(self, size: int) -> int:
        return crc32(os.pread(self._descriptor, size, 0))

    @property
    def is_truncated(self) -> bool:
        """Whether the file is shorter than what was read of it, or has grown again since, with another beginning."""
        if os.fstat(self._descriptor).st_size < self.offset + len(self._rest):
            return True
        return self._compute_checksum(self._head_size) != self._head_checksum

    def read_lines(self) -> list[tuple[bytes, FilePosition]]:
        """Return complete lines of the next part of the file, without their ends; blank lines are left out."""
        lines: list[tuple[bytes, FilePosition]] = []
        self._written_at = os.fstat(self._descriptor).st_mtime_ns
        while not lines and (chunk := os.pread(self._descriptor, CHUNK_SIZE, self.offset + len(self._rest))):
            *complete, rest = (self._rest + chunk).split(b"\n")
            for line in complete:
                self.offset += len(line) + 1
                self._add_line(lines, line)
            self._rest = rest
            if len(rest) > self._max_line:
                self.offset += len(rest)
                self._rest = b""
                self._add_line(lines, rest[: self._max_line], is_cut=True)  # no event: a dead letter shows it
        self._update_head()
        return lines

    def _add_line(self, lines: list[tuple[bytes, FilePosition]], line: bytes, *, is_cut: bool = False) -> None:
        was_skipping, self._is_skipping = self._is_skipping, is_cut
        if not was_skipping and (text := line.rstrip(b"\r")):
            lines.append((text, self.position))

    def take_rest(self) -> list[tuple[bytes, FilePosition]]:
        """Return the last line if it has no end: nothing is added to a file that was rotated away."""
        self.offset += len(self._rest)
        lines: list[tuple[bytes, FilePosition]] = []
        self._add_line(lines, self._rest)
        self._rest = b""
        return lines

    def skip_to_end(self) -> None:
        """Continue after the last complete line that the file has now."""
        size = os.fstat(self._descriptor).st_size
        while size > 0:
            begin = max(0, size - CHUNK_SIZE)
            end = os.pread(self._descriptor, size - begin, begin).rfind(b"\n")
            if end >= 0:
                self.offset = begin + end + 1
                self._update_head()
                return
            size = begin

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


def _age_rank(suffix: str) -> int:
    """Order files whose last writes are equally old: ".2" is older than ".1", and dates are in the order of names."""
    digits = suffix[1:]
    return -int(digits) if digits.isdigit() and len(digits) <= MAX_COUNTER_DIGITS else 0


def _inode(path: Path) -> int | None:
    try:
        return os.stat(path).st_ino
    except FileNotFoundError:
        return None


def _written_at(path: Path) -> int:
    """Return when a file was last written to; 0 if it is gone."""
    try:
        return os.stat(path).st_mtime_ns
    except FileNotFoundError:
        return 0


def _is_at(path: Path, position: FilePosition) -> bool:
    """Return whether a position is one of this file."""
    return _inode(path) == position.inode and _is_continued_in(path, position)


def _is_continued_in(path: Path, position: FilePosition) -> bool:
    """Return whether a file has what was read, up to a position: it is the file of the position, or a copy of it."""
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size < position.offset:
                return False
            return crc32(file.read(min(position.offset, HEAD_SIZE))) == position.head_checksum
    except FileNotFoundError:
        return False
