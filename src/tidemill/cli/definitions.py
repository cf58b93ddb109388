"""Loads the graphs and workflows of a file that a command names."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace

from tidemill.graphs.graph import Graph
from tidemill.kernel.errors import DefinitionError, Location, Problem, RequestError
from tidemill.kernel.import_guard import guarding_imports
from tidemill.kernel.suggestions import did_you_mean
from tidemill.packages.loading.reader import Package, import_module, read_package
from tidemill.workflows.workflow import Workflow

Kind = TypeVar("Kind", Graph, Workflow)


def load_definitions(file: str, kind: type[Kind]) -> Package:
    """Return the definitions of a file; raise RequestError if none is of the given kind."""
    package = read_package(import_module(file))
    if not _definitions_of(package, kind):
        raise _not_found_error(f"{file} declares no {_noun(kind)}", kind)
    return package


def load_graph(target: str) -> Graph:
    """Return a graph of a file by its name or its variable's name, or the only one."""
    file, _, name = target.partition(":")
    return _find_definition(file, name, load_definitions(file, Graph), Graph)


def load_workflow(target: str) -> Workflow:
    """Return a workflow of a file by its name or its variable's name, or the only one.

    Resolves the graphs of the same file that it calls by name.
    """
    file, _, name = target.partition(":")
    package = load_definitions(file, Workflow)
    return bind_package_graphs(_find_definition(file, name, package, Workflow), package)


def bind_package_graphs(workflow: Workflow, package: Package) -> Workflow:
    """Return a workflow with the graphs resolved that it calls by name and its package declares."""
    graphs = {graph.name: graph for graph in package.graphs}
    return workflow.with_graphs(graphs.get)


def check_definitions(definitions: Iterable[Graph | Workflow]) -> None:
    """Check definitions; raise one DefinitionError with the problems of all."""
    problems: list[Problem] = []
    for definition in definitions:
        try:
            definition.check()
        except DefinitionError as error:
            problems += error.problems
    if problems:
        raise DefinitionError(problems)


def _find_definition(file: str, name: str, package: Package, kind: type[Kind]) -> Kind:
    known = {one.name: one for one in _definitions_of(package, kind)}
    variable = vars(sys.modules[package.name]).get(name) if name else None
    if isinstance(variable, kind):
        return variable
    names, noun = ", ".join(sorted(known)), _noun(kind)
    if name and name not in known:
        raise _not_found_error(f"{file} has no {noun} '{name}'{did_you_mean(name, known)}; it has {names}", kind)
    if not name and len(known) > 1:
        raise _not_found_error(f"{file} has several {noun}s, name one: {file}:{min(known)} (there are {names})", kind)
    return known[name] if name else next(iter(known.values()))


def _definitions_of(package: Package, kind: type[Kind]) -> list[Kind]:
    return [
        one
        for one in (*package.graphs, *package.workflows)
        if isinstance(one, kind) and not (isinstance(one, Workflow) and one.handled)
    ]


def _noun(kind: type[Kind]) -> str:
    return kind.__name__.lower()


def _not_found_error(message: str, kind: type[Kind]) -> RequestError:
    if kind is Graph:
        return RequestError(message, code="no_graph", status=404)
    return RequestError(message, code="no_workflow", status=404)


def with_real_path(problem: Problem, folder: Path) -> Problem:
    """Return a problem of a package with the path of its file, so that an editor finds it."""
    location = problem.location
    return replace(problem, location=location and Location(str(folder / location.file), location.line))


@contextmanager
def importable_from(target: str) -> Iterator[None]:
    """Put the folder of a file on the import path, or this folder for a module, as `python` does.

    Unlike there, its modules do not replace installed ones of the same name.
    """
    path = Path(target.partition(":")[0])
    folder = str(path.parent.resolve() if path.suffix == ".py" else Path.cwd())
    sys.path.insert(0, folder)
    try:
        with guarding_imports(folder):
            yield
    finally:
        sys.path.remove(folder)
