"""The identity of this process as an owner of claims, and the check whether another owner's process is gone.

A pid alone identifies nothing: it is reused, and every container counts its own. Together with the boot of the host,
the pid namespace and the start time of the process it identifies one process, so that a claim of a dead process can be
recovered immediately instead of after its lease. Nothing is certain about processes on other hosts, or before the last
boot: machines are cloned, names and all.
"""

import os
import socket
import sys
from datetime import datetime
from pathlib import Path
from typing import Protocol

from tidemill.kernel.ids import new_instance_id
from tidemill.kernel.processes import read_process
from tidemill.storage.node_kinds import NodeKind
from tidemill.storage.workflow_ports import NodeRow

_UNKNOWN_START_TIME = "unknown"
"""The start time of a process that exists but is not visible in /proc."""


class ProcessLiveness(Protocol):
    """Decides whether an owner's process is gone."""

    def is_dead(self, owner: NodeRow) -> bool:
        """Return True only if the owner will certainly never write again."""

    def is_running(self, owner: NodeRow) -> bool:
        """Return True only if the owner's process certainly runs: it is there, and it is not stopped."""


class HostLiveness(ProcessLiveness):
    """Decides for processes of this host and pid namespace; all others count as alive."""

    def is_dead(self, owner: NodeRow) -> bool:
        if not _is_visible(owner):
            return False
        started = _process_start_time(owner.pid)
        return not started or (started != owner.started and _UNKNOWN_START_TIME not in (started, owner.started))

    def is_running(self, owner: NodeRow) -> bool:
        """Return whether the process runs; False for another node of this process, of which that says nothing."""
        if not _is_visible(owner) or owner.pid == os.getpid():
            return False
        process = read_process(owner.pid)
        if process is None or process.has_ended or process.is_stopped:
            return False
        return process.started == owner.started


def _is_visible(owner: NodeRow) -> bool:
    """Return whether the processes of an owner's host and boot can be seen from here."""
    return (owner.host, owner.boot) == (_host_id(), _boot_id())


def current_owner(
    at: datetime,
    *,
    kind: NodeKind = "embedded",
    name: str | None = None,
    labels: tuple[str, ...] = (),
    concurrency: int = 0,
) -> NodeRow:
    """Return a new owner for a node in this process; by default its name is that of the host, with the pid."""
    pid = os.getpid()
    return NodeRow(
        id=new_instance_id(),
        host=_host_id(),
        boot=_boot_id(),
        pid=pid,
        started=_process_start_time(pid),
        at=at,
        kind=kind,
        name=name or f"{socket.gethostname()}-{pid}",
        labels=labels,
        concurrency=concurrency,
    )


def _host_id() -> str:
    """Return the host of this process with its pid namespace, which differs between containers."""
    try:
        return f"{socket.gethostname()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()


def _boot_id() -> str:
    return _read_text("/proc/sys/kernel/random/boot_id")


def _process_start_time(pid: int) -> str:
    """Return when a process started, in ticks since the boot; empty if it does not exist, or is a zombie."""
    process = read_process(pid)
    if process is None:
        return _UNKNOWN_START_TIME if _process_exists(pid) else ""
    return "" if process.has_ended else process.started


def _process_exists(pid: int) -> bool:
    """Return whether a process exists, where /proc does not show it or is missing."""
    if sys.platform == "win32":
        return True  # there the call below would end it: heartbeats say whether it lives
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
