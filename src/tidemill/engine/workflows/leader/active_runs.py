"""The runs that a leader has in mind: everything that has not ended, as it was last written.

The store is the truth. The board makes it fast: it is thrown away with the term, and a run on it is read again as
soon as somebody else turns out to have changed it.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from tidemill.kernel.errors import StoreError
from tidemill.workflows.attempt_results import AttemptResult
from tidemill.workflows.change import Applied, Refused
from tidemill.workflows.plan import UNMAPPED
from tidemill.workflows.records import AttemptKey, FireRow, RunRecord, RunRow, TaskRow, VersionKey
from tidemill.workflows.run_draft import RunDraft, TaskRef
from tidemill.workflows.spec import TaskSpec, WorkflowSpec
from tidemill.workflows.states import RunState, TaskState

CACHED_OUTPUT_LIMIT = 64 * 1024
"""Bytes up to which an output is kept in mind beside its run."""

DraftEdit = Callable[[RunDraft], Any]


class RunRequest(NamedTuple):
    """Something to be done with a run, and who waits for the answer; the answer comes after it is written."""

    edit: DraftEdit
    future: "asyncio.Future[Any] | None" = None
    report: tuple[AttemptKey, AttemptResult] | None = None
    """What the step reports, if it does: that must be written even if the run cannot be planned."""
    fail_fast: bool = False
    """Whether it is not asked again when the store fails: whoever asked is told."""
    is_claim: bool = False
    """Whether nothing is to be done but to claim what was given a place."""


class FinishedRun(NamedTuple):
    """A run at its end, as its last change left it."""

    record: RunRecord
    outputs: Mapping[TaskRef, bytes] | None
    """What its tasks returned; None unless all of it is in mind."""


class NewRun(NamedTuple):
    """That a run is yet to be made, and what it comes of."""

    fire: FireRow | None


class ActiveRun:
    """One run that has not ended."""

    __slots__ = (
        "_mapped_sources",
        "awaiting_inputs",
        "creation",
        "failures",
        "grants",
        "is_busy",
        "is_planned",
        "is_pool_full",
        "is_retry_scheduled",
        "is_stale",
        "outputs",
        "quarantine_reason",
        "requests",
        "rows",
        "run",
        "spec",
        "store_failed",
        "uses_pools",
        "version",
    )

    def __init__(self, record: RunRecord, spec: WorkflowSpec, creation: NewRun | None = None) -> None:
        self.requests: list[RunRequest] = []
        self.grants: list[TaskRef] = []
        """Task runs that have been given a place, and are yet to be claimed."""
        self.awaiting_inputs: list[TaskRow] = []
        """Task runs that were claimed and are yet to be run: what they take must be read first."""
        self.outputs: dict[TaskRef, bytes] = {}
        self.is_busy = False
        self.is_pool_full = False
        """Whether a pool turned out to be full for it: then it claims nothing of any pool with its next change."""
        self.is_stale = False
        """Whether somebody else has changed it since it was read."""
        self.is_planned = False
        """Whether it was planned since it was read."""
        self.quarantine_reason: str | None = None
        """Why nothing can be done with it at present."""
        self.store_failed = False
        """Whether the store failed when it was last asked about it."""
        self.failures = 0
        self.is_retry_scheduled = False
        """Whether somebody is going to look at it again although nobody asks."""
        self.pin_version(record.run.version_key, spec)
        self.load_record(record)
        self.creation = creation
        """Not None until it is in the store."""

    def pin_version(self, version: VersionKey, spec: WorkflowSpec) -> None:
        """Take a version of its workflow for the one that it is pinned to."""
        self.version = version
        self.spec = spec
        self.uses_pools = any(task.pool is not None for task in spec.tasks)
        self._mapped_sources = {task.each for task in spec.tasks}

    def load_record(self, record: RunRecord) -> None:
        """Take the run as it is in the store."""
        self.update(record.run, {(row.task, row.index): row for row in record.tasks})
        self.is_stale = self.is_planned = False

    def update(self, run: RunRow, rows: dict[TaskRef, TaskRow]) -> None:
        """Take the run as it is after a change."""
        self.run = run
        self.rows = rows
        self.creation = None

    def mark_planned(self) -> None:
        """Take note that a change of it was written, as planned: whatever stood against that is over."""
        self.is_planned = True
        self.is_pool_full = False
        self.failures, self.quarantine_reason = 0, None

    def tasks_changed_by(self, requests: Collection[RunRequest]) -> set[str] | None:
        """Return the tasks to which something happens with some asks; None if that cannot be told without a plan."""
        is_known = self.is_planned and self.run.state is RunState.RUNNING
        if not is_known or any(ask.report is None and not ask.is_claim for ask in requests):
            return None
        return {ask.report[0].task for ask in requests if ask.report is not None}

    def needs_plan(self, draft: RunDraft, requests: Collection[RunRequest]) -> bool:
        """Return whether a plan could say anything: not if all that happened is that some of many elements ended."""
        ended = [ask.report[0] for ask in requests if ask.report is not None]
        if not ended or len(ended) < len(requests):
            return True
        return any(key.element == UNMAPPED or not draft.has_unfinished_element(key.task) for key in ended)

    def new_draft(self, now: datetime, actor: str, executor_of: Callable[[TaskSpec], str]) -> RunDraft:
        """Begin a draft of its next change, which is the first of one that is yet to be made."""
        if self.creation is None:
            return RunDraft(self.run, self.rows, self.spec, now=now, actor=actor)
        return RunDraft.for_new_run(self.run, self.spec, executor_of=executor_of, actor=actor, fire=self.creation.fire)

    def waiting_tasks(self) -> list[TaskRow]:
        """Return the task runs that wait for a place."""
        return [
            row for place, row in self.rows.items() if row.state is TaskState.SCHEDULED and place not in self.grants
        ]

    def cache_output(self, ref: TaskRef, value: bytes) -> None:
        """Keep an output in mind, if it is small, or if many are about to need it."""
        if len(value) <= CACHED_OUTPUT_LIMIT or ref[0] in self._mapped_sources:
            self.outputs[ref] = value

    def as_finished(self) -> FinishedRun:
        """Return the run as it is, for whoever waits for its end."""
        is_whole = all(place in self.outputs for place, row in self.rows.items() if self._has_output(row))
        return FinishedRun(RunRecord(self.run, list(self.rows.values())), self.outputs if is_whole else None)

    def _has_output(self, row: TaskRow) -> bool:
        """Return whether a task run has a value; a mapping over an empty list has none."""
        return row.state is TaskState.SUCCESS and (row.index != UNMAPPED or self.spec.by_name[row.task].each is None)


class InFlightChange(NamedTuple):
    """A change on its way to the store: what it holds, and who asked for it."""

    active: ActiveRun
    draft: RunDraft
    claimed: list[TaskRow]
    """What is ours to run once it is written."""
    requests: list[RunRequest]
    results: list[Any]
    """What the asks are told once it is written, one each."""

    @property
    def ended_attempts(self) -> list[AttemptKey]:
        """The attempts that it was told the end of."""
        return [ask.report[0] for ask in self.requests if ask.report is not None]

    @property
    def accepted_reports(self) -> list[tuple[AttemptKey, AttemptResult]]:
        """The reports that it holds: not those that came too late."""
        return [ask.report for ask, holds in zip(self.requests, self.results, strict=True) if ask.report and holds]


def read_commit_result(future: "asyncio.Future[Applied | Refused]") -> Applied | Refused | Exception:
    """Return what came of a change, from the answer of the store."""
    if future.cancelled():
        return StoreError("the store was closed before it answered")
    error = future.exception()
    return error if isinstance(error, Exception) else future.result()


def do_nothing(_: RunDraft) -> None:
    """Have a run looked at: that it is planned, and that what was given a place is claimed, is all that is asked."""


def reject_requests(requests: Collection[RunRequest], error: Exception) -> None:
    """Tell those who asked that nothing came of it."""
    for ask in requests:
        if ask.future is not None and not ask.future.done():
            ask.future.set_exception(error)
            ask.future.exception()  # whoever asked may have gone


def resolve_requests(requests: Collection[RunRequest], results: Collection[Any]) -> None:
    """Tell those who asked what came of it."""
    for ask, told in zip(requests, results, strict=True):
        if ask.future is not None and not ask.future.done():
            ask.future.set_result(told)
