"""Writes docs/reference/commands.md: every command of `tidemill` with its arguments and options.

`make map` runs it; `tests/architecture/test_generated_pages.py` fails while the page differs from the commands.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from tidemill.cli.main import app

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "commands.md"

HEAD = """# Commands

Every command of `tidemill`, with its arguments and options. `make map` writes this page from the help of the commands.
[Command line](cli.md) explains what they have in common: servers and stores, exit codes, JSON. The options of
`tidemill` itself may stand before or after a command. `--server` and `--profile` are listed only there.
"""

Command = Any
"""A command of Typer, which brings its own copy of Click."""


def render_page() -> str:
    """Return the page for the commands as they are now."""
    root = typer.main.get_command(app)
    context = root.make_context("tidemill", [], resilient_parsing=True)
    return HEAD + "".join(_sections(root, context, "tidemill"))


def _sections(command: Command, context: Any, name: str) -> Iterator[str]:
    """Yield the section of a command, then those of its subcommands."""
    marks = "##" if name.count(" ") < 2 else "###"
    yield f"\n{marks} `{name}`\n\n{_help(command)}{_usage(command, context)}{_table(command, context)}"
    if hasattr(command, "list_commands"):
        for child_name in command.list_commands(context):
            child = command.get_command(context, child_name)
            child_context = type(context)(child, info_name=child_name, parent=context)
            yield from _sections(child, child_context, f"{name} {child_name}")


def _help(command: Command) -> str:
    """Return the help as Markdown: a line that shows an example is code."""
    text = re.sub(r"^Example: (.+)$", r"Example: `\1`", (command.help or "").strip(), flags=re.MULTILINE)
    return f"{text}\n" if text else ""


def _usage(command: Command, context: Any) -> str:
    if hasattr(command, "list_commands"):
        return ""
    return f"\n```text\n{context.command_path} {' '.join(command.collect_usage_pieces(context))}\n```\n"


def _table(command: Command, context: Any) -> str:
    params = command.params if context.parent else command.get_params(context)  # what all take, only once
    records = [record for one in params if (record := one.get_help_record(context))]
    rows = [f"| `{_cell(shown)}` | {_cell(text)} |" for shown, text in records if not shown.endswith("--help")]
    return "\n".join(["\n| argument, option | meaning |", "|---|---|", *rows, ""]) if rows else ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(render_page(), encoding="utf-8")
