"""The processor time of other processes, as /proc shows it."""

import os
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def tree_seconds(pid: int) -> float:
    """Return the seconds of a process and its descendants, with those that have ended and were waited for.

    A process that ends during the look counts as none: its parent has its time from then on.
    """
    try:
        children = [int(child) for task in _tasks(pid) for child in (task / "children").read_text().split()]
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(int(field) for field in fields[11:15]) / TICKS + sum(map(tree_seconds, children))


def _tasks(pid: int) -> list[Path]:
    return list(Path(f"/proc/{pid}/task").iterdir())
