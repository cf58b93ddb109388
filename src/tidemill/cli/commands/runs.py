"""`tidemill runs`: inspect and control the runs of a server, or of a store, with or without a running node."""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec.structs import replace

from tidemill.cli.completions import complete_run
from tidemill.cli.event_loop import run_async
from tidemill.cli.exit_codes import EXIT_INTERRUPTED, exit_on_error
from tidemill.cli.opening import open_workflows
from tidemill.cli.output import Format, Output, StreamFormat, StreamOutput, print_text, show, show_json, terminal_width
from tidemill.cli.stores import StoreOption, TenantOption
from tidemill.cli.workflow_service import WorkflowService
from tidemill.workflows.states import RunState, TaskState, active_states

if TYPE_CHECKING:
    from tidemill.cli.bulk_runs import ChangeRun
    from tidemill.cli.run_view import RunView
    from tidemill.engine.workflows.client.values import ClearResult
    from tidemill.workflows.records import RunRow
    from tidemill.workflows.result import RunResult

app = typer.Typer(help="Inspect and control runs.", no_args_is_help=True)

LIST_LIMIT = 1_000_000  # the largest --limit

RunArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="The id of a run, or an unambiguous beginning or end of it.",
        show_default=False,
        autocompletion=complete_run,
    ),
]
TaskArgument = Annotated[
    str,
    typer.Argument(metavar="TASK", help="The name of a task, or one element of it: clean[7].", show_default=False),
]
OptionalRunArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[RUN]",
        help="The id of a run, or an unambiguous beginning or end of it. Without it: --workflow, --state, or both.",
        show_default=False,
    ),
]
BulkWorkflowOption = Annotated[
    str | None, typer.Option("--workflow", metavar="NAME", help="All runs of this workflow.", show_default=False)
]
BulkStateOption = Annotated[
    RunState | None, typer.Option("--state", help="All runs in this state.", show_default=False)
]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask before many runs are changed.")]
PreviewOption = Annotated[bool, typer.Option("--preview", help="Only show which tasks would rerun.")]
LatestOption = Annotated[
    bool,
    typer.Option(
        "--latest", help="Continue with the newest version of the workflow; nothing of the run may be running."
    ),
]


def _with_run(
    store: str | None,
    run: str,
    tenant: str | None,
    work: Callable[[WorkflowService, str], Awaitable[Any]],
    *,
    read_only: bool,
) -> Any:
    """Open the workflows, resolve a run's id, call `work` with both, and return its result."""

    async def do() -> Any:
        async with open_workflows(store, tenant, read_only=read_only) as workflows:
            return await work(workflows, await workflows.resolve_run_id(run))

    with exit_on_error():
        return run_async(do())


@app.command("list")
def list_runs(
    store: StoreOption = None,
    workflow: Annotated[str | None, typer.Option(help="Only runs of this workflow.", show_default=False)] = None,
    state: Annotated[RunState | None, typer.Option(help="Only runs in this state.", show_default=False)] = None,
    limit: Annotated[
        int, typer.Option(min=1, max=LIST_LIMIT, help="The maximum number of runs; the newest are listed.")
    ] = 20,
    output: Output = Format.TABLE,
    tenant: TenantOption = None,
) -> None:
    """List runs, the newest first."""
    from tidemill.cli.run_view import plain_run, runs_table

    async def find() -> "list[RunRow]":
        async with open_workflows(store, tenant, read_only=True) as workflows:
            return (await workflows.find_runs(workflow, [state] if state else [], limit))[::-1]

    with exit_on_error():
        rows = run_async(find())
    if output is Format.JSON:
        show_json([plain_run(row) for row in rows])
    elif rows:
        show(runs_table(rows, terminal_width()))
    else:
        print_text("no runs")


@app.command("show")
def show_run(
    run: RunArgument,
    store: StoreOption = None,
    timeline: Annotated[bool, typer.Option("--timeline", help="Also show every attempt and every event.")] = False,
    output: Output = Format.TABLE,
    tenant: TenantOption = None,
) -> None:
    """Show a run: its tasks, errors and notes; as JSON, everything that is stored about it."""
    from tidemill.cli import run_view
    from tidemill.cli.run_summary import show_tracebacks, tasks_table

    async def read(workflows: WorkflowService, id: str) -> "RunView":
        return await workflows.read_view(id)

    view: RunView = _with_run(store, run, tenant, read, read_only=True)
    if output is Format.JSON:
        show_json(run_view.plain_view(view))
        return
    width = terminal_width()
    show(run_view.run_title(view, width), tasks_table(view.result, width))
    for sentence in run_view.failed_attempt_lines(view.attempts, width):
        print_text(sentence)
    for task, text in view.notes.items():
        print_text(f"note{'' if task is None else f' on {task}'}: {text}")
    show_tracebacks(view.result)
    if timeline:
        show("", run_view.attempts_table(view.attempts, width), "", run_view.timeline_table(view.events, width))


@app.command()
def why(
    run: RunArgument,
    task: TaskArgument,
    store: StoreOption = None,
    output: Output = Format.TABLE,
    tenant: TenantOption = None,
) -> None:
    """Explain why a task has not run yet, or how it ended: one sentence per reason."""

    async def work(workflows: WorkflowService, id: str) -> tuple[str, list[str]]:
        return id, await workflows.why(id, task)

    found, reasons = _with_run(store, run, tenant, work, read_only=True)
    _print_result(output, reasons, {"id": found, "task": task, "reasons": reasons})


def _print_result(output: Format, sentences: Iterable[str], plain: Mapping[str, Any]) -> None:
    """Print the result of a command: sentences for people, an object for programs."""
    if output is Format.JSON:
        show_json(plain)
        return
    for sentence in sentences:
        print_text(sentence)


@app.command()
def cancel(
    run: OptionalRunArgument = None,
    store: StoreOption = None,
    workflow: BulkWorkflowOption = None,
    state: BulkStateOption = None,
    preview: Annotated[bool, typer.Option("--preview", help="Only show which runs would be cancelled.")] = False,
    yes: YesOption = False,
    reason: Annotated[str, typer.Option(help="The reason; it is stored with the run.")] = "cancelled",
    output: Output = Format.TABLE,
    tenant: TenantOption = None,
) -> None:
    """Cancel a run, or many: waiting tasks never start, and running ones are stopped."""

    async def work(workflows: WorkflowService, id: str) -> str:
        await workflows.cancel(id, reason)
        return id

    if _is_single(run, workflow, state) and not preview:
        found = _with_run(store, str(run), tenant, work, read_only=False)
        _print_result(output, [f"run {found} is cancelled"], {"id": found, "state": "cancelled", "reason": reason})
    elif run is not None:
        raise typer.BadParameter("--preview shows what --workflow and --state select: leave out the run")
    elif state is not None and state.is_terminal:
        raise typer.BadParameter(f"runs in state '{state}' have ended: cancel those that are queued or running")
    else:
        states = [state] if state is not None else list(active_states())
        _change_in_bulk("cancel", work, workflow, states, store, tenant, output, preview=preview, yes=yes)


@app.command()
def retry(
    run: OptionalRunArgument = None,
    store: StoreOption = None,
    workflow: BulkWorkflowOption = None,
    state: BulkStateOption = None,
    from_: Annotated[
        list[str] | None,
        typer.Option(
            "--from", metavar="TASK", help="Rerun this task and all after it. Default: failed tasks. May be repeated."
        ),
    ] = None,
    preview: Annotated[
        bool, typer.Option("--preview", help="Only show which tasks, or which runs, would rerun.")
    ] = False,
    latest: LatestOption = False,
    yes: YesOption = False,
    output: Output = Format.TABLE,
    tenant: TenantOption = None,
) -> None:
    """Rerun the failed tasks of a run, or a task and everything after it; also of all runs of a workflow or in a state.

    Many runs are those that failed, unless --state says otherwise.
    """
    if _is_single(run, workflow, state):
        _clear_tasks(str(run), from_ or None, store, tenant, output, preview=preview, latest=latest)
        return

    async def work(workflows: WorkflowService, id: str) -> "ClearResult":
        return await workflows.clear(id, from_ or None, latest=latest)

    states = [state or RunState.FAILED]
    _change_in_bulk("retry", work, workflow, states, store, tenant, output, preview=preview, yes=yes)


def _is_single(run: str | None, workflow: str | None, state: RunState | None) -> bool:
    """Return whether a command is about one run, and not about a selection of them."""
    if (run is None) == (workflow is None and state is None):
        raise typer.BadParameter("name a run, or select runs with --workflow NAME, --state STATE, or both")
    return run is not None


def _change_in_bulk(
    verb: str,
    work: "ChangeRun",
    workflow: str | None,
    states: Sequence[RunState],
    store: str | None,
    tenant: str | None,
    output: Format,
    *,
    preview: bool,
    yes: bool,
) -> None:
    from tidemill.cli.bulk_runs import BulkChange, change_runs

    bulk = BulkChange(verb, work, workflow, states)
    change_runs(bulk, store, tenant, output, preview=preview, is_confirmed=yes)


@app.command()
def clear(
    run: RunArgument,
    tasks: Annotated[list[str], typer.Argument(metavar="TASK...", help="The names of tasks.", show_default=False)],
    store: StoreOption = None,
    preview: PreviewOption = False,
    latest: LatestOption = False,
    output: Output = Format.TABLE,
    tenant: TenantOption = None,
) -> None:
    """Clear the outcome of tasks and of everything after them, so that they run again."""
    _clear_tasks(run, tasks, store, tenant, output, preview=preview, latest=latest)


def _clear_tasks(
    run: str,
    tasks: list[str] | None,
    store: str | None,
    tenant: str | None,
    output: Format,
    *,
    preview: bool,
    latest: bool,
) -> None:
    async def work(workflows: WorkflowService, id: str) -> "tuple[str, ClearResult]":
        return id, await workflows.clear(id, tasks, preview=preview, latest=latest)

    plan: ClearResult
    found, plan = _with_run(store, run, tenant, work, read_only=preview)
    plain = {
        "id": found,
        "preview": preview,
        "tasks": plan.names,
        "elements": {name: {"cleared": some, "of": of} for name, (some, of) in plan.elements.items()},
        "version": plan.version,
        "left_out": plan.missing_tasks,
        "pinned": plan.note,
    }
    _print_result(output, _clear_sentences(plan, preview=preview, latest=latest), plain)


def _clear_sentences(plan: "ClearResult", *, preview: bool, latest: bool) -> Iterator[str]:
    elements = plan.elements
    names = [f"{name} ({'{} of {}'.format(*elements[name])})" if name in elements else name for name in plan.names]
    with_version = f", with version {plan.version}" if latest else ""
    yield f"{'would rerun' if preview else 'will rerun'}{with_version}: {', '.join(names) or 'nothing'}"
    if plan.missing_tasks:
        yield f"removed, because this version does not have them: {', '.join(plan.missing_tasks)}"
    if plan.note is not None:
        yield plan.note
    if not preview and not plan.live_nodes:
        yield "no node is running on this store: start one"


@app.command()
def note(
    run: RunArgument,
    text: Annotated[str, typer.Argument(metavar="TEXT", help='The text; "" removes the note.', show_default=False)],
    store: StoreOption = None,
    task: Annotated[str | None, typer.Option(help="Write the note on this task.", show_default=False)] = None,
    output: Output = Format.TABLE,
    tenant: TenantOption = None,
) -> None:
    """Write a note on a run, or on one of its tasks. Replaces an existing note."""

    async def work(workflows: WorkflowService, id: str) -> str:
        await workflows.note(id, text, task)
        return id

    found = _with_run(store, run, tenant, work, read_only=False)
    where = f"run {found}" if task is None else f"task '{task}' of run {found}"
    _print_result(output, [f"{where} has {'a' if text else 'no'} note"], {"id": found, "task": task, "text": text})


@app.command()
def logs(
    run: RunArgument,
    task: TaskArgument,
    store: StoreOption = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Keep printing until the task has ended.")] = False,
    output: StreamOutput = StreamFormat.TABLE,
    tenant: TenantOption = None,
) -> None:
    """Print the log of a task and, if it failed, the traceback."""
    from tidemill.cli.task_log import json_line, text_line
    from tidemill.workflows.lookup import split_element

    async def work(workflows: WorkflowService, id: str) -> None:
        async for line in workflows.logs(id, task, follow=follow):
            print_text(json_line(line) if output.is_for_programs else text_line(line))
        if not output.is_for_programs:
            name, element = split_element(task)
            _print_failure(await workflows.load_result(id), name, None if element is None else int(element))

    try:
        _with_run(store, run, tenant, work, read_only=not follow)
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None


def _print_failure(result: "RunResult", name: str, index: int | None) -> None:
    """Print why a task or one of its elements failed, with the traceback if there is one."""
    from tidemill.cli.run_summary import result_text, show_tracebacks

    task = result.tasks[name]
    if show_tracebacks(replace(result, tasks={name: task}), index):
        return
    shown = task if index is None else task.mapped[index]
    if shown.state is TaskState.FAILED:
        print_text(f"{name if index is None else f'{name}[{index}]'} failed: {result_text(shown)}")


@app.command()
def watch(
    run: RunArgument,
    store: StoreOption = None,
    output: StreamOutput = StreamFormat.TABLE,
    tenant: TenantOption = None,
) -> None:
    """Show a run live until it has ended. Exit code 1 if it did not succeed; Ctrl-C leaves the run alone."""
    from tidemill.cli.exit_codes import EXIT_FAILED
    from tidemill.cli.run_summary import run_outcome_text
    from tidemill.cli.watch_run import watch_run

    async def work(workflows: WorkflowService, id: str) -> "RunResult":
        return await watch_run(workflows, id, output)

    try:
        result: RunResult = _with_run(store, run, tenant, work, read_only=False)
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None
    if not output.is_for_programs:
        show(run_outcome_text(result))
    if not result.ok:
        raise typer.Exit(EXIT_FAILED)
