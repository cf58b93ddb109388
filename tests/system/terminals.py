"""A program on a terminal of its own: its screen, and its reaction to keys."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Sequence
from pathlib import Path

CTRL_C = b"\x03"
_ESCAPE = re.compile(r"\x1b\[(?P<number>[?0-9;]*)(?P<order>[A-Za-z])")


class Terminal:
    """A program on a pseudo-terminal."""

    def __init__(self, arguments: Sequence[str], folder: Path, *, columns: int = 80, rows: int = 24) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        unset = {"COLUMNS", "LINES", "NO_COLOR", "CI", "TIDEMILL_STORE"}
        environment = {name: value for name, value in os.environ.items() if name not in unset}
        self.program = subprocess.Popen(
            [sys.executable, "-m", "tidemill", *arguments],
            cwd=folder,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment | {"TERM": "xterm-256color", "LANG": "C.UTF-8", "PYTHONUTF8": "1"},
            start_new_session=True,
            preexec_fn=_take_terminal,
        )
        os.close(theirs)
        self._seen = b""
        self._columns = columns

    @property
    def screen(self) -> str:
        """The current contents of the screen, with the lines above."""
        return _drawn(self._seen.decode(errors="replace"), self._columns)

    def wait_for(self, holds: Callable[[str], bool], patience: float = 30.0) -> str:
        """Read until the screen satisfies a condition, and return it; raise AssertionError if it never does."""
        deadline = time.monotonic() + patience
        while not holds(self.screen):
            assert time.monotonic() < deadline, f"still:\n{self.screen}"
            assert self._read(0.05) or self.program.poll() is None, f"ended:\n{self.screen}"
        return self.screen

    def press(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self._ours, keys)

    def end(self, patience: float = 30.0) -> int:
        """Read to the end, and return the exit code."""
        deadline = time.monotonic() + patience
        while self._read(0.05) or self.program.poll() is None:
            assert time.monotonic() < deadline, f"still:\n{self.screen}"
        return self.program.wait(patience)

    def close(self) -> None:
        """Kill it."""
        self.program.kill()
        self.program.wait()
        os.close(self._ours)

    def _read(self, patience: float) -> bool:
        ready, _, _ = select.select([self._ours], [], [], patience)
        try:
            news = os.read(self._ours, 65536) if ready else b""
        except OSError:  # the program has closed the terminal
            news = b""
        self._seen += news
        return bool(news)


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _drawn(text: str, columns: int) -> str:
    """Return what a terminal shows of it: as much of one as a program needs that redraws some lines.

    What goes beyond the last column begins another line there, and is read as one with the line that it belongs to.
    """
    lines: list[list[str]] = [[]]
    continued: set[int] = set()
    row = column = position = 0
    while position < len(text):
        if escape := _ESCAPE.match(text, position):
            if escape["order"] == "A":
                row = max(0, row - int(escape["number"] or 1))
            elif escape["order"] == "K":
                lines[row] = [] if escape["number"] == "2" else lines[row][:column]
                continued.discard(row)
            position = escape.end()
            continue
        sign = text[position]
        position += 1
        if sign == "\r":
            column = 0
        elif sign == "\n":
            row += 1
        elif sign >= " ":
            if column == columns:
                row, column = row + 1, 0
                continued.add(row)
            lines += [[] for _ in range(row + 1 - len(lines))]
            lines[row] += [" "] * (column + 1 - len(lines[row]))
            lines[row][column] = sign
            column += 1
        lines += [[] for _ in range(row + 1 - len(lines))]
    drawn = [f"{'' if number in continued else chr(10)}{''.join(line)}" for number, line in enumerate(lines)]
    return "\n".join(line.rstrip() for line in "".join(drawn)[1:].split("\n"))
