"""`tidemill graph`: inspect the graphs of a file before they run, or those of a server."""

import re
from typing import TYPE_CHECKING, Any

import typer

from tidemill.cli.arguments import FileArgument, GraphArgument, OptionalFileArgument
from tidemill.cli.exit_codes import exit_on_error, exit_on_problems, print_check
from tidemill.cli.formatting import format_count, relative_path
from tidemill.cli.opening import with_client
from tidemill.cli.output import Format, Output, show_code, show_rows
from tidemill.cli.targets import find_server_of

if TYPE_CHECKING:
    from tidemill.graphs.wiring_model import WiredNode

app = typer.Typer(help="Inspect the graphs of a file, or of a server.", no_args_is_help=True)


@app.command("list")
def list_graphs(file: OptionalFileArgument = None, output: Output = Format.TABLE) -> None:
    """List the graphs of a file, or without one those of a server, with the reactor that each is bound to."""
    if file is None or find_server_of(file) is not None:
        graphs = with_client(None, lambda client: client.graphs())
        show_rows(["graph", "reactor", "nodes"], [[one.name, one.reactor, one.nodes] for one in graphs], output)
        return
    from tidemill.cli.definitions import importable_from, load_definitions
    from tidemill.graphs.graph import Graph

    with importable_from(file), exit_on_error():
        package = load_definitions(file, Graph)
    missing, to_text = (None, str) if output is Format.JSON else ("", relative_path)
    rows = [
        [graph.name, graph.reactor_name or missing, [node.name for node in graph.nodes], to_text(str(graph.location))]
        for graph in package.graphs
    ]
    show_rows(["graph", "reactor", "nodes", "declared"], rows, output, folded=["nodes", "declared"])


@app.command()
def check(file: FileArgument, output: Output = Format.TABLE) -> None:
    """Wire and compile every graph of a file, and show all problems."""
    from tidemill.cli.definitions import check_definitions, importable_from, load_definitions
    from tidemill.graphs.graph import Graph

    with importable_from(file), exit_on_error(), exit_on_problems(output):
        package = load_definitions(file, Graph)
        check_definitions(package.graphs)
    graphs, reactors = [one.name for one in package.graphs], [one.name for one in package.reactors]
    counts = f"{format_count(len(graphs), 'graph')} and {format_count(len(reactors), 'reactor')}"
    print_check(output, f"{counts}: no problems found", graphs=graphs, reactors=reactors)


@app.command()
def show(place: GraphArgument, output: Output = Format.TABLE) -> None:
    """Show the nodes of a graph in execution order, with their parameters and return types.

    If the command works with a server, name a graph that the server has loaded.
    """
    if _is_on_server(place):
        loaded = with_client(None, lambda client: client.graph(place))
        rows = [
            [one.name, [f"{taken.parameter}: {taken.type}" for taken in one.inputs], one.returns, one.is_terminal]
            for one in loaded.nodes
        ]
        show_rows(["node", "takes", "returns", "terminal"], rows, output, folded=["takes", "returns"])
        return
    from tidemill.cli.definitions import importable_from, load_graph

    with importable_from(place), exit_on_error():
        compiled = load_graph(place).compiled()
    nodes = {wired.name: wired for wired in compiled.wiring.nodes}
    rows = [_node_row(nodes[name], is_terminal=name in compiled.layout.terminals) for name in compiled.layout.names]
    show_rows(["node", "takes", "returns", "terminal"], rows, output, folded=["takes", "returns"])


def _is_on_server(place: str) -> bool:
    with exit_on_error():
        return find_server_of(place) is not None


def _node_row(wired: "WiredNode", *, is_terminal: bool) -> list[Any]:
    takes = [f"{edge.parameter.name}: {_short_annotation(edge.parameter.annotation)}" for edge in wired.edges]
    return [wired.name, takes, _short_annotation(wired.node.function.signature().returns), is_terminal]


def _short_annotation(annotation: Any) -> str:
    """Return an annotation with class names only, without their modules."""
    from tidemill.annotations.variants import label

    text = label(annotation)
    return text if "Literal[" in text else re.sub(r"\b(?:\w+\.)+(?=\w)", "", text)


@app.command()
def code(place: GraphArgument) -> None:
    """Print the function that a graph is compiled to: of a file, or of a server if the command works with one."""
    if _is_on_server(place):
        show_code(with_client(None, lambda client: client.graph(place)).source)
        return
    from tidemill.cli.definitions import importable_from, load_graph

    with importable_from(place), exit_on_error():
        source = load_graph(place).source_code
    show_code(source)
