"""The attempts that this node has claimed: handed to executors, kept alive by heartbeats, reported on.

Where a report goes depends on who plans. If this node does, the report, the plan that follows from it and the claim of
what became ready are one change. If another node does, the report is a change of its own, and the leader hears of it.
Either way a report is refused if the attempt is no longer the one that the store knows, and it is never given up: while
the store does not answer, it is said again.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

import msgspec

from tidemill.engine.workflows.executors.interface import AttemptListener, AttemptRequest, Executor, LogRecord
from tidemill.engine.workflows.runtime import STORE_RETRY, WorkflowRuntime
from tidemill.engine.workflows.versions import WorkflowVersions
from tidemill.engine.workflows.worker.dispatcher import Dispatcher
from tidemill.kernel.errors import StoreError
from tidemill.telemetry import events
from tidemill.workflows.attempt_results import AttemptResult, Cancelled, Deferred, RetryBudgets
from tidemill.workflows.change import Applied
from tidemill.workflows.records import AttemptKey, RunRow, TaskRow, VersionKey, current_attempt_key
from tidemill.workflows.run_draft import RunDraft, TaskRef
from tidemill.workflows.spec import WorkflowSpec

logger = logging.getLogger(__name__)


class ClaimedAttempt(msgspec.Struct, kw_only=True):
    """An attempt that this node has claimed, and its task run as it was last written."""

    run: RunRow
    row: TaskRow
    spec: WorkflowSpec
    is_dispatched: bool = False
    """Whether it has been put into the hands of the dispatcher."""


class Superior(Protocol):
    """Whoever plans here."""

    def begin(self, key: AttemptKey) -> "asyncio.Future[bool] | None":
        """Record that an attempt begins; None if its run is not planned here."""

    def report(self, key: AttemptKey, ending: AttemptResult) -> bool:
        """Take a report of an attempt; False if its run is not planned here."""

    def process_pending(self) -> None:
        """Go on from what was reported, at once."""


class Log(Protocol):
    """Where what attempts say is kept."""

    def add(self, key: AttemptKey, records: Sequence[LogRecord]) -> None:
        """Take what an attempt said."""

    def when_written(self, key: AttemptKey, callback: Callable[[], None]) -> None:
        """Call back when everything that an attempt has said is written: at once, if it is."""

    def close_attempt(self, key: AttemptKey) -> None:
        """Take note that an attempt says nothing more."""


class LocalAttempts(AttemptListener):
    """Everything that runs here."""

    def __init__(self, runtime: WorkflowRuntime, versions: WorkflowVersions, executors: Mapping[str, Executor]) -> None:
        self.owner = runtime.owner
        self.executors = executors
        self.claimed: dict[AttemptKey, ClaimedAttempt] = {}
        self.has_claimed = asyncio.Event()
        """Set while something is held."""
        self.is_closing = False
        """Whether nothing more is begun here."""
        self.reports_in_flight = 0
        """How many reports are on their way to the store without a desk."""
        self.backing_off = 0
        """How many of these wait for a while, because the store failed."""
        self._coordinator: Superior | None = None
        self.on_slot_freed: Callable[[], None] = lambda: None
        self.on_activity: Callable[[], None] = lambda: None
        """Called when there is something to do after a while without anything: whoever plans here hears it."""
        self.task_logs: Log | None = None
        """Where what attempts say is kept; None if nowhere."""
        self.dispatcher = Dispatcher(runtime, executors, self.on_ended)
        self._store = runtime.store
        self._versions = versions
        self._clock = runtime.clock
        self._settings = runtime.settings
        self._rng = runtime.rng
        self._metrics = runtime.metrics
        self._tasks = runtime.tasks

    def open(self, on_slot_freed: Callable[[], None]) -> None:
        """Begin to work; `moved` is called whenever a place becomes free."""
        self.on_slot_freed = on_slot_freed
        self.dispatcher.open(on_slot_freed)

    def attach_coordinator(self, coordinator: Superior | None, on_activity: Callable[[], None] = lambda: None) -> None:
        """Report to whoever plans here, and call `stirred` when a quiet time ends; None if nobody plans."""
        self._coordinator, self.on_activity = coordinator, on_activity

    def running(self) -> set[AttemptKey]:
        """Return the attempts that executors still have."""
        return {key for executor in self.executors.values() for key in executor.running()}

    def tracked(self) -> set[AttemptKey]:
        """Return the attempts of which a report is still to be expected: they run, or wait to be handed over."""
        living = self.running()
        return {
            key
            for key, held in self.claimed.items()
            if key in living or self.dispatcher.has_attempt(key) or not held.is_dispatched
        }

    def retry_budgets(self, version: VersionKey, task: str) -> RetryBudgets:
        """Return how often a task is tried again; after failures not at all, if its code is not here."""
        workflow = self._versions.find_workflow(version)
        wired = workflow.wired().tasks.get(task) if workflow is not None else None
        retry = wired.task.retry if wired is not None else None
        return RetryBudgets(retry, self._settings.task_max_recoveries, self._rng)

    # -- taking on

    def add_claimed(self, run: RunRow, row: TaskRow, spec: WorkflowSpec) -> None:
        """Remember an attempt that was claimed for this node."""
        self.claimed[current_attempt_key(run.id, row)] = ClaimedAttempt(run=run, row=row, spec=spec)
        if not self.has_claimed.is_set():
            self.has_claimed.set()
            self.on_activity()
        self._metrics.increment("claims_total")

    def release(self, key: AttemptKey) -> ClaimedAttempt | None:
        """Forget an attempt: its end is written, or is nobody's business any more."""
        held = self.claimed.pop(key, None)
        if not self.claimed:
            self.has_claimed.clear()
        if self.task_logs is not None:
            self.task_logs.close_attempt(key)
        return held

    def dispatch(self, request: AttemptRequest) -> None:
        """Let an attempt be run."""
        self.dispatcher.dispatch(request)
        if (held := self.claimed.get(request.key)) is not None:
            held.is_dispatched = True

    async def stop(self, keys: Sequence[AttemptKey], reason: str) -> None:
        """End attempts that are no longer wanted."""
        for key in keys:
            held = self.claimed.get(key)
            if held is not None and held.row.executor in self.executors:
                await self.executors[held.row.executor].cancel(key, reason)
        self.release_vanished(keys)

    def stop_superseded(self, run: str, rows: Mapping[TaskRef, TaskRow]) -> None:
        """End attempts at a run that the store no longer knows as current: these are its task runs."""
        gone = [
            key
            for key, held in self.claimed.items()
            if key.run == run and not self._is_ours(rows.get((held.row.task, held.row.index)), key)
        ]
        if gone:
            self._tasks.start("stop attempts", self.stop(gone, "no longer wanted"))

    def _is_ours(self, row: TaskRow | None, key: AttemptKey) -> bool:
        is_current = row is not None and row.attempt == key.attempt and row.state.is_claimed
        return is_current and row is not None and row.claimed_by == self.owner.id

    def release_vanished(self, keys: Collection[AttemptKey]) -> None:
        """Let go of attempts that are neither waiting nor running here any more: nobody will report on them."""
        for key in self.claimed.keys() & set(keys) - self.tracked():
            self.release(key)

    # -- reports

    async def record_start(self, key: AttemptKey) -> bool:
        held = self.claimed.get(key)
        if held is None:
            return False
        if not await self._record_start(key, held):
            self.release(key)
            return False
        return True

    async def _record_start(self, key: AttemptKey, attempt: ClaimedAttempt) -> bool:
        answer = self._coordinator.begin(key) if self._coordinator is not None else None
        try:
            if answer is not None:
                return bool(await answer)
        except Exception as error:  # its run cannot be planned at present; that it begins can be written all the same
            logger.warning(events.TASK_REPORT_FAILED, extra={"run": key.run, "error": str(error)})
        self.reports_in_flight += 1
        try:
            return await self._apply_until_written(attempt, lambda draft: draft.mark_started(key))
        finally:
            self.reports_in_flight -= 1

    def on_log(self, key: AttemptKey, records: Sequence[LogRecord]) -> None:
        if self.task_logs is not None and key in self.claimed:  # what code says that was given up is nobody's business
            self.task_logs.add(key, records)

    def on_ended(self, key: AttemptKey, ending: AttemptResult) -> None:
        if self.task_logs is None or key not in self.claimed:
            self._report_end(key, ending)
        else:  # whoever sees the end then finds everything that was said before
            self.task_logs.when_written(key, lambda: self._report_end(key, ending))

    def resume_work(self) -> None:
        if self._coordinator is not None:
            self._coordinator.process_pending()

    def _report_end(self, key: AttemptKey, ending: AttemptResult) -> None:
        held = self.claimed.get(key)
        if held is None:  # nobody waits for it any more
            self.on_slot_freed()
            return
        if self._coordinator is not None and self._coordinator.report(key, ending):
            return  # the free place is given away with the change that the report makes: best to what follows from it
        self.report_to_store(key, ending)
        self.on_slot_freed()

    def report_to_store(self, key: AttemptKey, ending: AttemptResult) -> None:
        """Report how an attempt ended without planning what follows."""
        self.reports_in_flight += 1
        self._tasks.start(f"report: {key}", self._write_report(key, ending))

    async def _write_report(self, key: AttemptKey, ending: AttemptResult) -> None:
        try:
            held = self.claimed.get(key)
            if held is None:
                return
            budgets = self.retry_budgets(held.run.version_key, key.task)
            if isinstance(ending, Deferred):  # its poll cannot be asked from another node: so the task is
                ending = msgspec.structs.replace(ending, poll=None)
            if not await self._apply_until_written(held, lambda draft: draft.apply_result(key, ending, budgets)):
                self.count_late(key, ending)
            self.release(key)
        finally:
            self.reports_in_flight -= 1

    def count_late(self, key: AttemptKey, ending: AttemptResult) -> None:
        """Take note of a report that was refused; that something ended which was to be stopped is no news."""
        if isinstance(ending, Cancelled):
            return
        self._metrics.increment("late_reports_total")
        logger.warning(events.TASK_REPORT_TOO_LATE, extra={"attempt": str(key)})

    async def _apply_until_written(self, attempt: ClaimedAttempt, edit: Callable[[RunDraft], bool]) -> bool:
        """Write a step of one attempt, however long the store takes; False if it is no longer the current one."""
        failures = 0
        while True:
            place = attempt.row.task, attempt.row.index
            draft = RunDraft(
                attempt.run, {place: attempt.row}, attempt.spec, now=self._clock.now(), actor=self.owner.id
            )
            if not edit(draft):
                return False
            try:
                change = draft.build_change(lease=self._settings.heartbeat_timeout, is_guarded=False)
                if isinstance(await self._store.runs.apply(change), Applied):
                    attempt.row = draft.rows[place]
                    return True
                if not await self._is_still_ours(attempt):
                    return False
            except StoreError as error:
                logger.warning(events.TASK_REPORT_FAILED, extra={"run": attempt.run.id, "error": str(error)})
            failures += 1
            self.backing_off += 1
            try:
                await self._clock.sleep(STORE_RETRY.delay(failures))
            finally:
                self.backing_off -= 1

    async def _is_still_ours(self, attempt: ClaimedAttempt) -> bool:
        """Read the task run of an attempt again; return whether the attempt is still the current one, and ours."""
        for record in await self._store.runs.load([attempt.run.id]):
            for row in record.tasks:
                is_same = (row.task, row.index, row.attempt) == (
                    attempt.row.task,
                    attempt.row.index,
                    attempt.row.attempt,
                )
                if is_same and row.claimed_by == self.owner.id and row.state.is_claimed:
                    attempt.row = row
                    return True
        return False
