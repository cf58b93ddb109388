"""One change of one run: everything that is written together, and what must hold for it to be written at all.

A change is all or nothing. It names, for each task run that it moves, the state, attempt and owner that it found; if
one is no longer so, the store refuses the whole and whoever made the change looks again. So nobody has to lock a run
in order to think about it, and a report that comes too late changes nothing.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal, NamedTuple

import msgspec

from tidemill.workflows.plan import UNMAPPED
from tidemill.workflows.records import AttemptKey, AttemptRow, FireRow, RunEvent, RunEventBatch, RunRow, TaskRow
from tidemill.workflows.states import RUN_TRANSITIONS, TASK_TRANSITIONS, RunState, TaskState


class LeaderFence(NamedTuple):
    """A term in office. What is written under it is refused once somebody else has taken over."""

    name: str
    epoch: int


class TaskChange(msgspec.Struct, frozen=True, gc=False):
    """A task run as it was found, and as it shall be. The guard is (state, attempt, claimed_by) of what was found."""

    expected: TaskRow
    updated: TaskRow
    expired_lease: datetime | None = None
    """Until when its lease must still be held, if it is taken from somebody because that was not renewed."""


class PoolLimit(NamedTuple):
    """How many task runs of a pool may be queued or running at a time, in a tenant."""

    tenant: str
    pool: str
    slots: int


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What is written together about one run."""

    run: str
    fence: LeaderFence | None = None
    new_run: RunRow | None = None
    """The run itself, if it does not exist yet; all its tasks are in `added`."""
    fire: FireRow | None = None
    expected_run: RunRow | None = None
    """The run as it was found: refused unless its `state` and `clears` are still so. None: whatever they are."""
    updated_run: RunRow | None = None
    """The run as it shall be: state, times, reason, version. `revision` and `clears` are counted by the store."""
    tasks: Sequence[TaskChange] = ()
    removed: Sequence[TaskRow] = ()
    """Task runs that make room for others; guarded like changes."""
    added: Sequence[TaskRow] = ()
    attempts: Sequence[AttemptRow] = ()
    """Tries that ended. One that had ended before stays as it is."""
    outputs: Mapping[AttemptKey, bytes] = {}
    """What some of these tries returned, encoded."""
    cleared_outputs: Sequence[str] = ()
    """Tasks of which everything is deleted that earlier tries returned, all elements."""
    history: RunEventBatch | None = None
    lease: float = 0.0
    """Seconds for which what is queued or running after the change is leased to its owner."""
    pools: Sequence[PoolLimit] = ()
    """Limits that must hold after the change."""
    is_operator_action: bool = False
    """Whether it undoes what others may have built on: counts `clears` up."""


class Applied(msgspec.Struct, frozen=True, gc=False):
    """The change was written; the run's revision after it."""

    revision: int


RefusalReason = Literal["fenced", "stale", "full", "fired", "paused"]
"""Why a change is refused."""


class Refused(msgspec.Struct, frozen=True):
    """Nothing was written.

    * fenced: somebody else is in office;
    * stale: something is not as it was found, or the run is gone;
    * full: a pool has no room;
    * fired: the slot, or the payload, has its run already;
    * paused: it would make a run, and the workflow is paused.
    """

    reason: RefusalReason


def task_event(row: TaskRow, before: TaskState, after: TaskState, reason: str = "") -> RunEvent:
    """Return the record of a move of a task run; IllegalTransitionError if there is no such move."""
    if (before, after) not in TASK_TRANSITIONS.allowed:
        TASK_TRANSITIONS.check(f"task '{row.task}'", before, after)
    return RunEvent(row.task, row.index, row.attempt, before, after, reason)


def run_event(run: RunRow, after: RunState, reason: str = "") -> RunEvent:
    """Return the record of a move of a run; IllegalTransitionError if there is no such move."""
    if (run.state, after) not in RUN_TRANSITIONS.allowed:
        RUN_TRANSITIONS.check(f"run '{run.id}'", run.state, after)
    return RunEvent(None, UNMAPPED, 0, run.state, after, reason)
