"""The states of runs and task runs, and which may follow which. The words are Airflow's.

`queued` means claimed: whoever runs it is named in the row, and holds a lease. `running` begins with the handshake of
whatever runs it.
"""

from enum import StrEnum

from tidemill.kernel.transitions import TransitionTable


class TaskState(StrEnum):
    """Where one task of a run stands."""

    NONE = "none"
    SCHEDULED = "scheduled"
    QUEUED = "queued"
    RUNNING = "running"
    SUCCESS = "success"
    FAILED = "failed"
    SKIPPED = "skipped"
    UPSTREAM_FAILED = "upstream_failed"
    UP_FOR_RETRY = "up_for_retry"
    DEFERRED = "deferred"
    CANCELLED = "cancelled"

    @property
    def is_terminal(self) -> bool:
        """Whether nothing happens to it any more, unless somebody clears it."""
        return self in _TERMINAL

    @property
    def has_failed(self) -> bool:
        """Whether what depends on its success cannot have it."""
        return self in (TaskState.FAILED, TaskState.UPSTREAM_FAILED, TaskState.CANCELLED)

    @property
    def is_claimed(self) -> bool:
        """Whether somebody has it, under a lease."""
        return self in (TaskState.QUEUED, TaskState.RUNNING)

    @property
    def is_active(self) -> bool:
        """Whether something, or somebody, is still going to move it."""
        return not self.is_terminal and self is not TaskState.NONE


class RunState(StrEnum):
    """Where one execution of a workflow stands."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCESS = "success"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_terminal(self) -> bool:
        """Whether the run has ended."""
        return self in (RunState.SUCCESS, RunState.FAILED, RunState.CANCELLED)


_T, _R = TaskState, RunState

_TERMINAL = frozenset([_T.SUCCESS, _T.FAILED, _T.SKIPPED, _T.UPSTREAM_FAILED, _T.CANCELLED])

TASK_TRANSITIONS = TransitionTable(
    {
        # To success at once: a mapping over an empty list has nothing to run.
        _T.NONE: {_T.SCHEDULED, _T.SKIPPED, _T.UPSTREAM_FAILED, _T.SUCCESS, _T.CANCELLED},
        _T.SCHEDULED: {_T.QUEUED, _T.FAILED, _T.CANCELLED},
        _T.QUEUED: {_T.RUNNING, _T.SCHEDULED, _T.UP_FOR_RETRY, _T.FAILED, _T.CANCELLED},
        _T.RUNNING: {
            _T.SUCCESS,
            _T.FAILED,
            _T.SKIPPED,
            _T.UPSTREAM_FAILED,
            _T.DEFERRED,
            _T.UP_FOR_RETRY,
            _T.CANCELLED,
        },
        _T.UP_FOR_RETRY: {_T.SCHEDULED, _T.CANCELLED},
        _T.DEFERRED: {_T.SCHEDULED, _T.FAILED, _T.CANCELLED},
        **{state: {_T.NONE} for state in sorted(_TERMINAL)},  # cleared
    }
)

RUN_TRANSITIONS = TransitionTable(
    {
        _R.QUEUED: {_R.RUNNING, _R.CANCELLED},
        _R.RUNNING: {_R.SUCCESS, _R.FAILED, _R.CANCELLED},
        **{state: {_R.QUEUED} for state in (_R.SUCCESS, _R.FAILED, _R.CANCELLED)},  # cleared
    }
)


def active_states() -> tuple[RunState, ...]:
    """Return the states of runs that have not ended."""
    return tuple(state for state in RunState if not state.is_terminal)
