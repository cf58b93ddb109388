"""The process that holds the write lock of a database file, as far as the system shows it.

In a file with a write-ahead log, one process at a time may write: the one with a lock on a certain byte of the -shm
file. If it is stopped in the middle of a write, all others wait for it, and the operator has to know which one it is.
"""

import os
from pathlib import Path
from typing import NamedTuple

from tidemill.kernel.processes import read_process

_WRITE_LOCK_BYTE = "120"  # of the -shm file: WAL_WRITE_LOCK in "WAL-mode File Format"


class LockHolder(NamedTuple):
    """A process that holds the write lock."""

    pid: int
    is_stopped: bool

    def __str__(self) -> str:
        return f"process {self.pid}, which is stopped" if self.is_stopped else f"process {self.pid}"

    @property
    def advice(self) -> str:
        """What the operator can do."""
        return f"continue it with kill -CONT {self.pid}, or end it" if self.is_stopped else "try again"


def find_lock_holder(path: str) -> LockHolder | None:
    """Return the process that may write to a database file now; None if there is none, or it is not shown."""
    try:
        inode, locks = os.stat(f"{path}-shm").st_ino, Path("/proc/locks").read_text("ascii", "replace")
    except OSError:
        return None
    for line in locks.splitlines():  # 1: POSIX  ADVISORY  WRITE 5402 00:1b:4945312 120 120
        _, _, _, kind, pid, file, first, *_ = line.replace("->", "").split()
        # The device is not compared: some file systems show another one here than to `stat`.
        if (kind, first) == ("WRITE", _WRITE_LOCK_BYTE) and file.rpartition(":")[2] == str(inode) and int(pid) > 0:
            process = read_process(int(pid))
            return LockHolder(int(pid), is_stopped=process is not None and process.is_stopped)
    return None
