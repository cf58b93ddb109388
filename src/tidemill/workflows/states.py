"""The states of runs and task runs, in Airflow's words, and their legal transitions.

`queued` means claimed: the row names the node that claimed it and the end of its lease. `running` begins when the
executor reports the start.
"""

from enum import StrEnum

from tidemill.kernel.transitions import TransitionTable


class TaskState(StrEnum):
    """The state of a task run."""

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

    is_terminal: bool
    """Whether the task stays in this state unless it is cleared."""
    has_failed: bool
    """Whether tasks that depend on its success cannot run."""
    is_claimed: bool
    """Whether a node has claimed it, under a lease."""
    is_active: bool
    """Whether it will still change without being cleared."""


class RunState(StrEnum):
    """The state of a run."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCESS = "success"
    FAILED = "failed"
    CANCELLED = "cancelled"

    is_terminal: bool
    """Whether the run has ended."""


_T, _R = TaskState, RunState

_TERMINAL = frozenset([_T.SUCCESS, _T.FAILED, _T.SKIPPED, _T.UPSTREAM_FAILED, _T.CANCELLED])

for _task_state in _T:  # set once: the planner and the stores read them for every task
    _task_state.is_terminal = _task_state in _TERMINAL
    _task_state.has_failed = _task_state in (_T.FAILED, _T.UPSTREAM_FAILED, _T.CANCELLED)
    _task_state.is_claimed = _task_state in (_T.QUEUED, _T.RUNNING)
    _task_state.is_active = not _task_state.is_terminal and _task_state is not _T.NONE
for _run_state in _R:
    _run_state.is_terminal = _run_state in (_R.SUCCESS, _R.FAILED, _R.CANCELLED)

TASK_TRANSITIONS = TransitionTable(
    {
        # Directly to success: a mapping over an empty list has nothing to run.
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
