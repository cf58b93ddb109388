"""`tidemill workflow`: the workflows of a server or a store, and checks of those in a file."""

from typing import Annotated

import msgspec
import typer

from tidemill.cli.completions import complete_workflow
from tidemill.cli.event_loop import run_async
from tidemill.cli.exit_codes import exit_on_error, exit_on_problems, print_check
from tidemill.cli.file_arguments import FileArgument
from tidemill.cli.formatting import format_count, format_time, time_column_title
from tidemill.cli.opening import open_workflows
from tidemill.cli.output import Format, Output, print_text, show_json, show_rows
from tidemill.cli.stores import StoreOption, TenantOption
from tidemill.cli.workflow_service import WorkflowLine

app = typer.Typer(help="List, check, pause and resume workflows.", no_args_is_help=True)

NameArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="The name of a workflow.", show_default=False, autocompletion=complete_workflow
    ),
]


@app.command("list")
def list_workflows(store: StoreOption = None, output: Output = Format.TABLE, tenant: TenantOption = None) -> None:
    """List the workflows: number of versions, paused or not, active runs, last run."""

    async def read() -> list[WorkflowLine]:
        async with open_workflows(store, tenant, read_only=True) as workflows:
            return await workflows.list_workflows()

    with exit_on_error():
        found = run_async(read())
    if output is Format.JSON:
        show_json(msgspec.to_builtins(found))
    elif found:
        last = time_column_title("last run", (one.last_run for one in found))
        rows = [
            [
                one.workflow,
                one.versions or "",
                "paused" * one.paused,
                one.active,
                format_time(one.last_run),
                one.state or "",
            ]
            for one in found
        ]
        show_rows(
            ["workflow", "versions", "paused", "active", last, "state"], rows, output, droppable=["versions", last]
        )
    else:
        print_text("no workflows")


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
        workflows = [bind_package_graphs(one, package) for one in package.workflows]
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


@app.command()
def pause(
    name: NameArgument, store: StoreOption = None, output: Output = Format.TABLE, tenant: TenantOption = None
) -> None:
    """Pause a workflow: no run and no task of it starts; running tasks continue."""
    _set_paused(name, store, tenant, output, paused=True)


@app.command()
def resume(
    name: NameArgument, store: StoreOption = None, output: Output = Format.TABLE, tenant: TenantOption = None
) -> None:
    """Resume a paused workflow. Slots that passed in the meantime get no run; `tidemill backfill` starts them."""
    _set_paused(name, store, tenant, output, paused=False)


def _set_paused(name: str, store: str | None, tenant: str | None, output: Format, *, paused: bool) -> None:
    async def work() -> None:
        async with open_workflows(store, tenant) as workflows:
            await workflows.set_paused(name, paused=paused)

    with exit_on_error():
        run_async(work())
    if output is Format.JSON:
        show_json({"workflow": name, "paused": paused})
    else:
        print_text(f"workflow '{name}' {'is paused' if paused else 'is resumed'}")
