"""The graphs and workflows of a file, as a command names them."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from tidemill.graphs.graph import Graph
from tidemill.kernel.errors import DefinitionError, Problem, RequestError
from tidemill.kernel.suggestions import did_you_mean
from tidemill.packages.loading.reader import Package, import_module, read_package
from tidemill.workflows.workflow import Workflow

GraphArgument = Annotated[
    str, typer.Argument(metavar="FILE[:NAME]", help="A Python file or a module and, if it has several, the graph.")
]
WorkflowArgument = Annotated[
    str,
    typer.Argument(metavar="FILE[:NAME]", help="A Python file or a module and, if it has several, the workflow."),
]

Kind = TypeVar("Kind", Graph, Workflow)


def load_definitions(file: str, kind: type[Kind]) -> Package:
    """Return what a file declares; RequestError unless there is one of a kind among it."""
    package = read_package(import_module(file))
    if not _definitions_of(package, kind):
        raise _not_found_error(f"{file} declares no {_noun(kind)}", kind)
    return package


def load_graph(place: str) -> Graph:
    """Return a graph by its own name, by that of the variable that holds it, or the only one of a file."""
    file, _, name = place.partition(":")
    return _find_definition(file, name, load_definitions(file, Graph), Graph)


def load_workflow(place: str) -> Workflow:
    """Return a workflow by its own name, by that of the variable that holds it, or the only one of a file.

    Graphs of the same file that it calls by name are bound to it.
    """
    file, _, name = place.partition(":")
    package = load_definitions(file, Workflow)
    return bind_package_graphs(_find_definition(file, name, package, Workflow), package)


def bind_package_graphs(workflow: Workflow, package: Package) -> Workflow:
    """Return a workflow with the graphs of its package that it calls by name."""
    graphs = {graph.name: graph for graph in package.graphs}
    return workflow.with_graphs(graphs.get)


def check_definitions(definitions: Iterable[Graph | Workflow]) -> None:
    """Check all of some definitions; DefinitionError says everything that is wrong with any of them."""
    problems: list[Problem] = []
    for one in definitions:
        try:
            one.check()
        except DefinitionError as error:
            problems += error.problems
    if problems:
        raise DefinitionError(problems)


def _find_definition(file: str, name: str, package: Package, kind: type[Kind]) -> Kind:
    known = {one.name: one for one in _definitions_of(package, kind)}
    held = vars(sys.modules[package.name]).get(name) if name else None
    if isinstance(held, kind):
        return held
    there, noun = ", ".join(sorted(known)), _noun(kind)
    if name and name not in known:
        raise _not_found_error(f"{file} has no {noun} '{name}'{did_you_mean(name, known)}; it has {there}", kind)
    if not name and len(known) > 1:
        raise _not_found_error(f"{file} has several {noun}s, name one: {file}:{min(known)} (there are {there})", kind)
    return known[name] if name else next(iter(known.values()))


def _definitions_of(package: Package, kind: type[Kind]) -> list[Kind]:
    return [one for one in (*package.graphs, *package.workflows) if isinstance(one, kind)]


def _noun(kind: type[Kind]) -> str:
    return kind.__name__.lower()


def _not_found_error(message: str, kind: type[Kind]) -> RequestError:
    if kind is Graph:
        return RequestError(message, code="no_graph", status=404)
    return RequestError(message, code="no_workflow", status=404)


@contextmanager
def importable_from(place: str) -> Iterator[None]:
    """Let the code of a file import its neighbours at any time, and a module be found here, as `python` does."""
    path = Path(place.partition(":")[0])
    folder = str(path.parent.resolve() if path.suffix == ".py" else Path.cwd())
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)
