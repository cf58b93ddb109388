"""The workflows of a file, as a command names them."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from tidemill.kernel.errors import RequestError
from tidemill.kernel.suggestions import did_you_mean
from tidemill.packages.importing import import_module
from tidemill.packages.loader import Package, read_package
from tidemill.workflows.workflow import Workflow

WorkflowPlace = Annotated[
    str,
    typer.Argument(metavar="FILE[:NAME]", help="A Python file or a module and, if it has several, the workflow."),
]


def package_at(file: str) -> Package:
    """Return what a file declares; RequestError unless there is a workflow among it."""
    package = read_package(import_module(file))
    if not package.workflows:
        raise RequestError(f"{file} declares no workflow", code="no_workflow", status=404)
    return package


def workflow_at(place: str) -> Workflow:
    """Return a workflow by its own name, by that of the variable that holds it, or the only one of a file.

    Graphs of the same file that it calls by name are bound to it.
    """
    file, _, name = place.partition(":")
    package = package_at(file)
    graphs = {graph.name: graph for graph in package.graphs}
    return _named(file, name, package).bound(graphs.get)


def _named(file: str, name: str, package: Package) -> Workflow:
    known = {workflow.name: workflow for workflow in package.workflows}
    held = vars(sys.modules[package.name]).get(name) if name else None
    if isinstance(held, Workflow):
        return held
    if name and name not in known:
        message = f"{file} has no workflow '{name}'{did_you_mean(name, known)}; it has {', '.join(sorted(known))}"
        raise RequestError(message, code="no_workflow", status=404)
    if not name and len(known) > 1:
        message = f"{file} has several workflows, name one: {file}:{min(known)} (there are {', '.join(sorted(known))})"
        raise RequestError(message, code="no_workflow", status=404)
    return known[name] if name else next(iter(known.values()))


@contextmanager
def importable(place: str) -> Iterator[None]:
    """Let the code of a file import its neighbours at any time, and a module be found here, as `python` does."""
    path = Path(place.partition(":")[0])
    folder = str(path.parent.resolve() if path.suffix == ".py" else Path.cwd())
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)
