"""`tidemill runs`: inspect and control the runs of a server, or of a store, with or without a running node."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from msgspec.structs import replace

from tidemill.cli.completions import complete_run
from tidemill.cli.event_loop import run_async
from tidemill.cli.exit_codes import EXIT_INTERRUPTED, exit_on_error
from tidemill.cli.opening import open_api, open_run
from tidemill.cli.output import (
    Format,
    Output,
    StreamFormat,
    StreamOutput,
    print_json_line,
    print_text,
    show,
    show_json,
    terminal_width,
)
from tidemill.cli.stores import StoreOption, TenantOption
from tidemill.workflows.states import RunState, TaskState, active_states

if TYPE_CHECKING:
    from tidemill.api.handles import AsyncRun
    from tidemill.api.reruns import Rerun
    from tidemill.cli.bulk_runs import ChangeRun
    from tidemill.workflows.result import RunResult

app = typer.Typer(help="Inspect and control runs.", no_args_is_help=True)

Result = TypeVar("Result")
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
        help="The id of a run, or an unambiguous beginning or end of it. Without it: options that select runs.",
        show_default=False,
    ),
]
BulkWorkflowOption = Annotated[
    str | None, typer.Option("--workflow", metavar="NAME", help="All runs of this workflow.", show_default=False)
]
BulkStateOption = Annotated[
    RunState | None, typer.Option("--state", help="All runs in this state.", show_default=False)
]
TextOption = Annotated[
    str, typer.Option(help="Only runs with this in the id, the workflow, the note or a param.", show_default=False)
]
TagOption = Annotated[str, typer.Option(help="Only runs of workflows with this tag.", show_default=False)]
CauseOption = Annotated[
    str,
    typer.Option(
        help="Only runs that this started: manual, schedule, trigger, firing, backfill, task, handler, or the name of "
        "a trigger, a reactor, or the workflow of a task.",
        show_default=False,
    ),
]
KeyOption = Annotated[
    str,
    typer.Option(
        help="Only runs with this key: of a schedule, of a backfill, or from `dedup` of tm.on_output.",
        show_default=False,
    ),
]


def _parse_moment(text: str) -> datetime:
    """Return a moment: a date or a time of this zone, or a duration before now."""
    from tidemill.kernel.clock import SystemClock
    from tidemill.kernel.durations import parse_duration

    with suppress(ValueError, OverflowError):
        return datetime.fromisoformat(text).astimezone()
    try:
        return SystemClock().now().astimezone() - timedelta(seconds=parse_duration(text))
    except ValueError:
        message = f"'{text}' is not a moment: write 2026-11-19, '2026-11-19 06:00', or 2h for two hours ago"
        raise typer.BadParameter(message) from None


SinceOption = Annotated[
    datetime | None,
    typer.Option(
        help="Only runs created then or later: a date, a time of this zone, or 2h for two hours ago.",
        metavar="TIME",
        parser=_parse_moment,
        show_default=False,
    ),
]
UntilOption = Annotated[
    datetime | None,
    typer.Option(help="Only runs created then or earlier.", metavar="TIME", parser=_parse_moment, show_default=False),
]
UnresolvedOption = Annotated[
    bool,
    typer.Option(
        "--unresolved", help="Only failed runs that need a person: not retried, cleared, dismissed or made good since."
    ),
]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask before many runs are changed.")]
PreviewOption = Annotated[bool, typer.Option("--preview", help="Only show which tasks would rerun.")]
LatestOption = Annotated[
    bool,
    typer.Option(
        "--latest", help="Continue with the newest version of the workflow; no task of the run may be running."
    ),
]


def _with_run(
    store: str | None,
    part: str,
    tenant: str | None,
    work: "Callable[[AsyncRun], Awaitable[Result]]",
    *,
    read_only: bool,
) -> Result:
    """Open a run by a part of its id, call `work` with it, and return its result."""

    async def do() -> Result:
        async with open_run(store, tenant, part, read_only=read_only) as run:
            return await work(run)

    with exit_on_error():
        return run_async(do())


@app.command("list")
def list_runs(
    store: StoreOption = None,
    workflow: Annotated[str | None, typer.Option(help="Only runs of this workflow.", show_default=False)] = None,
    state: Annotated[RunState | None, typer.Option(help="Only runs in this state.", show_default=False)] = None,
    text: TextOption = "",
    tag: TagOption = "",
    cause: CauseOption = "",
    key: KeyOption = "",
    since: SinceOption = None,
    until: UntilOption = None,
    unresolved: UnresolvedOption = False,
    limit: Annotated[
        int, typer.Option(min=1, max=LIST_LIMIT, help="The maximum number of runs; the newest are listed.")
    ] = 50,
    output: Output = Format.TABLE,
    tenant: TenantOption = None,
) -> None:
    """List runs, the newest first."""
    import msgspec

    from tidemill.api import runs
    from tidemill.cli.run_view import runs_table

    fields = {
        **{"workflow": workflow, "state": state, "text": text, "tag": tag, "cause": cause, "key": key},
        **{"since": since, "until": until, "unresolved": unresolved},
    }

    async def find() -> list[runs.RunInfo]:
        async with open_api(store, tenant, read_only=True, may_be_loaded=True) as api:
            return await api.collect(runs.list_runs, fields, limit)

    with exit_on_error():
        found = run_async(find())
    if output is Format.JSON:
        show_json(msgspec.to_builtins(found))
    elif found:
        show(runs_table(found, terminal_width()))
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

    view = _with_run(store, run, tenant, run_view.read_run_view, read_only=True)
    if output is Format.JSON:
        show_json(run_view.plain_view(view))
        return
    width = terminal_width()
    show(run_view.run_title(view, width), tasks_table(view.result, width))
    for sentence in run_view.failed_attempt_lines(view.attempts, width):
        print_text(sentence)
    for sentence in run_view.handler_lines(view.handlers):
        print_text(sentence)
    if view.info.note is not None:
        print_text(f"note: {view.info.note}")
    for task, text in view.info.notes.items():
        print_text(f"note on {task}: {text}")
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

    async def work(run: "AsyncRun") -> tuple[str, list[str]]:
        return run.id, await run.why(task)

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

    async def work(run: "AsyncRun") -> str:
        return (await run.cancel(reason)).id

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
    """Rerun the failed tasks of a run, or a task and everything after it.

    Without a run, --workflow takes the failed runs of a workflow, and --state the runs in a state.
    """
    if _is_single(run, workflow, state):

        async def retry_one(run: "AsyncRun") -> "Rerun":
            return await run.retry(from_ or None, preview=preview, latest=latest)

        _rerun(str(run), retry_one, store, tenant, output, preview=preview, latest=latest)
        return

    async def work(run: "AsyncRun") -> "Rerun":
        return await run.retry(from_ or None, latest=latest)

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
def dismiss(
    run: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="The id of a run, or a part of it.", show_default=False)
    ] = None,
    store: StoreOption = None,
    workflow: BulkWorkflowOption = None,
    cause: CauseOption = "",
    key: KeyOption = "",
    everything: Annotated[bool, typer.Option("--all", help="All unresolved failed runs that match.")] = False,
    output: Output = Format.TABLE,
    tenant: TenantOption = None,
) -> None:
    """Dismiss the failure of a run, or of all that match: it no longer needs a person, until it fails once more."""
    from tidemill.cli.bulk_runs import dismiss_matching

    filters = {"workflow": workflow, "cause": cause, "key": key}
    if (run is None) == (not any(filters.values()) and not everything):
        raise typer.BadParameter("name a run, or give --workflow, --cause, --key or --all")

    async def work(run: "AsyncRun") -> str:
        return (await run.dismiss()).id

    if run is None:
        dismiss_matching(filters, store, tenant, output)
    else:
        found = _with_run(store, run, tenant, work, read_only=False)
        _print_result(output, [f"the failure of run {found} is dismissed"], {"id": found})


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

    async def work(run: "AsyncRun") -> "Rerun":
        return await run.clear(tasks, preview=preview, latest=latest)

    _rerun(run, work, store, tenant, output, preview=preview, latest=latest)


def _rerun(
    run: str,
    work: "Callable[[AsyncRun], Awaitable[Rerun]]",
    store: str | None,
    tenant: str | None,
    output: Format,
    *,
    preview: bool,
    latest: bool,
) -> None:
    import msgspec

    from tidemill.cli.run_view import rerun_sentences

    plan = _with_run(store, run, tenant, work, read_only=preview)
    _print_result(output, rerun_sentences(plan, latest=latest), msgspec.to_builtins(plan))


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

    async def work(run: "AsyncRun") -> str:
        return (await run.note(text, task)).id

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
    import msgspec

    from tidemill.cli.formatting import format_log_line
    from tidemill.workflows.lookup import split_element

    async def work(run: "AsyncRun") -> None:
        numbers: dict[tuple[int | None, int], int] = {}
        async for line in run.logs(task, follow=follow):
            if (key := (line.index, line.attempt)) not in numbers:
                numbers = {(one.index, one.attempt): one.try_number for one in await run.attempts(task)}
            number = numbers.get(key, line.attempt)
            if output.is_for_programs:
                print_json_line({**msgspec.to_builtins(line), "try": number})
            else:
                print_text(format_log_line(line, number))
        if not output.is_for_programs:
            name, element = split_element(task)
            _print_failure(await run.state(), name, None if element is None else int(element))

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
    from tidemill.cli.live_progress import watch_run
    from tidemill.cli.run_summary import run_outcome_text

    async def work(run: "AsyncRun") -> "RunResult":
        return await watch_run(run, output)

    try:
        result = _with_run(store, run, tenant, work, read_only=False)
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None
    if not output.is_for_programs:
        show(run_outcome_text(result))
    if not result.ok:
        raise typer.Exit(EXIT_FAILED)
