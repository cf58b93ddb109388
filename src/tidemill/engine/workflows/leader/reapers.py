"""The run reaper: ends runs whose end was missed.

A run ends in the transaction of its last task, so there should never be one. Should a defect leave one behind, with
nothing in it that anybody will ever report on, it is planned once more, which gives its true outcome; and if even that
says nothing, it is failed. A run in which anything is active is not touched, however old it is.
"""

import logging
from datetime import timedelta

from tidemill.engine.workflows.leader.coordinator import RunCoordinator
from tidemill.engine.workflows.leader.election import LEASE_NAME
from tidemill.engine.workflows.runtime import WorkflowRuntime
from tidemill.engine.workflows.worker.attempts import LocalAttempts
from tidemill.kernel.errors import StoreError
from tidemill.telemetry import events
from tidemill.workflows.attempt_results import Lost
from tidemill.workflows.records import AttemptKey, TaskKey, TaskRow
from tidemill.workflows.run_draft import RunDraft
from tidemill.workflows.states import RunState

logger = logging.getLogger(__name__)


class RunReaper:
    """Looks for runs that nothing would end."""

    def __init__(self, runtime: WorkflowRuntime, coordinator: RunCoordinator) -> None:
        self._store = runtime.store
        self._coordinator = coordinator
        self._clock = runtime.clock
        self._settings = runtime.settings
        self._metrics = runtime.metrics

    async def reap(self) -> None:
        """End orphaned runs, a bounded number at a time; trouble with one does not keep the others."""
        before = self._clock.now() - timedelta(seconds=self._settings.run_orphan_after)
        try:
            orphans = await self._store.runs.list_orphans(before, self._settings.reap_limit)
        except StoreError:
            self._metrics.increment("orphan_list_error")
            raise
        for run in orphans:
            try:
                await self._reap(run)
            except StoreError:
                self._metrics.increment("orphan_reap_error")
            except Exception:  # a candidate that raises is its own problem, not that of the next
                self._metrics.increment("orphan_panic")
                logger.exception(events.RUN_ORPHANED, extra={"run": run})

    async def _reap(self, run: str) -> None:
        self._coordinator.mark_stale(run)
        answer = self._coordinator.request(run, _end_orphan, fail_fast=True)
        if answer is not None and await answer:
            self._metrics.increment("orphan_reaped")
            logger.warning(events.RUN_ORPHANED, extra={"run": run})


def _end_orphan(draft: RunDraft) -> bool:
    """Give a run its true outcome, or fail it if nothing can be decided about it; return whether it was ended."""
    if draft.run.state is not RunState.RUNNING or any(row.state.is_active for row in draft.rows.values()):
        return False
    draft.plan()
    if draft.run.state is RunState.RUNNING and not any(row.state.is_active for row in draft.rows.values()):
        draft.fail("orphaned: nothing in it can be decided any more")
    return draft.run.state.is_terminal


_HEARTBEATS_BEFORE_EXPIRY = 2
"""How many heartbeats must have had time to arrive before silence means anything."""


_OWNER_CLEANUP_INTERVAL = 60.0
"""Seconds between looks at which of the dead have left nothing behind."""


class TaskReaper:
    """Looks for attempts of the dead."""

    def __init__(self, runtime: WorkflowRuntime, coordinator: RunCoordinator, attempts: LocalAttempts) -> None:
        self._store = runtime.store
        self._coordinator = coordinator
        self._attempts = attempts
        self._liveness = runtime.liveness
        self._clock = runtime.clock
        self._settings = runtime.settings
        self._metrics = runtime.metrics
        self._grace_since = self._clock.monotonic()
        self._last_pass = self._clock.monotonic()
        self._next_owner_cleanup = self._clock.monotonic()

    def reset_grace(self) -> None:
        """Take note that heartbeats could not have been heard until now."""
        self._grace_since = self._clock.monotonic()

    async def reap(self) -> None:
        """Take back what belongs to the dead, and what has been silent for too long."""
        now = self._clock.monotonic()
        if now - self._last_pass > max(self._settings.heartbeat_interval, 3 * self._settings.tick_interval):
            self.reset_grace()  # this node itself was away
        self._last_pass = now
        try:
            await self._reap_dead_owners()
            if now - self._grace_since >= _HEARTBEATS_BEFORE_EXPIRY * self._settings.heartbeat_interval:
                await self._reap_expired_leases()
        except StoreError:
            self.reset_grace()
            raise

    async def _reap_dead_owners(self) -> None:
        claimants = await self._store.runs.list_claim_owners() - {self._attempts.owner.id}
        is_time_to_forget = self._clock.monotonic() >= self._next_owner_cleanup
        if not claimants and not is_time_to_forget:
            return
        owners = [one for one in await self._store.owners.list_all() if one.id != self._attempts.owner.id]
        dead = {one.id for one in owners if self._liveness.is_dead(one)}
        found = sorted(dead & claimants)
        for key, row in await self._store.runs.list_claimed_by(found) if found else ():
            await self._mark_lost(key, row, Lost(f"the process that ran it, {row.claimed_by}, is gone"))
        if is_time_to_forget:
            await self._delete_dead_owners(dead - claimants)

    async def _delete_dead_owners(self, dead: set[str]) -> None:
        """Forget those of the dead that have left nothing behind: neither claims nor the office."""
        self._next_owner_cleanup = self._clock.monotonic() + _OWNER_CLEANUP_INTERVAL
        lease = await self._store.leases.current(LEASE_NAME) if dead else None
        gone = dead - ({lease.holder} if lease is not None else set())
        if gone:
            await self._store.owners.delete(sorted(gone))

    async def _reap_expired_leases(self) -> None:
        timeout = self._settings.heartbeat_timeout
        overdue = await self._store.runs.list_lease_expired(self._settings.reap_limit)
        ours = self._attempts.tracked() if overdue else set()
        for key, row in overdue:
            if row.claimed_by == self._attempts.owner.id and AttemptKey(*key, row.attempt) in ours:
                continue  # it lives, under our own eyes: that its lease was not renewed says something of the store
            await self._mark_lost(key, row, Lost(f"no heartbeat for {timeout:g} s", row.lease_until))

    async def _mark_lost(self, key: TaskKey, row: TaskRow, lost: Lost) -> None:
        """Take one attempt back; trouble with it does not keep the others."""
        try:
            attempt = AttemptKey(*key, row.attempt)
            if await self._apply_lost(attempt, lost):
                self._attempts.release_vanished([attempt])
                self._metrics.increment("agent_lost_tasks_total")
                logger.warning(events.TASK_LOST, extra={"attempt": str(attempt), "reason": lost.reason})
        except StoreError as error:
            self.reset_grace()
            self._metrics.increment("agent_lost_error")
            logger.warning(events.TASK_LOST, extra={"run": key.run, "task": key.task, "error": str(error)})
        except Exception:  # a candidate that raises is its own problem, not that of the next
            self._metrics.increment("agent_lost_error")
            logger.exception(events.TASK_LOST, extra={"run": key.run, "task": key.task})

    async def _apply_lost(self, attempt: AttemptKey, lost: Lost) -> bool:
        active = self._coordinator.active_runs.get(attempt.run)
        if active is None:
            return False  # not read yet, or it has ended meanwhile
        budgets = self._attempts.retry_budgets(active.version, attempt.task)
        self._coordinator.mark_stale(attempt.run)  # so that a heartbeat that came meanwhile is seen
        answer = self._coordinator.request(
            attempt.run, lambda draft: draft.apply_result(attempt, lost, budgets), fail_fast=True
        )
        return answer is not None and bool(await answer)
