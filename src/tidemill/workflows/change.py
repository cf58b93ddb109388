"""One change of one run: everything that is written together, and the conditions for writing it.

A change is all or nothing. For each task run that it moves it names the state, attempt and owner that it found; if one
of them differs now, the store refuses the whole change, and its author reads the run again. So no one has to lock a run
in order to think about it, and a report that comes too late changes nothing.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Literal, NamedTuple

import msgspec

from tidemill.workflows.records import AttemptKey, AttemptRow, FireRow, RunEventBatch, RunRow, TaskRow
from tidemill.workflows.waits import WaitChanges


class LeaderFence(NamedTuple):
    """A leader's term. The store refuses changes under it once another leader has taken over."""

    name: str
    epoch: int


class TaskChange(msgspec.Struct, frozen=True, gc=False):
    """A task run as it was found, and as it shall be. The store compares (state, attempt, claimed_by) of the former."""

    expected: TaskRow
    updated: TaskRow
    expired_lease: datetime | None = None
    """The lease end that must still be stored, if the task run is taken from its worker because its lease expired."""


class PoolLimit(NamedTuple):
    """The number of a tenant's task runs in a pool that may be queued or running at a time.

    If the store has a size of the pool, that size is the limit instead.
    """

    tenant: str
    pool: str
    slots: int


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is written together about one run."""

    run: str
    fence: LeaderFence | None = None
    new_run: RunRow | None = None
    """The run itself, if it does not exist yet; all its tasks are in `added`."""
    fire: FireRow | None = None
    expected_run: RunRow | None = None
    """The run as it was found: refused unless its `state` and `clears` are unchanged. None: not compared."""
    updated_run: RunRow | None = None
    """The run as it shall be: state, times, reason, version. The store counts `revision` and `clears`."""
    tasks: Sequence[TaskChange] = ()
    removed: Sequence[TaskRow] = ()
    """Task runs to delete; guarded like changes."""
    added: Sequence[TaskRow] = ()
    attempts: Sequence[AttemptRow] = ()
    """Attempts that ended. One that had ended before keeps its row."""
    outputs: Mapping[AttemptKey, bytes] = {}
    """The encoded return values of some of these attempts."""
    cleared_outputs: Sequence[str] = ()
    """Tasks whose outputs are deleted, of all elements and attempts."""
    forgotten_steps: Sequence[str] = ()
    """Tasks whose steps are deleted, of all elements."""
    waits: WaitChanges | None = None
    history: RunEventBatch | None = None
    lease: float = 0.0
    """Seconds for which the task runs that are queued or running after the change are leased to their owner."""
    pools: Sequence[PoolLimit] = ()
    """Limits that must hold after the change."""
    passes_over: Collection[str] | None = None
    """Not None if the change begins the run: refused if an older run of the workflow is queued, other than these.

    Runs of backfills do not count: a backfill has its own limit.
    """
    is_operator_action: bool = False
    """Whether an operator undoes work that others may have built on: increments `clears`."""
    handlers: "Change | None" = None
    """The run of the handlers that the change calls, as it ends its run; left out if their workflow is paused."""


class Applied(msgspec.Struct, frozen=True, gc=False):
    """The change was written; `revision` is the run's revision after it."""

    revision: int
    sequence: int | None = None
    """The sequence number of the run, if the change has created it."""
    is_overtaken: bool = False
    """Whether an answer came before the deferral that asks: the store wakes the task at once."""


RefusalReason = Literal["fenced", "stale", "full", "fired", "suppressed", "paused", "not_next"]
"""The reasons for refusing a change."""


class Refused(msgspec.Struct, frozen=True):
    """The change was refused, and nothing was written.

    * fenced: another leader has taken over;
    * stale: the run or a task run is not as it was found, or the run is gone;
    * full: a pool has no free slot;
    * fired: the slot, or the payload, already has its run;
    * suppressed: another fire about the same has a run that is active, or was started too short a time ago;
    * paused: the change would create a run of a paused workflow;
    * not_next: the change would begin a run before an older one of its workflow.
    """

    reason: RefusalReason
