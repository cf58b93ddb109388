"""The `tidemill` command.

The module of a command is imported when the command is used, and only declares names, arguments and help. The bodies of
commands import what they use, so that `--help` and the completion of a shell answer at once.
"""

from typing import Annotated

import typer
from typer.completion import completion_init  # type: ignore[attr-defined]  # imported there, not exported

from tidemill.cli.event_loop import postpone_collection
from tidemill.cli.exit_codes import EXIT_ERROR, EXIT_INTERRUPTED
from tidemill.cli.lazy_commands import LazyCommand, lazy_group
from tidemill.cli.output import print_error, print_text, replace_unencodable
from tidemill.kernel.errors import TidemillError
from tidemill.kernel.version import VERSION

SECTIONS = {
    "Start here": {
        "demo": LazyCommand("Run live examples, to look at and to change.", "demo", "demo"),
        "dev": LazyCommand("Run the packages of a folder, and reload them on save.", "dev", "dev"),
        "run": LazyCommand("Run a workflow now; show its progress and its result.", "run", "run"),
        "package": LazyCommand("Create, check, build, sign, verify and publish packages.", "package_registry"),
    },
    "Workflows": {
        "runs": LazyCommand("Inspect and control runs.", "runs"),
        "wait": LazyCommand("List, show and answer what tasks ask."),
        "workflow": LazyCommand("List, show, check, pause and resume workflows.", "workflow"),
        "schedule": LazyCommand("List schedules, and preview their next slots."),
        "trigger": LazyCommand("List, pause and resume triggers."),
        "backfill": LazyCommand("Start, list and cancel backfills: runs for past slots.", "backfill"),
        "pool": LazyCommand("List, set and delete pools."),
    },
    "Graphs": {
        "graph": LazyCommand("Inspect the graphs of a file, or of a server.", "graph"),
        "reactor": LazyCommand("Inspect and command the reactors of a server.", "reactor"),
        "accumulator": LazyCommand("Inspect and feed accumulators.", "accumulator"),
        "dead-letter": LazyCommand("List, show, replay and drop what failed for good.", "dead_letter"),
    },
    "Servers": {
        "server": LazyCommand("Serve a store over HTTP and WebSocket.", "server", "server"),
        "worker": LazyCommand('Run tasks with executor="worker" for a store.', "worker", "worker"),
        "host": LazyCommand("Host partitions of keyed reactors for a store.", "host", "host"),
        "attempt": LazyCommand("Run one attempt in a pod or a Ray actor.", "attempt", "attempt"),
        "node": LazyCommand("List servers and workers."),
        "events": LazyCommand("Print what happens on a server, until Ctrl-C.", "events", "events"),
        "db": LazyCommand("Check, upgrade, back up and restore a store.", "db"),
        "doctor": LazyCommand("Check a store for problems, and say what to do.", "doctor", "doctor"),
        "export": LazyCommand("Write files for Docker, Compose, systemd, Helm and Grafana.", "export"),
    },
    "Administration": {
        "profile": LazyCommand("Add, use, list and remove servers.", "profile"),
        "tenant": LazyCommand("Create, list and delete tenants."),
        "key": LazyCommand("Create, list and revoke API keys."),
        "account": LazyCommand("Create, change, list and delete accounts."),
        "variable": LazyCommand("List, show, set and delete variables."),
        "secret": LazyCommand("List, set and delete secrets."),
        "audit": LazyCommand("List who has changed what, newest first."),
        "completion": LazyCommand("Print the completion script of a shell.", "completion", "completion"),
    },
}
"""Every command in the order of `tidemill --help`, with its line there."""

COMMANDS = {name: command for section in SECTIONS.values() for name, command in section.items()}
"""Every command by its name."""

RENAMED = {
    "backfill": "backfill start",
    "backfill-cancel": "backfill cancel",
    "dead-letters": "dead-letter",
    "accumulator dead-letters": "dead-letter",
}
"""Old spellings of commands, with the new ones. The rule: a noun in the singular, then a verb.

Two commands have no verb or another number: `run NAME` starts a workflow, and so `runs` is the noun of what it starts.
"""

app = typer.Typer(
    name="tidemill",
    cls=lazy_group(SECTIONS, RENAMED),
    no_args_is_help=True,
    add_completion=False,  # `tidemill completion` prints the script
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: importing Rich would take longer than everything else
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print_text(f"tidemill {VERSION}")
        raise typer.Exit


@app.callback()
def tidemill(
    _version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Computation graphs and durable workflows.

    To begin, run live examples with `tidemill demo`, or write a package with `tidemill package new hello`.

    The options may stand before or after a command: `tidemill runs list --server URL`.
    """


POSIX_MODULES = frozenset({"fcntl", "grp", "pty", "pwd", "resource", "termios", "tty"})
"""Modules of Python that only Unix has, and that commands need that start other processes."""
NEEDS_POSIX = (
    "this command needs Linux or macOS, because this system has no module '{module}': use WSL or a container; here, "
    "`tidemill run FILE` and programs with tm.Node work"
)


def main() -> None:
    """Run the command line; print errors of the user, operator or author without a traceback."""
    postpone_collection()
    replace_unencodable()
    completion_init()
    try:
        app(prog_name="tidemill")
    except KeyboardInterrupt:
        raise SystemExit(EXIT_INTERRUPTED) from None
    except TidemillError as error:
        print_error(str(error))
        raise SystemExit(1) from error
    except ModuleNotFoundError as error:
        if error.name not in POSIX_MODULES:
            raise
        print_error(NEEDS_POSIX.format(module=error.name))
        raise SystemExit(EXIT_ERROR) from error
