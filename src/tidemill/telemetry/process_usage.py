"""Measures this process: memory, processor time and threads."""

import os
import sys
import threading
import time

import msgspec

try:
    import resource
except ModuleNotFoundError:  # Windows has none
    resource = None  # type: ignore[assignment]

PAGE_SIZE = resource.getpagesize() if resource else 0
RSS_UNIT = 1 if sys.platform == "darwin" else 1024
"""Bytes in a unit of the peak that the system reports."""


class ProcessUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What a process uses."""

    pid: int
    memory: int | None
    """Bytes of memory that it has now; null where the system does not say."""
    peak_memory: int
    """The most that it has had; 0 where the system does not say."""
    cpu_seconds: float
    """Processor time, of all its threads; that of its children is not included."""
    threads: int


def read_process_usage() -> ProcessUsage:
    """Return what this process uses now."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * RSS_UNIT if resource else 0
    return ProcessUsage(
        pid=os.getpid(),
        memory=_read_memory(),
        peak_memory=peak,
        cpu_seconds=time.process_time(),
        threads=threading.active_count(),
    )


def _read_memory() -> int | None:
    if sys.platform != "linux":
        return None
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * PAGE_SIZE
