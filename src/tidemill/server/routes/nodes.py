"""Nodes: servers, workers and nodes of programs on the store."""

from tidemill.api.paging import DEFAULT_LIMIT, Page, PageRequest, page_of
from tidemill.engine.workflows.client.values import NodeSummary
from tidemill.server.injection import InjectedContext
from tidemill.server.paging import Cursor, Limit


async def list_nodes(
    context: InjectedContext, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None
) -> Page[NodeSummary]:
    """List the nodes of the store: which one leads, their load, and their last beat."""
    nodes = await context.node.workflow_client.nodes()
    return page_of(nodes, PageRequest(limit, cursor), key=lambda one: one.id, view=lambda one: one)
