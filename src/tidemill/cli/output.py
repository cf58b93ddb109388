"""What commands print: tables and text for people, JSON for programs."""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from io import TextIOWrapper
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.syntax import Syntax
from rich.table import Column, Table
from rich.text import Text

BOUNDLESS = 100_000
"""Columns of what is no terminal: lines are as long as they need to be, for programs and files."""

CUT = 12  # columns that are enough of something to be worth showing


def _console(*, stderr: bool = False) -> Console:
    console = Console(stderr=stderr)
    return console if console.is_terminal or "COLUMNS" in os.environ else Console(stderr=stderr, width=BOUNDLESS)


def progress_console() -> Console:
    """Return where to show how something goes on: standard error."""
    return _console(stderr=True)


def can_redraw(console: Console) -> bool:
    """Return whether what was drawn can be drawn over."""
    return console.is_terminal and not console.is_dumb_terminal


def endure_encodings() -> None:
    """Let what the encoding of an output does not know appear as a question mark: it is no reason to fail."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


def width() -> int:
    """Return how many columns there are to print in."""
    return _console().width


def show(*renderables: Any) -> None:
    """Print things that Rich knows to draw; text is never broken, save by the terminal itself."""
    console = _console()
    for one in renderables:
        console.print(one, soft_wrap=isinstance(one, Text))


class Format(StrEnum):
    """How a command prints what it found."""

    TABLE = "table"
    JSON = "json"


def say(text: str) -> None:
    """Print plain text."""
    _console().print(text, markup=False, highlight=False, soft_wrap=True)


def complain(text: str) -> None:
    """Print an error."""
    _console(stderr=True).print(text, style="red", markup=False, highlight=False, soft_wrap=True)


def show_paragraph(text: str, *, is_bad: bool = False) -> None:
    """Print a paragraph, indented; broken between words on a terminal, and in one line for programs."""
    console = _console()
    if console.is_terminal:
        console.print(Padding(Text(text, style="red" if is_bad else ""), (0, 0, 0, 2)))
    else:
        say(f"  {text}")


def show_json(value: Any) -> None:
    """Print a value as JSON."""
    say(json.dumps(value, indent=2))


def show_code(source: str) -> None:
    """Print Python source, coloured on a terminal."""
    console = _console()
    if console.is_terminal:
        console.print(Syntax(source.rstrip(), "python"))
    else:
        say(source.rstrip())


def show_rows(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], form: Format, *, spare: Sequence[str] = ()
) -> None:
    """Print rows as a table, or as a list of JSON objects; columns that are `spare` only where there is room."""
    if form is Format.JSON:
        show_json([dict(zip(columns, row, strict=True)) for row in rows])
        return
    cells = [[Text(", ".join(cell) if isinstance(cell, list) else str(cell)) for cell in row] for row in rows]
    show(tabulated([Column(name) for name in columns], cells, width(), spare=spare))


def tabulated(
    columns: Sequence[Column], rows: Sequence[Sequence[Text]], width: int, *, spare: Sequence[str], cut: str = ""
) -> Table:
    """Return a table that fits: without columns that are `spare`, in that order, and with `cut` as wide as is left.

    What does not fit even then is folded, the first column before others, so that names and ids are never lost.
    """
    lead, *_ = names = [str(one.header) for one in columns]
    wide = {name: _widest(name, [row[number] for row in rows]) for number, name in enumerate(names)}
    need = wide | {lead: min(wide[lead], max(CUT, width // 3))} | ({cut: min(wide[cut], CUT)} if cut else {})
    for name in spare:
        if _total(need) > width:
            need.pop(name, None)
    kept = {name: wide[name] for name in need}
    rest = width - _total(kept) + kept[lead]
    table = Table(expand=cut in need and _total(kept) > width)
    for one in columns:
        if one.header not in need:
            continue
        is_cut = one.header == cut
        table.add_column(
            one.header,
            justify=one.justify,
            overflow="ellipsis" if is_cut else "fold",
            no_wrap=is_cut or one.header != lead,
            max_width=max(need[lead], rest) if one.header == lead else None,
            ratio=1 if is_cut and table.expand else None,
        )
    for row in rows:
        table.add_row(*(cell for name, cell in zip(names, row, strict=True) if name in need))
    return table


def _widest(name: str, cells: Sequence[Text]) -> int:
    return max(cell_len(name), *(cell.cell_len for cell in cells), 0)


def _total(columns: Mapping[str, int]) -> int:
    """Return how wide a table is: its columns, and a frame around each."""
    return sum(columns.values()) + 3 * len(columns) + 1
