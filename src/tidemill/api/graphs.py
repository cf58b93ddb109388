"""Graphs: their nodes, edges and generated source, and calls of those that no reactor calls."""

from typing import Annotated, Any

from msgspec import Meta

from tidemill.access.principal import Permission, Principal
from tidemill.api.fields import Keywords, Positional
from tidemill.api.operation import GET, POST, CommandForm, operation
from tidemill.api.paging import Page, PageRequest, page_of
from tidemill.api.services import Services
from tidemill.graphs.views import GraphDetails, GraphResultView, GraphSummary

Inputs = Annotated[
    dict[str, Any],
    Meta(description='The inputs by name, as JSON; "-" reads them.', examples=[{"orderbook": {"bid": 1.0}}]),
    Positional(),
    Keywords(),
]


@operation(GET("/graphs"), Permission.READ)
async def list_graphs(services: Services, caller: Principal, page: PageRequest) -> Page[GraphSummary]:
    """List the loaded graphs by name."""
    graphs = await services.graphs.list_graphs(caller)
    return page_of(graphs, page, key=lambda one: one.name, view=lambda one: one)


@operation(GET("/graphs/{name}"), Permission.READ)
async def get_graph(services: Services, caller: Principal, name: str) -> GraphDetails:
    """Return a graph: nodes with inputs, returns and routes, edges, and the generated source."""
    return await services.graphs.graph(caller, name)


@operation(
    POST("/graphs/{name}/call"), Permission.WRITE, audit="graph.call", command=CommandForm("graph call", success="ok")
)
async def call_graph(services: Services, caller: Principal, name: str, inputs: Inputs) -> GraphResultView:
    """Call a graph that is bound to no reactor, and return its result.

    If a node fails, `ok` is false, and `error` names the node.
    """
    return await services.graphs.call_graph(caller, name, inputs)
