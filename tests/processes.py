"""Finds the processes that a test has caused."""

import os
from pathlib import Path


def alive_with(text: bytes) -> list[int]:
    """Return the processes that have a text in their command line or environment."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            state = Path("/proc", name, "stat").read_bytes().rpartition(b")")[2].split()[0]
            said = Path("/proc", name, "environ").read_bytes() + Path("/proc", name, "cmdline").read_bytes()
        except OSError:
            continue
        if text in said and state != b"Z":
            found.append(int(name))
    return found
