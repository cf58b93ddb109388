"""Slot allocation on the leader: which of the tasks that are ready get this node's free slots.

A task waits here from the moment it is scheduled. It is granted a slot, which is reserved for it, and claimed with the
next change of its run. A task that cannot run here, because its code, its executor or its pool is missing, is left for
another node to claim.

Tenants get equal shares of the slots, or as their weights say: see `tenant_shares`. The slots of a tenant go to the
highest priority first, then to older runs, so that work is finished, then to the task that has waited longest. A
slot that a task frees is kept for what follows in its own run, so that the end of a task and the claim of the next one
are one change; but not if a task of a tenant with a smaller share waits, one of higher priority, or one of an older run
that has waited for more than KEPT_SLOT_LIMIT. A granted slot stays reserved until it is used, so that no slot is
granted twice. An executor may have several classes of slots; each has its own queue, and its slots are reserved
apart.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import lru_cache
from itertools import count
from operator import attrgetter
from typing import NamedTuple

from tidemill.engine.workflows.executors.interface import SlotClass
from tidemill.engine.workflows.leader.active_runs import ActiveRun, RunRequest
from tidemill.engine.workflows.leader.run_admission import RunAdmission, WorkflowKey
from tidemill.engine.workflows.runtime import WorkflowRuntime
from tidemill.engine.workflows.tenant_shares import FairQueue, moves_to
from tidemill.engine.workflows.versions import WorkflowVersions
from tidemill.engine.workflows.worker.attempts import LocalAttempts
from tidemill.kernel.clock import Clock
from tidemill.workflows.records import AttemptKey, RunRow, TaskRow, VersionKey
from tidemill.workflows.run_draft import RunDraft, TaskRef
from tidemill.workflows.states import TaskState

ActiveRuns = dict[str, ActiveRun]
Rows = Mapping[TaskRef, TaskRow]
KEPT_SLOT_LIMIT = 1.0
"""Seconds for which a task of an older run may wait while younger runs keep the slots that their tasks free."""


SLOT_CLASS_CACHE_SIZE = 1024
"""Tasks whose class of slots is known without asking their executor."""

SlotKey = tuple[str, SlotClass]
"""An executor, and one of the classes of its slots."""


class SlotRequest(NamedTuple):
    """A task that asks for a slot."""

    run: str
    ref: TaskRef
    version: VersionKey
    key: SlotKey


WaitingRank = tuple[int, str, float, int, float, SlotRequest]
"""The order in which tasks of a tenant get slots: by priority, run, the time since when they are ready, and arrival.

With the task, the time of its arrival by the monotonic clock.
"""
NO_SLOTS: Counter[str] = Counter()
"""The slots that tenants use, where it does not matter: only one waits."""


class ExecutorSlots:
    """The reserved slots of this node's executors, and the tasks that wait for one."""

    def __init__(self, attempts: LocalAttempts, clock: Clock, tenant_weights: Mapping[str, int]) -> None:
        self._attempts = attempts
        self._tenant_weights = tenant_weights
        self._clock = clock
        self._executors = attempts.executors
        self._slot_class = lru_cache(SLOT_CLASS_CACHE_SIZE)(self._ask_slot_class)
        self._reserved: Counter[SlotKey] = Counter()
        self._reserved_for: dict[tuple[str, TaskRef], tuple[SlotKey, str]] = {}
        """By run and task: the slot that is reserved for a task, from its grant until it uses it, and the tenant."""
        self.waiting: set[SlotRequest] = set()
        """The tasks that wait for a slot."""
        self._queues: dict[SlotKey, FairQueue[WaitingRank]] = {}
        self._parked: dict[str, list[tuple[SlotRequest, TaskRow]]] = {}
        self._sequence = count()

    def has_executor(self, executor: str) -> bool:
        """Return whether this node has an executor of that name."""
        return executor in self._executors

    def free_slots(self, key: SlotKey, version: VersionKey) -> int:
        """Return how many slots of an executor's class are neither used nor reserved, for tasks of a version."""
        executor, slot_class = key
        return self._attempts.free_slots(executor, slot_class, version) - self._reserved[key]

    def free_slots_for(self, executor: str, tenant: str) -> int:
        """Return how many slots of an executor a tenant can get, whatever their class."""
        is_blocked = tenant in self._executors[executor].blocked_tenants()
        reserved = sum(number for (name, _), number in self._reserved.items() if name == executor)
        return 0 if is_blocked else max(0, self._attempts.free_slots(executor) - reserved)

    def key_of(self, row: TaskRow, version: VersionKey) -> SlotKey:
        """Return the executor of a task, and the class of the slot that it needs there."""
        return row.executor, self._slot_class(row.executor, version, row.task)

    def _ask_slot_class(self, executor: str, version: VersionKey, task: str) -> SlotClass:
        """Ask the executor of a task for the class of its slot: once, while its code is the same."""
        return self._executors[executor].slot_class(version, task)

    def forget_slot_classes(self) -> None:
        """Ask executors again: code was loaded, without which they have answered before."""
        self._slot_class.cache_clear()

    def enqueue(self, request: SlotRequest, row: TaskRow) -> None:
        """Queue a scheduled task for a slot, unless it is queued already."""
        if request in self.waiting:
            return
        self.waiting.add(request)
        since = row.since.timestamp() if row.since is not None else 0.0
        rank = -row.priority, request.run, since, next(self._sequence), self._clock.monotonic(), request
        if (queue := self._queues.get(request.key)) is None:
            queue = self._queues[request.key] = FairQueue(self._tenant_weights)
        queue.push(request.version.tenant, rank)

    def reserve(self, request: SlotRequest, row: TaskRow, freed: list[SlotKey]) -> bool:
        """Reserve a slot for a task, if it need not wait: no other task does, or its own run has freed the slot.

        `freed` lists the slots that the tasks of its run have just freed; one that is kept is removed.
        """
        run, ref, version, key = request
        if self.free_slots(key, version) <= 0:
            return False
        if (queue := self._queues.get(key)) is not None and queue.heaps:
            if key not in freed or self._goes_first(queue, run, row, version.tenant):
                return False
            freed.remove(key)
        self.reserve_for(run, ref, key, version.tenant)
        return True

    def reserve_for(self, run: str, ref: TaskRef, key: SlotKey, tenant: str) -> None:
        """Reserve a slot for a task, unless it has one."""
        if (run, ref) not in self._reserved_for:
            self._reserved_for[run, ref] = key, tenant
            self._reserved[key] += 1

    def _goes_first(self, queue: FairQueue[WaitingRank], run: str, row: TaskRow, tenant: str) -> bool:
        """Return whether the first waiting task gets a slot before a task of the run that has freed it."""
        is_alone = tenant in queue.heaps and len(queue.heaps) == 1
        used = NO_SLOTS if is_alone else self._used_slots(row.executor)
        rank, waiting_run, _, _, arrival, (_, _, version, _) = queue.first(used)
        if version.tenant != tenant:
            has_waited = self._clock.monotonic() - arrival > KEPT_SLOT_LIMIT
            step, own_step = queue.step(version.tenant), queue.step(tenant)
            return moves_to(used[version.tenant] * step, step, used[tenant] * own_step, own_step, has_waited=has_waited)
        if rank != -row.priority:
            return rank < -row.priority
        return waiting_run < run and self._clock.monotonic() - arrival > KEPT_SLOT_LIMIT

    def _used_slots(self, executor: str) -> Counter[str]:
        """Return how many slots of an executor each tenant uses, or has reserved; read only where tenants compete."""
        used = Counter(one.run.tenant for one in self._attempts.claimed.values() if one.row.executor == executor)
        used.update(tenant for (name, _), tenant in self._reserved_for.values() if name == executor)
        return used

    def park(self, request: SlotRequest, row: TaskRow) -> None:
        """Park a task whose pool is full, until the pool frees a slot."""
        if row.pool is not None:
            self._parked.setdefault(row.pool, []).append((request, row))

    def unpark(self, pool: str | None = None) -> None:
        """Requeue the tasks parked on a pool, or on all pools."""
        for name in [pool] if pool is not None else list(self._parked):
            for request, row in self._parked.pop(name, ()):
                self.enqueue(request, row)

    def reserve_for_waiting(
        self, is_still_wanted: Callable[[SlotRequest], bool], only_run: str | None = None
    ) -> Iterator[SlotRequest]:
        """Reserve free slots for waiting tasks that are still wanted; `only_run` stops at a task of another run."""
        for key, queue in self._queues.items():
            is_shared = len(queue.heaps) > 1
            used = self._used_slots(key[0]) if is_shared else NO_SLOTS
            while queue.heaps:
                request = queue.first(used)[-1]
                if only_run not in (None, request.run) or self.free_slots(key, request.version) <= 0:
                    break
                tenant = request.version.tenant
                gets_slot = (request.run, request.ref) not in self._reserved_for and is_still_wanted(request)
                queue.pop(tenant, gets_slot=gets_slot)
                self.waiting.discard(request)
                if gets_slot:
                    self.reserve_for(request.run, request.ref, key, tenant)
                    if is_shared:
                        used[tenant] += 1
                    yield request

    def has_waiting_for_dispatch(self) -> bool:
        """Return whether a task is next that its executor gets through the dispatch queue."""
        return any(
            not self._executors[executor].starts_now(first[-1].version)
            for (executor, _), queue in self._queues.items()
            for first in queue.heads()
        )

    def hold(self, key: SlotKey) -> None:
        """Reserve a slot for no task in particular."""
        self._reserved[key] += 1

    def release_held(self, key: SlotKey) -> None:
        """Release a slot that was reserved for no task in particular."""
        self._reserved[key] -= 1

    def release(self, run: str, ref: TaskRef) -> None:
        """Release the slot that is reserved for a task, if there is one: it is used by now, or not needed."""
        if (reserved := self._reserved_for.pop((run, ref), None)) is not None:
            self._reserved[reserved[0]] -= 1


class SlotAllocator:
    """Grants this node's slots to the tasks of active runs."""

    def __init__(
        self, runtime: WorkflowRuntime, active_runs: ActiveRuns, versions: WorkflowVersions, attempts: LocalAttempts
    ) -> None:
        self.admission = RunAdmission()
        self.executor_slots = ExecutorSlots(attempts, runtime.clock, runtime.settings.tenant_weights)
        self.has_waiting = False
        """Whether tasks waited for a slot after the last claim."""
        self._runtime = runtime
        self._active_runs = active_runs
        self._versions = versions
        self._attempts = attempts
        self._pool_usage: Counter[tuple[str, str]] = Counter()
        """By tenant and pool: the number of slots in use, according to the active runs."""
        self._blocked: set[tuple[str, str]] = set()
        """Executors and tenants whose tasks were passed over, because the executor takes none of the tenant."""

    # -- waiting tasks

    def enqueue(self, active: ActiveRun, rows: Collection[TaskRow]) -> None:
        """Queue scheduled tasks of a run for a slot, if this node can run them."""
        for row in self._runnable_here(active, rows):
            self.executor_slots.enqueue(self._request(active, row), row)

    def _request(self, active: ActiveRun, row: TaskRow) -> SlotRequest:
        """Return the request of a task for a slot."""
        key = self.executor_slots.key_of(row, active.version)
        return SlotRequest(active.run.id, (row.task, row.index), active.version, key)

    def _runnable_here(self, active: ActiveRun, rows: Collection[TaskRow]) -> list[TaskRow]:
        """Return those of some scheduled tasks that this node can run."""
        if not rows or active.version not in self._versions.loaded or self.admission.is_paused(active.run):
            return []
        executors, pools = self._attempts.executors, self._runtime.pools.sizes
        return [
            row
            for row in rows
            if row.executor in executors
            and (row.pool is None or row.pool in pools)
            and not self._is_blocked(row.executor, active.run.tenant)
        ]

    def _is_blocked(self, executor: str, tenant: str) -> bool:
        """Return whether an executor takes no task of a tenant at present; its tasks are queued again later."""
        target = self._attempts.executors[executor]
        if target.is_immediate or tenant not in target.blocked_tenants():
            return False
        self._blocked.add((executor, tenant))
        return True

    def _enqueue_unblocked(self) -> None:
        """Queue the tasks of tenants whom an executor takes again."""
        blocked = {one for one in self._blocked if one[1] in self._attempts.executors[one[0]].blocked_tenants()}
        tenants = {tenant for _, tenant in self._blocked - blocked}
        self._blocked = blocked
        for active in self._active_runs.values() if tenants else ():
            if active.run.tenant in tenants:
                self.enqueue(active, active.waiting_tasks())

    def enqueue_version(self, version: VersionKey) -> None:
        """Queue the scheduled tasks of all runs of a version whose code has been loaded."""
        self.executor_slots.forget_slot_classes()
        for active in self._active_runs.values():
            if active.version == version:
                self.enqueue(active, active.waiting_tasks())

    # -- grants

    def assign(self) -> list[ActiveRun]:
        """Grant free slots to waiting tasks; return the runs that have new grants."""
        granted: dict[str, ActiveRun] = {}
        if self._blocked:
            self._enqueue_unblocked()
        for run, ref, *_ in self.executor_slots.reserve_for_waiting(self._is_still_wanted):
            active = granted[run] = self._active_runs[run]
            active.grants[ref] = None
        if self.executor_slots.has_waiting_for_dispatch() and self._attempts.dispatcher.free_queue_slots <= 0:
            self._runtime.metrics.increment("dispatch_at_capacity")
        return list(granted.values())

    def _is_still_wanted(self, request: SlotRequest) -> bool:
        active = self._active_runs.get(request.run)
        if active is None or request.ref in active.grants or self.admission.is_paused(active.run):
            return False
        row = active.rows.get(request.ref)
        if row is not None and self._is_blocked(row.executor, active.run.tenant):
            return False
        return row is None or row.state is TaskState.SCHEDULED or active.is_busy

    def claim(self, active: ActiveRun, draft: RunDraft, requests: Collection[RunRequest] = ()) -> list[TaskRow]:
        """Claim the tasks of a run that were granted a slot, in a draft; return them. Unneeded slots are released.

        The slots of the attempts that the requests report on are free, and kept for tasks that the draft made ready.
        """
        self._reserve_or_enqueue(active, draft, requests)
        claimed: list[TaskRow] = []
        room: dict[str, int] = {}
        while active.grants or (self.executor_slots.waiting and self._reserve_for_run(active)):
            grants, active.grants = active.grants, {}
            claimed += [row for ref in grants if (row := self._claim(active, draft, ref, room)) is not None]
        self.has_waiting = bool(self.executor_slots.waiting)
        return claimed

    def _reserve_or_enqueue(self, active: ActiveRun, draft: RunDraft, requests: Collection[RunRequest]) -> None:
        """Grant slots to the tasks that a draft made ready, as far as there are any; queue the others."""
        rows = self._runnable_here(active, draft.scheduled)
        if not rows:
            return
        freed = [key for one in requests if one.report and (key := self._slot_of(active, one.report[0])) is not None]
        rows.sort(key=attrgetter("priority"), reverse=True)
        for row in rows:
            wanted = self._request(active, row)
            if self.executor_slots.reserve(wanted, row, freed):
                active.grants[wanted.ref] = None
            else:
                self.executor_slots.enqueue(wanted, row)

    def keep_freed(self, active: ActiveRun, attempt: AttemptKey) -> None:
        """Keep the slot that an attempt has freed until the next change of its run, which is made in this turn."""
        if (key := self._slot_of(active, attempt)) is not None:
            active.kept_slots.append(key)
            self.executor_slots.hold(key)

    def _slot_of(self, active: ActiveRun, attempt: AttemptKey) -> SlotKey | None:
        """Return the kind of slot that an attempt uses; None if its task does not exist, or runs elsewhere."""
        row = active.rows.get((attempt.task, attempt.element))
        if row is None or row.executor not in self._attempts.executors:
            return None
        return self.executor_slots.key_of(row, active.version)

    def release_kept(self, active: ActiveRun) -> None:
        """Release the slots that were kept for a run: its change is made now, or not at all."""
        for key in active.kept_slots:
            self.executor_slots.release_held(key)
        active.kept_slots.clear()

    def _reserve_for_run(self, active: ActiveRun) -> bool:
        """Grant free slots to the tasks of a run that is being changed, while they are next; return whether it did."""
        slots = self.executor_slots.reserve_for_waiting(self._is_still_wanted, only_run=active.run.id)
        active.grants |= dict.fromkeys(request.ref for request in slots)
        return bool(active.grants)

    def _claim(self, active: ActiveRun, draft: RunDraft, ref: TaskRef, room: dict[str, int]) -> TaskRow | None:
        row = draft.rows.get(ref)
        if row is None or row.state is not TaskState.SCHEDULED:
            self.executor_slots.release(active.run.id, ref)
            return None
        if row.pool is not None:
            if self._pool_room(active, row.pool, room) <= 0:
                self.executor_slots.release(active.run.id, ref)
                self.executor_slots.park(self._request(active, row), row)
                return None
            room[row.pool] -= 1
        executor = self._attempts.executors[row.executor]
        starts_now = executor.is_immediate or executor.starts_now(active.version)
        return draft.claim(ref, self._runtime.owner.id, starts_now=starts_now)

    def _pool_room(self, active: ActiveRun, pool: str, known: dict[str, int]) -> int:
        """Return how many slots of a pool a run may claim, according to the active runs; the store decides."""
        if active.is_pool_full:
            return 0
        if pool not in known:
            known[pool] = self._runtime.pools.sizes[pool] - self._pool_usage[active.run.tenant, pool]
        return known[pool]

    def update_pool_usage(self, active: ActiveRun, before: Rows, after: Rows) -> bool:
        """Update a run's pool usage; requeue tasks parked on a pool that freed a slot, and return whether one did."""
        if not active.uses_pools:
            return False
        was, is_now = _count_pool_usage(before), _count_pool_usage(after)
        for pool in was | is_now:
            self._pool_usage[active.run.tenant, pool] += is_now[pool] - was[pool]
        freed = [pool for pool in was if was[pool] > is_now[pool]]
        for pool in freed:
            self.executor_slots.unpark(pool)
        return bool(freed)

    # -- release

    def release_grants(self, active: ActiveRun) -> None:
        """Release the slots that were granted to a run, which may no longer want them."""
        for ref in active.grants:
            self.executor_slots.release(active.run.id, ref)
        active.grants = {}

    def roll_back(self, active: ActiveRun, claimed: Collection[TaskRow]) -> None:
        """Take back what a change that was not written has used: the turn of its run, a newer version, slots."""
        self.admission.put(active.run)
        if active.version != active.run.version_key:
            active.is_stale = True  # so that it is pinned to its own version again
        self.release_claims(active, claimed)

    def release_claims(self, active: ActiveRun, claimed: Collection[TaskRow]) -> None:
        """Release the slots that were reserved for claims; tasks that were not claimed are queued again."""
        for row in claimed:
            self.executor_slots.release(active.run.id, (row.task, row.index))
        rows = [active.rows.get((row.task, row.index)) for row in claimed]
        self.enqueue(active, [row for row in rows if row is not None and row.state is TaskState.SCHEDULED])

    # -- runs

    def apply_pauses(self, paused: set[WorkflowKey]) -> list[str]:
        """Set which workflows are paused. Queue the tasks of resumed ones; return their runs that may begin now."""
        resumed, self.admission.paused = self.admission.paused - paused, paused
        for active in self._active_runs.values():
            if (active.run.tenant, active.run.workflow) in resumed:
                self.enqueue(active, active.waiting_tasks())
        return [run for tenant, workflow in resumed for run in self.admission.next_runs(tenant, workflow)]

    async def load_backfill_limit(self, run: RunRow) -> None:
        """Read how many runs of a run's backfill may run at a time, unless it is known."""
        backfill = run.backfill
        if backfill is not None and backfill not in self.admission.backfill_limits:
            stored = await self._runtime.store.backfills.get(backfill)
            self.admission.backfill_limits[backfill] = stored.limit if stored is not None else 1

    def open_admission(self) -> list[str]:
        """Let runs begin, now that all active ones are known; return those that may."""
        if self.admission.is_open:
            return []
        self.admission.is_open = True
        return [run for key in self.admission.waiting_workflows() for run in self.admission.next_runs(*key)]


def _count_pool_usage(rows: Rows) -> Counter[str]:
    """Return how many slots of each pool some tasks use."""
    return Counter(row.pool for row in rows.values() if row.pool is not None and row.state.is_claimed)
