"""The attempts that this node has claimed: dispatched to executors, kept alive by heartbeats, reported on.

The path of a report depends on which node leads. On the leader the report, the plan that follows from it and the claim
of the tasks that became ready are one change. On any other node the report is a separate change, and the leader
learns of it from the store. In both cases the store refuses the report of an attempt that is no longer the current one.
A report is never dropped: while the store fails, it is retried.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from tidemill.engine.loop_watch import LoopBlock, describe_block
from tidemill.engine.tasks import Wakeup
from tidemill.engine.workflows.executors.attempt_output import echo_to_logging
from tidemill.engine.workflows.executors.interface import AttemptListener, AttemptRequest, Executor, SlotClass
from tidemill.engine.workflows.metrics import CLAIMS, DISPATCHED_AT_ONCE
from tidemill.engine.workflows.runtime import StoreRetry, WorkflowRuntime
from tidemill.engine.workflows.spans import attempt_span
from tidemill.engine.workflows.versions import WorkflowVersions
from tidemill.engine.workflows.worker.dispatcher import Dispatcher
from tidemill.engine.workflows.worker.task_logs import TaskLogWriter
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import StoreError
from tidemill.telemetry import events
from tidemill.telemetry.log_records import LogRecord
from tidemill.workflows.attempt_results import AttemptResult, Cancelled, Deferred, RetryBudgets
from tidemill.workflows.change import Applied
from tidemill.workflows.records import AttemptKey, RunRow, TaskRow, VersionKey
from tidemill.workflows.run_draft import RunDraft, TaskRef
from tidemill.workflows.spec import WorkflowSpec

logger = logging.getLogger(__name__)


class TracedAttempt(NamedTuple):
    """An attempt whose span is recorded when it ends."""

    request: AttemptRequest
    start: datetime


class ClaimedAttempt(msgspec.Struct, kw_only=True):
    """An attempt that this node has claimed, and its task as it was last written."""

    run: RunRow
    row: TaskRow
    spec: WorkflowSpec
    is_dispatched: bool = False
    """Whether it has been dispatched."""
    traced: TracedAttempt | None = None
    """What its span needs; None if its run is not traced."""


class AttemptObserver:
    """Acts on what happens to this node's attempts. This class plans no runs, so all reports go to the store."""

    def begin(self, key: AttemptKey) -> "asyncio.Future[bool] | None":  # noqa: ARG002
        """Record that an attempt starts; None if the observer does not coordinate its run."""
        return None

    def report(self, key: AttemptKey, result: AttemptResult) -> bool:  # noqa: ARG002
        """Accept the result of an attempt; False if the observer does not coordinate its run."""
        return False

    def process_pending(self) -> None:
        """Process the accepted results now: no further result of this moment follows."""

    def assign_slots(self) -> None:
        """Use executor slots that may have become free."""


class FollowerObserver(AttemptObserver):
    """The observer while another node leads: wakes the claimer when slots may have become free."""

    def __init__(self, clock: Clock) -> None:
        self.wakeup = Wakeup(clock)

    def assign_slots(self) -> None:
        self.wakeup.notify()


class LocalAttempts(AttemptListener):
    """The claimed attempts of this node, and the executors that run them."""

    def __init__(
        self,
        runtime: WorkflowRuntime,
        versions: WorkflowVersions,
        executors: Mapping[str, Executor],
        task_logs: TaskLogWriter,
    ) -> None:
        self.owner = runtime.owner
        self.executors = executors
        self.versions = versions
        self.task_logs = task_logs
        self.follower = FollowerObserver(runtime.clock)
        self.observer: AttemptObserver = self.follower
        self.claimed: dict[AttemptKey, ClaimedAttempt] = {}
        self.has_claimed = asyncio.Event()
        """Set while the node has claimed attempts."""
        self.is_closing = False
        """Whether no further attempt is started here."""
        self.reports_in_flight = 0
        """The number of reports that are being written without a coordinator."""
        self.store_retry = StoreRetry(runtime.clock)
        self.dispatcher = Dispatcher(runtime, executors, self, lambda: self.observer.assign_slots())
        self._store = runtime.store
        self._clock = runtime.clock
        self._settings = runtime.settings
        self._rng = runtime.rng
        self._metrics = runtime.metrics
        self._spans = runtime.spans
        self._tasks = runtime.tasks

    def observe(self, leader: AttemptObserver | None) -> None:
        """Let the leader act on what happens to attempts; None if another node leads from now on."""
        self.observer = leader or self.follower

    @property
    def is_led_here(self) -> bool:
        """Whether this node leads, and so assigns its slots itself."""
        return self.observer is not self.follower

    def stop_claiming(self) -> None:
        """Start no further attempt here, and hand back those that have not started."""
        self.is_closing = True
        self.dispatcher.drain()

    def running(self) -> set[AttemptKey]:
        """Return the attempts that executors still run."""
        return {key for executor in self.executors.values() for key in executor.running()}

    def running_here(self) -> set[AttemptKey]:
        """Return the running attempts that end with this node."""
        return {key for one in self.executors.values() if not one.outlives_node for key in one.running()}

    def kept_alive(self) -> set[AttemptKey]:
        """Return the attempts whose leases this node renews: all that will report, but those that renew their own."""
        return self.tracked() - {key for executor in self.executors.values() for key in executor.self_renewing()}

    def tracked(self) -> set[AttemptKey]:
        """Return the attempts that will still report: they run, or are yet to be submitted."""
        running = self.running()
        return {
            key
            for key, attempt in self.claimed.items()
            if key in running or self.dispatcher.has_attempt(key) or not attempt.is_dispatched
        }

    def free_slots(self, executor: str, slot_class: SlotClass | None = None, version: VersionKey | None = None) -> int:
        """Return how many more attempts an executor can be given now: of a class and a version, or of any."""
        if self.is_closing:
            return 0
        target = self.executors[executor]
        free = target.free_slots() if slot_class is None else target.free_slots_of(slot_class)
        free -= self.dispatcher.pending[executor]
        starts_now = target.is_immediate or (version is not None and target.starts_now(version))
        return free if starts_now else min(free, self.dispatcher.free_queue_slots)

    def retry_budgets(self, version: VersionKey, task: str) -> RetryBudgets:
        """Return the retry budgets of a task; without its code there are no retries after failures."""
        workflow = self.versions.loaded.get(version)
        wired = workflow.wired().tasks.get(task) if workflow is not None else None
        retry = wired.task.retry if wired is not None else None
        return RetryBudgets(retry, self._settings.task_max_recoveries, self._rng)

    # -- claimed attempts

    def add_claimed(self, run: RunRow, row: TaskRow, spec: WorkflowSpec) -> None:
        """Track an attempt that was claimed for this node."""
        key = AttemptKey(run.id, row.task, row.index, row.attempt)
        self.claimed[key] = ClaimedAttempt(run=run, row=row, spec=spec)
        self.has_claimed.set()
        self._metrics.counters[CLAIMS] += 1

    def release(self, key: AttemptKey) -> None:
        """Stop tracking an attempt: its result is written, or no longer needed."""
        self.claimed.pop(key, None)
        if not self.claimed:
            self.has_claimed.clear()
        if key in self.task_logs.attempts:
            self.task_logs.close_attempt(key)

    def dispatch(self, request: AttemptRequest) -> None:
        """Submit an attempt to its executor; through the dispatch queue, unless it has started and can run now."""
        executor = self.executors[request.executor]
        starts_now = executor.is_immediate or executor.starts_now(request.version_key)
        if not (request.has_begun and starts_now):
            self.dispatcher.enqueue(request)
        else:
            try:
                executor.submit_now(request)
                self._metrics.counters[DISPATCHED_AT_ONCE] += 1
            except Exception as error:  # the error concerns this attempt only
                self.dispatcher.report_refused(request, error)
        if (attempt := self.claimed.get(request.key)) is not None:
            attempt.is_dispatched = True
            if request.trace is not None:
                attempt.traced = TracedAttempt(request, self._clock.now())

    def add_adopted(self, run: RunRow, row: TaskRow, spec: WorkflowSpec) -> None:
        """Track an attempt of another node that this node has taken over."""
        key = AttemptKey(run.id, row.task, row.index, row.attempt)
        self.claimed[key] = ClaimedAttempt(run=run, row=row, spec=spec, is_dispatched=True)
        self.has_claimed.set()

    def settle_remote(self, key: AttemptKey) -> None:
        """Stop tracking a remote attempt that has reported its result itself, if this node tracks it."""
        for executor in self.executors.values():
            executor.on_reported(key)
        self.release(key)
        self.observer.assign_slots()

    async def stop(self, keys: Collection[AttemptKey], reason: str = "no longer wanted") -> None:
        """Cancel attempts that are no longer wanted."""
        for key in sorted(keys):
            attempt = self.claimed.get(key)
            if attempt is not None and attempt.row.executor in self.executors:
                await self.executors[attempt.row.executor].cancel(key, reason)
        self.release_vanished(keys)

    def stop_superseded(self, run: str, rows: Mapping[TaskRef, TaskRow]) -> None:
        """Cancel attempts of a run that are no longer current, according to its stored `rows`."""
        superseded = [
            key
            for key, attempt in self.claimed.items()
            if key.run == run and not self._is_current(rows.get((attempt.row.task, attempt.row.index)), key)
        ]
        if superseded:
            self._tasks.start("stop attempts", self.stop(superseded))

    def _is_current(self, row: TaskRow | None, key: AttemptKey) -> bool:
        """Return whether a stored row says that an attempt is current and claimed by this node."""
        is_same = row is not None and row.attempt == key.attempt and row.state.is_claimed
        return is_same and row is not None and row.claimed_by == self.owner.id

    def release_vanished(self, keys: Collection[AttemptKey]) -> None:
        """Stop tracking those of some attempts that are neither queued nor running: they will never report."""
        for key in self.claimed.keys() & set(keys) - self.tracked():
            self.release(key)

    # -- reports

    async def record_start(self, key: AttemptKey) -> bool:
        """Record that an attempt starts; False if it must not."""
        attempt = self.claimed.get(key)
        if attempt is None:
            return False
        if not await self._record_start(key, attempt):
            self.release(key)
            return False
        return True

    async def _record_start(self, key: AttemptKey, attempt: ClaimedAttempt) -> bool:
        seen = self.observer.begin(key)
        try:
            if seen is not None:
                return bool(await seen)
        except Exception as error:  # the run cannot be planned at present; the start can be written all the same
            logger.warning(events.TASK_REPORT_FAILED, extra={"run": key.run, "error": str(error)})
        self.reports_in_flight += 1
        try:
            return await self._apply_until_written(attempt, lambda draft: draft.mark_started(key))
        finally:
            self.reports_in_flight -= 1

    def on_loop_blocked(self, block: LoopBlock) -> None:
        """Write to the log of an attempt, where `why` finds it, that its task has blocked the event loop."""
        key = next((one for one in self.claimed if str(one) == block.task), None)
        if key is None:
            return
        record = LogRecord(at=self._clock.now(), message=describe_block(block), level="warning")
        self.task_logs.add(key, [record])
        echo_to_logging(key, record)

    def on_log(self, key: AttemptKey, records: Sequence[LogRecord]) -> None:
        """Store the log records of an attempt; those of an abandoned one are dropped."""
        if key in self.claimed:
            self.task_logs.add(key, records)

    def on_ended(self, key: AttemptKey, ending: AttemptResult) -> None:
        """Report the result of an attempt, once its log records are written: a reader of the result finds them."""
        if (attempt := self.claimed.get(key)) is not None and attempt.traced is not None:
            self._record_span(attempt.run, attempt.traced, ending)
        if key in self.claimed and key in self.task_logs.attempts:
            self.task_logs.when_written(key, lambda: self._report_end(key, ending))
        else:
            self._report_end(key, ending)

    def _record_span(self, run: RunRow, traced: TracedAttempt, ending: AttemptResult) -> None:
        span = attempt_span(traced.request, run, ending, traced.start, self._clock.now())
        if span is not None:
            self._spans.record(span)

    def resume_work(self) -> None:
        """Process the reported results now."""
        self.observer.process_pending()

    def _report_end(self, key: AttemptKey, ending: AttemptResult) -> None:
        if key not in self.claimed:
            self.observer.assign_slots()
        elif not self.observer.report(key, ending):  # else the change of the report reuses the free slot
            if self.claimed[key].row.pool is None:  # else its slot of the pool is free once the report is written
                self.observer.assign_slots()
            self.report_to_store(key, ending)

    def report_to_store(self, key: AttemptKey, ending: AttemptResult) -> None:
        """Write the result of an attempt without planning what follows."""
        self.reports_in_flight += 1
        self._tasks.start(f"report: {key}", self._write_report(key, ending))

    async def _write_report(self, key: AttemptKey, ending: AttemptResult) -> None:
        try:
            attempt = self.claimed.get(key)
            if attempt is None:
                return
            budgets = self.retry_budgets(attempt.run.version_key, key.task)
            if isinstance(ending, Deferred):  # its poll exists only here; without it the leader wakes the task instead
                ending = msgspec.structs.replace(ending, poll=None)
            if not await self._apply_until_written(attempt, lambda draft: draft.apply_result(key, ending, budgets)):
                self.count_late(key, ending)
            self.release(key)
            if attempt.row.pool is not None:
                self.observer.assign_slots()
        finally:
            self.reports_in_flight -= 1

    def count_late(self, key: AttemptKey, ending: AttemptResult) -> None:
        """Count a late report. Reports of cancelled attempts are expected, and not counted."""
        if isinstance(ending, Cancelled):
            return
        self._metrics.increment("late_reports_total")
        logger.warning(events.TASK_REPORT_TOO_LATE, extra={"attempt": str(key)})

    async def _apply_until_written(self, attempt: ClaimedAttempt, edit: Callable[[RunDraft], bool]) -> bool:
        """Write an edit of one attempt, retrying while the store fails; False if the attempt is no longer current."""
        failures = 0
        while True:
            ref = attempt.row.task, attempt.row.index
            draft = RunDraft(attempt.run, {ref: attempt.row}, attempt.spec, now=self._clock.now(), actor=self.owner.id)
            if not edit(draft):
                return False
            try:
                change = draft.build_change(lease=self._settings.heartbeat_timeout, is_guarded=False)
                if isinstance(await self._store.runs.apply(change), Applied):
                    attempt.row = draft.rows[ref]
                    return True
                if not await self._reload(attempt):
                    return False
            except StoreError as error:
                logger.warning(events.TASK_REPORT_FAILED, extra={"run": attempt.run.id, "error": str(error)})
            failures += 1
            await self.store_retry.wait(failures)

    async def _reload(self, attempt: ClaimedAttempt) -> bool:
        """Read the task of an attempt again; return whether the attempt is still current and claimed by this node."""
        row = attempt.row
        key = AttemptKey(attempt.run.id, row.task, row.index, row.attempt)
        for record in await self._store.runs.load([attempt.run.id]):
            for stored in record.tasks:
                if (stored.task, stored.index) == (row.task, row.index) and self._is_current(stored, key):
                    attempt.row = stored
                    return True
        return False
