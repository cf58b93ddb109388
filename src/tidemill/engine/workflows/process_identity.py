"""Who claims: this process, and how to tell that another one is gone.

A pid alone tells nothing, it is given again, and every container counts its own. Together with the boot of the host,
the namespace it is counted in and the moment the process began it names one process for ever, so that a claim of a dead
one can be taken back at once instead of after its lease. Of processes elsewhere, and of those before the last boot,
nothing is known for certain: machines are cloned, names and all.
"""

import os
import socket
from datetime import datetime
from pathlib import Path
from typing import Protocol

from tidemill.kernel.ids import new_instance_id
from tidemill.storage.workflow_ports import Owner

_UNKNOWN_START_TIME = "unknown"
"""When a process began that is there, but is not shown to us."""
_START_TIME_FIELD = 19  # field of /proc/PID/stat after the name in brackets, which may hold spaces


class ProcessLiveness(Protocol):
    """Who tells whether an owner is gone."""

    def is_dead(self, owner: Owner) -> bool:
        """Return True only if it is certain that the owner will never write again."""


class HostLiveness(ProcessLiveness):
    """Knows about the processes that can be seen from here; of others it knows nothing."""

    def is_dead(self, owner: Owner) -> bool:
        is_visible = (owner.host, owner.boot) == (_host_id(), _boot_id())
        if not is_visible:
            return False
        started = _process_start_time(owner.pid)
        return not started or (started != owner.started and _UNKNOWN_START_TIME not in (started, owner.started))


def current_owner(at: datetime) -> Owner:
    """Return an owner for this life of a node in this process."""
    pid = os.getpid()
    return Owner(
        id=new_instance_id(), host=_host_id(), boot=_boot_id(), pid=pid, started=_process_start_time(pid), at=at
    )


def _host_id() -> str:
    """Return where this process is counted: its host, and there its container, if it is in one."""
    try:
        return f"{socket.gethostname()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()


def _boot_id() -> str:
    return _read_text("/proc/sys/kernel/random/boot_id")


def _process_start_time(pid: int) -> str:
    """Return when a process began, in ticks since the boot; empty for one that is not there, or is only a corpse."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()
    except OSError:
        return _UNKNOWN_START_TIME if _process_exists(pid) else ""
    return "" if fields[0] == "Z" else fields[_START_TIME_FIELD]


def _process_exists(pid: int) -> bool:
    """Return whether there is such a process, where /proc does not show it, or does not exist."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _read_text(path: str) -> str:
    try:
        return Path(path).read_text("ascii", "replace").strip()
    except OSError:
        return ""
