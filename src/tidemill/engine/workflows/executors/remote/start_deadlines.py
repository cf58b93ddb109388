"""Deadlines of the start of units: how long each has been pending, and when that is too long. Pure."""

from tidemill.engine.workflows.executors.remote.interface import StartTimeouts, UnitStatus
from tidemill.kernel.durations import format_duration


class StartDeadline:
    """Since when one unit is pending, and since when it has a problem. Times are monotonic."""

    __slots__ = ("_pending_since", "_status", "_troubled_since")

    def __init__(self) -> None:
        self._status: UnitStatus | None = None
        self._pending_since: float | None = None
        self._troubled_since: float | None = None

    def update(self, status: UnitStatus, now: float) -> None:
        """Accept what the cluster says about the unit."""
        self._status = status
        if self._pending_since is None:
            self._pending_since = now
        if status.problem is None:
            self._troubled_since = None
        elif self._troubled_since is None:
            self._troubled_since = now

    def find_end(self, timeouts: StartTimeouts, now: float) -> UnitStatus | None:
        """Return the end that a unit deserves which should have started long ago; None if it need not have."""
        status = self._status
        if status is None or status.state != "pending" or self._pending_since is None:
            return None
        reason = status.reason or "the cluster does not say why"
        if self._troubled_since is not None and now - self._troubled_since >= timeouts.problem:
            text = f"its unit cannot be started for {format_duration(timeouts.problem)}: {reason}"
            return UnitStatus(state="ended", cause=status.problem, reason=text)
        if now - self._pending_since >= timeouts.pending:
            text = f"it did not start within {format_duration(timeouts.pending)}: {reason}"
            return UnitStatus(state="ended", cause="pending_timeout", reason=text)
        return None
