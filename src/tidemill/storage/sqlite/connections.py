"""Connections to a database file, and what is set on each of them."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Literal

from tidemill.kernel.errors import StoreError
from tidemill.storage.migrations import check_not_newer
from tidemill.storage.ports import SchemaState
from tidemill.storage.sqlite.faults import WHAT_TO_DO, code_of, title_of
from tidemill.storage.sqlite.schema import MIGRATIONS, bring_up_to_date, check_ours, version_of
from tidemill.storage.sqlite.transactions import transaction

BUSY_TIMEOUT = 1.0  # seconds to wait for another process's write
LOG_SIZE_LIMIT = 16 * 1024 * 1024  # bytes to which the write-ahead log shrinks after a burst
_TRIES = 20


def connect_writer(path: str, *, create: bool) -> sqlite3.Connection:
    """Open a file to write to it: with a log, so that readers never wait, and with its schema up to date."""
    _check_rights(path)
    with _connected(path, "rwc" if create else "rw") as connection:
        check_ours(connection, title_of(path))
        check_not_newer(SchemaState(version_of(connection), len(MIGRATIONS)), title_of(path))  # before it is changed
        _turn_log_on(connection, path)
        connection.execute("PRAGMA synchronous = FULL")  # a commit returns when it is on the disk
        connection.execute(f"PRAGMA journal_size_limit = {LOG_SIZE_LIMIT}")
        bring_up_to_date(connection, title_of(path))
    return connection


def connect_reader(path: str) -> sqlite3.Connection:
    """Open a file to read what is committed, and to change nothing."""
    with _connected(path, "rw") as connection:
        connection.execute("PRAGMA query_only = ON")
        connection.execute("PRAGMA schema_version")  # the first look at the file: a damaged one is noticed here
    return connection


def connect_onlooker(path: str) -> sqlite3.Connection:
    """Open a file to read it as of one moment, and leave it, its log and its folder as they were."""
    with _connected(path, _mode_of_onlookers(path)) as connection:
        connection.execute("PRAGMA query_only = ON")
        connection.execute("BEGIN")
        connection.execute("PRAGMA schema_version")  # the moment
    return connection


def _mode_of_onlookers(path: str) -> "_Mode":
    """Choose so that nothing is left behind.

    A connection that could write would copy a crashed node's log into the file when it closes. One that could not would
    leave a new log behind if there was none, and one that nobody can write to if the file is read-only.
    """
    if os.path.exists(f"{path}-wal"):
        return "ro"
    return "rw" if _is_writable(path) else "ro&immutable=1"  # without a log nobody writes to it now


_Mode = Literal["ro", "rw", "rwc", "ro&immutable=1"]


@contextmanager
def _connected(path: str, mode: _Mode) -> Iterator[sqlite3.Connection]:
    """Open a file, and close it again if it cannot be set up; "rwc" creates it, the others refuse a missing one."""
    uri = f"{Path(path).absolute().as_uri()}?mode={mode}"
    connection = sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT, isolation_level=None)
    try:
        connection.execute("PRAGMA foreign_keys = ON")
        yield connection
    except BaseException:
        connection.close()
        raise


@contextmanager
def inspecting(path: str) -> Iterator[sqlite3.Connection]:
    """Open a file for one look at it, beside whoever uses it."""
    with closing(connect_onlooker(path)) as connection:
        yield connection


def _check_rights(path: str) -> None:
    """Refuse a file that may not be written to: SQLite would open it all the same, and leave a log like it behind."""
    if os.path.exists(path) and not _is_writable(path):
        raise StoreError(f"{title_of(path)}: {WHAT_TO_DO[sqlite3.SQLITE_READONLY]}")


def _is_writable(path: str) -> bool:
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def _turn_log_on(connection: sqlite3.Connection, path: str) -> None:
    for _ in range(_TRIES):
        try:
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        except sqlite3.OperationalError as error:
            if code_of(error) != sqlite3.SQLITE_BUSY:
                raise
            # Another process is at it. The pragma does not wait for that, but a transaction does.
            with transaction(connection, "EXCLUSIVE"):
                continue
        if mode != "wal":
            raise StoreError(f"{title_of(path)}: its file system cannot hold it; put it on a local disk")
        return
    raise StoreError(f"{title_of(path)}: other processes kept it busy while it was opened; try again")
