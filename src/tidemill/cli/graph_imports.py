"""Imports the graphs that a workflow calls by name from other files and packages."""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tidemill.cli.definitions import importable_from, with_real_path
from tidemill.graphs.graph import Graph
from tidemill.kernel.errors import DefinitionError, Problem, RequestError
from tidemill.kernel.namespaces import Namespace, PackageTree
from tidemill.kernel.suggestions import did_you_mean
from tidemill.packages.format.archive import read_folder, read_python_file
from tidemill.packages.loading.inspector import PackageInspector, bind_known_graphs
from tidemill.packages.loading.probe_environment import ProbeEnvironment, local_origin
from tidemill.workflows.definition import Task
from tidemill.workflows.workflow import Workflow


def unresolved_calls(workflow: Workflow) -> list[Task]:
    """Return the tasks that call a graph by name, and whose graph is not resolved."""
    return [task for task in workflow.tasks if isinstance(task.graph, str)]


@contextmanager
def importing_graphs(target: str, paths: Iterable[str]) -> Iterator[dict[str, Graph]]:
    """Import files and package folders, and yield their graphs by name; other definitions are ignored.

    Within the context, their code and that of the target can import modules from their own folders.
    """
    graphs: dict[str, Graph] = {}
    with ExitStack() as stack:
        for file in [*(path for path in paths if path.endswith(".py")), target]:
            stack.enter_context(importable_from(file))
        for path in paths:
            for graph in _import_graphs(Path(path), stack):
                other = graphs.setdefault(graph.name, graph)
                if other is not graph:
                    message = f"two graphs are named '{graph.name}', at {other.location} and {graph.location}; load one"
                    raise RequestError(message, code="name_taken", status=409, name=graph.name)
        yield graphs


def resolve_graph_calls(workflow: Workflow, graphs: Mapping[str, Graph]) -> Workflow:
    """Return a workflow with its calls resolved and checked; raise DefinitionError if a graph is missing."""
    resolved = workflow.with_graphs(graphs.get)
    problems = [_missing_graph_problem(task, graphs) for task in unresolved_calls(resolved)]
    try:
        bind_known_graphs(resolved, {}).check()
    except DefinitionError as error:
        problems += error.problems
    if problems:
        raise DefinitionError(problems, f"workflow '{workflow.name}'")
    return resolved


def _missing_graph_problem(task: Task, graphs: Mapping[str, Graph]) -> Problem:
    hint = did_you_mean(str(task.graph), graphs)
    call = f"task '{task.name}' calls graph '{task.graph}', which is not loaded{hint}"
    message = f"{call}: name the file or package that declares it, with --load PATH"
    return Problem(message=message, location=task.function.location, node=task.name)


def _import_graphs(path: Path, stack: ExitStack) -> Iterable[Graph]:
    """Import a file or package as a node does: its modules are separate from others of the same name."""
    if not path.exists():
        raise RequestError(f"--load: there is no file {path}", code="no_file", status=404)
    if not path.is_dir() and path.suffix != ".py":
        message = f"--load: {path} is neither a Python file nor the folder of a package"
        raise RequestError(message, code="no_file", status=404)
    contents = read_folder(path) if path.is_dir() else read_python_file(path)
    folder = os.path.abspath(path if path.is_dir() else path.parent)
    namespace = Namespace(PackageTree(folder, folder, contents.manifest.top_level_names))
    stack.callback(namespace.close)
    inspector = PackageInspector(namespace, contents.manifest, ProbeEnvironment.isolated(local_origin(str(path))))
    reply = inspector.inspect()
    if reply.problems or inspector.package is None:
        root = path if path.is_dir() else path.parent
        raise DefinitionError((with_real_path(one, root) for one in reply.problems), str(path))
    return inspector.package.graphs
