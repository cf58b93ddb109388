"""Dismissals: failures that need no person, of one run or of all that match."""

from functools import partial

from tidemill.access.principal import Permission, Principal
from tidemill.api.errors import require_offset
from tidemill.api.operation import POST, Message, operation
from tidemill.api.paging import MAX_LIMIT
from tidemill.api.run_filters import Cause, Key, Since, Tag, Text, Until, WorkflowName
from tidemill.api.runs import RunInfo, read_info
from tidemill.api.services import Services
from tidemill.kernel.errors import RequestError
from tidemill.storage.run_lists import EARLIEST, LATEST, RunPosition
from tidemill.workflows.states import RunState


class DismissedRuns(Message, frozen=True, kw_only=True):
    """What a dismissal of many failures did."""

    number: int
    """How many failed runs are dismissed."""


@operation(POST("/runs/{run}/dismiss"), Permission.WRITE, audit="run.dismiss")
async def dismiss_run(services: Services, caller: Principal, run: str) -> RunInfo:
    """Dismiss the failure of a run: it no longer needs a person, until it is retried and fails once more."""
    row = await services.workflows.load_run(caller, run)
    if row.state is not RunState.FAILED:
        message = f"run {run} of workflow '{row.workflow}' is {row.state}: only a failed run can be dismissed"
        raise RequestError(message, code="run_not_failed", status=409, run=run)
    await services.workflows.dismiss(caller, [run])
    return await read_info(services, caller, run)


@operation(POST("/runs/dismiss"), Permission.WRITE, audit="run.dismiss", is_audited_by_service=True)
async def dismiss_runs(
    services: Services,
    caller: Principal,
    workflow: WorkflowName = None,
    since: Since = None,
    until: Until = None,
    text: Text = "",
    tag: Tag = "",
    cause: Cause = "",
    key: Key = "",
) -> DismissedRuns:
    """Dismiss the failures of all runs that match: those that the list of unresolved runs has."""
    start, end = require_offset("from", since) or EARLIEST, require_offset("to", until) or LATEST
    number, after = 0, None
    find = partial(
        services.workflows.list_runs,
        caller,
        workflow=workflow,
        since=start,
        until=end,
        text=text,
        tag=tag,
        cause=cause,
        key=key,
        unresolved=True,
        limit=MAX_LIMIT,
    )
    while True:
        found = await find(after=after)
        if not found.runs:
            break
        number += await services.workflows.dismiss(caller, [row.id for row in found.runs])
        after = RunPosition(found.runs[-1].created_at, found.runs[-1].id)
    times = {name: time.isoformat() for name, time in (("from", since), ("to", until)) if time is not None}
    filters = {"workflow": workflow, "q": text, "tag": tag, "cause": cause, "key": key} | times
    given = {name: value for name, value in filters.items() if value}
    await services.access.audit.record(caller, "run.dismiss", "runs", {**given, "number": number})
    return DismissedRuns(number=number)
