"""The overview: what a tenant's workflows and reactors do, in one answer."""

from tidemill.access.principal import Caller
from tidemill.engine.workflows.client.workflow_client import WorkflowClient
from tidemill.server.injection import InjectedCaller, InjectedContext
from tidemill.server.views.overview import LateRun, Overview, late_rows, to_overview
from tidemill.workflows.records import RunRow

EXPLAINED_RUNS = 5
"""Late runs that are explained: each explanation reads more than the overview of all runs."""


async def get_overview(context: InjectedContext, caller: InjectedCaller) -> Overview:
    """Return what is running, failing, late and degraded, and what the next hour brings."""
    node = context.node
    client = node.workflow_client
    workflows = await client.overview(caller)
    return to_overview(
        workflows,
        [
            await _explain(client, caller, row, is_explained=index < EXPLAINED_RUNS)
            for index, row in enumerate(late_rows(workflows))
        ],
        await node.graph_client.health_reports(caller),
        [one for one in node.packages() if one.tenant == caller.tenant],
        await client.nodes(),
    )


async def _explain(client: WorkflowClient, caller: Caller, row: RunRow, *, is_explained: bool) -> LateRun:
    reasons = await client.why_queued(caller, row.id) if is_explained else []
    return LateRun(run=row.id, workflow=row.workflow, since=row.created_at, reasons=reasons)
