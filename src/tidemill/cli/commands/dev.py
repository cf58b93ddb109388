"""`tidemill dev`: run the packages of a folder, and reload them when they are saved."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tidemill.cli.arguments import ConcurrencyOption, ExecutorOption, NodePortOption, PoolOption, parse_pools
from tidemill.cli.exit_codes import EXIT_INTERRUPTED, exit_on_error
from tidemill.cli.stores import STORE_FOLDER, default_store_address
from tidemill.kernel.errors import RequestError
from tidemill.kernel.limits import DEFAULT_CONCURRENCY
from tidemill.kernel.settings import Settings


class UnfinishedChoice(StrEnum):
    """The policies for unfinished runs whose code has changed."""

    PIN = "pin"
    UPGRADE = "upgrade"
    CANCEL = "cancel"


def dev(
    path: Annotated[Path, typer.Argument(help="A folder of packages and Python files, or a single one.")] = Path("."),
    store: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS", help=f"The store. Default: {STORE_FOLDER}/dev.db in the folder.", show_default=False
        ),
    ] = None,
    executor: ExecutorOption = "in_process",
    concurrency: ConcurrencyOption = None,
    pool: PoolOption = None,
    unfinished: Annotated[
        UnfinishedChoice,
        typer.Option(
            help="What to do with unfinished runs when their code changes; a workflow can set its own policy."
        ),
    ] = UnfinishedChoice.UPGRADE,
    port: NodePortOption = None,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the node in a browser.")] = False,
) -> None:
    """Run the packages of a folder, and reload them whenever a file is saved.

    The first line is the link to the node; it is open to this machine only, and needs no key.
    If a package cannot be loaded, its problems are shown with file and line, and the last good version keeps running.
    Ctrl-C stops the node; active runs continue at the next start, with the changed code if it still has all tasks that
    have ended.
    """
    from tidemill.cli.dev_session import run_folder
    from tidemill.node import Node

    with exit_on_error():
        root, pools = _resolve_root(path), parse_pools(pool)
        given = {"packages": None, "unfinished": str(unfinished)}  # only this folder
        settings = Settings.read(given, file={"blocked_loop_warning": "200ms"})
        address = store or default_store_address(root)
        node = Node(
            address, settings=settings, executor=executor, concurrency=concurrency or DEFAULT_CONCURRENCY, pools=pools
        )
        code = run_folder(node, root, address, port, open_browser=open_browser)
    # To stop it with Ctrl-C is how this command ends: nothing was interrupted that does not continue.
    raise typer.Exit(0 if code in (None, EXIT_INTERRUPTED) else code)


def _resolve_root(path: Path) -> Path:
    from tidemill.packages.format.archive import ARCHIVE_SUFFIX

    root = path.absolute()
    if not root.exists():
        message = f"there is no folder {path}: create it, or write a package with `tidemill package new NAME`"
        raise RequestError(message, code="no_file", status=404)
    if not root.is_dir() and root.suffix not in (".py", ARCHIVE_SUFFIX):
        message = f"{path} is neither a folder, nor a Python file, nor an archive ({ARCHIVE_SUFFIX})"
        raise RequestError(message, code="no_file", status=404)
    return root
