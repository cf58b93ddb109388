"""Prints tables and text for people, and JSON for programs.

Rich is imported when the first table or coloured text is printed: importing it takes longer than all of `--help`.
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from io import TextIOWrapper
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Column, Table
    from rich.text import Text

UNLIMITED_WIDTH = 100_000
"""The width of an output that is not a terminal: lines are never broken or truncated, for programs and files."""

_CURSOR_CODES = dict.fromkeys(map(ord, "\a\b\v\f\r"))
"""Characters that would ring, or write over what was printed before."""

MIN_COLUMN_WIDTH = 12  # the least width of a column that is truncated or folded


def _console(*, stderr: bool = False) -> "Console":
    from rich.console import Console

    console = Console(stderr=stderr)
    return console if console.is_terminal or "COLUMNS" in os.environ else Console(stderr=stderr, width=UNLIMITED_WIDTH)


def progress_console() -> "Console":
    """Return the console for progress: standard error."""
    return _console(stderr=True)


def output_console() -> "Console":
    """Return the console for results: standard output."""
    return _console()


def can_redraw(stream: TextIO) -> bool:
    """Return whether a stream can redraw earlier lines."""
    return stream.isatty() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")


def replace_unencodable() -> None:
    """Print a question mark for each character that the output's encoding lacks, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


def terminal_width() -> int:
    """Return the width of the output in columns."""
    return _console().width


def text_limit(limit: int, width: int) -> int:
    """Return the maximum length of a text: `limit`, or no limit if the output has none."""
    return limit if width < UNLIMITED_WIDTH else UNLIMITED_WIDTH


def show(*renderables: Any) -> None:
    """Print objects that Rich can render; lines of text are broken only by the terminal."""
    from rich.text import Text

    console = _console()
    for one in renderables:
        console.print(one, soft_wrap=isinstance(one, Text))


class Format(StrEnum):
    """The output formats of commands."""

    TABLE = "table"
    JSON = "json"


Output = Annotated[Format, typer.Option("-o", "--output", help="The output format.")]
"""The option of every command that prints a result."""


class StreamFormat(StrEnum):
    """The output formats of commands that follow something."""

    TABLE = "table"
    JSON = "json"
    NDJSON = "ndjson"

    @property
    def is_for_programs(self) -> bool:
        """Whether every item is one line of JSON."""
        return self is not StreamFormat.TABLE


StreamOutput = Annotated[
    StreamFormat, typer.Option("-o", "--output", help="The output format: text, or one line of JSON per item.")
]
"""The option of every command that follows something."""


def print_json_line(value: Any) -> None:
    """Print a value as one line of JSON, at once."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def print_text(text: str) -> None:
    """Print plain text, at once."""
    _write_line(sys.stdout, text)


def print_progress(text: str) -> None:
    """Print a line of progress, at once: to standard error."""
    _write_line(sys.stderr, text)


def _write_line(stream: TextIO, text: str) -> None:
    # Not with Rich: it would also replace ":name:" by an emoji, and tabs by spaces, in values and in JSON.
    stream.write(f"{text.translate(_CURSOR_CODES)}\n")
    stream.flush()


def ready_line(url: str) -> str:
    """Return the first line of a command that serves a node."""
    return f"Tidemill is ready at {url}"


def print_error(text: str) -> None:
    """Print an error."""
    from rich.text import Text

    _console(stderr=True).print(Text(text, "red"), soft_wrap=True)


def show_paragraph(text: str, *, is_error: bool = False) -> None:
    """Print an indented paragraph; wrapped on a terminal, on one line for programs."""
    from rich.padding import Padding
    from rich.text import Text

    console = _console()
    if console.is_terminal:
        console.print(Padding(Text(text, style="red" if is_error else ""), (0, 0, 0, 2)))
    else:
        print_text(f"  {text}")


def show_json(value: Any) -> None:
    """Print a value as JSON."""
    print_text(json.dumps(value, indent=2))


def show_code(source: str) -> None:
    """Print Python source, coloured on a terminal."""
    from rich.syntax import Syntax

    console = _console()
    if console.is_terminal:
        console.print(Syntax(source.rstrip(), "python"))
    else:
        print_text(source.rstrip())


def show_rows(
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    output_format: Format,
    *,
    droppable: Sequence[str] = (),
    folded: Sequence[str] = (),
) -> None:
    """Print rows as a table, or as a list of JSON objects; `droppable` and `folded` as for `build_table`."""
    from rich.table import Column
    from rich.text import Text

    if output_format is Format.JSON:
        show_json([dict(zip(columns, row, strict=True)) for row in rows])
        return
    cells = [[Text(", ".join(cell) if isinstance(cell, list) else str(cell)) for cell in row] for row in rows]
    show(build_table([Column(name) for name in columns], cells, terminal_width(), droppable=droppable, folded=folded))


def build_table(
    columns: "Sequence[Column]",
    rows: "Sequence[Sequence[Text]]",
    width: int,
    *,
    droppable: Sequence[str],
    truncated: str = "",
    folded: Sequence[str] = (),
) -> "Table":
    """Return a table that fits the width: drops `droppable` columns, in that order, and truncates `truncated`.

    If it still does not fit, the `folded` columns, or the first one, wrap, so that names and ids are never lost.
    """
    from rich.table import Table

    names = [str(one.header) for one in columns]
    folded = folded or names[:1]
    wide = {name: _column_width(name, [row[number] for row in rows]) for number, name in enumerate(names)}
    need = _minimum_widths(wide, width, droppable, truncated, folded)
    table = Table(expand=truncated in need and _table_width({name: wide[name] for name in need}) > width)
    shares = _folded_widths(wide, need, folded, width)
    for one in columns:
        if (name := str(one.header)) in need:
            table.add_column(
                name,
                justify=one.justify,
                overflow="ellipsis" if name == truncated else "fold",
                no_wrap=name not in folded,
                min_width=None if name == truncated else shares.get(name, wide[name]),
                max_width=shares.get(name),
                ratio=1 if name == truncated and table.expand else None,
            )
    for row in rows:
        table.add_row(*(cell for name, cell in zip(names, row, strict=True) if name in need))
    return table


def _minimum_widths(
    wide: Mapping[str, int], width: int, droppable: Sequence[str], truncated: str, folded: Sequence[str]
) -> dict[str, int]:
    """Return the columns that are shown, each with its minimum width."""
    need = dict(wide)
    for name in {truncated, *folded} & wide.keys():
        need[name] = min(wide[name], MIN_COLUMN_WIDTH if name == truncated else max(MIN_COLUMN_WIDTH, width // 3))
    for name in droppable:
        if _table_width(need) > width:
            need.pop(name, None)
    return need


def _folded_widths(
    wide: Mapping[str, int], need: Mapping[str, int], folded: Sequence[str], width: int
) -> dict[str, int]:
    """Return the widths of the folded columns: as needed, or else an equal share of the remaining width."""
    names = sorted(need.keys() & set(folded), key=wide.__getitem__)
    least = sum(need[name] for name in names)
    plenty = width - _table_width({name: wide[name] for name in need if name not in names} | dict.fromkeys(names, 0))
    room = max(plenty, min(least, width - _table_width(need) + least))
    shares: dict[str, int] = {}
    for number, name in enumerate(names):
        shares[name] = max(1, min(wide[name], room // (len(names) - number)))
        room -= shares[name]
    return shares


def _column_width(name: str, cells: "Sequence[Text]") -> int:
    from rich.cells import cell_len

    return max(cell_len(name), *(cell.cell_len for cell in cells), 0)


def _table_width(columns: Mapping[str, int]) -> int:
    """Return the width of a table: its columns, and the frame around each."""
    return sum(columns.values()) + 3 * len(columns) + 1
