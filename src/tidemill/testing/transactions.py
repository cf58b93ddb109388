"""Transactions of a memory store, seen by a test: which rows each of them has changed, before and after.

Triggers of the connection note every change in a table that takes part in the transaction: what is rolled back, wholly
or to a savepoint, was never noted. A store without an observer has none of them.
"""

import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from tidemill.storage.sqlite.memory import MemoryDatabase

Columns = dict[str, Any]
"""The columns of a row as SQLite stores them: times are microseconds since 1970."""


class RowChange(msgspec.Struct, frozen=True, kw_only=True):
    """A row that a statement has written: `before` is None for a new one, `after` for one that was deleted."""

    table: str
    before: Columns | None
    after: Columns | None


OnCommit = Callable[[Sequence[RowChange]], None]


def observe_transactions(database: MemoryDatabase, on_commit: OnCommit) -> Callable[[], None]:
    """Call `on_commit` after each transaction that has changed rows, before any caller goes on; return what ends it.

    The changes are in their order, one for each time that a row was written. An error that `on_commit` raises is the
    error of everyone whose write was in the transaction.
    """
    connection = database.connection
    tables = _add_triggers(connection)
    listener = partial(_tell, connection, tables, on_commit)
    database.commit_listeners.append(listener)

    def end() -> None:
        database.commit_listeners.remove(listener)
        _remove_triggers(connection, tables)

    return end


def _tell(connection: sqlite3.Connection, tables: dict[str, list[str]], on_commit: OnCommit) -> None:
    rows = connection.execute("SELECT name, before, after FROM observed ORDER BY number").fetchall()
    if rows:
        connection.execute("DELETE FROM observed")
        on_commit([_read_change(name, tables[name], before, after) for name, before, after in rows])


def _read_change(table: str, columns: list[str], before: bytes | None, after: bytes | None) -> RowChange:
    return RowChange(table=table, before=_read(columns, before), after=_read(columns, after))


def _read(columns: Sequence[str], packed: bytes | None) -> Columns | None:
    return None if packed is None else dict(zip(columns, msgspec.msgpack.decode(packed), strict=True))


def _add_triggers(connection: sqlite3.Connection) -> dict[str, list[str]]:
    """Note every change from now on; return the columns of each table."""
    connection.create_function("pack_row", -1, lambda *values: msgspec.msgpack.encode(values), deterministic=True)
    connection.execute("PRAGMA recursive_triggers = ON")  # so that a row that is replaced is noted as deleted
    connection.execute("CREATE TEMP TABLE observed (number INTEGER PRIMARY KEY, name TEXT, before BLOB, after BLOB)")
    found = connection.execute("SELECT name FROM main.sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
    tables = {
        name: [row[1] for row in connection.execute(f"PRAGMA table_info({name})")] for (name,) in found.fetchall()
    }
    for name, columns in tables.items():
        before, after = (", ".join(f'{row}."{column}"' for column in columns) for row in ("old", "new"))
        for event, values in {
            "INSERT": f"NULL, pack_row({after})",
            "UPDATE": f"pack_row({before}), pack_row({after})",
            "DELETE": f"pack_row({before}), NULL",
        }.items():
            connection.execute(
                f"CREATE TEMP TRIGGER observed_{event}_{name} AFTER {event} ON main.{name} "
                f"BEGIN INSERT INTO observed (name, before, after) VALUES ('{name}', {values}); END"
            )
    return tables


def _remove_triggers(connection: sqlite3.Connection, tables: dict[str, list[str]]) -> None:
    for name in tables:
        for event in ("INSERT", "UPDATE", "DELETE"):
            connection.execute(f"DROP TRIGGER temp.observed_{event}_{name}")
    connection.execute("DROP TABLE temp.observed")
    connection.execute("PRAGMA recursive_triggers = OFF")
