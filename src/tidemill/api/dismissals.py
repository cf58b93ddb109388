"""Dismissals: failures that need no person, of one run or of all that match."""

from tidemill.access.principal import Permission, Principal
from tidemill.api.operation import POST, Message, operation
from tidemill.api.run_filters import Cause, Key, Since, Tag, Text, Until, WorkflowName, created_between
from tidemill.api.runs import RunInfo, read_info
from tidemill.api.services import Services
from tidemill.kernel.errors import RequestError
from tidemill.workflows.states import RunState


class DismissedRuns(Message, frozen=True, kw_only=True):
    """What a dismissal of many failures did."""

    number: int
    """How many failed runs are dismissed."""


@operation(POST("/runs/{run}/dismiss"), Permission.WRITE, audit="run.dismiss")
async def dismiss_run(services: Services, caller: Principal, run: str) -> RunInfo:
    """Dismiss the failure of a run: it no longer needs a person, until it is retried and fails once more."""
    row = await services.workflows.runs.load_run(caller, run)
    if row.state is not RunState.FAILED:
        message = f"run {run} of workflow '{row.workflow}' is {row.state}: only a failed run can be dismissed"
        raise RequestError(message, code="run_not_failed", status=409, run=run)
    await services.workflows.changes.dismiss(caller, [run])
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
    chosen = {"workflow": workflow, "q": text, "tag": tag, "cause": cause, "key": key, "from": since, "to": until}
    number = await services.workflows.changes.dismiss_all(
        caller, workflow=workflow, text=text, tag=tag, cause=cause, key=key, **created_between(since, until)
    )
    await services.access.audit.record_selection(caller, "run.dismiss", "runs", chosen, number)
    return DismissedRuns(number=number)
