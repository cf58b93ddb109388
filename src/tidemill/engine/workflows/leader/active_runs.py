"""The leader's cache of active runs: every run that has not ended, as it was last written.

The store is the truth, the cache makes it fast. It is discarded with the term, and a run in it is read again as soon as
another process turns out to have changed it.
"""

import asyncio
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from tidemill.access.audit import AuditRow
from tidemill.engine.workflows.executors.interface import SlotClass
from tidemill.engine.workflows.notifications import FinishedRun
from tidemill.workflows.attempt_results import AttemptResult
from tidemill.workflows.plan import UNMAPPED
from tidemill.workflows.records import AttemptKey, FireRow, RunRecord, TaskRow, VersionKey
from tidemill.workflows.run_draft import RunDraft, TaskRef
from tidemill.workflows.spec import WorkflowSpec
from tidemill.workflows.states import RunState, TaskState

CACHED_OUTPUT_LIMIT = 64 * 1024
"""Bytes up to which an output is cached with its run."""

DraftEdit = Callable[[RunDraft], Any]


Report = tuple[AttemptKey, AttemptResult]
"""An attempt and its result."""


class RunRequest(NamedTuple):
    """A request to edit a run. Its future is resolved after the edit is written."""

    edit: DraftEdit | None
    """None to only plan the run."""
    future: "asyncio.Future[Any] | None" = None
    report: Report | None = None
    """The attempt result that the edit records, if any: it must be written even if the run cannot be planned."""
    fail_fast: bool = False
    """Whether the request fails with the store instead of being retried."""
    decides_nothing: bool = False
    """Whether no task can become ready by it: it claims tasks that were granted a slot, or records a start."""


REPLAN = RunRequest(None)
"""Asks to plan a run. One of them in a change is enough."""


class NewRun(NamedTuple):
    """Marks a run that is not stored yet, and holds what is written with it."""

    fire: FireRow | None
    audit: AuditRow | None


class ActiveRun:
    """One run that has not ended."""

    __slots__ = (
        "awaiting_inputs",
        "creation",
        "failures",
        "grants",
        "has_timers",
        "is_busy",
        "is_planned",
        "is_pool_full",
        "is_retry_scheduled",
        "is_stale",
        "kept_slots",
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

    def __init__(
        self, record: RunRecord, version: VersionKey, spec: WorkflowSpec, creation: NewRun | None = None
    ) -> None:
        self.requests: list[RunRequest] = []
        self.grants: dict[TaskRef, None] = {}
        """Tasks that were granted a slot and are yet to be claimed, in the order of the grants."""
        self.kept_slots: list[tuple[str, SlotClass]] = []
        """The slots that the run has freed, by executor and class, and keeps until its next change is made."""
        self.awaiting_inputs: list[TaskRow] = []
        """Claimed tasks whose inputs must be read before they are launched."""
        self.outputs: dict[TaskRef, bytes] = {}
        self.has_timers = False
        """Whether a timer or a poll may be set for the run."""
        self.is_busy = False
        """Whether a change of the run is being made or written."""
        self.is_pool_full = False
        """Whether the store found a pool full: the next change claims no task of any pool."""
        self.is_stale = False
        """Whether another process has changed the run since it was read."""
        self.is_planned = False
        """Whether the run was planned since it was read."""
        self.quarantine_reason: str | None = None
        """Why the run cannot be processed at present."""
        self.store_failed = False
        """Whether the last store call for the run failed."""
        self.failures = 0
        self.is_retry_scheduled = False
        """Whether a retry of the quarantined run is scheduled."""
        self.pin_version(version, spec)
        self.load_record(record)
        self.creation = creation
        """Not None until the run is stored."""

    def pin_version(self, version: VersionKey, spec: WorkflowSpec) -> None:
        """Set the workflow version that the run is pinned to."""
        self.version = version
        self.spec = spec
        self.uses_pools = spec.uses_pools

    def load_record(self, record: RunRecord) -> None:
        """Replace the cached run with a stored record."""
        self.run = record.run
        self.rows = {(row.task, row.index): row for row in record.tasks}
        self.creation = None
        self.is_stale = self.is_planned = False

    def waiting_tasks(self) -> list[TaskRow]:
        """Return the scheduled tasks that have no slot yet."""
        return [row for ref, row in self.rows.items() if row.state is TaskState.SCHEDULED and ref not in self.grants]

    def cache_output(self, ref: TaskRef, value: bytes) -> None:
        """Cache an output if it is small, or if the elements of a mapped task are about to need it."""
        if len(value) <= CACHED_OUTPUT_LIMIT or ref[0] in self.spec.mapped_sources:
            self.outputs[ref] = value

    def as_finished(self) -> FinishedRun:
        """Return the ended run for the callers that wait for it."""
        return FinishedRun(RunRecord(self.run, list(self.rows.values())), self.outputs if self._is_complete() else None)

    def _is_complete(self) -> bool:
        """Return whether every output is cached; a task that was mapped over an empty list has none."""
        for ref, row in self.rows.items():
            is_empty = row.index == UNMAPPED and self.spec.by_name[row.task].each is not None
            if row.state is TaskState.SUCCESS and not is_empty and ref not in self.outputs:
                return False
        return True


class InFlightChange(NamedTuple):
    """A change of a run that is being written."""

    active: ActiveRun
    draft: RunDraft
    claimed: list[TaskRow]
    """The tasks that this node runs once the change is written."""
    requests: list[RunRequest]
    results: list[Any]
    """The results of the requests, one each."""


def reject_requests(requests: Collection[RunRequest], error: Exception) -> None:
    """Fail the futures of some requests."""
    for request in requests:
        if request.future is not None and not request.future.done():
            request.future.set_exception(error)
            request.future.exception()  # the caller may have stopped waiting: then nothing else retrieves it


def tasks_to_plan(active: ActiveRun, draft: RunDraft, requests: Collection[RunRequest]) -> Collection[str] | None:
    """Return the tasks after which others may be ready: those that some requests end. None means any task.

    Nothing follows from a request that claims or starts a task, nor from the end of one element of many.
    """
    if not active.is_planned or not active.run.state is draft.run.state is RunState.RUNNING:
        return None
    ended: set[str] = set()
    for request in requests:
        if request.report is not None:
            key = request.report[0]
            if key.element == UNMAPPED or not draft.has_unfinished_element(key.task):
                ended.add(key.task)
        elif not request.decides_nothing:
            return None
    return ended


def resolve_requests(requests: Collection[RunRequest], result: Any) -> None:
    """Resolve the futures of some requests with the same result."""
    for request in requests:
        if request.future is not None and not request.future.done():
            request.future.set_result(result)
