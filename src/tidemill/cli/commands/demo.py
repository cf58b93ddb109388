"""`tidemill demo`: run the examples from a folder of the user, to look at and to change."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from tidemill.cli.arguments import NodePortOption
from tidemill.cli.example_files import CopiedExamples, copy_examples
from tidemill.cli.exit_codes import exit_on_error
from tidemill.cli.stores import default_store_address
from tidemill.kernel.settings import Settings

DEFAULT_FOLDER = Path("tidemill-demo")

POOLS = {"warehouse": 1}
"""The pools that the examples use: with one slot, tasks wait for one another, and the pages show why."""

RETENTION = "1d"
"""How long runs are kept: the examples start thousands of them in a day."""


def demo(
    folder: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="The folder for the examples; it is created.", show_default=True)
    ] = DEFAULT_FOLDER,
    port: NodePortOption = None,
    open_browser: Annotated[
        bool | None,
        typer.Option("--open/--no-open", help="Open the node in a browser. Default: on a desktop.", show_default=False),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep and run the examples that you have changed.")] = False,
) -> None:
    """Run live examples: a market maker, sensors whose alerts start a workflow, a nightly report, and small jobs.

    The examples are copied to a folder, and run from there as with `tidemill dev`: change one and save, and it is
    reloaded. Their state is in the same folder, so that the next start continues. Ctrl-C stops them; delete the folder
    to remove everything. They need no network and no account.
    """
    from tidemill.cli.dev_session import run_folder
    from tidemill.node import Node

    with exit_on_error():
        notes = _describe_copied(folder, copy_examples(folder, keep=keep))
        root = folder.absolute()
        address = default_store_address(root)
        settings = Settings.read({"packages": None, "unfinished": "upgrade", "retention": RETENTION})
        node = Node(address, settings=settings, pools=POOLS)
        opens = _is_on_a_desktop() if open_browser is None else open_browser
        run_folder(node, root, address, port, open_browser=opens, notes=notes)
    raise typer.Exit(0)  # any signal is how this command ends


def _describe_copied(folder: Path, copied: CopiedExamples) -> list[str]:
    """Return what was written, and what was left alone."""
    written = f"wrote {', '.join(copied.written)} to {folder}: change one and save, and it is reloaded"
    kept = f"kept your changes in {', '.join(str(folder / name) for name in copied.kept)}"
    return [written] * bool(copied.written) + [kept] * bool(copied.kept)


def _is_on_a_desktop() -> bool:
    """Return whether a page would open in a window: a browser for terminals would cover the output."""
    has_display = sys.platform in ("darwin", "win32") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))
    return sys.stdout.isatty() and has_display
