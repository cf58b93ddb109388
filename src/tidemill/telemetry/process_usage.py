"""Measures this process: memory, processor time and threads."""

import os
import resource
import sys
import threading

import msgspec

PAGE_SIZE = resource.getpagesize()
RSS_UNIT = 1 if sys.platform == "darwin" else 1024
"""Bytes in a unit of the peak that the system reports."""


class ProcessUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What a process uses."""

    pid: int
    memory: int | None
    """Bytes of memory that it has now; null where the system does not say."""
    peak_memory: int
    """The most that it has had."""
    cpu_seconds: float
    """Processor time, of all its threads; that of its children is not included."""
    threads: int


def read_process_usage() -> ProcessUsage:
    """Return what this process uses now."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return ProcessUsage(
        pid=os.getpid(),
        memory=_read_memory(),
        peak_memory=usage.ru_maxrss * RSS_UNIT,
        cpu_seconds=usage.ru_utime + usage.ru_stime,
        threads=threading.active_count(),
    )


def _read_memory() -> int | None:
    if sys.platform != "linux":
        return None
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * PAGE_SIZE
