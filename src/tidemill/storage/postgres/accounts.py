"""Changes judged one after the other against rows that are locked: what is refused, and what is left to write.

Nobody else can change these rows meanwhile. So changes of the same run, which share a transaction, find what the ones
before them have left, and only the end of it all is written.
"""

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from tidemill.kernel.storable import storable
from tidemill.storage.postgres.run_rows import (
    attempt_columns,
    fire_columns,
    history_columns,
    run_columns,
    task_columns,
)
from tidemill.workflows.change import Applied, Change, Refused, TaskChange, Why
from tidemill.workflows.records import AttemptKey, FireRow, RunRow, TaskKey, TaskRow
from tidemill.workflows.states import RunState, TaskState

Columns = list[tuple[Any, ...]]
Slot = tuple[str, str, str, datetime]
Digest = tuple[str, str, str, str]
Pool = tuple[str, str]
"""Of a tenant, by name."""


class Guard(NamedTuple):
    """What a task run is guarded by, and the pool that it takes a place of."""

    state: TaskState
    attempt: int
    claimed_by: str | None
    pool: str | None
    lease_until: datetime | None = None
    """None for one that is moved in this transaction: by that it is renewed."""

    @property
    def taken(self) -> str | None:
        """The pool that it has a place of now."""
        return self.pool if self.state.is_claimed else None


class Standing(msgspec.Struct):
    """A run as it stands."""

    tenant: str
    state: str
    clears: int
    revision: int
    is_new: bool = False
    row: RunRow | None = None
    """What it shall be, if that was said."""


class Accounts(msgspec.Struct):
    """Everything that changes are judged by, as it is locked; and what is to be written."""

    epochs: dict[str, int]
    runs: dict[str, Standing]
    tasks: dict[TaskKey, Guard]
    paused: set[tuple[str, str]] = msgspec.field(default_factory=set)
    """Tenant and name of those workflows that are paused."""
    slots: set[Slot] = msgspec.field(default_factory=set)
    digests: defaultdict[Digest, set[str]] = msgspec.field(default_factory=lambda: defaultdict(set))
    """The runs of payloads; those that are not in `runs` are active."""
    used: defaultdict[Pool, int] = msgspec.field(default_factory=lambda: defaultdict(int))
    """How many places of pools are taken, where somebody asks for a limit."""

    stored: frozenset[TaskKey] = frozenset()
    touched: set[str] = msgspec.field(default_factory=set)
    moved: dict[TaskKey, tuple[Any, ...] | None] = msgspec.field(default_factory=dict)
    attempts: dict[AttemptKey, tuple[Any, ...]] = msgspec.field(default_factory=dict)
    outputs: dict[TaskKey, bytes] = msgspec.field(default_factory=dict)
    forgotten: set[tuple[str, str]] = msgspec.field(default_factory=set)
    events: Columns = msgspec.field(default_factory=list)
    fires: Columns = msgspec.field(default_factory=list)

    def __post_init__(self) -> None:
        self.stored = frozenset(self.tasks)

    def enter(self, change: Change) -> Applied | Refused:
        """Judge a change, and take it in if nothing stands against it."""
        why = self._objection(change)
        if why is not None:
            return Refused(why)
        run = self._enter_run(change)
        for key, before, row in _moves(change):
            self._enter_task(key, before, row, run.tenant, change.lease)
        self.attempts = {row.key: attempt_columns(row) for row in change.attempts} | self.attempts
        for task in change.forgotten:
            self.forgotten.add((change.run, task))
            self.outputs = {key: value for key, value in self.outputs.items() if key[:2] != (change.run, task)}
        self.outputs |= {key.task_key: value for key, value in change.outputs.items()}
        if change.history is not None:
            self.events += history_columns(change.run, change.history)
        return Applied(run.revision)

    # -- what is to be written, column by column

    def new_runs(self) -> Columns:
        """Return the runs that are to be made."""
        return [
            run_columns(msgspec.structs.replace(run.row, revision=run.revision, clears=run.clears))
            for run in map(self.runs.__getitem__, self.touched)
            if run.is_new and run.row is not None
        ]

    def changed_runs(self) -> Columns:
        """Return the runs that are to be changed: counters, whether it moves, and then where."""
        found = [(name, self.runs[name]) for name in sorted(self.touched) if not self.runs[name].is_new]
        return [(name, run.revision, run.clears, run.row is not None, *_moved(run.row)) for name, run in found]

    def new_tasks(self) -> Columns:
        """Return the task runs that are to be made."""
        return [columns for key, columns in self.moved.items() if columns is not None and key not in self.stored]

    def changed_tasks(self) -> Columns:
        """Return the task runs that are to be changed."""
        return [columns for key, columns in self.moved.items() if columns is not None and key in self.stored]

    def gone_tasks(self) -> Columns:
        """Return the keys of the task runs that are to be deleted."""
        return [tuple(key) for key, columns in self.moved.items() if columns is None and key in self.stored]

    # -- what may stand against a change

    def _objection(self, change: Change) -> Why | None:
        if change.fence is not None and self.epochs.get(change.fence.name) != change.fence.epoch:
            return "fenced"
        created = change.created
        if created is not None and (created.tenant, created.workflow) in self.paused:
            return "paused"
        if self._is_stale(change):
            return "stale"
        if change.fire is not None and self._has_fired(change.fire):
            return "fired"
        return "full" if change.pools and self._is_full(change) else None

    def _is_stale(self, change: Change) -> bool:
        run = self.runs.get(change.run)
        if (run is None) != (change.created is not None):
            return True
        found = change.found
        if run is not None and found is not None and (found.state, found.clears) != (run.state, run.clears):
            return True
        if any(self._is_renewed(change.run, one) for one in change.tasks):
            return True
        gone: set[TaskKey] = set()
        for key, before, row in _moves(change):
            guard = self.tasks.get(key) if key not in gone else None
            if before is None:
                if guard is not None:
                    return True
                continue
            if guard is None or guard[:3] != (before.state, before.attempt, before.claimed_by):
                return True
            if row is None:
                gone.add(key)
        return False

    def _is_renewed(self, run: str, one: TaskChange) -> bool:
        guard = self.tasks.get(TaskKey(run, one.found.task, one.found.index))
        return one.unrenewed is not None and (guard is None or guard.lease_until != one.unrenewed)

    def _has_fired(self, fire: FireRow) -> bool:
        which = (fire.tenant, fire.workflow, fire.key)
        if fire.slot is not None and (*which, fire.slot) in self.slots:
            return True
        if fire.digest is None:
            return False
        runs = self.digests[(*which, fire.digest)]
        return any(run not in self.runs or not RunState(self.runs[run].state).is_terminal for run in runs)

    def _is_full(self, change: Change) -> bool:
        tenant = change.created.tenant if change.created is not None else self.runs[change.run].tenant
        taken: defaultdict[Pool, int] = defaultdict(int)
        for key, before, row in _moves(change):
            if before is not None and (pool := self.tasks[key].taken) is not None:
                taken[tenant, pool] -= 1
            if row is not None and (pool := _guard(row).taken) is not None:
                taken[tenant, pool] += 1
        return any(self.used[limit[:2]] + taken[limit[:2]] > limit.slots for limit in change.pools)

    # -- taking it in

    def _enter_run(self, change: Change) -> Standing:
        if change.created is not None:
            created = change.created
            self.runs[change.run] = Standing(created.tenant, created.state, 0, 0, is_new=True, row=created)
        run = self.runs[change.run]
        self.touched.add(change.run)
        run.revision += 1
        run.clears += change.intervenes
        if change.row is not None:
            run.state = change.row.state
            run.row = _with_move(run.row, change.row)
        if change.fire is not None:
            self._enter_fire(change.fire)
        return run

    def _enter_fire(self, fire: FireRow) -> None:
        which = (fire.tenant, fire.workflow, fire.key)
        self.fires.append(fire_columns(fire))
        if fire.slot is not None:
            self.slots.add((*which, fire.slot))
        if fire.digest is not None:
            self.digests[(*which, fire.digest)].add(fire.run)

    def _enter_task(self, key: TaskKey, before: TaskRow | None, row: TaskRow | None, tenant: str, lease: float) -> None:
        if before is not None and (pool := self.tasks.pop(key).taken) is not None:
            self.used[tenant, pool] -= 1
        if row is None:
            self.moved[key] = None
            return
        self.tasks[key] = guard = _guard(row)
        self.moved[key] = task_columns(key, tenant, row, lease)
        if guard.taken is not None:
            self.used[tenant, guard.taken] += 1


def _moves(change: Change) -> Iterator[tuple[TaskKey, TaskRow | None, TaskRow | None]]:
    """Yield every task run that a change touches, as it was found and as it shall be: removals make room first."""
    for row in change.removed:
        yield TaskKey(change.run, row.task, row.index), row, None
    for one in change.tasks:
        yield TaskKey(change.run, one.found.task, one.found.index), one.found, one.row
    for row in change.added:
        yield TaskKey(change.run, row.task, row.index), None, row


def _guard(row: TaskRow) -> Guard:
    return Guard(row.state, row.attempt, row.claimed_by, row.pool)


def _with_move(known: RunRow | None, row: RunRow) -> RunRow:
    """Return a run that was made or moved already with another move: state, times, reason and version are moved."""
    if known is None:
        return row
    times = {"started_at": row.started_at, "ended_at": row.ended_at}
    return msgspec.structs.replace(known, version=row.version, state=row.state, reason=row.reason, **times)


def _moved(row: RunRow | None) -> tuple[Any, ...]:
    if row is None:
        return "", "", None, None, ""
    return row.version, row.state, row.started_at, row.ended_at, storable(row.reason)
