"""The result of an attempt whose unit is over, but which has not reported: what the cluster says decides. Pure."""

from msgspec.structs import replace

from tidemill.engine.workflows.executors.remote.interface import UnitStatus
from tidemill.workflows.attempt_results import AttemptResult, Failed, Lost
from tidemill.workflows.records import FailureOutcome, TaskError
from tidemill.workflows.states import TaskState

REPORTED = 0
"""It has reported its result, whichever that is."""
CONFIGURATION_ERROR = 2
"""The environment names no server or no token, or the command was called wrongly."""
NOT_WANTED = 10
"""The server no longer wants the attempt, or another process runs it."""
LEASE_LOST = 11
"""No server answered until the lease had run out. The code was stopped."""
TERMINATED = 12
"""The cluster has terminated it. The code was stopped."""

MEANINGS = {
    REPORTED: "The attempt has reported its result, whichever that is.",
    CONFIGURATION_ERROR: "The environment names no server or no token, or the command was called wrongly.",
    NOT_WANTED: "The server no longer wants the attempt, or another process runs it. The code was stopped.",
    LEASE_LOST: "No server answered until the lease had run out. The code was stopped.",
    TERMINATED: "The cluster has terminated the attempt with SIGTERM. The code was stopped.",
}
"""By code, for people."""

_OWN_EXITS = (NOT_WANTED, LEASE_LOST, TERMINATED)
"""Exit codes with which an attempt ends by itself before it begins: starting it again may help."""


def judge_unit(status: UnitStatus, state: TaskState) -> AttemptResult:
    """Return the result of an attempt that is still queued or running although its unit is over.

    What the cluster does to a unit costs a recovery. What would happen again, such as an image that does not exist or
    code that needs too much memory, is a failure.
    """
    match status.cause:
        case "evicted":
            return Lost(status.reason or "its unit was evicted", outcome="evicted")
        case "node_lost":
            return Lost(status.reason or "the machine that ran it was lost", outcome="node_lost")
        case "deleted":
            return Lost(status.reason or "its unit was deleted")
        case "oom":
            return _fail(status, "OutOfMemory", "oom", "it needed more memory than its unit has")
        case "image_pull" | "pending_timeout" | "refused" if state is not TaskState.RUNNING:
            return _fail(status, "NotStarted", "not_started", "its unit could not be started")
    if status.state == "missing":
        return Lost(status.reason or "its unit is gone")
    code = "" if status.exit is None else f", with exit code {status.exit}"
    detail = f"{code}: {status.reason}" if status.reason else code
    if state is TaskState.RUNNING or status.exit in _OWN_EXITS:
        return Lost(f"its unit ended without a report{detail}")
    return _fail(replace(status, reason=""), "NotStarted", "not_started", f"its unit ended before it began{detail}")


def _fail(status: UnitStatus, kind: str, outcome: FailureOutcome, default: str) -> Failed:
    tail = f"\n\nThe end of its output:\n{status.log_tail}" if status.log_tail else ""
    return Failed(error=TaskError(kind, f"{status.reason or default}{tail}"), outcome=outcome, exit=status.exit)
