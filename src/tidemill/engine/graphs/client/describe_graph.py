"""Describes a compiled graph: nodes with inputs, returns and routes, edges, and the generated source."""

from collections.abc import Iterable

from tidemill.annotations.variants import label
from tidemill.graphs.compiler import CompiledGraph
from tidemill.graphs.graph import Graph
from tidemill.graphs.views import GraphDetails, GraphEdgeView, GraphInputView, GraphNodeView, NodeInputView
from tidemill.graphs.wiring_model import Edge, InputOrigin, WiredNode


def describe_graph(graph: Graph, compiled: CompiledGraph) -> GraphDetails:
    """Return a graph's declaration as plain values."""
    wired = {one.name: one for one in compiled.wiring.nodes}
    nodes = [wired[name] for name in compiled.layout.names]
    return GraphDetails(
        name=graph.name,
        reactor=graph.reactor_name,
        is_async=compiled.is_async,
        inputs=[
            GraphInputView(name=one.name, type=label(one.annotation), required=one.required, is_window=one.is_window)
            for one in compiled.wiring.inputs
        ],
        nodes=[_describe_node(one, compiled) for one in nodes],
        edges=[_describe_edge(edge, one) for one in nodes for edge in one.edges if _connects(edge)],
        source=compiled.generated.source,
        owner=graph.about.owner,
        description=graph.about.description,
    )


def _describe_node(wired: WiredNode, compiled: CompiledGraph) -> GraphNodeView:
    return GraphNodeView(
        name=wired.name,
        inputs=[_describe_input(edge) for edge in wired.edges],
        returns=label(wired.node.function.signature().returns),
        routes=_describe_routes(wired, compiled.wiring.nodes),
        is_terminal=wired.name in compiled.layout.terminals,
        is_async=wired.node.function.is_async,
        feeds=wired.node.fed_accumulator,
        owner=wired.node.about.owner,
        description=wired.node.about.description,
    )


def _describe_input(edge: Edge) -> NodeInputView:
    return NodeInputView(
        parameter=edge.parameter.name,
        type=label(edge.parameter.annotation),
        origin=edge.origin.value,
        source=edge.source,
        optional=edge.optional,
    )


def _describe_edge(edge: Edge, target: WiredNode) -> GraphEdgeView:
    return GraphEdgeView(
        source=edge.source,
        target=target.name,
        parameter=edge.parameter.name,
        classes=None if edge.admitted is None else [label(one) for one in edge.admitted],
        optional=edge.optional,
    )


def _describe_routes(source: WiredNode, nodes: Iterable[WiredNode]) -> dict[str, list[str]]:
    """Return which nodes receive each class of a node's result; a class that is ignored has none."""
    edges = [(one.name, edge) for one in nodes for edge in one.upstream_edges() if edge.source == source.name]
    if source.classes is None or all(edge.admitted is None for _, edge in edges):
        return {}
    return {
        label(cls): list(dict.fromkeys(name for name, edge in edges if edge.admitted is None or cls in edge.admitted))
        for cls in source.classes
    }


def _connects(edge: Edge) -> bool:
    return edge.origin is not InputOrigin.CONTEXT
