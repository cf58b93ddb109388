"""`tidemill graph`: look at the graphs of a file before they run."""

import re
from typing import Annotated, Any

import typer

from tidemill.annotations.variants import label
from tidemill.cli.definitions import GraphPlace, check_all, graph_at, importable, package_at
from tidemill.cli.exits import judgement, refusing, reporting
from tidemill.cli.output import Format, Output, say, show_code, show_json, show_rows
from tidemill.cli.words import count, seen
from tidemill.graphs.graph import Graph
from tidemill.graphs.wired import WiredNode

app = typer.Typer(help="Look at the graphs of a file before they run.", no_args_is_help=True)

File = Annotated[str, typer.Argument(metavar="FILE", help="A Python file, or the name of a module.")]


@app.command("list")
def list_graphs(file: File, output: Output = Format.TABLE) -> None:
    """List the graphs of a file, with the reactor each binds to."""
    with importable(file), refusing():
        package = package_at(file, Graph)
    nothing, place = (None, str) if output is Format.JSON else ("", seen)
    rows = [
        [graph.name, graph.reactor_name or nothing, [node.name for node in graph.nodes], place(str(graph.location))]
        for graph in package.graphs
    ]
    show_rows(["graph", "reactor", "nodes", "declared"], rows, output, folded=["nodes", "declared"])


@app.command()
def check(file: File, output: Output = Format.TABLE) -> None:
    """Wire and compile every graph of a file; show everything that is wrong."""
    with importable(file), refusing(), reporting(output):
        package = package_at(file, Graph)
        check_all(package.graphs)
    graphs, reactors = [one.name for one in package.graphs], [one.name for one in package.reactors]
    if output is Format.JSON:
        show_json(judgement(graphs=graphs, reactors=reactors))
    else:
        say(f"{count(len(graphs), 'graph')} and {count(len(reactors), 'reactor')} are sound")


@app.command()
def show(place: GraphPlace, output: Output = Format.TABLE) -> None:
    """Show the nodes of a graph in the order in which they run, what each takes and what it returns."""
    with importable(place), refusing():
        compiled = graph_at(place).compiled()
    nodes = {wired.name: wired for wired in compiled.wiring.nodes}
    rows = [_row(nodes[name], is_terminal=name in compiled.shape.terminals) for name in compiled.shape.names]
    show_rows(["node", "takes", "returns", "terminal"], rows, output, folded=["takes", "returns"])


def _row(wired: WiredNode, *, is_terminal: bool) -> list[Any]:
    takes = [f"{edge.parameter.name}: {_kind(edge.parameter.annotation)}" for edge in wired.edges]
    return [wired.name, takes, _kind(wired.node.function.signature().returns), is_terminal]


def _kind(annotation: Any) -> str:
    """Return an annotation without the modules of classes within it: alone they are named without them too."""
    text = label(annotation)
    return text if "Literal[" in text else re.sub(r"\b(?:\w+\.)+(?=\w)", "", text)


@app.command()
def code(place: GraphPlace) -> None:
    """Print the function that a graph was compiled to."""
    with importable(place), refusing():
        source = graph_at(place).source_code
    show_code(source)
