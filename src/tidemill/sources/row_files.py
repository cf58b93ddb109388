"""Rows of files: NDJSON, CSV and Parquet, in batches, from any row on. Blocking; for a thread."""

import csv
import gzip
import re
from collections.abc import Callable, Iterable, Iterator, Set
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import IO, Any

from tidemill.kernel.author_errors import Fail

BATCH_SIZE = 200  # rows; two batches are in memory at once
_JSON_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?P<fraction>\.\d+)?(?P<exponent>[eE][+-]?\d+)?")
_WORDS: dict[str, Any] = {"": None, "null": None, "true": True, "false": False}

_Column = tuple[str, Callable[[str], Any]]
Row = tuple[Any, int | None]
"""An event, and how many rows of the file come before the next one; None after the last row of the file."""


def read_ndjson(path: Path, first: int) -> Iterator[list[Row]]:
    """Yield the lines of a file in batches, as bytes; blank lines are left out, and count."""
    with _open_binary(path) as file:
        lines = ((line.rstrip(b"\r\n"), number) for number, line in enumerate(file, start=1) if number > first)
        yield from _batches((line, number) for line, number in lines if line)


def read_csv(path: Path, first: int, text_columns: Set[str] = frozenset()) -> Iterator[list[Row]]:
    """Yield the rows of a file in batches, as objects by the names in its first line.

    Cells are read as `parse_cell` says, except those of the text columns. A row with more cells than names is yielded
    as the list of its cells, which no annotation of an object fits.
    """
    with _open_binary(path) as file:
        rows = csv.reader(TextIOWrapper(file, "utf-8-sig", errors="replace", newline=""))
        names = next(rows, [])
        numbered = ((cells, number) for number, cells in enumerate(rows, start=1) if number > first and cells)
        columns: list[_Column] = [(name, str if name in text_columns else parse_cell) for name in names]
        yield from _batches((_to_object(columns, cells), number) for cells, number in numbered)


def _to_object(columns: list[_Column], cells: list[str]) -> Any:
    if len(cells) > len(columns):
        return cells
    return {name: parse(cell) for (name, parse), cell in zip(columns, cells, strict=False)}


def parse_cell(text: str) -> Any:
    """Return a cell as a number, true, false or null if JSON would; else as text, such as "007"."""
    if text in _WORDS:
        return _WORDS[text]
    match = _JSON_NUMBER.fullmatch(text)
    if match is None:
        return text
    return float(text) if match["fraction"] or match["exponent"] else int(text)


def read_parquet(path: Path, first: int) -> Iterator[list[Row]]:
    """Yield the rows of a file in batches, as objects by column; one row group after the other is opened."""
    try:
        from pyarrow.parquet import ParquetFile  # extra: parquet
    except ImportError as error:
        raise Fail(f"reading Parquet needs its library: pip install 'tidemill[parquet]' ({error})") from error
    with ParquetFile(path) as file:
        before = 0
        for index in range(file.num_row_groups):
            size = file.metadata.row_group(index).num_rows
            if before + size > first:
                number = before
                for batch in file.iter_batches(BATCH_SIZE, row_groups=[index]):
                    numbered = enumerate(batch.to_pylist(), start=number + 1)
                    number += len(batch)
                    kept: list[Row] = [(row, at) for at, row in numbered if at > first]
                    if kept:
                        yield kept
            before += size


ReadRows = Callable[[Path, int], Iterator[list[Row]]]
"""Yields the rows of a file after the first ones, in batches."""

READERS: dict[str, ReadRows] = {"parquet": read_parquet, "csv": read_csv, "ndjson": read_ndjson}


def marking_last(batches: Iterator[list[Row]]) -> Iterator[list[Row]]:
    """Yield batches of rows, the last of which says that it is the last."""
    held: list[Row] = []
    for batch in batches:
        if held:
            yield held
        held = batch
    if held:
        yield [*held[:-1], (held[-1][0], None)]


def _open_binary(path: Path) -> IO[bytes] | gzip.GzipFile:
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")


def _batches(rows: Iterable[Row]) -> Iterator[list[Row]]:
    remaining = iter(rows)
    while batch := list(islice(remaining, BATCH_SIZE)):
        yield batch
