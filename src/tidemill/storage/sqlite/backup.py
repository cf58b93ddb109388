"""Whole tables of a database file, for backups: read as of one moment, or written to a new file that replaces it."""

import os
import sqlite3
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tidemill.kernel.errors import RequestError, StoreError
from tidemill.storage.backup import CHUNK_SIZE, INITIAL_TABLES, Replacement, Snapshot, StoredTable, WriteChunk
from tidemill.storage.sqlite.connections import (
    MIGRATIONS,
    apply_migrations,
    connect_new,
    open_for_inspection,
    read_schema_version,
    take_log_away,
)
from tidemill.storage.sqlite.errors import database_title, to_store_error

_TABLES = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name"
_MARKS = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))
_CHARACTERS = {"t": "\t", "n": "\n", "r": "\r"}


class SqliteSnapshot(Snapshot):
    """The rows of a file, on a connection that reads as of one moment. Reading blocks."""

    kind = "sqlite"
    sequences: Mapping[str, int] = MappingProxyType({})

    def __init__(self, connection: sqlite3.Connection, path: str) -> None:
        self._connection, self._path = connection, path
        self.title = database_title(path)
        self.schema_version = read_schema_version(connection)
        self._columns = {name: _columns(connection, name) for (name,) in connection.execute(_TABLES)}
        self.tables: Sequence[StoredTable] = [StoredTable(name, tuple(one)) for name, one in self._columns.items()]

    async def read_rows(self, table: StoredTable, write: WriteChunk) -> None:
        lines, size = [], 0
        try:
            for row in self._connection.execute(f"SELECT {_names(table.columns)} FROM {table.name}"):
                lines.append(encode_row(row))
                size += len(lines[-1])
                if size >= CHUNK_SIZE:
                    write(b"".join(lines))
                    lines, size = [], 0
        except sqlite3.Error as error:
            raise to_store_error(error, self._path) from error
        write(b"".join(lines))


class SqliteReplacement(SqliteSnapshot, Replacement):
    """A new file."""

    async def write_rows(self, table: StoredTable, chunks: AsyncIterator[bytes]) -> None:
        types = [self._columns[table.name][name] for name in table.columns]
        insert = f"INSERT INTO {table.name} ({_names(table.columns)}) VALUES ({', '.join('?' for _ in types)})"
        rest = b""
        async for chunk in chunks:
            *lines, rest = (rest + chunk).split(b"\n")
            try:
                self._connection.executemany(insert, [decode_row(line, types) for line in lines])
            except sqlite3.Error as error:
                raise to_store_error(error, self._path) from error

    async def set_sequences(self, sequences: Mapping[str, int]) -> None:
        """Do nothing: a file counts by its rows."""


@contextmanager
def open_snapshot(path: str) -> Iterator[SqliteSnapshot]:
    """Open a file to read all of it as of now."""
    try:
        with open_for_inspection(path) as connection:
            yield SqliteSnapshot(connection, path)
    except sqlite3.Error as error:
        raise to_store_error(error, path) from error


@contextmanager
def open_replacement(path: str, version: int, *, replace: bool) -> Iterator[SqliteReplacement]:
    """Make a file with the tables of a schema version, next to the one that it replaces in the end."""
    if os.path.exists(path):
        _check_replaceable(path, replace=replace)
    new = f"{path}.restored"
    for suffix in ("", "-journal"):
        Path(f"{new}{suffix}").unlink(missing_ok=True)
    try:
        with closing(connect_new(new)) as connection:
            connection.execute("BEGIN")
            apply_migrations(connection, MIGRATIONS[:version])
            for (name,) in connection.execute(_TABLES).fetchall():
                connection.execute(f"DELETE FROM {name}")  # what migrations have written
            yield SqliteReplacement(connection, path)
            apply_migrations(connection, MIGRATIONS[version:])
            connection.execute("COMMIT")
        _take_place(new, path)
    except sqlite3.Error as error:
        raise to_store_error(error, path) from error
    finally:
        for suffix in ("", "-journal"):
            Path(f"{new}{suffix}").unlink(missing_ok=True)


def _check_replaceable(path: str, *, replace: bool) -> None:
    """Raise an error if a file has rows that were not given up, or is in use."""
    title = database_title(path)
    try:
        if not take_log_away(path):
            raise StoreError(f"{title}: another process has it open; stop servers, workers and programs on it first")
        with open_snapshot(path) as found:
            used = [one.name for one in found.tables if one.name not in INITIAL_TABLES and _has_rows(path, one.name)]
    except sqlite3.Error as error:
        used = [f"damage: {error}"]
    if used and not replace:
        message = f"{title} is not empty ({used[0]}): name a new file, or add --replace, which deletes what it holds"
        raise RequestError(message, code="not_empty", status=409)


def _has_rows(path: str, table: str) -> bool:
    with open_for_inspection(path) as connection:
        return connection.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone() is not None


def _take_place(new: str, path: str) -> None:
    """Put a new file in the place of another one, and on the disk."""
    for name in (new, str(Path(path).absolute().parent)):
        descriptor = os.open(name, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if name == new:
            for suffix in ("-wal", "-shm"):  # those of a damaged file: it would be mixed with the new one
                with suppress(FileNotFoundError):
                    os.unlink(f"{path}{suffix}")
            os.replace(new, path)


# -- rows as lines


def encode_row(row: Sequence[Any]) -> bytes:
    """Return a row as a line of PostgreSQL's COPY."""
    return ("\t".join(map(_encode, row)) + "\n").encode()


def _encode(value: Any) -> str:
    if value is None:
        return "\\N"
    if isinstance(value, bytes):
        return f"\\\\x{value.hex()}"
    text = value if isinstance(value, str) else repr(value)
    for character, mark in _MARKS:
        if character in text:
            text = text.replace(character, mark)
    return text


def decode_row(line: bytes, types: Sequence[str]) -> list[Any]:
    """Return a row of a line, by the types of its columns."""
    return [_decode(text, kind) for text, kind in zip(line.decode().split("\t"), types, strict=True)]


def _decode(text: str, kind: str) -> Any:
    if text == "\\N":
        return None
    if kind == "INTEGER":
        return int(text)
    if kind == "REAL":
        return float(text)
    if kind == "BLOB":
        return bytes.fromhex(text[3:])
    return text if "\\" not in text else _unescape(text)


def _unescape(text: str) -> str:
    first, *others = text.split("\\")
    found, is_after_pair = [first], False
    for piece in others:
        if is_after_pair:
            found.append(piece)
            is_after_pair = False
        elif not piece:
            found.append("\\")
            is_after_pair = True
        else:
            found.append(_CHARACTERS[piece[0]] + piece[1:])
    return "".join(found)


def _columns(connection: sqlite3.Connection, table: str) -> dict[str, str]:
    """Return the types of the columns of a table, by name."""
    return {name: kind for _, name, kind, *_ in connection.execute(f"PRAGMA table_info({table})")}


def _names(columns: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in columns)
