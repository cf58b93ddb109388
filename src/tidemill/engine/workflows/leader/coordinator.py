"""The leader's desk: every active run, one change at a time for each of them.

Whatever concerns a run is asked of the desk: a report, a retry whose time has come, a place that became free. While a
change of a run is being written, what else is asked about it gathers, and makes the next change. So a run never races
with itself, and a task's end, the plan that follows and the claim of what became ready are one transaction. Changes of
different runs are written at the same time, and the store folds them into one commit.

What can go wrong with a change, and what the desk does:

* it is stale, because another process has changed the run: the run is read again, and what was asked is asked again;
* a pool is full: the task run waits until something leaves the pool;
* it is fenced: this term is over, and the desk with it;
* the store does not answer: the same again, after a while;
* anything raises: that run is set aside with the reason, what was reported is written without a plan, and all other
  runs go on. It is looked at again later, in case the reason was passing.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from msgspec.structs import replace

from tidemill.engine.workflows.leader.active_runs import (
    ActiveRun,
    DraftEdit,
    FinishedRun,
    InFlightChange,
    NewRun,
    RunRequest,
    do_nothing,
    read_commit_result,
    reject_requests,
    resolve_requests,
)
from tidemill.engine.workflows.leader.launcher import TaskLauncher
from tidemill.engine.workflows.leader.refresh import RunRefresher
from tidemill.engine.workflows.leader.slots import SlotAllocator
from tidemill.engine.workflows.leader.timers import DeferralPolls, RunTimers
from tidemill.engine.workflows.runtime import STORE_RETRY, WorkflowRuntime
from tidemill.engine.workflows.versions import WorkflowVersions
from tidemill.engine.workflows.worker.attempts import LocalAttempts
from tidemill.kernel.backoff import Backoff
from tidemill.kernel.errors import StoreError
from tidemill.telemetry import events
from tidemill.workflows.attempt_results import AttemptResult, Deferred, Succeeded
from tidemill.workflows.change import Applied, LeaderFence, Refused
from tidemill.workflows.lookup import WorkflowPausedError
from tidemill.workflows.records import AttemptKey, FireRow, RunRecord, RunRow
from tidemill.workflows.run_draft import RunDraft
from tidemill.workflows.spec import WorkflowSpec
from tidemill.workflows.states import RunState

logger = logging.getLogger(__name__)

_QUARANTINE_BACKOFF = Backoff(1.0, 60.0)

NOT_PLANNED_HERE = "its run is no longer planned here"

Report = tuple[AttemptKey, AttemptResult]


class LeadershipLostError(StoreError):
    """Somebody else is in office."""


class RunCoordinator:
    """The work of one term in office."""

    def __init__(
        self,
        term: LeaderFence,
        runtime: WorkflowRuntime,
        versions: WorkflowVersions,
        attempts: LocalAttempts,
        *,
        on_leadership_lost: Callable[[], None],
        on_run_changed: Callable[[str], None],
        on_run_ended: Callable[[str, FinishedRun | None], None],
        on_timer_set: Callable[[], None],
    ) -> None:
        self.term = term
        self.active_runs: dict[str, ActiveRun] = {}
        self.slots = SlotAllocator(
            runtime, self.active_runs, versions, attempts, replan=self.replan, request_claim=self._request_claim
        )
        self.timers = RunTimers(on_timer_set)
        self.deferral_polls = DeferralPolls(runtime.clock, runtime.tasks, self._on_poll_fulfilled)
        self._launcher = TaskLauncher(runtime, attempts, self.slots)
        parts = self.active_runs, versions, attempts, self.slots, self.timers
        self._refresher = RunRefresher(runtime, *parts, replan=self.replan, mark_stale=self.mark_stale)
        self.failing_runs: set[str] = set()
        """Runs with which everything fails, on purpose: for tests."""
        self.runs_in_progress = 0
        self.backing_off = 0
        """How many of those that work wait for a while, because the store failed."""
        self.is_closed = self._is_abandoned = False
        self._pending: list[ActiveRun] = []
        self._runtime = runtime
        self._store = runtime.store
        self._clock = runtime.clock
        self._tasks = runtime.tasks
        self._metrics = runtime.metrics
        self._attempts = attempts
        self._on_leadership_lost = on_leadership_lost
        self._on_run_changed, self._on_run_ended = on_run_changed, on_run_ended

    # -- what may be asked

    async def create(self, run: RunRow, spec: WorkflowSpec, fire: FireRow | None = None) -> bool:
        """Make a run, and begin it if it may; False if its slot or payload has one already, PausedError in a pause.

        Who stops waiting does not stop it: what was claimed with it is ours to run, once that is written.
        """
        await self.slots.load_backfill_limit(run)
        if self.is_closed:
            raise LeadershipLostError(NOT_PLANNED_HERE)
        active = self.active_runs[run.id] = ActiveRun(RunRecord(run, []), spec, NewRun(fire))
        self.slots.admission.update(None, run)
        return bool(await self._request(active, RunRequest(lambda draft: True, fail_fast=True)))  # noqa: ARG005

    def report(self, key: AttemptKey, ending: AttemptResult) -> bool:
        """Take a report of an attempt; False if its run is not on the desk."""
        active = self.active_runs.get(key.run)
        if active is None or self.is_closed:
            return False
        budgets = self._attempts.retry_budgets(active.version, key.task)
        active.requests.append(RunRequest(lambda draft: draft.apply_result(key, ending, budgets), report=(key, ending)))
        self._enqueue(active)
        return True

    def begin(self, key: AttemptKey) -> "asyncio.Future[bool] | None":
        """Record that an attempt begins; None if its run is not on the desk."""
        return self.request(key.run, lambda draft: draft.mark_started(key))

    def request(self, run: str, edit: DraftEdit, *, fail_fast: bool = False) -> "asyncio.Future[Any] | None":
        """Have a step done with a run; the answer comes when it is written. None if the run is not on the desk.

        While the store fails, the same is asked again and again, unless it is to be asked `once`.
        """
        active = self.active_runs.get(run)
        return (
            None if active is None or self.is_closed else self._request(active, RunRequest(edit, fail_fast=fail_fast))
        )

    def _request(self, active: ActiveRun, request: RunRequest) -> "asyncio.Future[Any]":
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        active.requests.append(request._replace(future=answer))
        self._enqueue(active)
        return answer

    def replan(self, run: str) -> None:
        """Plan a run: something about it may have changed, if only the time."""
        self.request(run, do_nothing)

    def _request_claim(self, active: ActiveRun) -> None:
        active.requests.append(RunRequest(do_nothing, is_claim=True))
        self._enqueue(active)

    def mark_stale(self, run: str) -> None:
        """Read a run again: somebody else has changed it."""
        active = self.active_runs.get(run)
        if active is not None:
            active.is_stale = True
            self.replan(run)

    async def refresh(self) -> bool:
        """Make the board hold exactly the runs that are active; False if some are yet to be read."""
        return await self._refresher.refresh()

    def wake_due(self) -> None:
        """Plan the runs in which a retry or a deferral is over."""
        now = self._clock.now()
        for run in self.timers.pop_due(now):
            active = self.active_runs.get(run)
            if (
                active is not None and not active.is_retry_scheduled
            ):  # else it is looked at then, and not again and again
                later = [row for row in active.rows.values() if row.wake_at is not None and row.wake_at > now]
                self.timers.schedule(run, later)
                self.replan(run)

    def close(self) -> None:
        """Leave everything as it is; reports that were not written yet are written without a plan."""
        self.is_closed = True
        self.deferral_polls.close()
        for active in self.active_runs.values():
            self._drop_requests(active)

    def abandon(self) -> None:
        """Do nothing more, not even with what comes of the changes that are on their way."""
        self.is_closed = self._is_abandoned = True

    # -- one change after the other

    def _enqueue(self, active: ActiveRun) -> None:
        """Work on a run, once everybody has asked who is about to in this turn of the loop."""
        if not active.is_busy and (active.requests or active.grants) and not self.is_closed:
            active.is_busy = True
            self.runs_in_progress += 1
            self._pending.append(active)
            if len(self._pending) == 1:
                asyncio.get_running_loop().call_soon(self.process_pending)

    def process_pending(self) -> None:
        """Work on whatever was asked for, at once: whoever calls knows that nobody else is about to ask."""
        due, self._pending = self._pending, []
        for active in due:
            self._process_run(active)

    def _process_run(self, active: ActiveRun) -> None:
        """Make the next change of a run; rest when nothing more is asked about it."""
        while not self._is_stopped and (active.awaiting_inputs or self._has_work(active)):
            if active.awaiting_inputs or active.is_stale:
                self._tasks.start(f"run: {active.run.id}: read", self._read_missing(active))
                return
            asks, active.requests = active.requests, []
            try:
                if self._submit_change(active, asks):
                    return
            except Exception as error:  # whatever is wrong with this run, the others go on
                self._on_error(active, asks, error)
        self._drop_requests(active)
        active.is_busy = False
        self.runs_in_progress -= 1

    def _has_work(self, active: ActiveRun) -> bool:
        return bool(active.requests or active.grants) and not self.is_closed and active.run.id in self.active_runs

    def _submit_change(self, active: ActiveRun, requests: list[RunRequest]) -> bool:
        """Have a change of a run written; False if there is none, so that there is nothing to wait for."""
        if active.run.id in self.failing_runs:
            raise RuntimeError("broken on purpose")
        draft = active.new_draft(self._clock.now(), self._attempts.owner.id, self._runtime.executor_for)
        answers = [ask.edit(draft) for ask in requests]
        self._plan(active, draft, requests)
        writing = InFlightChange(active, draft, self.slots.claim(active, draft), requests, answers)
        if draft.is_empty:
            active.mark_planned()
            self._resolve(writing)
            return False
        try:
            lease, pools = self._runtime.settings.heartbeat_timeout, self._runtime.pools
            answer = self._store.runs.apply(draft.build_change(fence=self.term, lease=lease, pools=pools))
        except Exception:
            self._roll_back_claims(writing)
            raise
        answer.on_done = partial(self._on_change_written, writing)
        return True

    def _plan(self, active: ActiveRun, draft: RunDraft, requests: Collection[RunRequest]) -> None:
        if self.slots.admission.may_begin(draft.run):
            draft.admit()
        if active.needs_plan(draft, requests):
            draft.plan(
                kept_deferred=self.deferral_polls.polled_tasks(active.run.id, draft.rows),
                changed=active.tasks_changed_by(requests),
            )
        self.slots.admission.update(active.run, draft.run)

    def _on_change_written(self, change: InFlightChange, result: "asyncio.Future[Applied | Refused]") -> None:
        """Go on after a change: it was written or refused, or the store failed."""
        active, outcome = change.active, read_commit_result(result)
        try:
            if isinstance(outcome, Applied) and not self._is_stopped:
                self._apply_committed(change, outcome)
            else:
                self._roll_back_claims(change)
                if isinstance(outcome, Exception):
                    raise outcome
                active.requests = change.requests + active.requests
                if isinstance(outcome, Refused):
                    self._on_refused(active, outcome)
        except Exception as error:  # whatever is wrong with this run, the others go on
            self._on_error(active, change.requests, error)
        self._process_run(active)

    @property
    def _is_stopped(self) -> bool:
        """Whether nothing is begun here any more, and nothing said."""
        return self._is_abandoned or self._tasks.is_closed

    # -- before the next change

    async def _read_missing(self, active: ActiveRun) -> None:
        """Read what is to be known first: what claimed task runs take, or the run itself, as others have left it."""
        try:
            await self._launcher.load_and_launch(active)
            if active.is_stale and self._has_work(active):
                await self._back_off(active)
                if await self._refresher.reload(active):
                    self.replan(active.run.id)  # whatever others have done to it is to be planned
                else:
                    self._drop_run(active)
                    asks, active.requests = active.requests, []
                    resolve_requests(asks, [None] * len(asks))
                    self._report_without_plan(asks)
        except Exception as error:  # whatever is wrong with this run, the others go on
            asks, active.requests = active.requests, []
            self._on_error(active, asks, error)
        finally:
            self._process_run(active)

    async def _back_off(self, active: ActiveRun) -> None:
        """Wait for a while if the store has failed."""
        if active.store_failed:
            active.store_failed = False
            self.backing_off += 1
            try:
                await self._clock.sleep(STORE_RETRY.delay(active.failures))
            finally:
                self.backing_off -= 1

    def _drop_run(self, active: ActiveRun) -> None:
        """Take leave of a run that somebody else has ended, or deleted."""
        self._attempts.stop_superseded(active.run.id, {})
        self._finish_run(active)
        self._on_run_ended(active.run.id, None)

    # -- after the change

    def _apply_committed(self, change: InFlightChange, applied: Applied) -> None:
        active, draft, before = change.active, change.draft, change.active.rows
        is_alone, is_new = applied.revision <= active.run.revision + 1, active.creation is not None
        if active.run.state is RunState.QUEUED and draft.run.state is not RunState.QUEUED:
            logger.info(events.RUN_STARTED, extra={"run": draft.run.id, "workflow": draft.run.workflow})
        active.update(replace(draft.run, revision=applied.revision), draft.rows)
        active.mark_planned()
        if not is_alone:  # what somebody else did meanwhile is in the revision, but not in these rows
            self.mark_stale(active.run.id)
        if draft.sleeping:
            self.timers.schedule(active.run.id, draft.sleeping)
        self._record_results(active, change.accepted_reports)
        self.slots.update_pool_usage(active, before, active.rows)
        for row in change.claimed:
            self._attempts.add_claimed(active.run, row, active.spec)
        for key in change.ended_attempts:
            self._attempts.release(key)
        if is_new:
            self._attempts.on_activity()
        self._launcher.launch(active, change.claimed)  # before the rest: a thread takes its time to wake
        self._notify_waiters(active)
        self._resolve(change)

    def _notify_waiters(self, active: ActiveRun) -> None:
        """Tell whoever waits for news of a run, and take leave of it if it has ended."""
        if active.run.state.is_terminal:
            self._finish_run(active)
            self._on_run_ended(active.run.id, active.as_finished())
        else:
            self._on_run_changed(active.run.id)

    def _resolve(self, change: InFlightChange) -> None:
        """Tell those who asked what came of it; whoever reported too late is told nothing, but let go."""
        resolve_requests(change.requests, change.results)
        for ask, is_current in zip(change.requests, change.results, strict=True):
            if ask.report is not None and not is_current:
                self._attempts.release(ask.report[0])
                self._attempts.count_late(*ask.report)

    def _record_results(self, active: ActiveRun, reported: Collection[Report]) -> None:
        """Keep in mind what was reported and may be needed soon."""
        for key, ending in reported:
            self._metrics.increment("tasks_total", state=active.rows[key.task, key.element].state)
            if isinstance(ending, Succeeded):
                active.cache_output((key.task, key.element), ending.value)
            if isinstance(ending, Deferred) and ending.poll is not None:
                self.deferral_polls.add(key, ending.poll, ending.every)

    def _finish_run(self, active: ActiveRun) -> None:
        """Take leave of a run that has ended, here or elsewhere."""
        run = active.run
        self._remove_run(active)
        if run.state.is_terminal:
            self._metrics.increment("runs_total", state=run.state)
        logger.info(events.RUN_ENDED, extra={"run": run.id, "workflow": run.workflow, "state": str(run.state)})

    def _remove_run(self, active: ActiveRun) -> None:
        """Take a run off the board, and let the next of its workflow begin."""
        run = active.run
        if self.active_runs.pop(run.id, None) is None:
            return
        self.slots.release_grants(active)
        self.slots.update_pool_usage(active, active.rows, {})
        self.slots.admission.update(run, None)
        self.deferral_polls.cancel(run.id)
        self.timers.cancel(run.id)
        if run.state is not RunState.QUEUED:
            self.slots.admit_next(run.tenant, run.workflow)

    # -- when it was refused

    def _roll_back_claims(self, change: InFlightChange) -> None:
        self.slots.admission.update(change.draft.run, change.active.run)
        self.slots.release_claims(change.active, change.claimed)

    def _on_refused(self, active: ActiveRun, refused: Refused) -> None:
        match refused.reason:
            case "fenced":
                self._metrics.increment("fenced_writes_total")
                self._on_leadership_lost()
                self.close()
            case "stale":
                active.is_stale = True
            case "full":
                active.is_pool_full = True
            case "fired":
                resolve_requests(active.requests, [False] * len(active.requests))
                self._remove_run(active)
            case "paused":
                reject_requests(active.requests, WorkflowPausedError(active.run.workflow))
                self._remove_run(active)

    def _on_error(self, active: ActiveRun, requests: list[RunRequest], error: Exception) -> None:
        if self._is_stopped:
            reject_requests(requests, error)
        elif not isinstance(error, StoreError):
            self._quarantine(active, requests, error)
        else:
            reject_requests([ask for ask in requests if ask.fail_fast], error)
            active.requests = [ask for ask in requests if not ask.fail_fast] + active.requests
            active.is_stale = active.store_failed = True
            active.failures += 1
            logger.warning(events.RUN_CHANGE_FAILED, extra={"run": active.run.id, "error": str(error)})
        if active.creation is not None:  # nobody but whoever wanted it knows of it
            self._remove_run(active)

    def _quarantine(self, active: ActiveRun, requests: list[RunRequest], error: Exception) -> None:
        active.failures += 1
        active.quarantine_reason = f"{type(error).__name__}: {error}"
        active.is_stale = True
        self.slots.release_grants(active)
        self._metrics.increment("run_errors_total")
        logger.error(
            events.RUN_QUARANTINED, exc_info=error, extra={"run": active.run.id, "reason": active.quarantine_reason}
        )
        reject_requests(requests, error)
        self._report_without_plan(requests)
        if not active.is_retry_scheduled:
            active.is_retry_scheduled = True
            self._tasks.start(f"run: {active.run.id} again", self._retry_quarantined(active))

    async def _retry_quarantined(self, active: ActiveRun) -> None:
        await self._clock.sleep(_QUARANTINE_BACKOFF.delay(active.failures))
        active.is_retry_scheduled = False
        if self.active_runs.get(active.run.id) is active:
            self.replan(active.run.id)

    def _drop_requests(self, active: ActiveRun) -> None:
        """Do no more of what was asked about a run: it has left the desk, or the desk is closed."""
        asks, active.requests = active.requests, []
        reject_requests(asks, LeadershipLostError(NOT_PLANNED_HERE))
        if not self._is_stopped:
            self._report_without_plan(asks)

    def _report_without_plan(self, requests: Collection[RunRequest]) -> None:
        """Have reports written without a plan."""
        for ask in requests:
            if ask.report is not None:
                self._attempts.report_to_store(*ask.report)

    def _on_poll_fulfilled(self, key: AttemptKey) -> None:
        self.request(key.run, lambda draft: draft.end_deferral(key))
