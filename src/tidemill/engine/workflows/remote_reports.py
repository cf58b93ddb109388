"""Reports of remote attempts, which come to any server on the store, whichever node has claimed the attempt.

The row of the task run decides: while it names the attempt as the current one, reports are written, and otherwise they
are refused. So a report needs nothing that only the claiming node has, and both may be restarted meanwhile.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from tidemill.engine.workflows.executors.attempt_output import HEAD_LIMIT, TAIL_LIMIT
from tidemill.engine.workflows.executors.remote.orders import Order
from tidemill.engine.workflows.leader.state import LeaderState
from tidemill.engine.workflows.runtime import WorkflowRuntime
from tidemill.engine.workflows.spans import attempt_span
from tidemill.engine.workflows.versions import WorkflowVersions
from tidemill.engine.workflows.worker.attempts import LocalAttempts
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import RequestError, StoreError
from tidemill.storage.tables.logs import LogChunk
from tidemill.telemetry import events
from tidemill.telemetry.log_records import LogRecord
from tidemill.workflows.attempt_results import AttemptResult, Cancelled, RetryBudgets
from tidemill.workflows.change import Applied
from tidemill.workflows.records import AttemptKey, RunRow, TaskRow
from tidemill.workflows.run_draft import RunDraft

logger = logging.getLogger(__name__)

_WRITE_ATTEMPTS = 8
"""How often a report is written that other changes of its task run overtake; then the attempt repeats it."""


LOG_LIMIT = 4 * (HEAD_LIMIT + TAIL_LIMIT)
"""Bytes that a server takes from an attempt: records of short lines have several times the bytes of their texts."""

ATTEMPT_LIMIT = 10_000
"""The number of attempts that are counted; the one that was silent for longest is forgotten first."""


class LogBudget:
    """The bytes that attempts have sent to this server."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._taken: OrderedDict[AttemptKey, int] = OrderedDict()

    def take(self, key: AttemptKey, payload: bytes) -> bytes | None:
        """Return what of a batch is written: all of it, a note in place of the first one too many, or nothing."""
        before = self._taken.pop(key, 0)
        self._taken[key] = before + len(payload)
        if len(self._taken) > ATTEMPT_LIMIT:
            self._taken.popitem(last=False)
        if before + len(payload) <= LOG_LIMIT:
            return payload
        if before > LOG_LIMIT:
            return None
        note = f"[... the log has more than {LOG_LIMIT} bytes: the rest is left out ...]"
        return msgspec.msgpack.encode([LogRecord(at=self._clock.now(), message=note, level="warning")])

    def forget(self, key: AttemptKey) -> None:
        """Count an attempt no more: it has ended."""
        self._taken.pop(key, None)


class AttemptEndedError(RequestError):
    """The attempt is no longer wanted: it has ended, or another one has taken over."""

    def __init__(self, key: AttemptKey) -> None:
        message = f"attempt {key} is no longer wanted: it was cancelled, has ended, or counts as lost"
        super().__init__(message, code="attempt_ended", status=409)


class AttemptStartedError(RequestError):
    """Another process runs the attempt."""

    def __init__(self, key: AttemptKey) -> None:
        message = f"attempt {key} was started by another process: each attempt runs at most once"
        super().__init__(message, code="attempt_started", status=409)


class RemoteReports:
    """Writes what remote attempts report."""

    def __init__(
        self, runtime: WorkflowRuntime, versions: WorkflowVersions, leader: LeaderState, attempts: LocalAttempts
    ) -> None:
        self._store = runtime.store
        self._clock = runtime.clock
        self._settings = runtime.settings
        self._metrics = runtime.metrics
        self._spans = runtime.spans
        self._rng = runtime.rng
        self._versions = versions
        self._leader = leader
        self._attempts = attempts
        self._log_budget = LogBudget(runtime.clock)

    async def check_current(self, key: AttemptKey) -> None:
        """Raise AttemptEndedError unless an attempt is the current one of its task run."""
        if key not in await self._store.attempt_orders.claims([key]):
            raise AttemptEndedError(key)

    async def start(self, key: AttemptKey, process: str) -> None:
        """Record that a process begins an attempt; a repeated call of the same process changes nothing."""
        await self.check_current(key)
        if not await self._store.attempt_orders.begin(key, process):
            raise AttemptStartedError(key)
        if not await self._edit(key, lambda draft: draft.mark_remote_started(key)):
            raise AttemptEndedError(key)

    async def renew(self, key: AttemptKey) -> None:
        """Renew the lease of an attempt."""
        for _ in range(2):  # a node may adopt it at this moment
            claim = (await self._store.attempt_orders.claims([key])).get(key)
            if claim is None:
                break
            lease = self._settings.heartbeat_timeout
            if key in await self._store.runs.renew_leases(claim.owner, [key], lease):
                return
        raise AttemptEndedError(key)

    async def add_logs(self, key: AttemptKey, number: int, records: Sequence[LogRecord]) -> None:
        """Append a numbered batch of log records; one with a number that was used is dropped, and one too many is."""
        await self.check_current(key)
        payload = self._log_budget.take(key, msgspec.msgpack.encode(records))
        if payload is None:
            return
        await self._store.logs.append([LogChunk(key=key, number=number, payload=payload)])
        self._leader.notifier.notify_changed(key.run)

    async def end(self, order: Order, result: AttemptResult) -> None:
        """Record the result of an attempt; a repeated report changes nothing, and a late one is refused and counted."""
        key = order.request.key
        retry = None if order.retry is None else order.retry.to_policy()
        budgets = RetryBudgets(retry, self._settings.task_max_recoveries, self._rng)
        edit = partial(_apply_result, key, result, budgets)
        found = await self._load(key)
        is_written = found is not None and await self._edit(key, edit, (key, result))
        if not is_written and not await self._is_recorded(key, result):
            self._attempts.count_late(key, result)
            raise AttemptEndedError(key)
        self._log_budget.forget(key)
        if is_written and found is not None:
            self._record_span(order, *found, result)
        self._attempts.settle_remote(key)

    async def _edit(
        self, key: AttemptKey, edit: Callable[[RunDraft], bool], report: tuple[AttemptKey, AttemptResult] | None = None
    ) -> bool:
        """Write an edit of an attempt's run, through the coordinator if this node leads; False if it does not apply."""
        coordinator = self._leader.coordinator
        if coordinator is not None:
            coordinator.mark_stale(key.run)  # another server may have written the last report
            written = coordinator.request(key.run, edit, report=report)
            try:
                if written is not None and await written:
                    return True
            except Exception as error:  # this node leads no more, or the run is set aside; the report is written anyway
                logger.warning(events.TASK_REPORT_FAILED, extra={"run": key.run, "error": str(error)})
        return await self._edit_in_store(key, edit)

    async def _edit_in_store(self, key: AttemptKey, edit: Callable[[RunDraft], bool]) -> bool:
        """Write an edit of an attempt without a plan."""
        for _ in range(_WRITE_ATTEMPTS):
            found = await self._load(key)
            if found is None:
                return False
            run, row = found
            spec = await self._versions.load_spec(run.version_key)
            actor = row.claimed_by or ""
            draft = RunDraft(run, {(row.task, row.index): row}, spec, now=self._clock.now(), actor=actor)
            if not edit(draft):
                return False
            if draft.is_empty:
                return True
            change = draft.build_change(lease=self._settings.heartbeat_timeout, is_guarded=False)
            if isinstance(await self._store.runs.apply(change), Applied):
                self._leader.on_run_changed(key.run)
                return True
        raise StoreError(f"the report of attempt {key} was overtaken {_WRITE_ATTEMPTS} times: repeat it")

    async def _load(self, key: AttemptKey) -> tuple[RunRow, TaskRow] | None:
        """Return the run and the task run of an attempt; None if the attempt is not the current one."""
        row = await self._store.runs.find_task(key.task_key)
        if row is None or row.attempt != key.attempt or not row.state.is_claimed:
            return None
        run = await self._store.runs.find_run(key.run)
        return None if run is None else (run, row)

    async def _is_recorded(self, key: AttemptKey, result: AttemptResult) -> bool:
        """Return whether an attempt has ended with this outcome: then the report is a repeated one."""
        for row in await self._store.runs.read_attempts(key.run):
            if row.key == key:
                return row.outcome == result.outcome and not isinstance(result, Cancelled)
        return False

    def _record_span(self, order: Order, run: RunRow, row: TaskRow, result: AttemptResult) -> None:
        now = self._clock.now()
        span = attempt_span(order.request, run, result, row.started_at or now, now)
        if span is not None:
            self._spans.record(span)


def _apply_result(key: AttemptKey, result: AttemptResult, budgets: RetryBudgets, draft: RunDraft) -> bool:
    return draft.apply_result(key, result, budgets, is_remote=True)
