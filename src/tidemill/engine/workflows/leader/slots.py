"""Who runs next on this node: which runs may begin, and which of their task runs get the places that are free.

A task run waits here from the moment it is scheduled. It is given a place, which is reserved for it, and claimed with
the next change of its run. What cannot be run here, because its code, its executor or its pool is elsewhere, is left
for another node to claim.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from itertools import islice

from tidemill.engine.workflows.leader.active_runs import ActiveRun
from tidemill.engine.workflows.runtime import WorkflowRuntime
from tidemill.engine.workflows.versions import WorkflowVersions
from tidemill.engine.workflows.worker.attempts import LocalAttempts
from tidemill.engine.workflows.worker.slots import ExecutorSlots, WaitingTask
from tidemill.workflows.records import RunRow, TaskRow, VersionKey
from tidemill.workflows.run_draft import RunDraft, TaskRef
from tidemill.workflows.states import RunState, TaskState

WorkflowKey = tuple[str, str]


class RunAdmission:
    """How many runs of each workflow run, and which wait for their turn."""

    def __init__(self) -> None:
        self._running: Counter[WorkflowKey] = Counter()
        self._running_by_backfill: Counter[str] = Counter()
        self._waiting: dict[WorkflowKey, dict[str | None, dict[str, int]]] = {}
        """By workflow and backfill: queued runs as they came, each with how many of its workflow may run."""
        self.backfill_limits: dict[str, int] = {}
        """How many runs of a backfill may run at a time."""
        self.paused: set[WorkflowKey] = set()

    def is_paused(self, run: RunRow) -> bool:
        """Return whether the run's workflow is paused."""
        return (run.tenant, run.workflow) in self.paused

    def may_begin(self, run: RunRow) -> bool:
        """Return whether a queued run may begin now."""
        if run.state is not RunState.QUEUED:
            return False
        key = run.tenant, run.workflow
        if key in self.paused or self._running[key] >= run.max_active:
            return False
        return run.backfill is None or self._running_by_backfill[run.backfill] < self.backfill_limits.get(
            run.backfill, 1
        )

    def update(self, before: RunRow | None, after: RunRow | None) -> None:
        """Take note of how a run stands now; None before it is known, or after it is forgotten."""
        if before is not None and after is not None and before.state is after.state:
            return
        if before is not None and before.state is RunState.RUNNING:
            self._count(before, -1)
        if after is not None and after.state is RunState.RUNNING:
            self._count(after, 1)
        run = after or before
        if run is None:
            return
        queues = self._waiting.setdefault((run.tenant, run.workflow), {})
        if after is not None and after.state is RunState.QUEUED:
            queues.setdefault(run.backfill, {})[run.id] = run.max_active
            return
        queue = queues.get(run.backfill, {})
        queue.pop(run.id, None)
        if not queue:
            queues.pop(run.backfill, None)

    def _count(self, run: RunRow, by: int) -> None:
        self._running[run.tenant, run.workflow] += by
        if run.backfill is not None:
            self._running_by_backfill[run.backfill] += by

    def running_count(self, tenant: str, workflow: str) -> int:
        """Return how many runs of a workflow run."""
        return self._running[tenant, workflow]

    def next_runs(self, tenant: str, workflow: str) -> list[str]:
        """Return the queued runs of a workflow for which there is room, as they came."""
        queues = self._waiting.get((tenant, workflow), {})
        allowed = max((next(iter(queue.values())) for queue in queues.values()), default=0)
        room = max(0, allowed - self._running[tenant, workflow])
        found: list[str] = []
        for backfill, queue in queues.items():
            free = (
                room
                if backfill is None
                else min(room, self.backfill_limits.get(backfill, 1) - self._running_by_backfill[backfill])
            )
            found += islice(queue, max(0, free))
        return sorted(found)[:room]


ActiveRuns = dict[str, ActiveRun]
Rows = Mapping[TaskRef, TaskRow]


class SlotAllocator:
    """Hands out this node's places to the runs of a board."""

    def __init__(
        self,
        runtime: WorkflowRuntime,
        active_runs: ActiveRuns,
        versions: WorkflowVersions,
        attempts: LocalAttempts,
        *,
        replan: Callable[[str], None],
        request_claim: Callable[[ActiveRun], None],
    ) -> None:
        self.admission = RunAdmission()
        self.executor_slots = ExecutorSlots(attempts)
        self._runtime = runtime
        self._active_runs = active_runs
        self._versions = versions
        self._attempts = attempts
        self._replan = replan
        self._request_claim = request_claim
        self._is_assign_scheduled = False
        self._pool_usage: Counter[tuple[str, str]] = Counter()
        """How many places of each tenant's pools are taken, as far as the board tells."""

    # -- waiting

    def enqueue(self, active: ActiveRun, rows: Collection[TaskRow]) -> None:
        """Let task runs wait for a place, if they can be run here."""
        for row in self._runnable_here(active, rows):
            self.executor_slots.enqueue(active.run.id, row)

    def _runnable_here(self, active: ActiveRun, rows: Collection[TaskRow]) -> list[TaskRow]:
        """Return those of some scheduled task runs that could be run here."""
        if not rows or self.admission.is_paused(active.run) or self._versions.find_workflow(active.version) is None:
            return []
        return [row for row in rows if row.pool is None or row.pool in self._runtime.pools]

    def enqueue_version(self, version: VersionKey) -> None:
        """Let the task runs of a version wait for a place, now that its code is here."""
        for active in self._active_runs.values():
            if active.version == version:
                self.enqueue(active, active.waiting_tasks())
        self.assign()

    # -- giving

    def assign_soon(self) -> None:
        """Give places once everybody has had a turn who is about to say what follows from what has just ended."""
        if not self._is_assign_scheduled and self.executor_slots.has_waiting():
            self._is_assign_scheduled = True
            asyncio.get_running_loop().call_soon(self.assign)

    def assign(self) -> None:
        """Give free places to whoever waits, and have that claimed."""
        self._is_assign_scheduled = False
        for run, place in self.executor_slots.reserve_for_waiting(self._is_still_wanted):
            active = self._active_runs[run]
            active.grants.append(place)
            if not active.is_busy:
                self._request_claim(active)
        if self.executor_slots.has_waiting_for_dispatch() and self._attempts.dispatcher.free_queue_slots <= 0:
            self._runtime.metrics.increment("dispatch_at_capacity")

    def _is_still_wanted(self, waiting: WaitingTask) -> bool:
        active = self._active_runs.get(waiting.run)
        if active is None or waiting.ref in active.grants or self.admission.is_paused(active.run):
            return False
        row = active.rows.get(waiting.ref)
        return row is None or row.state is TaskState.SCHEDULED or active.is_busy

    def claim(self, active: ActiveRun, draft: RunDraft) -> list[TaskRow]:
        """Claim, in a draft, what of a run has been given a place; a place that is not needed is given on."""
        self._reserve_or_enqueue(active, draft)
        claimed: list[TaskRow] = []
        room: dict[str, int] = {}
        self._reserve_for_run(active)
        while active.grants:
            grants, active.grants = active.grants, []
            claimed += [row for place in grants if (row := self._claim(active, draft, place, room)) is not None]
            self._reserve_for_run(active)
        self.assign_soon()
        return claimed

    def _reserve_or_enqueue(self, active: ActiveRun, draft: RunDraft) -> None:
        """Give places to what became ready in a draft: at once, if there is one for each; else it waits its turn."""
        rows = self._runnable_here(active, draft.scheduled)
        if rows and not active.grants and self.executor_slots.reserve(rows):
            rows.sort(key=lambda row: -row.priority)  # all have a place, but their pool may not have room for all
            active.grants = [(row.task, row.index) for row in rows]
            return
        for row in rows:
            self.executor_slots.enqueue(active.run.id, row)

    def _reserve_for_run(self, active: ActiveRun) -> None:
        """Give a run that is being worked on what is free, as long as it is its turn."""
        if self.executor_slots.has_waiting():
            active.grants += [
                place
                for _, place in self.executor_slots.reserve_for_waiting(self._is_still_wanted, only_run=active.run.id)
            ]

    def _claim(self, active: ActiveRun, draft: RunDraft, ref: TaskRef, room: dict[str, int]) -> TaskRow | None:
        row = draft.rows.get(ref)
        if row is None or row.state is not TaskState.SCHEDULED:
            self.executor_slots.release(row.executor if row is not None else self._runtime.default_executor)
            return None
        if row.pool is not None:
            if self._pool_room(active, row.pool, room) <= 0:
                self.executor_slots.release(row.executor)
                self.executor_slots.park(active.run.id, row)
                return None
            room[row.pool] -= 1
        return draft.claim(ref, self._runtime.owner.id, starts_now=self.executor_slots.is_immediate(row.executor))

    def _pool_room(self, active: ActiveRun, pool: str, known: dict[str, int]) -> int:
        """Return how many more of a pool may be claimed for a run, as far as the board tells; the store decides."""
        if active.is_pool_full:
            return 0
        if pool not in known:
            known[pool] = self._runtime.pools[pool] - self._pool_usage[active.run.tenant, pool]
        return known[pool]

    def update_pool_usage(self, active: ActiveRun, before: Rows, after: Rows) -> None:
        """Take note of what a run takes of pools now; who waits for one that something has left waits for a place."""
        if not active.uses_pools:
            return
        was, is_now = _count_pool_usage(before), _count_pool_usage(after)
        for pool in was | is_now:
            self._pool_usage[active.run.tenant, pool] += is_now[pool] - was[pool]
        if left := [pool for pool in was if was[pool] > is_now[pool]]:
            for pool in left:
                self.executor_slots.unpark(pool)
            self.assign()

    # -- giving back

    def release_grants(self, active: ActiveRun) -> None:
        """Take back the places that were given to a run, which may no longer want them."""
        for place in active.grants:
            row = active.rows.get(place)
            self.executor_slots.release(row.executor if row is not None else self._runtime.default_executor)
        active.grants = []

    def release_claims(self, active: ActiveRun, claimed: Collection[TaskRow]) -> None:
        """Take back the places that were reserved for claims; what could not be claimed waits again."""
        for row in claimed:
            self.executor_slots.release(row.executor)
        rows = [found for row in claimed if (found := active.rows.get((row.task, row.index))) is not None]
        self.enqueue(active, [row for row in rows if row.state is TaskState.SCHEDULED])

    # -- runs

    def apply_pauses(self, paused: set[tuple[str, str]]) -> None:
        """Take note of which workflows are paused; what was held back by a pause goes on."""
        resumed, self.admission.paused = self.admission.paused - paused, paused
        for active in self._active_runs.values():
            if (active.run.tenant, active.run.workflow) in resumed:
                self.enqueue(active, active.waiting_tasks())
        for tenant, workflow in resumed:
            self.admit_next(tenant, workflow)
        if resumed:
            self.assign()

    async def load_backfill_limit(self, run: RunRow) -> None:
        """Find out how many runs of a run's backfill may run at a time."""
        backfill = run.backfill
        if backfill is not None and backfill not in self.admission.backfill_limits:
            found = await self._runtime.store.backfills.get(backfill)
            self.admission.backfill_limits[backfill] = found.limit if found is not None else 1

    def admit_next(self, tenant: str, workflow: str) -> None:
        """Let queued runs of a workflow begin, if they may."""
        for waiting in self.admission.next_runs(tenant, workflow):
            if self.admission.may_begin(self._active_runs[waiting].run):
                self._replan(waiting)


def _count_pool_usage(rows: Rows) -> Counter[str]:
    """Return how many places of each pool task runs take."""
    return Counter(row.pool for row in rows.values() if row.pool is not None and row.state.is_claimed)
