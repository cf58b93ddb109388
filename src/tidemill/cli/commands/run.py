"""`tidemill run`: run a workflow now."""

import json
import logging
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from tidemill.cli.arguments import ConcurrencyOption, ExecutorOption, LoadOption, WorkflowArgument
from tidemill.cli.event_loop import run_async
from tidemill.cli.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED, exit_on_error
from tidemill.cli.interrupts import Interrupts
from tidemill.cli.lazy_commands import find_command
from tidemill.cli.output import (
    Format,
    can_redraw,
    print_error,
    print_progress,
    progress_console,
    show,
    show_json,
    terminal_width,
)
from tidemill.cli.shared_options import SharedOptionsCommand
from tidemill.cli.stores import TenantOption
from tidemill.cli.targets import ServerTarget, find_server_of, given_options
from tidemill.kernel.errors import RequestError
from tidemill.kernel.limits import DEFAULT_CONCURRENCY

if TYPE_CHECKING:
    from tidemill.cli.progress import Progress
    from tidemill.graphs.graph import Graph
    from tidemill.workflows.result import RunResult
    from tidemill.workflows.workflow import Workflow


VariableOption = Annotated[
    list[str] | None,
    typer.Option(
        "--variable", metavar="NAME=VALUE", help="A variable for ctx.variable: JSON, or else a text. May be repeated."
    ),
]
SecretEnvOption = Annotated[
    list[str] | None,
    typer.Option(
        "--secret-env",
        metavar="NAME[=VARIABLE]",
        help="A secret for ctx.secret, from a variable of the environment, or the one of its name. May be repeated.",
    ),
]
PARAMS_KEY = "tidemill.params"
"""Where the context of the command keeps the title and the lines of the params that its help shows."""


class RunCommand(SharedOptionsCommand):
    """A command whose help also shows the params of the named workflow."""

    def prepare(self, ctx: Any, args: list[str]) -> None:
        """Read the params of the workflow if its help is requested."""
        if set(args).isdisjoint(ctx.help_option_names):
            return
        options, _, _ = self.make_parser(ctx).parse_args(args=list(args))
        place = options.get("place")
        if isinstance(place, str):
            given = given_options.get()
            with _exit_on_error(ctx, place):
                server = find_server_of(place, options.get("store") or given.store)
                tenant = options.get("tenant") or given.tenant
                lines = _local_params(place, ctx) if server is None else _served_params(server, tenant, place)
                ctx.meta[PARAMS_KEY] = lines

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options of the command, and then the params of the workflow."""
        super().format_options(ctx, formatter)
        workflow, lines = ctx.meta.get(PARAMS_KEY, ("", ()))
        if lines:
            with formatter.section(f"Params of {workflow}"):
                formatter.write_dl(lines)


def _local_params(place: str, ctx: Any) -> tuple[str, list[tuple[str, str]]]:
    """Return the name of a workflow of a file or a module, and the lines of the help about its params."""
    from tidemill.cli.definitions import importable_from, load_workflow
    from tidemill.cli.params import help_options

    with importable_from(place):
        workflow = load_workflow(place)
    return workflow.name, [line for one in help_options(workflow) if (line := one.get_help_record(ctx)) is not None]


def _served_params(server: ServerTarget, tenant: str | None, name: str) -> tuple[str, list[tuple[str, str]]]:
    """Return the name of a workflow of a server, and the lines of the help about its params."""
    from tidemill.cli.run_on_server import ServerRun, describe_params

    return name, describe_params(run_async(ServerRun(server, tenant).read_schema(name)))


COMMAND_SETTINGS = {
    "cls": RunCommand,
    "context_settings": {"ignore_unknown_options": True, "allow_extra_args": True},
}
"""What the command needs besides its function: it takes the params of any workflow as options."""


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a run."""

    store: str | None
    tenant: str | None
    executor: str
    concurrency: int
    load: Sequence[str]
    variables: Mapping[str, Any]
    secrets: Mapping[str, str]
    output: Format
    quiet: bool


def run(
    context: typer.Context,
    place: WorkflowArgument,
    store: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Store the run here. Default: in memory only.", show_default=False),
    ] = None,
    executor: ExecutorOption = "in_process",
    concurrency: ConcurrencyOption = None,
    output: Annotated[Format, typer.Option("-o", "--output", help="The output format of the result.")] = Format.TABLE,
    load: LoadOption = None,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Show no progress and no tracebacks.")] = False,
    tenant: TenantOption = None,
    param: Annotated[
        list[str] | None,
        typer.Option("-p", "--param", metavar="NAME=VALUE", help="A param of the workflow. May be repeated."),
    ] = None,
    variable: VariableOption = None,
    secret_env: SecretEnvOption = None,
) -> None:
    """Run a workflow now; show its progress and its result.

    The workflow is in a file or a module, and runs in this process. If the command works with a server, because of an
    option, the environment or the profile in use, name a workflow of the server, and it runs there.

    Its params are options: --day 2026-01-01; `tidemill run NAME --help` lists them. Ctrl-C cancels the run, and a
    second Ctrl-C stops at once. Exit code 0 if the run succeeded, 1 if it failed, 2 if it could not be started.
    """
    options = RunOptions(
        store=store,
        tenant=tenant,
        executor=executor,
        concurrency=concurrency or DEFAULT_CONCURRENCY,
        load=load or (),
        variables=_parse_variables(variable or ()),
        secrets=_read_secrets(secret_env or ()),
        output=output,
        quiet=quiet,
    )
    with _exit_on_error(context, place):
        server = find_server_of(place, store)
        if server is not None:
            _run_on_server(server, place, context.args, param or (), options)
        else:
            _run_here(place, context.args, param or (), options)


@contextmanager
def _exit_on_error(context: typer.Context, place: str) -> Iterator[None]:
    """End with a one-line error; if nothing has the name, it says what else could be meant."""
    with exit_on_error():
        try:
            yield
        except RequestError as error:
            if error.code not in ("no_file", "workflow_not_found"):
                raise
            hint, is_name = "", place.isidentifier() and not Path(place).exists()
            if is_name and find_command(context.find_root().command, f"runs {place}") is not None:
                hint = f"; did you mean `tidemill runs {place}`?"
            elif is_name and error.code == "no_file":
                hint = "; for a workflow of a server, name the server with --server or --profile"
            raise RequestError(f"{error}{hint}", code=error.code, status=error.status) from error


def _run_here(place: str, words: Sequence[str], pairs: Sequence[str], options: RunOptions) -> None:
    """Run a workflow of a file or a module in this process; Ctrl-C cancels the run."""
    from tidemill.cli.graph_imports import importing_graphs
    from tidemill.cli.params import read_cli_params
    from tidemill.cli.run_locally import run_locally

    with importing_graphs(place, options.load) as graphs:
        workflow = _load_runnable_workflow(place, graphs, options.executor)
        params = read_cli_params(workflow, words, pairs, options.store, options.tenant)
        progress = _make_progress(options, workflow)
        interrupts = Interrupts(on_second=lambda: _restore_terminal(progress))
        with _isolating_task_output(options), interrupts.handling_signals(), progress:
            result = run_async(run_locally(workflow, params, progress, interrupts, **_node_options(options)))
    _print_result(result, options)
    if interrupts.exit_code is not None:
        raise typer.Exit(interrupts.exit_code)
    if not result.ok:
        raise typer.Exit(EXIT_FAILED)


def _node_options(options: RunOptions) -> dict[str, Any]:
    """Return the options of the node that runs the workflow."""
    names = ("store", "executor", "concurrency", "variables", "secrets")
    return {name: getattr(options, name) for name in names}


def _run_on_server(
    server: ServerTarget, workflow: str, words: Sequence[str], pairs: Sequence[str], options: RunOptions
) -> None:
    """Run a workflow of a server; Ctrl-C cancels the run."""
    from tidemill.cli.run_on_server import ServerRun

    if options.variables or options.secrets:
        message = "--variable and --secret-env are for a workflow of a file: a server has its own variables and secrets"
        raise RequestError(f"{message}, see `tidemill variable` and `tidemill secret`", code="not_runnable")
    run = ServerRun(server, options.tenant)
    quiet = options.quiet or options.output is Format.JSON
    try:
        result = run_async(run.execute(workflow, words, pairs, quiet=quiet))
    except KeyboardInterrupt:
        run_async(run.cancel())
        raise typer.Exit(EXIT_INTERRUPTED) from None
    _print_result(result, options)
    if not result.ok:
        raise typer.Exit(EXIT_FAILED)


def _restore_terminal(progress: "Progress") -> None:
    """Restore the terminal before the process ends."""
    progress.__exit__(None, None, None)
    print_error("stopped without waiting for running tasks")


def _load_runnable_workflow(place: str, graphs: "Mapping[str, Graph]", executor: str) -> "Workflow":
    from tidemill.cli.definitions import load_workflow
    from tidemill.cli.graph_imports import resolve_graph_calls, unresolved_calls

    if place.startswith("-"):
        raise typer.BadParameter(f"name the file first, then its params: tidemill run FILE {place} ...")
    declared = load_workflow(place)
    workflow = resolve_graph_calls(declared, graphs)
    if unresolved_calls(declared) and "subprocess" in {executor, *(task.executor for task in workflow.tasks)}:
        message = f"workflow '{workflow.name}' calls graphs of other files, which the executor 'subprocess' cannot do"
        raise RequestError(f"{message}: run it in_process", code="not_runnable")
    return workflow


def _make_progress(options: RunOptions, workflow: "Workflow") -> "Progress":
    from tidemill.cli.progress import PlainProgress, SilentProgress
    from tidemill.kernel.clock import SystemClock

    if options.quiet:
        return SilentProgress()
    if not can_redraw(sys.stderr):
        return PlainProgress(print_progress, SystemClock())
    from tidemill.cli.live_progress import LiveProgress

    spec, redirects_stdout = workflow.wired().spec, sys.stdout.isatty()
    return LiveProgress(spec, progress_console(), SystemClock(), redirects_stdout=redirects_stdout)


@contextmanager
def _isolating_task_output(options: RunOptions) -> Iterator[None]:
    """Show logs of tasks only in the progress, and keep what tasks print out of the JSON.

    Logs of the engine appear only if logging is configured; the summary has what matters of them.
    """
    engine, tasks = logging.getLogger("tidemill"), logging.getLogger("tidemill.task")
    silent = logging.NullHandler()
    engine.addHandler(silent)
    propagated, tasks.propagate = tasks.propagate, False
    tasks.addHandler(silent)
    try:
        with redirect_stdout(sys.stderr) if options.output is Format.JSON else nullcontext():
            yield
    finally:
        tasks.removeHandler(silent)
        tasks.propagate = propagated
        engine.removeHandler(silent)


def _print_result(result: "RunResult", options: RunOptions) -> None:
    from tidemill.cli.run_summary import plain_result, run_outcome_text, show_tracebacks, tasks_table

    if options.output is Format.JSON:
        show_json(plain_result(result))
        return
    show(tasks_table(result, terminal_width()))
    has_traces = not options.quiet and show_tracebacks(result)
    show(*[""] * has_traces, run_outcome_text(result))


def _parse_variables(pairs: Iterable[str]) -> dict[str, Any]:
    """Return variables by name."""
    variables: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise typer.BadParameter(f"--variable takes NAME=VALUE, such as region=eu, not {pair}")
        try:
            variables[name] = json.loads(text)
        except ValueError:
            variables[name] = text
    return variables


def _read_secrets(names: Iterable[str]) -> dict[str, str]:
    """Return secrets by name, from the environment: no option takes a secret, which other users of a machine see."""
    secrets: dict[str, str] = {}
    for one in names:
        name, _, variable = one.partition("=")
        variable = variable or name
        if not os.environ.get(variable):
            raise typer.BadParameter(f"--secret-env {one}: the environment has no variable {variable}, or it is empty")
        secrets[name] = os.environ[variable]
    return secrets
