"""The `tidemill` command.

Every module that is imported here only declares commands: names, arguments, help. The bodies of the commands import
what they use, so that `--help` and the completion of a shell answer at once.
"""

import inspect
from typing import Annotated

import typer
from typer.completion import completion_init  # type: ignore[attr-defined]  # imported there, not exported

from tidemill import __version__
from tidemill.cli.commands import (
    account,
    accumulator,
    audit,
    backfill,
    completion,
    db,
    dead_letters,
    dev,
    doctor,
    events,
    graph,
    key,
    node,
    package,
    package_registry,
    pool,
    profile,
    reactor,
    run,
    runs,
    schedule,
    secret,
    server,
    tenant,
    trigger,
    variable,
    worker,
    workflow,
)
from tidemill.cli.exit_codes import EXIT_INTERRUPTED
from tidemill.cli.output import print_error, print_text, replace_unencodable
from tidemill.cli.targets import ProfileOption, ServerOption, ServerOptions, server_options
from tidemill.kernel.errors import TidemillError

app = typer.Typer(
    name="tidemill",
    help="Computation graphs and durable workflows.",
    no_args_is_help=True,
    add_completion=False,  # `tidemill completion` prints the script
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: importing Rich would take longer than everything else
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(dev.dev)
app.command()(server.server)
app.command()(worker.worker)
app.add_typer(graph.app, name="graph")
app.add_typer(workflow.app, name="workflow")
app.add_typer(runs.app, name="runs")
app.add_typer(package.app, name="package")
package.app.add_typer(package_registry.app)
app.add_typer(dead_letters.app, name="dead-letters")
app.add_typer(db.app, name="db")
app.command()(doctor.doctor)
app.command(cls=run.RunCommand, context_settings={"ignore_unknown_options": True, "allow_extra_args": True})(run.run)
app.command()(backfill.backfill)
app.command("backfill-cancel")(backfill.backfill_cancel)
app.add_typer(reactor.app, name="reactor")
app.add_typer(accumulator.app, name="accumulator")
app.add_typer(schedule.app, name="schedule")
app.add_typer(trigger.app, name="trigger")
app.add_typer(pool.app, name="pool")
app.add_typer(node.app, name="node")
app.command()(events.events)
app.add_typer(tenant.app, name="tenant")
app.add_typer(key.app, name="key")
app.add_typer(account.app, name="account")
app.add_typer(variable.app, name="variable")
app.add_typer(secret.app, name="secret")
app.command()(audit.audit)
app.add_typer(profile.app, name="profile")
app.command()(completion.completion)


def _unwrap_help(group: typer.Typer) -> None:
    """Rewrap the help texts: paragraphs break where the terminal does, not where their source does."""
    for command in group.registered_commands:
        paragraphs = (inspect.getdoc(command.callback) or "").split("\n\n")
        command.help = "\n\n".join(" ".join(one.split()) for one in paragraphs)
        command.short_help = command.help.partition("\n\n")[0]  # in full: a list of commands cuts nothing off
    for inner in group.registered_groups:
        if inner.typer_instance is not None:
            _unwrap_help(inner.typer_instance)


_unwrap_help(app)


def _show_version(wanted: bool) -> None:
    if wanted:
        print_text(f"tidemill {__version__}")
        raise typer.Exit


@app.callback()
def tidemill(
    server: ServerOption = None,
    profile: ProfileOption = None,
    _version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Computation graphs and durable workflows."""
    server_options.set(ServerOptions(server, profile))


def main() -> None:
    """Run the command line; print errors of the user, operator or author without a traceback."""
    replace_unencodable()
    completion_init()
    try:
        app(prog_name="tidemill")
    except KeyboardInterrupt:
        raise SystemExit(EXIT_INTERRUPTED) from None
    except TidemillError as error:
        print_error(str(error))
        raise SystemExit(1) from error
