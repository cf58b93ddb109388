"""`tidemill workflow`: the workflows of a server or a store, and checks of those in a file."""

import typer

from tidemill.cli.arguments import FileArgument
from tidemill.cli.exit_codes import exit_on_error, exit_on_problems, print_check
from tidemill.cli.formatting import format_count
from tidemill.cli.output import Format, Output

app = typer.Typer(help="List, show, check, pause and resume workflows.", no_args_is_help=True)


@app.command()
def check(file: FileArgument, output: Output = Format.TABLE) -> None:
    """Wire every workflow of a file, try its schedules, and show all problems.

    Lists graphs that are called by name and are not in the file: another package has to declare them.
    """
    from tidemill.cli.definitions import bind_package_graphs, check_definitions, importable_from, load_definitions
    from tidemill.cli.graph_imports import unresolved_calls
    from tidemill.packages.loading.inspector import bind_known_graphs
    from tidemill.workflows.workflow import Workflow

    with importable_from(file), exit_on_error(), exit_on_problems(output):
        package = load_definitions(file, Workflow)
        workflows = [bind_package_graphs(one, package) for one in package.workflows if one.handled is None]
        graphs = {one.name: one for one in package.graphs}
        reactors = {one.name: one for one in package.reactors}
        check_definitions([bind_known_graphs(one, graphs, reactors) for one in workflows])
    calls = [(workflow.name, task.name, task.graph) for workflow in workflows for task in unresolved_calls(workflow)]
    names, triggers = [one.name for one in workflows], [one.name for one in package.triggers]
    print_check(
        output,
        f"{format_count(len(names), 'workflow')} and {format_count(len(triggers), 'trigger')}: no problems found",
        *(
            f"'{workflow}.{task}' calls graph '{graph}', which is not in the file: the node must have it loaded"
            for workflow, task, graph in calls
        ),
        workflows=names,
        triggers=triggers,
        calls_elsewhere=[dict(zip(("workflow", "task", "graph"), one, strict=True)) for one in calls],
    )
