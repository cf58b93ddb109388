"""Rows of files: NDJSON, CSV and Parquet, in batches, from any row on. Blocking; for a thread.

A row that cannot be read is yielded as bytes, which no annotation of an object fits: a dead letter shows it.
"""

import gzip
import re
from collections.abc import Callable, Iterable, Iterator, Set
from pathlib import Path
from typing import IO, Any, cast

from tidemill.kernel.author_errors import Fail
from tidemill.sources.csv_records import Record, open_text, read_records

BATCH_SIZE = 200  # rows; two batches are in memory at once
MAX_LINE = 1_048_576  # bytes of a line of NDJSON
MAX_DIGITS = 4_300  # of an integer, which Python reads
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_JSON_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?P<fraction>\.\d+)?(?P<exponent>[eE][+-]?\d+)?")
_WORDS: dict[str, Any] = {"": None, "null": None, "true": True, "false": False}

_Column = tuple[str, Callable[[str], Any]]
Row = tuple[Any, int | None]
"""An event, and how many rows of the file come before the next one; None after the last row of the file."""


def read_ndjson(path: Path, first: int) -> Iterator[list[Row]]:
    """Yield the lines of a file in batches, as bytes; blank lines are left out, and count. A long line is cut."""
    with _open_binary(path) as file:
        lines = ((line, number) for number, line in enumerate(_read_lines(file), start=1) if number > first)
        yield from _batches((line, number) for line, number in lines if line)


def _read_lines(file: IO[bytes]) -> Iterator[bytes]:
    mark = _BYTE_ORDER_MARK
    while line := file.readline(MAX_LINE + 1):
        rest = line
        while len(rest) > MAX_LINE and not rest.endswith(b"\n"):
            rest = file.readline(MAX_LINE + 1)
        yield line[:MAX_LINE].rstrip(b"\r\n").removeprefix(mark)
        mark = b""


def read_csv(path: Path, first: int, text_columns: Set[str] = frozenset()) -> Iterator[list[Row]]:
    """Yield the rows of a file in batches, as objects by the names in its first line.

    Cells are read as `parse_cell` says, except those of the text columns. A row with more cells than names is yielded
    as the list of its cells, which no annotation of an object fits.
    """
    with _open_binary(path) as file, open_text(file) as text:
        records = read_records(text)
        names = next(records, [])
        if isinstance(names, bytes):
            raise ValueError("its first line, with the names of the columns, is not CSV in UTF-8")
        columns: list[_Column] = [(name, str if name in text_columns else parse_cell) for name in names]
        numbered = ((record, number) for number, record in enumerate(records, start=1) if number > first and record)
        yield from _batches((_to_event(columns, record), number) for record, number in numbered)


def _to_event(columns: list[_Column], record: Record) -> Any:
    return record if isinstance(record, bytes) else _to_object(columns, record)


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
    if match["fraction"] or match["exponent"]:
        return float(text)
    return int(text) if len(text) <= MAX_DIGITS else text


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
                    numbered = enumerate(to_objects(batch), start=number + 1)
                    number += len(batch)
                    kept: list[Row] = [(row, at) for at, row in numbered if at > first]
                    if kept:
                        yield kept
            before += size


ReadRows = Callable[[Path, int], Iterator[list[Row]]]
"""Yields the rows of a file after the first ones, in batches."""

READERS: dict[str, ReadRows] = {"parquet": read_parquet, "csv": read_csv, "ndjson": read_ndjson}


def marking_last(batches: Iterator[list[Row]]) -> Iterator[list[Row]]:
    """Yield batches of rows, the last of which says that it is the last. What was read before an error is yielded."""
    held: list[Row] = []
    try:
        for batch in batches:
            if held:
                yield held
            held = batch
    except Exception:
        if held:
            yield held
        raise
    if held:
        yield [*held[:-1], (held[-1][0], None)]


def _open_binary(path: Path) -> IO[bytes]:
    return cast("IO[bytes]", gzip.open(path, "rb")) if path.suffix == ".gz" else path.open("rb")


def _batches(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Yield rows in batches. Those that were read before an error are yielded."""
    batch: list[Row] = []
    try:
        for row in rows:
            batch.append(row)
            if len(batch) == BATCH_SIZE:
                yield batch
                batch = []
    except Exception:
        if batch:
            yield batch
        raise
    if batch:
        yield batch


def to_objects(batch: Any) -> list[dict[str, Any]]:
    """Return the rows of a record batch."""
    import pyarrow  # extra: parquet

    schema = pyarrow.schema([field.with_type(_without_nanoseconds(field.type)) for field in batch.schema])
    table = pyarrow.Table.from_batches([batch])
    if schema != batch.schema:
        table = table.cast(schema, safe=False)
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def _without_nanoseconds(kind: Any) -> Any:
    """Return a type whose times have microseconds instead of nanoseconds, even within lists and objects."""
    import pyarrow  # extra: parquet

    types = pyarrow.types
    if types.is_timestamp(kind) and kind.unit == "ns":
        return pyarrow.timestamp("us", kind.tz)
    if types.is_time64(kind) and kind.unit == "ns":
        return pyarrow.time64("us")
    if types.is_duration(kind) and kind.unit == "ns":
        return pyarrow.duration("us")
    if types.is_list(kind):
        return pyarrow.list_(kind.value_field.with_type(_without_nanoseconds(kind.value_type)))
    if types.is_struct(kind):
        return pyarrow.struct([field.with_type(_without_nanoseconds(field.type)) for field in kind])
    return kind
