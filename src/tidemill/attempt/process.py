"""Runs the code of the attempt in a child process, so that code that blocks does not silence the heartbeats.

It also tells a child that the kernel killed for lack of memory from one that died otherwise. Where the kernel kills a
whole container, the cluster says so. With `memory.oom.group` off, it kills the largest process alone: the child with
the code. Only the counter of the control group shows that.
"""

import signal
from pathlib import Path

from tidemill.engine.workflows.executors.code import CodeLocation, CodeLocations
from tidemill.engine.workflows.executors.interface import AttemptListener, AttemptRequest, HandleCall
from tidemill.engine.workflows.executors.subprocess import Subprocess
from tidemill.kernel.clock import Clock
from tidemill.kernel.masking import SecretMask
from tidemill.workflows.attempt_results import AttemptResult, Failed
from tidemill.workflows.records import TaskError


class _OneLocation(CodeLocations):
    """The location of the only version that the attempt needs."""

    def __init__(self, location: CodeLocation) -> None:
        self._location = location

    def get(self, tenant: str, workflow: str, version: str) -> CodeLocation:  # noqa: ARG002
        return self._location

    def values(self) -> list[CodeLocation]:
        return [self._location]


class AttemptProcess(Subprocess):
    """Runs one attempt, whose code no other process here has loaded."""

    name = "attempt"

    def __init__(
        self,
        location: CodeLocation,
        listener: AttemptListener,
        clock: Clock,
        *,
        handle_call: HandleCall,
        mask: SecretMask,
        lease: float,
    ) -> None:
        super().__init__(
            {},
            listener,
            clock,
            concurrency=1,
            handle_call=handle_call,
            mask=mask,
            lease=lease,
            locations=_OneLocation(location),
        )

    def _trim_inputs(self, request: AttemptRequest) -> AttemptRequest:
        """Return the request as it is: the node has trimmed it."""
        return request


CGROUP_ROOT = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")
_COUNTER = "oom_kill"


def find_memory_events(own: Path = OWN_CGROUPS, root: Path = CGROUP_ROOT) -> Path | None:
    """Return the file with the counters of the memory of this process; None without cgroups of version 2."""
    try:
        lines = own.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("0::"):
            path = root / line.removeprefix("0::").lstrip("/") / "memory.events"
            return path if path.is_file() else None
    return None


class OomWatch:
    """Notices kills for lack of memory while it exists."""

    def __init__(self, memory_events: Path | None) -> None:
        self._file = memory_events
        self._before = self._read()

    def judge(self, result: AttemptResult) -> AttemptResult:
        """Return the result of the code: out of memory if its process was killed, and the kernel has counted a kill."""
        is_killed = isinstance(result, Failed) and result.exit == -signal.SIGKILL and result.outcome == "failed"
        if not is_killed or self._read() <= self._before:
            return result
        message = "the code used more memory than its unit has, and the kernel killed it"
        return Failed(error=TaskError("OutOfMemory", message), outcome="oom", exit=-signal.SIGKILL)

    def _read(self) -> int:
        """Return the number of kills so far; 0 if it is not known."""
        try:
            text = "" if self._file is None else self._file.read_text(encoding="utf-8")
        except OSError:
            return 0
        counters = dict(line.split(" ", 1) for line in text.splitlines() if " " in line)
        return int(counters.get(_COUNTER, "0"))
