"""What commands print: tables and text for people, JSON for programs."""

import json
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

_console = Console()
_errors = Console(stderr=True)


def progress_console() -> Console:
    """Return where to show how something goes on: standard error."""
    return _errors


def width() -> int:
    """Return how many columns there are to print in."""
    return _console.width


def show(*renderables: Any) -> None:
    """Print things that Rich knows to draw."""
    for one in renderables:
        _console.print(one)


class Format(StrEnum):
    """How a command prints what it found."""

    TABLE = "table"
    JSON = "json"


def say(text: str) -> None:
    """Print plain text."""
    _console.print(text, markup=False, highlight=False, soft_wrap=True)


def complain(text: str) -> None:
    """Print an error."""
    _errors.print(text, style="red", markup=False, highlight=False, soft_wrap=True)


def show_paragraph(text: str, *, is_bad: bool = False) -> None:
    """Print a paragraph, indented; broken between words on a terminal, and in one line for programs."""
    if _console.is_terminal:
        _console.print(Padding(Text(text, style="red" if is_bad else ""), (0, 0, 0, 2)))
    else:
        say(f"  {text}")


def show_json(value: Any) -> None:
    """Print a value as JSON."""
    say(json.dumps(value, indent=2))


def show_code(source: str) -> None:
    """Print Python source, coloured on a terminal."""
    if _console.is_terminal:
        _console.print(Syntax(source.rstrip(), "python"))
    else:
        say(source.rstrip())


def show_rows(columns: Sequence[str], rows: Sequence[Sequence[Any]], form: Format) -> None:
    """Print rows as a table, or as a list of JSON objects."""
    if form is Format.JSON:
        show_json([dict(zip(columns, row, strict=True)) for row in rows])
        return
    table = Table(*columns)
    for row in rows:
        table.add_row(*(Text(", ".join(cell) if isinstance(cell, list) else str(cell)) for cell in row))
    _console.print(table)
