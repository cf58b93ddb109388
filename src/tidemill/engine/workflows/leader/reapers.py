"""The reapers: end runs whose end was missed, and recover attempts whose owner is gone.

The run reaper: a run ends in the transaction of its last task, so there should never be one whose end was missed.
Should a defect leave one behind, without any task that will still report, it is planned once more, which gives its true
outcome; and if even that decides nothing, it is failed. A run with an active task is not touched, however old it is.

The task reaper recovers attempts that will never report. There are two signs of that. The process that claimed an
attempt is known to be gone: then its attempts are recovered immediately. Or its lease has run out, because it was not
renewed for the length of several heartbeats: then this is believed only if the reaper has been able to receive
heartbeats for a while, since leases also run out when it was the store, or this node, that was away, or when the wall
clock was stepped. An attempt whose owner is merely slow, or blocked in the author's code, is renewed by its node and
never touched. Code that holds the interpreter lock, such as a call into C, silences its whole process: an attempt
without heartbeats whose process is seen to run on this host is reported as stuck, and not touched either. Code on a
worker is none of this: it ends before its lease does, even if its worker can do nothing. A remote attempt outlives its
node and renews its own lease: when its node is gone, this one adopts it.
"""

import logging
from datetime import UTC, datetime, timedelta
from math import inf
from typing import NamedTuple

from tidemill.engine.silence import SilenceWatch
from tidemill.engine.workflows.leader.adoption import Adoption
from tidemill.engine.workflows.leader.coordinator import RunCoordinator
from tidemill.engine.workflows.leader.election import LEASE_NAME
from tidemill.engine.workflows.runtime import WorkflowRuntime
from tidemill.engine.workflows.worker.attempts import LocalAttempts
from tidemill.kernel.clock import StepDetector
from tidemill.kernel.errors import StoreError
from tidemill.storage.workflow_ports import NodeRow
from tidemill.telemetry import events
from tidemill.workflows.attempt_results import Lost
from tidemill.workflows.records import AttemptKey, TaskKey, TaskRow
from tidemill.workflows.run_draft import RunDraft
from tidemill.workflows.states import RunState, TaskState

logger = logging.getLogger(__name__)

_AT_ANY_TIME = datetime.max.replace(tzinfo=UTC)

_OWNER_CLEANUP_INTERVAL = 60.0
"""Seconds between deletions of dead owners that have no claims left."""

_FORGOTTEN_AFTER = 86_400.0
"""Seconds of silence after which an owner of another host, without claims, counts as gone."""

_HEARTBEATS_BEFORE_EXPIRY = 2
"""The number of heartbeats that must have had time to arrive before an expired lease means a lost attempt."""


class RunReaper:
    """Ends runs that no task will end."""

    def __init__(self, runtime: WorkflowRuntime, coordinator: RunCoordinator) -> None:
        self._store = runtime.store
        self._coordinator = coordinator
        self._clock = runtime.clock
        self._settings = runtime.settings
        self._metrics = runtime.metrics
        self._steps = StepDetector(runtime.clock)
        self._stepped_at = -inf
        self._idle_since: dict[str, float] = {}
        """By run without an active task: when the reaper first saw it like that, on the monotonic clock."""

    async def reap(self) -> None:
        """End orphaned runs, a limited number per pass; an error concerns its own run only."""
        try:
            orphans = await self._find_orphans()
        except StoreError:
            self._metrics.increment("orphan_list_error")
            raise
        for run in orphans:
            try:
                await self._reap(run)
            except StoreError:
                self._metrics.increment("orphan_reap_error")
            except Exception:  # the error concerns this candidate only
                self._metrics.increment("orphan_panic")
                logger.exception(events.RUN_ORPHANED, extra={"run": run})

    async def _find_orphans(self) -> list[str]:
        """Return runs that have been without an active task for long: by their times, or seen here for as long.

        After a step of the wall clock, stored times say nothing for a while.
        """
        list_orphans, limit = self._store.runs.list_orphans, self._settings.reap_limit
        threshold, now = self._settings.run_orphan_after, self._clock.monotonic()
        if self._steps.check():
            self._stepped_at = now
        idle = await list_orphans(_AT_ANY_TIME, limit)
        self._idle_since = {run: self._idle_since.get(run, now) for run in idle}
        long_idle = {run for run in idle if now - self._idle_since[run] >= threshold}
        if idle and now - self._stepped_at >= threshold:
            long_idle |= set(await list_orphans(self._clock.now() - timedelta(seconds=threshold), limit))
            if self._steps.check():  # perhaps before that time was read
                self._stepped_at, long_idle = now, set()
        return [run for run in idle if run in long_idle]

    async def _reap(self, run: str) -> None:
        self._coordinator.mark_stale(run)
        ended = self._coordinator.request(run, _end_orphan, fail_fast=True)
        if ended is not None and await ended:
            self._metrics.increment("orphan_reaped")
            logger.warning(events.RUN_ORPHANED, extra={"run": run})


def _end_orphan(draft: RunDraft) -> bool:
    """Plan a run to its true outcome, or fail it if the plan decides nothing; return whether it has ended."""
    if draft.run.state is not RunState.RUNNING or any(row.state.is_active for row in draft.rows.values()):
        return False
    draft.plan()
    if draft.run.state is RunState.RUNNING and not any(row.state.is_active for row in draft.rows.values()):
        draft.fail("orphaned: nothing in it can still be decided")
    return draft.run.state.is_terminal


class _UnrenewedLease(NamedTuple):
    """The end of a lease, as stored and on the monotonic clock."""

    until: datetime
    ends_at: float


class TaskReaper:
    """Recovers attempts whose owner is gone."""

    def __init__(self, runtime: WorkflowRuntime, coordinator: RunCoordinator, attempts: LocalAttempts) -> None:
        self._store = runtime.store
        self._coordinator = coordinator
        self._attempts = attempts
        self._adoption = Adoption(runtime, coordinator, attempts)
        self._liveness = runtime.liveness
        self._clock = runtime.clock
        self._settings = runtime.settings
        self._metrics = runtime.metrics
        self._steps = StepDetector(runtime.clock)
        self._silence = SilenceWatch(runtime.clock)
        self._unrenewed: dict[AttemptKey, _UnrenewedLease] = {}
        """The leases at the last step of the wall clock, until they have ended or are renewed."""
        self._stuck: set[AttemptKey] = set()
        self._grace_since = self._clock.monotonic()
        self._last_pass = self._clock.monotonic()
        self._next_owner_cleanup = self._clock.monotonic()

    def reset_grace(self) -> None:
        """Restart the grace period: until now heartbeats could not have been received."""
        self._grace_since = self._clock.monotonic()

    async def reap(self) -> None:
        """Recover the attempts of dead owners, and those whose lease has expired."""
        now = self._clock.monotonic()
        await self._apply_clock_step()
        if now - self._last_pass > max(self._settings.heartbeat_interval, 3 * self._settings.tick_interval):
            self.reset_grace()  # this node itself was suspended
        self._last_pass = now
        try:
            await self._reap_dead_owners()
            self._adoption.request_sweeps()
            if now - self._grace_since >= _HEARTBEATS_BEFORE_EXPIRY * self._settings.heartbeat_interval:
                await self.reap_expired_leases()
        except StoreError:
            self.reset_grace()
            raise

    async def _apply_clock_step(self) -> bool:
        """After a step of the wall clock, believe no lease before its owner could renew it; return if there was one.

        Once the clock was stepped back, a lease of a silent owner ends much too late. So the reaper remembers for every
        lease when it ends on the monotonic clock, if it is not renewed.
        """
        step = self._steps.check()
        if not step:
            return False
        self.reset_grace()
        self._unrenewed.clear()
        now, before_step = self._clock.monotonic(), self._clock.now() - step
        for key, row in await self._store.runs.list_claimed_by(await self._store.runs.count_claims()):
            if row.lease_until is not None:
                ends_at = now + (row.lease_until - before_step).total_seconds()
                self._unrenewed[AttemptKey(*key, row.attempt)] = _UnrenewedLease(row.lease_until, ends_at)
        return True

    async def _reap_dead_owners(self) -> None:
        claimants = (await self._store.runs.count_claims()).keys() - {self._attempts.owner.id}
        is_cleanup_due = self._clock.monotonic() >= self._next_owner_cleanup
        if not claimants and not is_cleanup_due:
            return
        beats = [beat for beat in await self._store.owners.list_beats() if beat.owner.id != self._attempts.owner.id]
        dead = {beat.owner.id for beat in beats if self._liveness.is_dead(beat.owner)}
        silent = {beat.owner.id for beat in beats if beat.age > self._settings.heartbeat_timeout}
        gone = sorted((dead | silent) & claimants)
        for key, row in await self._store.runs.list_claimed_by(gone) if gone else ():
            if self._adoption.is_remote(row):  # its unit lives on, whether its node is dead or only silent
                await self._adoption.adopt(AttemptKey(*key, row.attempt), row)
            elif row.claimed_by in dead:
                await self.mark_lost(key, row, Lost(f"the process that ran it, {row.claimed_by}, is gone"))
        if is_cleanup_due:
            forgotten = {one.owner.id for one in beats if self._silence.lasts(one.owner.id, one.at, _FORGOTTEN_AFTER)}
            await self._delete_dead_owners((dead | forgotten) - claimants)

    async def _delete_dead_owners(self, dead: set[str]) -> None:
        """Delete owners that are gone and hold neither claims nor the leader's lease."""
        self._next_owner_cleanup = self._clock.monotonic() + _OWNER_CLEANUP_INTERVAL
        lease = await self._store.leases.current(LEASE_NAME) if dead else None
        unused = dead - ({lease.holder} if lease is not None else set())
        if unused:
            await self._store.owners.delete(sorted(unused))
            self._silence.forget(unused)

    async def reap_expired_leases(self) -> None:
        """Recover attempts whose lease has expired, apart from those that run on this node, or in a live process."""
        timeout = self._settings.heartbeat_timeout
        limit = self._settings.reap_limit + len(self._stuck)
        expired = await self._store.runs.list_lease_expired(limit) + await self._list_unrenewed()
        if expired and await self._apply_clock_step():
            return
        kept_alive = self._attempts.kept_alive() if expired else set()
        running = await self._list_running_owners() if expired else {}
        stuck: dict[AttemptKey, NodeRow] = {}
        for key, row in expired:
            attempt, owner = AttemptKey(*key, row.attempt), running.get(row.claimed_by or "")
            if row.claimed_by == self._attempts.owner.id and attempt in kept_alive:
                continue  # it runs on this node: that its lease was not renewed is a fault of the store
            if owner is not None and not self._adoption.is_remote(row):
                stuck[attempt] = owner
            elif not await self._adopt_unbegun(attempt, row):
                await self.mark_lost(key, row, Lost(f"no heartbeat for {timeout:g} s", row.lease_until))
        self._report_stuck(stuck)

    async def _adopt_unbegun(self, attempt: AttemptKey, row: TaskRow) -> bool:
        """Take over a remote attempt that has not started: only its node renews its lease, and that has stopped to."""
        is_unbegun = row.state is TaskState.QUEUED and self._adoption.is_remote(row)
        return is_unbegun and row.claimed_by != self._attempts.owner.id and await self._adoption.adopt(attempt, row)

    async def _list_running_owners(self) -> dict[str, NodeRow]:
        """Return the owners whose process certainly runs, and runs author code, by id."""
        owners = await self._store.owners.list_all()
        return {owner.id: owner for owner in owners if not owner.is_worker and self._liveness.is_running(owner)}

    def _report_stuck(self, stuck: dict[AttemptKey, NodeRow]) -> None:
        """Log each attempt that has become stuck: its process is silent, but lives, and may still report."""
        for attempt in stuck.keys() - self._stuck:
            extra = {"attempt": str(attempt), "pid": stuck[attempt].pid, "owner": stuck[attempt].id}
            logger.warning(events.TASK_STUCK, extra=extra)
        self._stuck = set(stuck)
        self._metrics.set_gauge("agent_stuck_tasks", len(stuck))

    async def _list_unrenewed(self) -> list[tuple[TaskKey, TaskRow]]:
        """Return the attempts whose lease has ended since the wall clock was stepped, though its time has not come."""
        now = self._clock.monotonic()
        ended = {key: lease.until for key, lease in self._unrenewed.items() if now >= lease.ends_at}
        if not ended:
            return []
        for key in ended:
            del self._unrenewed[key]
        claimed = await self._store.runs.list_claimed_by(await self._store.runs.count_claims())
        return [(key, row) for key, row in claimed if ended.get(AttemptKey(*key, row.attempt)) == row.lease_until]

    async def mark_lost(self, key: TaskKey, row: TaskRow, lost: Lost) -> None:
        """Recover one lost attempt; an error concerns this attempt only."""
        try:
            attempt = AttemptKey(*key, row.attempt)
            if await self._apply_lost(attempt, lost):
                self._attempts.release_vanished([attempt])
                if self._adoption.is_remote(row):  # its unit may only be cut off, and would run next to the next one
                    await self._attempts.stop([attempt], "it counts as lost")
                self._metrics.increment("agent_lost_tasks_total")
                logger.warning(events.TASK_LOST, extra={"attempt": str(attempt), "reason": lost.reason})
        except StoreError as error:
            self.reset_grace()
            self._metrics.increment("agent_lost_error")
            logger.warning(events.TASK_LOST, extra={"run": key.run, "task": key.task, "error": str(error)})
        except Exception:  # the error concerns this candidate only
            self._metrics.increment("agent_lost_error")
            logger.exception(events.TASK_LOST, extra={"run": key.run, "task": key.task})

    async def _apply_lost(self, attempt: AttemptKey, lost: Lost) -> bool:
        active = self._coordinator.active_runs.get(attempt.run)
        if active is None:
            return False  # not cached yet, or ended meanwhile
        budgets = self._attempts.retry_budgets(active.version, attempt.task)
        self._coordinator.mark_stale(attempt.run)  # a heartbeat may have arrived meanwhile
        applied = self._coordinator.request(
            attempt.run, lambda draft: draft.apply_result(attempt, lost, budgets), fail_fast=True
        )
        return applied is not None and bool(await applied)
