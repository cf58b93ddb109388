"""Changes judged one after the other against locked rows: which are refused, and which rows remain to be written.

No other transaction can change these rows meanwhile. So each change of a transaction finds the rows as the changes
before it have left them, and only the final rows are written.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from tidemill.storage.postgres.run_rows import (
    encode_attempt,
    encode_fire,
    encode_history,
    encode_run,
    encode_run_update,
    encode_task,
)
from tidemill.workflows.change import Applied, Change, RefusalReason, Refused, TaskChange
from tidemill.workflows.records import AttemptKey, FireRow, RunRow, TaskKey, TaskRow
from tidemill.workflows.states import RunState, TaskState

LeaseClock = Callable[[], datetime | None]
"""Returns the time that leases go by; None for the server's clock."""
RowBatch = list[tuple[Any, ...]]
SlotKey = tuple[str, str, str, datetime]
DigestKey = tuple[str, str, str, str]
DedupKey = tuple[str, str, str]
"""Tenant, workflow and `dedup` of a fire."""
PoolKey = tuple[str, str]
"""Tenant and name of a pool."""
WorkflowKey = tuple[str, str]
"""Tenant and name of a workflow."""


def advisory_lock_id(*words: str) -> int:
    """Return the number of a lock; two locks that happen to share a number only wait for one another."""
    digest = hashlib.blake2b("\0".join(words).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def pool_lock_id(tenant: str, pool: str) -> int:
    """Return the number of the lock under which the slots of a pool are counted and taken."""
    return advisory_lock_id("pool", tenant, pool)


class PoolUsage(msgspec.Struct):
    """The used slots of a pool, and its size; None if the store has none."""

    used: int = 0
    size: int | None = None

    def free(self, slots: int) -> int:
        """Return how many slots are free; `slots` is the size of a pool that the store has no size of."""
        return (slots if self.size is None else self.size) - self.used


class LockedTask(NamedTuple):
    """The guard of a task run, and the pool whose slot it uses."""

    state: TaskState
    attempt: int
    claimed_by: str | None
    pool: str | None
    lease_until: datetime | None = None
    """None for a task run that this transaction has changed: the change renews its lease."""

    @classmethod
    def of(cls, row: TaskRow) -> "LockedTask":
        """Return the guard of a task run that no other transaction has changed."""
        return cls(row.state, row.attempt, row.claimed_by, row.pool)

    @property
    def claimed_pool(self) -> str | None:
        """The pool whose slot the task run uses now."""
        return self.pool if self.state.is_claimed else None


class LockedRun(msgspec.Struct):
    """A run as the changes so far have left it."""

    tenant: str
    state: str
    clears: int
    revision: int
    is_new: bool = False
    new_row: RunRow | None = None
    """The new row, if a change has replaced it."""


class LockedRows(msgspec.Struct):
    """The locked rows that changes are judged by, and the rows to be written."""

    epochs: dict[str, int]
    runs: dict[str, LockedRun]
    tasks: dict[TaskKey, LockedTask]
    paused: set[WorkflowKey] = msgspec.field(default_factory=set)
    oldest_queued: dict[WorkflowKey, int] = msgspec.field(default_factory=dict)
    """By workflow, the sequence number of the oldest run that stays queued."""
    slots: set[SlotKey] = msgspec.field(default_factory=set)
    digests: defaultdict[DigestKey, set[str]] = msgspec.field(default_factory=lambda: defaultdict(set))
    """The runs of fired payloads; those that are not in `runs` are active."""
    runs_about: defaultdict[DedupKey, set[str]] = msgspec.field(default_factory=lambda: defaultdict(set))
    """The runs of fires about something; those that are not in `runs` are active."""
    times_about: defaultdict[DedupKey, list[datetime]] = msgspec.field(default_factory=lambda: defaultdict(list))
    """Times of fires about something that are within the cooldown of another one about it."""
    closed_waits: set[str] = msgspec.field(default_factory=set)
    """The waits that changes close, and that are closed already."""
    pools: defaultdict[PoolKey, PoolUsage] = msgspec.field(default_factory=lambda: defaultdict(PoolUsage))
    """The pools that changes limit."""

    stored_task_keys: frozenset[TaskKey] = frozenset()
    changed_run_ids: dict[str, None] = msgspec.field(default_factory=dict)
    """In the order of the changes: so that new runs are numbered in that order."""
    task_writes: dict[TaskKey, tuple[Any, ...] | None] = msgspec.field(default_factory=dict)
    attempts: dict[AttemptKey, tuple[Any, ...]] = msgspec.field(default_factory=dict)
    outputs: dict[TaskKey, bytes] = msgspec.field(default_factory=dict)
    cleared_outputs: set[tuple[str, str]] = msgspec.field(default_factory=set)
    forgotten_steps: set[tuple[str, str]] = msgspec.field(default_factory=set)
    events: RowBatch = msgspec.field(default_factory=list)
    fires: RowBatch = msgspec.field(default_factory=list)

    def __post_init__(self) -> None:
        self.stored_task_keys = frozenset(self.tasks)

    def apply_change(self, change: Change) -> Applied | Refused:
        """Judge a change; apply it to the rows if it is not refused."""
        reason = self._refusal_reason(change)
        if reason is not None:
            self._keep_queued(change)
            return Refused(reason)
        run = self._apply_run(change)
        for key, before, row in _task_transitions(change):
            self._apply_task(key, before, row, run.tenant, change.lease)
        self.attempts = {row.key: encode_attempt(row) for row in change.attempts} | self.attempts
        for task in change.cleared_outputs:
            self.cleared_outputs.add((change.run, task))
            self.outputs = {key: value for key, value in self.outputs.items() if key[:2] != (change.run, task)}
        if change.waits is not None:
            self.closed_waits |= {wait for wait, _ in change.waits.answered}
        self.forgotten_steps |= {(change.run, task) for task in change.forgotten_steps}
        self.outputs |= {key.task_key: value for key, value in change.outputs.items()}
        if change.history is not None:
            self.events += encode_history(change.run, change.history)
        return Applied(run.revision)

    # -- the rows to be written, as columns

    def new_runs(self) -> RowBatch:
        """Return the runs to be inserted."""
        return [
            encode_run(msgspec.structs.replace(run.new_row, revision=run.revision, clears=run.clears))
            for run in map(self.runs.__getitem__, self.changed_run_ids)
            if run.is_new and run.new_row is not None
        ]

    def changed_runs(self) -> RowBatch:
        """Return the runs to be updated: counters, whether the mutable columns are replaced, and their values."""
        changed = [(name, self.runs[name]) for name in sorted(self.changed_run_ids) if not self.runs[name].is_new]
        return [(name, run.revision, run.clears, *encode_run_update(run.new_row)) for name, run in changed]

    def new_tasks(self) -> RowBatch:
        """Return the task runs to be inserted."""
        return [
            columns
            for key, columns in self.task_writes.items()
            if columns is not None and key not in self.stored_task_keys
        ]

    def changed_tasks(self) -> RowBatch:
        """Return the task runs to be updated."""
        return [
            columns for key, columns in self.task_writes.items() if columns is not None and key in self.stored_task_keys
        ]

    def deleted_tasks(self) -> RowBatch:
        """Return the keys of the task runs to be deleted."""
        return [
            tuple(key) for key, columns in self.task_writes.items() if columns is None and key in self.stored_task_keys
        ]

    # -- reasons to refuse a change

    def _refusal_reason(self, change: Change) -> RefusalReason | None:
        if change.fence is not None and self.epochs.get(change.fence.name) != change.fence.epoch:
            return "fenced"
        new_run = change.new_run
        if new_run is not None and (new_run.tenant, new_run.workflow) in self.paused:
            return "paused"
        if change.passes_over is not None and self._is_overtaking(change):
            return "not_next"
        if self._is_stale(change):
            return "stale"
        if change.fire is not None and self._has_fired(change.fire):
            return "fired"
        if change.fire is not None and self._is_suppressed(change.fire):
            return "suppressed"
        return "full" if change.pools and self._is_full(change) else None

    def _is_overtaking(self, change: Change) -> bool:
        """Return whether a change begins a run before an older one of its workflow."""
        run = change.new_run or change.expected_run
        oldest = None if run is None else self.oldest_queued.get((run.tenant, run.workflow))
        return oldest is not None and run is not None and (not run.sequence or oldest < run.sequence)

    def _keep_queued(self, change: Change) -> None:
        """Let no younger run begin before one that stays queued because its change is refused."""
        run = change.expected_run
        if change.passes_over is not None and run is not None and run.backfill is None:
            key = run.tenant, run.workflow
            self.oldest_queued[key] = min(run.sequence, self.oldest_queued.get(key, run.sequence))

    def _is_stale(self, change: Change) -> bool:
        run = self.runs.get(change.run)
        if (run is None) != (change.new_run is not None):
            return True
        expected = change.expected_run
        if run is not None and expected is not None and (expected.state, expected.clears) != (run.state, run.clears):
            return True
        if any(self._has_renewed_lease(change.run, one) for one in change.tasks):
            return True
        answered = () if change.waits is None else [wait for wait, _ in change.waits.answered]
        if not self.closed_waits.isdisjoint(answered):
            return True
        removed: set[TaskKey] = set()
        for key, before, row in _task_transitions(change):
            guard = self.tasks.get(key) if key not in removed else None
            if before is None:
                if guard is not None:
                    return True
                continue
            if guard is None or guard[:3] != before.guard:
                return True
            if row is None:
                removed.add(key)
        return False

    def _has_renewed_lease(self, run: str, one: TaskChange) -> bool:
        guard = self.tasks.get(TaskKey(run, one.expected.task, one.expected.index))
        return one.expired_lease is not None and (guard is None or guard.lease_until != one.expired_lease)

    def _has_fired(self, fire: FireRow) -> bool:
        source = (fire.tenant, fire.workflow, fire.key)
        if fire.slot is not None and (*source, fire.slot) in self.slots:
            return True
        if fire.digest is None:
            return False
        return self._is_any_active(self.digests[(*source, fire.digest)])

    def _is_suppressed(self, fire: FireRow) -> bool:
        if fire.dedup is None:
            return False
        about = (fire.tenant, fire.workflow, fire.dedup)
        if fire.cooldown is None:
            return self._is_any_active(self.runs_about[about])
        return any(abs(time - fire.at) < fire.cooldown for time in self.times_about[about])

    def _is_any_active(self, runs: set[str]) -> bool:
        return any(run not in self.runs or not RunState(self.runs[run].state).is_terminal for run in runs)

    def _is_full(self, change: Change) -> bool:
        tenant = change.new_run.tenant if change.new_run is not None else self.runs[change.run].tenant
        difference: defaultdict[PoolKey, int] = defaultdict(int)
        for key, before, row in _task_transitions(change):
            if before is not None and (pool := self.tasks[key].claimed_pool) is not None:
                difference[tenant, pool] -= 1
            if row is not None and (pool := LockedTask.of(row).claimed_pool) is not None:
                difference[tenant, pool] += 1
        return any(self.pools[limit[:2]].free(limit.slots) < difference[limit[:2]] for limit in change.pools)

    # -- applying a change

    def _apply_run(self, change: Change) -> LockedRun:
        if change.new_run is not None:
            row = change.new_run
            self.runs[change.run] = LockedRun(row.tenant, row.state, 0, 0, is_new=True, new_row=row)
        run = self.runs[change.run]
        self.changed_run_ids[change.run] = None
        run.revision += 1
        run.clears += change.is_operator_action
        if change.updated_run is not None:
            run.state = change.updated_run.state
            known, update = run.new_row, change.updated_run
            run.new_row = update if known is None else known.with_update(update)
        if change.fire is not None:
            self._apply_fire(change.fire)
        return run

    def _apply_fire(self, fire: FireRow) -> None:
        source = (fire.tenant, fire.workflow, fire.key)
        self.fires.append(encode_fire(fire))
        if fire.slot is not None:
            self.slots.add((*source, fire.slot))
        if fire.digest is not None:
            self.digests[(*source, fire.digest)].add(fire.run)
        if fire.dedup is not None:
            about = (fire.tenant, fire.workflow, fire.dedup)
            self.runs_about[about].add(fire.run)
            self.times_about[about].append(fire.at)

    def _apply_task(self, key: TaskKey, before: TaskRow | None, row: TaskRow | None, tenant: str, lease: float) -> None:
        if before is not None and (pool := self.tasks.pop(key).claimed_pool) is not None:
            self.pools[tenant, pool].used -= 1
        if row is None:
            self.task_writes[key] = None
            return
        self.tasks[key] = guard = LockedTask.of(row)
        self.task_writes[key] = encode_task(key, tenant, row, lease)
        if guard.claimed_pool is not None:
            self.pools[tenant, guard.claimed_pool].used += 1


def _task_transitions(change: Change) -> Iterator[tuple[TaskKey, TaskRow | None, TaskRow | None]]:
    """Yield every task run that a change touches, before and after it; removals first, since they free keys."""
    for row in change.removed:
        yield TaskKey(change.run, row.task, row.index), row, None
    for one in change.tasks:
        yield TaskKey(change.run, one.expected.task, one.expected.index), one.expected, one.updated
    for row in change.added:
        yield TaskKey(change.run, row.task, row.index), None, row
