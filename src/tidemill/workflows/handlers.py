"""Handlers of a workflow: tasks that are called with a report after one of its runs has failed or succeeded.

The handlers of one end, such as those of `on_failure`, are the tasks of a workflow which belongs to theirs:
`report.on_failure`. Its params are the report. So handlers have attempts, retries, logs and executors as all tasks do,
and what they do changes nothing about the run that they are called for.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from tidemill.kernel.backoff import Retry
from tidemill.kernel.errors import DefinitionError, Location, Problem
from tidemill.kernel.ids import new_sortable_id
from tidemill.kernel.suggestions import did_you_mean
from tidemill.telemetry.tracing import StoredTrace
from tidemill.workflows.params import decode_params, encode_params
from tidemill.workflows.records import AttemptRow, RunRow, TaskError, TaskKey, TaskRow, VersionKey
from tidemill.workflows.result import last_errors
from tidemill.workflows.spec import WorkflowSpec, handler_workflow
from tidemill.workflows.states import RunState, TaskState
from tidemill.workflows.task_options import OPTION_NAMES

FAILURE_LIMIT = 20
"""The failed tasks that a report lists."""
HANDLER_ORIGIN = "handler"
"""The origin of the runs of handlers."""
HANDLER_RETRY = Retry(3, delay=5.0)
"""The retries of a handler that names none."""

_OPTIONS = ("retry", *OPTION_NAMES, "owner", "description")


class _Handled(msgspec.Struct):
    handles: str | None = None


class TaskFailure(msgspec.Struct, frozen=True, kw_only=True):
    """A failed task of a run, in the report to its handlers."""

    task: str
    """Its name; "clean[7]" for an element of a mapped task."""
    error: TaskError
    """The error of its last attempt."""
    attempts: int = 1
    """How often it was tried."""
    ended_at: datetime | None = None


class RunReport(msgspec.Struct, frozen=True, kw_only=True):
    """The report to a handler on a run that has ended. As a text it is a message for people."""

    run: str
    """The id of the run."""
    workflow: str
    version: str = ""
    state: RunState
    """How it ended: failed, or success."""
    reason: str = ""
    """Why it failed, in a line."""
    failures: list[TaskFailure] = []
    """The first 20 tasks that failed, in the order of time."""
    failed_tasks: int = 0
    """How many tasks failed; each element of a mapped task counts."""
    params: dict[str, Any] = {}
    """Its params by name, as plain values."""
    origin: str = "manual"
    """What started it: manual, schedule, trigger, firing, backfill or task."""
    cause: str | None = None
    """The name of what started it: of a trigger, a reactor, or the workflow of a task."""
    slot: datetime | None = None
    """The slot of the schedule that it ran for."""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    link: str | None = None
    """The address of its page; None if the setting `public_url` is not set."""

    def __str__(self) -> str:
        ended = "failed" if self.state is RunState.FAILED else "succeeded"
        lines = [f"run {self.run} of workflow '{self.workflow}' {ended}"]
        lines += [f"task '{one.task}' failed: {one.error}" for one in self.failures]
        if (unlisted := self.failed_tasks - len(self.failures)) > 0:
            lines.append(f"{unlisted} more tasks failed")
        if not self.failures and self.reason:
            lines.append(self.reason)
        return "\n".join(lines if self.link is None else [*lines, self.link])


def handler_versions(tenant: str, spec: WorkflowSpec) -> list[VersionKey]:
    """Return the versions with the handlers of a version of a workflow."""
    handlers = spec.handlers or {}
    return [VersionKey(tenant, handler_workflow(spec.name, RunState(end)), one) for end, one in handlers.items()]


def read_handled(stored: bytes) -> str | None:
    """Return the workflow whose ends the tasks of a stored spec handle; None if it has none, or cannot be read."""
    if b'"handles":' not in stored:  # nearly all specs: they need not be decoded for a list
        return None
    try:
        return msgspec.json.decode(stored, type=_Handled).handles
    except msgspec.DecodeError:
        return None


def find_handlers(run: RunRow, spec: WorkflowSpec) -> VersionKey | None:
    """Return the version with the handlers of the end of a run; None if it has not ended, or its end has none."""
    version = spec.handlers.get(run.state) if spec.handlers and run.state.is_terminal else None
    return None if version is None else VersionKey(run.tenant, handler_workflow(run.workflow, run.state), version)


def check_handler_options(options: Mapping[str, Any], handler: str, workflow: str, location: Location) -> None:
    """Raise a DefinitionError for the options of tasks that handlers do not have."""
    problems = [
        f"handler '{handler}': a handler has no option '{name}'{did_you_mean(name, _OPTIONS)}; it has "
        f"{', '.join(_OPTIONS)}"
        for name in options
        if name not in _OPTIONS
    ]
    if problems:
        found = [Problem(message=one, location=location, node=handler) for one in problems]
        raise DefinitionError(found, f"workflow '{workflow}'")


def build_report(
    run: RunRow, tasks: Sequence[TaskRow], attempts: Sequence[AttemptRow], *, public_url: str | None
) -> RunReport:
    """Return the report on a run that has ended, from its rows."""
    errors = last_errors(attempts)
    failed = sorted(
        (row for row in tasks if row.state is TaskState.FAILED), key=lambda row: row.ended_at or run.created_at
    )
    return RunReport(
        run=run.id,
        workflow=run.workflow,
        version=run.version,
        state=run.state,
        reason=run.reason,
        failures=[_failure(run.id, row, errors) for row in failed[:FAILURE_LIMIT]],
        failed_tasks=len(failed),
        params=_read_params(run),
        origin=run.origin,
        cause=run.cause,
        slot=run.slot,
        started_at=run.started_at,
        ended_at=run.ended_at,
        link=None if public_url is None else f"{public_url.rstrip('/')}/runs/{run.id}",
    )


def handler_run(ended: RunRow, version: VersionKey, report: RunReport, now: datetime) -> RunRow:
    """Return a new run of the handlers of a run that has ended."""
    parent = None if ended.trace is None else StoredTrace.parse(ended.trace)
    return RunRow(
        id=new_sortable_id(now),
        tenant=ended.tenant,
        workflow=version.workflow,
        version=version.version,
        state=RunState.QUEUED,
        params=encode_params(RunReport, report),
        origin=HANDLER_ORIGIN,
        created_at=now,
        cause=ended.workflow,
        caused_by=ended.id,
        about=ended.id,
        trace=None if parent is None else StoredTrace.new(parent.context).to_text(),
    )


def _failure(run: str, row: TaskRow, errors: Mapping[TaskKey, TaskError]) -> TaskFailure:
    key = TaskKey(run, row.task, row.index)
    error = errors.get(key) or TaskError("OperationError", row.reason)  # no worker survived to report an error
    return TaskFailure(task=key.label, error=error, attempts=row.tries, ended_at=row.ended_at)


def _read_params(run: RunRow) -> dict[str, Any]:
    try:
        params: dict[str, Any] = decode_params(None, run.params)
    except msgspec.DecodeError:  # a damaged row must not keep its run from ending
        return {}
    return params
