"""Graphs that a workflow calls by name, and that another file or package brings."""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated

import typer
from msgspec.structs import replace

from tidemill.cli.definitions import importable_from
from tidemill.graphs.graph import Graph
from tidemill.kernel.errors import DefinitionError, Location, Problem, RequestError
from tidemill.kernel.namespaces import Namespace, PackageTree
from tidemill.kernel.suggestions import did_you_mean
from tidemill.packages.format.archive import read_folder, read_python_file
from tidemill.packages.loading.inspector import PackageInspector, bind_known_graphs
from tidemill.packages.loading.probe_environment import ProbeEnvironment, local_origin
from tidemill.workflows.definition import Task
from tidemill.workflows.workflow import Workflow

LoadOption = Annotated[
    list[str] | None,
    typer.Option(
        "--load",
        metavar="PATH",
        help="A file, or the folder of a package, with graphs that it calls by name; as often as needed.",
    ),
]


def unresolved_calls(workflow: Workflow) -> list[Task]:
    """Return the tasks that call a graph by name which has not been found."""
    return [task for task in workflow.tasks if isinstance(task.graph, str)]


@contextmanager
def importing_graphs(place: str, paths: Iterable[str]) -> Iterator[dict[str, Graph]]:
    """Import what files and package folders bring to a file, and return the graphs by their names for a while.

    The code of all of them may import its neighbours meanwhile. Nothing but the graphs is taken.
    """
    found: dict[str, Graph] = {}
    with ExitStack() as stack:
        for one in [*(path for path in paths if path.endswith(".py")), place]:
            stack.enter_context(importable_from(one))
        for path in paths:
            for graph in _import_graphs(Path(path), stack):
                other = found.setdefault(graph.name, graph)
                if other is not graph:
                    message = f"two graphs are named '{graph.name}', at {other.location} and {graph.location}; load one"
                    raise RequestError(message, code="name_taken", status=409, name=graph.name)
        yield found


def resolve_graph_calls(workflow: Workflow, graphs: Mapping[str, Graph]) -> Workflow:
    """Return a workflow that can run: with the graphs that others bring, and checked."""
    found = workflow.with_graphs(graphs.get)
    problems = [_missing_graph_problem(task, graphs) for task in unresolved_calls(found)]
    try:
        bind_known_graphs(found, {}).check()
    except DefinitionError as error:
        problems += error.problems
    if problems:
        raise DefinitionError(problems, f"workflow '{workflow.name}'")
    return found


def _missing_graph_problem(task: Task, graphs: Mapping[str, Graph]) -> Problem:
    hint = did_you_mean(str(task.graph), graphs)
    what = f"task '{task.name}' calls graph '{task.graph}', which is not loaded{hint}"
    message = f"{what}: name the file or the package that brings it, with --load PATH"
    return Problem(message=message, location=task.function.location, node=task.name)


def _import_graphs(path: Path, stack: ExitStack) -> Iterable[Graph]:
    """Import what a path brings, as a node would: its modules are its own, whatever else is called like them."""
    if not path.exists():
        raise RequestError(f"--load: there is no file {path}", code="no_file", status=404)
    if not path.is_dir() and path.suffix != ".py":
        message = f"--load: {path} is neither a Python file nor the folder of a package"
        raise RequestError(message, code="no_file", status=404)
    contents = read_folder(path) if path.is_dir() else read_python_file(path)
    folder = os.path.abspath(path if path.is_dir() else path.parent)
    namespace = Namespace(PackageTree(folder, folder, contents.manifest.top_level_names))
    stack.callback(namespace.close)
    examination = PackageInspector(namespace, contents.manifest, ProbeEnvironment.isolated(local_origin(str(path))))
    answer = examination.inspect()
    if answer.problems or examination.package is None:
        raise DefinitionError((_with_real_path(one, path) for one in answer.problems), str(path))
    return examination.package.graphs


def _with_real_path(problem: Problem, path: Path) -> Problem:
    """Return a problem with its file where an editor finds it."""
    place = problem.location
    folder = path if path.is_dir() else path.parent
    return replace(problem, location=place and Location(str(folder / place.file), place.line))
