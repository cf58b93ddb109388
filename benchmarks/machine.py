"""The machine on which figures were measured, as far as a reader needs it to compare; no name of a host, no path."""

import os
import platform
import sqlite3
import subprocess
import tempfile
from pathlib import Path

import msgspec

from tidemill.kernel.clock import SystemClock

ROOT = Path(__file__).parents[1]


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """Hardware and software behind a result, and the version of the code."""

    processor: str
    cores: int
    python: str
    system: str
    """The operating system and the version of its kernel."""
    sqlite: str
    file_system: str
    """The kind of file system that holds the databases of the benchmarks."""
    measured_on: str
    commit: str
    """The commit of the code; `-dirty` if files differed from it."""

    @property
    def summary(self) -> str:
        """Processor, cores and Python in one line."""
        return f"{self.cores} cores, {self.processor}, Python {self.python}"


def describe_machine() -> Machine:
    """Describe this machine, now."""
    return Machine(
        processor=_processor(),
        cores=os.cpu_count() or 1,
        python=platform.python_version(),
        system=f"{platform.system()} {platform.release().partition('-')[0]}",
        sqlite=sqlite3.sqlite_version,
        file_system=_file_system(Path(tempfile.gettempdir())),
        measured_on=SystemClock().now().date().isoformat(),
        commit=_commit(),
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def _file_system(folder: Path) -> str:
    """Return the kind of the file system on which a folder lies: that of the longest mount point above it."""
    try:
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    except OSError:
        return "unknown"
    above = [(fields[1], fields[2]) for fields in mounts if folder.resolve().is_relative_to(fields[1])]
    return max(above, key=lambda mount: len(mount[0]), default=("", "unknown"))[1]


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    try:
        found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "unknown"
    return found.stdout.strip() or "unknown"
