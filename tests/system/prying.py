"""A workflow whose task looks for the secrets of its server, in its own process and in those above it."""

import os
from pathlib import Path

import tidemill as tm

prying = tm.Workflow("prying")


@prying.task(executor="subprocess")
def look() -> list[str]:
    """Return everything that can be read, up to the process of the test."""
    found, pid = [f"{name}={value}" for name, value in os.environ.items()], str(os.getpid())
    while "pytest" not in (command := Path("/proc", pid, "cmdline").read_bytes().replace(b"\0", b" ").decode()):
        found.append(command)
        try:
            found.append(Path("/proc", pid, "environ").read_bytes().decode(errors="replace"))
            found += [os.readlink(one) for one in Path("/proc", pid, "fd").iterdir() if one.exists()]
        except PermissionError:
            found.append("closed")
        pid = Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[1]
    return found
