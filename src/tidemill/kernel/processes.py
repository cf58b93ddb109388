"""Processes of this host, as /proc shows them."""

from pathlib import Path
from typing import NamedTuple

_START_TIME_FIELD = 19  # field of /proc/PID/stat after the name in brackets, which may hold spaces


class Process(NamedTuple):
    """A process of this host."""

    state: str
    """A letter: R for running, S for sleeping, T for stopped, Z for ended, and more."""
    started: str
    """When it started, in ticks since the boot."""

    @property
    def has_ended(self) -> bool:
        """Whether it has ended, and its parent has not noticed yet."""
        return self.state in "ZX"

    @property
    def is_stopped(self) -> bool:
        """Whether a signal or a debugger has stopped it."""
        return self.state in "Tt"


def read_process(pid: int) -> Process | None:
    """Return a process; None if it does not exist, or is not shown."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()
    except OSError:
        return None
    return Process(fields[0], fields[_START_TIME_FIELD])
