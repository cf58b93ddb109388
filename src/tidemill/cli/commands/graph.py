"""`tidemill graph`: look at the graphs of a file before they run."""

from typing import Annotated, Any

import typer

from tidemill.annotations.variants import label
from tidemill.cli.output import Format, say, show_code, show_rows
from tidemill.graphs.graph import Graph
from tidemill.graphs.wired import WiredNode
from tidemill.kernel.errors import DefinitionError, RequestError
from tidemill.kernel.suggestions import did_you_mean
from tidemill.packages.importing import import_module
from tidemill.packages.loader import Package, read_package

app = typer.Typer(help="Look at the graphs of a file before they run.", no_args_is_help=True)

File = Annotated[str, typer.Argument(metavar="FILE", help="A Python file, or the name of a module.")]
Place = Annotated[str, typer.Argument(metavar="FILE[:NAME]", help="A Python file and, if it has several, the graph.")]
Output = Annotated[Format, typer.Option("-o", "--output", help="How to print it.")]


def _package(file: str) -> Package:
    return _with_graphs(file, read_package(import_module(file)))


def _with_graphs(file: str, package: Package) -> Package:
    if not package.graphs:
        raise RequestError(f"{file} declares no graph", code="no_graph", status=404)
    return package


def _graph(place: str) -> Graph:
    """Return a graph by its own name, by the name of the variable that holds it, or the only one there is."""
    file, _, name = place.partition(":")
    module = import_module(file)
    graphs = {graph.name: graph for graph in _with_graphs(file, read_package(module)).graphs}
    held = getattr(module, name, None) if name else None
    if isinstance(held, Graph):
        return held
    if name and name not in graphs:
        message = f"{file} has no graph '{name}'{did_you_mean(name, graphs)}; it has {sorted(graphs)}"
        raise RequestError(message, code="no_graph", status=404)
    if not name and len(graphs) > 1:
        raise RequestError(f"{file} has several graphs, name one of {sorted(graphs)}", code="no_graph", status=404)
    return graphs[name] if name else next(iter(graphs.values()))


@app.command("list")
def list_graphs(file: File, output: Output = Format.TABLE) -> None:
    """List the graphs of a file, with the reactor each binds to."""
    rows = [
        [graph.name, graph.reactor_name or "", [node.name for node in graph.nodes], str(graph.location)]
        for graph in _package(file).graphs
    ]
    show_rows(["graph", "reactor", "nodes", "declared"], rows, output)


@app.command()
def check(file: File) -> None:
    """Wire and compile every graph of a file; show everything that is wrong."""
    package = _package(file)
    problems = 0
    for graph in package.graphs:
        try:
            graph.check()
        except DefinitionError as error:
            problems += len(error.problems)
            for problem in error.problems:
                say(str(problem))
    if problems:
        raise typer.Exit(1)
    say(f"{len(package.graphs)} graph(s) and {len(package.reactors)} reactor(s) are sound")


@app.command()
def show(place: Place, output: Output = Format.TABLE) -> None:
    """Show the nodes of a graph in the order in which they run, what each takes and what it returns."""
    compiled = _graph(place).compiled()
    nodes = {wired.name: wired for wired in compiled.wiring.nodes}
    rows = [_row(nodes[name], is_terminal=name in compiled.shape.terminals) for name in compiled.shape.names]
    show_rows(["node", "takes", "returns", "terminal"], rows, output)


def _row(wired: WiredNode, *, is_terminal: bool) -> list[Any]:
    takes = [f"{edge.parameter.name}: {label(edge.parameter.annotation)}" for edge in wired.edges]
    return [wired.name, takes, label(wired.node.function.signature().returns), is_terminal]


@app.command()
def code(place: Place) -> None:
    """Print the function that a graph was compiled to."""
    show_code(_graph(place).source_code)
