"""Graphs: their nodes, edges and generated source, and calls of those that no reactor calls."""

from typing import Annotated, Any

import msgspec
from litestar.params import FromPath, JSONBody

from tidemill.api.paging import DEFAULT_LIMIT, Page, PageRequest, page_of
from tidemill.engine.graphs.client.values import GraphDetails, GraphResultView, GraphSummary
from tidemill.server.injection import InjectedCaller, InjectedContext
from tidemill.server.paging import Cursor, Limit


class GraphCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A call of a graph."""

    inputs: Annotated[
        dict[str, Any], msgspec.Meta(description="The inputs by name.", examples=[{"orderbook": {"bid": 1.0}}])
    ]


async def list_graphs(
    context: InjectedContext, caller: InjectedCaller, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None
) -> Page[GraphSummary]:
    """List the loaded graphs."""
    graphs = await context.node.graph_client.list_graphs(caller)
    return page_of(graphs, PageRequest(limit, cursor), key=lambda one: one.name, view=lambda one: one)


async def get_graph(context: InjectedContext, caller: InjectedCaller, name: FromPath[str]) -> GraphDetails:
    """Return a graph: nodes with inputs, returns and routes, edges, and the generated source."""
    return await context.node.graph_client.graph(caller, name)


async def call_graph(
    context: InjectedContext, caller: InjectedCaller, name: FromPath[str], data: JSONBody[GraphCall]
) -> GraphResultView:
    """Call a graph that is bound to no reactor, and return its result.

    If a node fails, `ok` is false, and `error` names the node.
    """
    return await context.node.graph_client.call_graph(caller, name, data.inputs)
