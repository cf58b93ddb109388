"""Connections to a database file: their settings, the schema, and transactions."""

import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Literal

from tidemill.kernel.errors import StoreError
from tidemill.storage.migrations import (
    Migration,
    SchemaState,
    check_schema_not_newer,
    load_migrations,
    pending_migrations,
)
from tidemill.storage.sqlite.errors import ADVICE, database_title, primary_error_code


class RetryTransactionError(Exception):
    """Asks for a rollback and another run of the transaction: a unit of it found another state than expected."""


@contextmanager
def transaction(connection: sqlite3.Connection, kind: Literal["DEFERRED", "IMMEDIATE", "EXCLUSIVE"]) -> Iterator[None]:
    """Commit the statements inside, or roll all of them back."""
    connection.execute(f"BEGIN {kind}")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # some faults have ended it already
            connection.execute("ROLLBACK")
        raise


MIGRATIONS = load_migrations(__package__)
APPLICATION_ID = 0x7469646D  # "tidm", in the file's header: the application that owns it


def read_schema_version(connection: sqlite3.Connection) -> int:
    """Return the number of migrations that were applied to a file.

    The number is in the file's header: it can be read before there is any table, and changes in the transaction that
    changes the schema.
    """
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def check_application_id(connection: sqlite3.Connection, title: str) -> None:
    """Raise StoreError if a file holds tables of another application: the two must never mix."""
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    # After the tables, which are committed together with it: another process may be creating both just now.
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if tables and application != APPLICATION_ID:
        raise StoreError(f"{title}: the file holds tables of another application; name another file")


def migrate(connection: sqlite3.Connection, title: str) -> None:
    """Apply the missing migrations; of several processes at once, one does and the others find it done."""
    if not pending_migrations(MIGRATIONS, read_schema_version(connection), title):
        return
    with transaction(connection, "IMMEDIATE"):
        apply_migrations(connection, pending_migrations(MIGRATIONS, read_schema_version(connection), title))


def apply_migrations(connection: sqlite3.Connection, migrations: Iterable[Migration]) -> None:
    """Apply migrations in the open transaction."""
    for migration in migrations:
        for statement in migration.statements:
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {migration.number}")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")


BUSY_TIMEOUT = 1.0  # seconds to wait for another process's write
WAL_SIZE_LIMIT = 16 * 1024 * 1024  # bytes to which the write-ahead log shrinks after a burst
_WAL_ATTEMPT_LIMIT = 20


def connect_writer(path: str, *, create: bool) -> sqlite3.Connection:
    """Open a file to write to it: with a write-ahead log, so that readers never wait, and an up-to-date schema."""
    _check_writable(path)
    if create:
        _create_private(path)
    with _open_connection(path, "rwc" if create else "rw") as connection:
        check_application_id(connection, database_title(path))
        check_schema_not_newer(
            SchemaState(read_schema_version(connection), len(MIGRATIONS)), database_title(path)
        )  # before anything is changed
        _enable_wal(connection, path)
        connection.execute("PRAGMA synchronous = FULL")  # a commit returns when it is on the disk
        connection.execute(f"PRAGMA journal_size_limit = {WAL_SIZE_LIMIT}")
        migrate(connection, database_title(path))
    return connection


def connect_new(path: str) -> sqlite3.Connection:
    """Open a new file to fill it. It counts only once all of it was written: a crash may leave it damaged."""
    _create_private(path)
    with _open_connection(path, "rwc") as connection:
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
    return connection


def take_log_away(path: str) -> bool:
    """Move the log of a file into it, if no other process has the file open; return whether that is so."""
    with _open_connection(path, "rw") as connection:
        check_application_id(connection, database_title(path))
    connection.close()  # the last one to close a file takes its log away
    return not os.path.exists(f"{path}-wal")


def _create_private(path: str) -> None:
    """Create a file that only its owner can read, unless it is there; SQLite gives its log the same permissions."""
    # Never opens a file that is there: to close it again would release the locks that this process has on it. What
    # prevents a new one prevents SQLite too, which says why.
    with suppress(OSError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


def connect_reader(path: str) -> sqlite3.Connection:
    """Open a file to read committed rows, and to change nothing."""
    with _open_connection(path, "rw") as connection:
        connection.execute("PRAGMA query_only = ON")
        connection.execute("PRAGMA schema_version")  # the first read of the file: damage is noticed here
    return connection


def connect_snapshot_reader(path: str) -> sqlite3.Connection:
    """Open a file to read it as of one moment, and leave it, its log and its folder unchanged."""
    with _open_connection(path, _snapshot_reader_mode(path)) as connection:
        connection.execute("PRAGMA query_only = ON")
        connection.execute("BEGIN")
        connection.execute("PRAGMA schema_version")  # the snapshot begins here
    return connection


def _snapshot_reader_mode(path: str) -> "_OpenMode":
    """Choose the mode that leaves no trace.

    A connection that can write would copy a crashed node's log into the file when it closes. One that cannot would
    leave a new log behind if there was none, and a read-only log if the file is read-only.
    """
    if os.path.exists(f"{path}-wal"):
        return "ro"
    return "rw" if _is_writable(path) else "ro&immutable=1"  # without a log there is no writer now


_OpenMode = Literal["ro", "rw", "rwc", "ro&immutable=1"]


@contextmanager
def _open_connection(path: str, mode: _OpenMode) -> Iterator[sqlite3.Connection]:
    """Open a file, and close it again if the block fails; "rwc" creates the file, the others require it."""
    uri = f"{Path(path).absolute().as_uri()}?mode={mode}"
    connection = sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT, isolation_level=None)
    try:
        connection.execute("PRAGMA foreign_keys = ON")
        yield connection
    except BaseException:
        connection.close()
        raise


@contextmanager
def open_for_inspection(path: str) -> Iterator[sqlite3.Connection]:
    """Open a file for one check, even while others use it."""
    with closing(connect_snapshot_reader(path)) as connection:
        yield connection


def _check_writable(path: str) -> None:
    """Raise StoreError for a read-only file: SQLite would open it all the same, and leave a read-only log behind."""
    if os.path.exists(path) and not _is_writable(path):
        raise StoreError(f"{database_title(path)}: {ADVICE[sqlite3.SQLITE_READONLY]}")


def _is_writable(path: str) -> bool:
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def _enable_wal(connection: sqlite3.Connection, path: str) -> None:
    for _ in range(_WAL_ATTEMPT_LIMIT):
        try:
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        except sqlite3.OperationalError as error:
            if primary_error_code(error) != sqlite3.SQLITE_BUSY:
                raise
            # Another process is switching it. The pragma does not wait for that, but a transaction does.
            with transaction(connection, "EXCLUSIVE"):
                continue
        if mode != "wal":
            raise StoreError(f"{database_title(path)}: its file system cannot hold it; put it on a local disk")
        return
    raise StoreError(f"{database_title(path)}: other processes kept it busy while it was opened; try again")
