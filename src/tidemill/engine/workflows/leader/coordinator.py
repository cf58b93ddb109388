"""The run coordinator: holds every active run, and makes one change at a time of each of them.

Everything that concerns a run is a request to the coordinator: a report, a retry that is due, a slot that became free.
While a change of a run is being written, further requests for it gather, and make the next change. So a run never races
with itself, and a task's end, the plan that follows and the claim of the tasks that became ready are one transaction.
Changes of different runs are written at the same time, and the store folds them into one commit.

What can go wrong with a change, and what the coordinator does:

* it is stale, because another process has changed the run: the run is read again, and the requests are repeated;
* a pool is full: the task is parked until the pool frees a slot;
* an older run of the workflow, which another process has created, is next: no run begins before it is read;
* it is fenced: this term is over, and the coordinator closes;
* the store fails: the change is retried after a while;
* anything else raises: that run is quarantined with the reason, its reports are written without a plan, and all other
  runs continue. The run is retried later, in case the reason was temporary.
"""

import asyncio
import logging
from collections.abc import Collection
from functools import lru_cache, partial
from typing import Any

from msgspec.structs import replace

from tidemill.engine.workflows.leader.active_runs import (
    REPLAN,
    ActiveRun,
    DraftEdit,
    InFlightChange,
    NewRun,
    Report,
    RunRequest,
    resolve_requests,
    tasks_to_plan,
)
from tidemill.engine.workflows.leader.claim_launcher import ClaimLauncher
from tidemill.engine.workflows.leader.election import LeaderElector
from tidemill.engine.workflows.leader.failures import ChangeFailures, LeadershipLostError, log_retry
from tidemill.engine.workflows.leader.handler_runs import HandlerRuns
from tidemill.engine.workflows.leader.refresh import RunRefresher
from tidemill.engine.workflows.leader.slots import SlotAllocator
from tidemill.engine.workflows.leader.ticks import TickTimer
from tidemill.engine.workflows.leader.timers import DeferralPolls, RunTimers, move_timers
from tidemill.engine.workflows.notifications import RunNotifier
from tidemill.engine.workflows.runtime import StoreRetry, WorkflowRuntime
from tidemill.engine.workflows.versions import WorkflowVersions
from tidemill.engine.workflows.worker.attempts import AttemptObserver, LocalAttempts
from tidemill.kernel.clock import StepAwareClock
from tidemill.kernel.errors import StoreError
from tidemill.telemetry import events
from tidemill.workflows.attempt_results import AttemptResult, Deferred, Failed, RetryBudgets, Succeeded
from tidemill.workflows.change import Applied, LeaderFence, Refused
from tidemill.workflows.handlers import find_handlers
from tidemill.workflows.lookup import StartSuppressedError, WorkflowPausedError
from tidemill.workflows.records import AttemptKey, RunRecord, RunRow, TaskRow, VersionKey
from tidemill.workflows.run_draft import RunDraft, new_task_rows
from tidemill.workflows.spec import WorkflowSpec
from tidemill.workflows.states import RunState

logger = logging.getLogger(__name__)

VERSION_CACHE_SIZE = 1024  # versions whose new task rows are cached


class RunCoordinator(AttemptObserver):
    """Makes the changes of all active runs during one term."""

    def __init__(
        self,
        term: LeaderFence,
        runtime: WorkflowRuntime,
        versions: WorkflowVersions,
        attempts: LocalAttempts,
        *,
        elector: LeaderElector,
        notifier: RunNotifier,
        ticks: TickTimer,
    ) -> None:
        self.term = term
        self.active_runs: dict[str, ActiveRun] = {}
        self.slots = SlotAllocator(runtime, self.active_runs, versions, attempts)
        self.timers = RunTimers(ticks.notify)
        self.deferral_polls = DeferralPolls(runtime.clock, runtime.tasks, self._on_poll_fulfilled)
        self.runs_in_progress = 0
        """The number of runs whose change is being made or written."""
        self.store_retry = StoreRetry(runtime.clock)
        self.accepts_runs = True
        """Whether new runs are started here; not while the node closes."""
        self.is_closed = self._is_assign_scheduled = False
        self._launcher = ClaimLauncher(runtime, attempts, self.slots)
        self._failures = ChangeFailures(runtime, attempts, self.slots, self.replan)
        self._refresher = RunRefresher(runtime, self.active_runs, versions, attempts, self.slots, self.timers)
        self.handler_runs = HandlerRuns(runtime, versions, self._refresher.add, self.replan)
        self._new_task_rows = lru_cache(VERSION_CACHE_SIZE)(
            lambda version: new_task_rows(versions.specs[version], runtime.executor_for)
        )
        self._success_budgets = RetryBudgets(None, 0, runtime.rng)
        """The budgets for results that need no retry."""
        self._pending: list[ActiveRun] = []
        self._runtime, self._tasks, self._metrics = runtime, runtime.tasks, runtime.metrics
        on_step = partial(move_timers, self.active_runs, self.timers, self.request)
        self._wall_clock = StepAwareClock(runtime.clock, on_step)
        self._versions, self._attempts = versions, attempts
        self._elector, self._notifier, self._ticks = elector, notifier, ticks

    # -- requests

    async def create(self, run: RunRow, version: VersionKey, spec: WorkflowSpec, creation: NewRun) -> bool:
        """Create a run, and begin it if it may; False if its slot or payload already has one.

        WorkflowPausedError if its workflow is paused, StartSuppressedError if its fire is suppressed. A caller that
        stops waiting does not stop it: once it is written, this node must run the tasks that were claimed with it.
        """
        if run.backfill is not None:
            await self.slots.load_backfill_limit(run)
        if self.is_closed:
            raise LeadershipLostError()
        active = self.active_runs[run.id] = ActiveRun(RunRecord(run, []), version, spec, creation)
        self.slots.admission.put(run)
        return bool(await self._request(active, RunRequest(lambda _: True, fail_fast=True)))

    def report(self, key: AttemptKey, result: AttemptResult) -> bool:
        """Accept the result of an attempt; False if its run is not coordinated here."""
        active = self._find(key.run)
        if active is None:
            return False
        budgets = self._success_budgets
        if not isinstance(result, Succeeded):
            budgets = self._attempts.retry_budgets(active.version, key.task)
        if not active.is_busy:  # else others can use the slot while the change is written
            self.slots.keep_freed(active, key)
        active.requests.append(RunRequest(lambda draft: draft.apply_result(key, result, budgets), report=(key, result)))
        self.enqueue(active)
        return True

    def begin(self, key: AttemptKey) -> "asyncio.Future[bool] | None":
        """Record that an attempt starts; None if its run is not coordinated here."""
        request = RunRequest(lambda draft: draft.mark_started(key), decides_nothing=True)
        return self._request(active, request) if (active := self._find(key.run)) is not None else None

    def request(
        self, run: str, edit: DraftEdit, *, fail_fast: bool = False, report: Report | None = None
    ) -> "asyncio.Future[Any] | None":
        """Edit a run; None if it is not coordinated here. The future has the result."""
        request = RunRequest(edit, report=report, fail_fast=fail_fast)
        return self._request(active, request) if (active := self._find(run)) is not None else None

    def _find(self, run: str) -> ActiveRun | None:
        """Return a run that is coordinated here."""
        return None if self.is_closed else self.active_runs.get(run)

    def _request(self, active: ActiveRun, request: RunRequest) -> "asyncio.Future[Any]":
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        active.requests.append(request._replace(future=future))
        self.enqueue(active)
        return future

    def replan(self, run: str) -> None:
        """Plan a run: something about it may have changed, if only the time."""
        if (active := self._find(run)) is not None and REPLAN not in active.requests:
            active.requests.append(REPLAN)
            self.enqueue(active)

    def mark_stale(self, run: str) -> None:
        """Read a run again: another process has changed it."""
        if (active := self.active_runs.get(run)) is not None:
            active.is_stale = True
            self.replan(run)

    async def refresh(self) -> bool:
        """Refresh the active runs from the store; False if some are yet to be read."""
        refreshed = await self._refresher.refresh()
        for run in refreshed.stale:
            self.mark_stale(run)
        for run in [*refreshed.added, *(self.slots.open_admission() if refreshed.is_complete else ())]:
            self.replan(run)
        return refreshed.is_complete

    def wake_due(self) -> None:
        """Plan the runs in which a retry or a deferral is due."""
        now = self._wall_clock.now()
        for run in self.timers.pop_due(now):
            active = self.active_runs.get(run)
            if active is not None and not active.is_retry_scheduled:  # else the retry of the quarantined run plans it
                self.timers.schedule(run, active.rows.values(), after=now)
                self.replan(run)

    def _on_poll_fulfilled(self, key: AttemptKey) -> None:
        self.request(key.run, lambda draft: draft.end_deferral(key))

    def close(self) -> None:
        """Stop all changes; reports that are not written yet are written without a plan."""
        self.is_closed = True
        self.deferral_polls.close()
        for active in self.active_runs.values():
            self._drop_requests(active)

    # -- slots

    def assign_slots(self) -> None:
        """Grant free slots to waiting tasks, and claim them."""
        self._is_assign_scheduled = False
        for active in self.slots.assign():
            if not active.is_busy:  # else its next change claims them
                active.requests.append(RunRequest(None, decides_nothing=True))
                self.enqueue(active)

    def apply_pauses(self, paused: set[tuple[str, str]]) -> None:
        """Set which workflows are paused; runs and tasks of resumed ones continue."""
        for run in self.slots.apply_pauses(paused):
            self.replan(run)
        self.assign_slots()

    def on_version_loaded(self, version: VersionKey) -> None:
        """Run the scheduled tasks of a version whose code has been loaded."""
        self.slots.enqueue_version(version)
        self.assign_slots()

    # -- one change after the other

    def enqueue(self, active: ActiveRun) -> None:
        """Process a run at the end of this turn of the loop, so that one change holds all requests of the turn."""
        if not active.is_busy and (active.requests or active.grants) and not self.is_closed:
            active.is_busy = True
            self.runs_in_progress += 1
            self._pending.append(active)
            if len(self._pending) == 1:
                asyncio.get_running_loop().call_soon(self.process_pending)

    def process_pending(self) -> None:
        """Process all requested runs now: the caller knows that no further request of this turn follows."""
        pending, self._pending = self._pending, []
        for active in pending:
            self._process_run(active)

    def _process_run(self, active: ActiveRun) -> None:
        """Submit the next change of a run; the run rests when it has no more requests."""
        if active.kept_slots:
            self.slots.release_kept(active)
        while active.requests or active.grants or active.awaiting_inputs:
            if self._tasks.is_closed or not (active.awaiting_inputs or self._is_held(active)):
                self._drop_requests(active)
                break
            if active.awaiting_inputs or active.is_stale:
                self._tasks.start(f"run: {active.run.id}: read", self._read_missing(active))
                return
            requests, active.requests = active.requests, []
            try:
                if self._submit_change(active, requests):
                    return
            except Exception as error:  # the error concerns this run only
                self._on_error(active, requests, error)
        active.is_busy = False
        self.runs_in_progress -= 1

    def _drop_requests(self, active: ActiveRun) -> None:
        requests, active.requests = active.requests, []
        self._failures.drop(requests, LeadershipLostError())

    def _is_held(self, active: ActiveRun) -> bool:
        """Return whether changes of a run are made here: not once it was removed, or the coordinator is closed."""
        return not self.is_closed and active.run.id in self.active_runs

    def _submit_change(self, active: ActiveRun, requests: list[RunRequest]) -> bool:
        """Submit a change of a run to the store; False if there is nothing to change."""
        claimed: list[TaskRow] = []
        try:
            draft = self._new_draft(active)
            results = [None if request.edit is None else request.edit(draft) for request in requests]
            passes_over = self._plan(active, draft, requests)
            claimed = self.slots.claim(active, draft, requests)
            change = InFlightChange(active, draft, claimed, requests, results)
            if self.slots.has_waiting and not self._is_assign_scheduled:
                self._is_assign_scheduled = True  # after all results of this turn are reported
                asyncio.get_running_loop().call_soon(self.assign_slots)
            if draft.is_empty:
                self._settle(change)
                return False
            lease, pools = self._runtime.settings.heartbeat_timeout, self._runtime.pools.sizes
            stored = draft.build_change(fence=self.term, lease=lease, pools=pools, passes_over=passes_over)
            audit = None if active.creation is None else active.creation.audit
            if active.spec.handlers and (handlers := find_handlers(draft.run, active.spec)) is not None:
                end = partial(self._runtime.store.runs.apply, audit=audit)
                on_done = partial(self._on_change_written, change)
                ending = self.handler_runs.write_end(draft, stored, handlers, end, on_done)
                self._tasks.start(f"run: {active.run.id}: end", ending)
                return True
            future = self._runtime.store.runs.apply(stored, audit)
        except Exception:
            self.slots.roll_back(active, claimed)
            raise
        future.on_done = partial(self._on_change_written, change)
        return True

    def _new_draft(self, active: ActiveRun) -> RunDraft:
        run, spec, actor = active.run, active.spec, self._attempts.owner.id
        if active.creation is None:
            now = self._wall_clock.now()  # first: it may move the timers of the run
            return RunDraft(run, active.rows, spec, now=now, actor=actor)
        rows = self._new_task_rows(active.version)
        return RunDraft.for_new_run(run, rows, spec, actor=actor, fire=active.creation.fire)

    def _plan(self, active: ActiveRun, draft: RunDraft, requests: Collection[RunRequest]) -> Collection[str] | None:
        """Begin the run if it may, and plan it; return the older runs that it passes over if it begins."""
        admission, passes_over = self.slots.admission, None
        if draft.run.state is RunState.QUEUED and admission.may_begin(draft.run):
            if self._versions.current.get((draft.run.tenant, draft.run.workflow)) != active.version:
                self._refresher.take_newest_version(active, draft, self._new_task_rows)
            draft.admit()
            admission.put(draft.run)
            if self._runtime.sharing.is_shared:  # else no other process creates runs
                passes_over = tuple(admission.quarantined)
        changed = tasks_to_plan(active, draft, requests)
        if changed is None or changed:
            polled = self.deferral_polls.polled_tasks(active.run.id, draft.rows) if active.has_timers else ()
            draft.plan(kept_deferred=polled, changed=changed)
        return passes_over

    def _on_change_written(self, change: InFlightChange, future: "asyncio.Future[Applied | Refused]") -> None:
        """Process the outcome of a change: it was applied or refused, or the store failed."""
        active = change.active
        try:
            if future.cancelled():
                raise StoreError("the store was closed before it answered")
            outcome = future.result()
            if isinstance(outcome, Applied) and not self._tasks.is_closed:
                self._apply_committed(change, outcome)
            else:
                self.slots.roll_back(active, change.claimed)
                active.requests = change.requests + active.requests
                if isinstance(outcome, Refused):
                    self._on_refused(active, outcome)
        except Exception as error:  # the error concerns this run only
            if future.cancelled() or future.exception() is not None:
                self.slots.roll_back(active, change.claimed)
            self._on_error(active, change.requests, error)
        self._process_run(active)

    # -- before the next change

    async def _read_missing(self, active: ActiveRun) -> None:
        """Read the inputs of claimed tasks, and the run itself if another process has changed it."""
        try:
            while active.awaiting_inputs:
                await self._launcher.read_and_launch(active, active.awaiting_inputs.pop(0))
            if active.is_stale and (active.requests or active.grants) and self._is_held(active):
                if active.store_failed:
                    active.store_failed = False
                    await self.store_retry.wait(active.failures)
                if await self._refresher.reload(active):
                    self.replan(active.run.id)
                    self.assign_slots()
                else:
                    self._drop_ended(active)
        except Exception as error:  # the error concerns this run only
            requests, active.requests = active.requests, []
            self._on_error(active, requests, error)
        finally:
            self._process_run(active)

    def _drop_ended(self, active: ActiveRun) -> None:
        """Remove a run that another process has ended or deleted."""
        self._attempts.stop_superseded(active.run.id, {})
        self._finish_run(active)
        self._notifier.notify_ended(active.run.id, None)
        requests, active.requests = active.requests, []
        resolve_requests(requests, None)
        self._failures.report_without_plan(requests)

    # -- after the change

    def _apply_committed(self, change: InFlightChange, applied: Applied) -> None:
        active, draft, before = change.active, change.draft, change.active.rows
        is_alone, is_new = applied.revision <= active.run.revision + 1, active.creation is not None
        if active.run.state is RunState.QUEUED and draft.run.state is not RunState.QUEUED:
            logger.info(events.RUN_STARTED, extra={"run": draft.run.id, "workflow": draft.run.workflow})
        sequence = draft.run.sequence if applied.sequence is None else applied.sequence
        active.run = replace(draft.run, revision=applied.revision, sequence=sequence)
        active.rows, active.creation = draft.rows, None
        if not is_alone or applied.is_overtaken:  # these rows lack a change of another process
            self.mark_stale(active.run.id)
        if draft.sleeping:
            active.has_timers = True
            self.timers.schedule(active.run.id, draft.sleeping)
        self._settle(change)
        if active.uses_pools and self.slots.update_pool_usage(active, before, active.rows):
            self.assign_slots()
        if is_new:
            self.slots.admission.put(active.run)  # now that it has its number
        if (is_new or change.claimed) and self._ticks.is_slow:
            self._ticks.speed_up()
        if is_new:  # in the next turn: this one answers who has started the run
            asyncio.get_running_loop().call_soon(self._launch_new, change)
        else:
            self._launcher.launch(change)  # before the rest: a thread takes its time to wake
        if active.run.state.is_terminal:
            self._finish_run(active)
            self._notifier.notify_ended(active.run.id, active.as_finished())
        elif active.run.id in self._notifier.change_signals:
            self._notifier.notify_changed(active.run.id)
        for listener in self._notifier.listeners:
            listener()

    def _launch_new(self, change: InFlightChange) -> None:
        """Launch what was claimed with a new run; a node that has closed meanwhile leaves it to the next leader."""
        if not self._tasks.is_closed:
            self._launcher.launch(change)

    def _settle(self, change: InFlightChange) -> None:
        """Resolve the requests of a change; count the results that it has recorded, and those that were too late."""
        active = change.active
        active.is_planned, active.is_pool_full = True, False
        active.failures, active.quarantine_reason = 0, None
        for row in change.draft.decided:
            self._metrics.work.count_task(active.run, row)
        for request, result in zip(change.requests, change.results, strict=True):
            if request.future is not None and not request.future.done():
                request.future.set_result(result)
            if request.report is None:
                continue
            key, ending = request.report
            if not result:  # it came too late
                self._attempts.release(key)
                self._attempts.count_late(key, ending)
                continue
            row = active.rows[key.task, key.element]
            self._metrics.work.count_task(active.run, row)
            if isinstance(ending, Succeeded):
                active.cache_output((key.task, key.element), ending.value)
            elif isinstance(ending, Deferred) and ending.poll is not None:
                active.has_timers = True
                self.deferral_polls.add(key, ending.poll, ending.every)
            elif isinstance(ending, Failed):
                log_retry(active.run, row, key, ending.error)

    def _finish_run(self, active: ActiveRun) -> None:
        """Remove a run that has ended, here or on another node."""
        run = active.run
        self._remove_run(active)
        if run.state.is_terminal:
            self._metrics.work.count_run(run)
            if run.trace is not None:
                self._runtime.record_run_span(run)
        logger.info(events.RUN_ENDED, extra={"run": run.id, "workflow": run.workflow, "state": str(run.state)})

    def _remove_run(self, active: ActiveRun) -> None:
        """Remove a run from the cache, and let the next run of its workflow begin."""
        run = active.run
        if self.active_runs.pop(run.id, None) is None:
            return
        self.slots.release_grants(active)
        has_freed_pool = self.slots.update_pool_usage(active, active.rows, {})
        self.slots.admission.remove(run.id)
        if active.has_timers:
            self.deferral_polls.cancel(run.id)
            self.timers.cancel(run.id)
        self._begin_next(run)
        if has_freed_pool:
            self.assign_slots()

    def _begin_next(self, run: RunRow) -> None:
        """Begin the runs that waited for one of the same workflow."""
        for waiting in self.slots.admission.next_runs(run.tenant, run.workflow):
            self.replan(waiting)

    # -- failures

    def _on_refused(self, active: ActiveRun, refused: Refused) -> None:
        match refused.reason:
            case "fenced":
                self._metrics.increment("fenced_writes_total")
                self._elector.step_down(self.term)
                self.close()
            case "stale":
                active.is_stale = True
            case "full":
                active.is_pool_full = True
            case "not_next":
                self.slots.admission.is_open = False
                self._ticks.on_remote_change()  # the store has queued runs that are not known here
            case "fired":
                resolve_requests(active.requests, False)
                self._remove_run(active)
            case "suppressed":
                self._failures.drop(active.requests, StartSuppressedError(active.run.workflow))
                self._remove_run(active)
            case "paused":
                self._failures.drop(active.requests, WorkflowPausedError(active.run.workflow))
                self._remove_run(active)

    def _on_error(self, active: ActiveRun, requests: list[RunRequest], error: Exception) -> None:
        self._failures.handle(active, requests, error)
        if active.creation is not None:  # only its creator knows of it
            self._remove_run(active)
        elif active.run.state is RunState.QUEUED:
            self._begin_next(active.run)  # which a quarantined run does not hold up
