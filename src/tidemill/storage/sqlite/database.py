"""SQLite databases: in a file, with one thread that writes and one that reads, and what their tables build on."""

import os
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar

from tidemill.kernel.concurrency import ResultCallback, WorkerThread
from tidemill.kernel.errors import StoreError
from tidemill.storage.committer import (
    Callback,
    CallbackTransactor,
    CommitFuture,
    Committed,
    GroupCommitter,
    Transactor,
)
from tidemill.storage.queries import Queries
from tidemill.storage.sqlite.connections import (
    RetryTransactionError,
    connect_reader,
    connect_snapshot_reader,
    connect_writer,
    transaction,
)
from tidemill.storage.sqlite.errors import (
    LOCK_CODES,
    database_title,
    is_database_fault,
    primary_error_code,
    to_store_error,
)
from tidemill.storage.sqlite.write_ahead_log import TRANSACTIONS_BEFORE_STRETCH, stretch_log

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]
SqliteUnit = Work[Any]
"""A unit of work: what the group committer runs inside a write transaction."""


class _FileIdentity(NamedTuple):
    """Identifies the file at a path."""

    device: int
    inode: int


class ConnectionThread(ABC):
    """A thread with its own connection. Faults of the database are raised as StoreError."""

    _error_suffix = ""  # ends the message of a fault

    def __init__(self, path: str, name: str) -> None:
        self._path = path
        self._thread = WorkerThread(f"tidemill-{name}")
        self._connection: sqlite3.Connection | None = None
        self._file_identity: _FileIdentity | None = None  # of the last connection; None before the first
        self._wal_identity: _FileIdentity | None = None
        self.is_locked_out = False
        """Whether the last work failed because another process was writing."""

    async def run(self, work: Work[T]) -> T:
        """Run work on the thread, after everything that was submitted before."""
        result: T = await self._thread.call(self._run, work)
        return result

    def post(self, work: Work[Any], on_done: ResultCallback) -> None:
        """Run work on the thread; `on_done` is called on the loop with the result or the error."""
        self._thread.submit(on_done, self._run, work)

    async def close(self) -> None:
        """Close the connection and end the thread."""
        try:
            await self._thread.call(self._close_connection)
        finally:
            self._thread.close()

    def _run(self, work: Work[T]) -> T:
        try:
            result = work(self._ensure_connected())
        except sqlite3.Error as error:
            if not is_database_fault(error):
                raise
            self._recover_from(error)
            raise to_store_error(error, self._path, self._error_suffix) from error
        self.is_locked_out = False
        return result

    def _ensure_connected(self) -> sqlite3.Connection:
        file = _read_file_identity(self._path)
        if self._file_identity is not None and file != self._file_identity:
            self._leave_changed_file(file)
        if self._connection is None:
            self._connection = self._connect(create=self._file_identity is None)
            self._file_identity, self._wal_identity = (
                _read_file_identity(self._path),
                _read_file_identity(f"{self._path}-wal"),
            )
        return self._connection

    def _leave_changed_file(self, file: _FileIdentity | None) -> None:
        if file is None:
            raise StoreError(
                f"{database_title(self._path)}: the file was deleted or moved while in use; put it back, or start "
                f"again to begin with an empty one{self._error_suffix}"
            )
        self._close_connection()
        if self._wal_identity is not None and self._wal_identity == _read_file_identity(f"{self._path}-wal"):
            raise StoreError(
                f"{database_title(self._path)}: the file was replaced while in use, and {self._path}-wal belongs "
                f"to the old one; delete {self._path}-wal and {self._path}-shm{self._error_suffix}"
            )

    @abstractmethod
    def _connect(self, *, create: bool) -> sqlite3.Connection:
        """Open a connection; the first one may create the file."""

    def _recover_from(self, error: sqlite3.Error) -> None:
        if primary_error_code(error) == sqlite3.SQLITE_FULL and self._connection is not None:
            with suppress(sqlite3.Error):  # checkpointing the log into the file may free space
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self.is_locked_out = primary_error_code(error) in LOCK_CODES
        if not self.is_locked_out:
            self._close_connection()

    def _close_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):  # it counts as closed
                connection.close()


class WriterThread(ConnectionThread):
    """Writes: creates the file, and brings its schema up to date."""

    _error_suffix = "; nothing was written"

    def _connect(self, *, create: bool) -> sqlite3.Connection:
        return connect_writer(self._path, create=create)


class ReaderThread(ConnectionThread):
    """Reads, without ever waiting for a commit."""

    def _connect(self, *, create: bool) -> sqlite3.Connection:  # noqa: ARG002, the writer creates it
        return connect_reader(self._path)


class SnapshotReaderThread(ConnectionThread):
    """Reads as of one moment, and changes nothing in the file or its folder."""

    def _connect(self, *, create: bool) -> sqlite3.Connection:  # noqa: ARG002, it never creates
        return connect_snapshot_reader(self._path)


def _read_file_identity(path: str) -> _FileIdentity | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return _FileIdentity(status.st_dev, status.st_ino)


class Database(Transactor[SqliteUnit]):
    """The transactor of the group committer, and a way to read."""

    @abstractmethod
    async def read(self, query: Work[T]) -> T:
        """Run a query on committed rows, as of one moment."""

    async def was_committed(self, token: Any) -> bool:
        """Raise AssertionError: no commit to a local database is ambiguous."""
        raise AssertionError(f"a commit to a local database is never ambiguous: {token}")


class FileDatabase(Database, CallbackTransactor[SqliteUnit]):
    """A database file, which several processes may use."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._writer: ConnectionThread | None = None
        self._reader: ConnectionThread
        self._transaction_count = 0
        self._is_open = False

    async def open(self) -> None:
        """Start both threads; the writer creates the file and its schema. May be called again after a failure."""
        self._writer = WriterThread(self._path, "sqlite-writer")
        self._reader = ReaderThread(self._path, "sqlite-reader")
        try:
            await self._writer.run(_noop)
            await self._reader.run(_noop)
        except BaseException:
            await self._close_threads()
            raise
        self._is_open = True

    async def open_read_only(self) -> None:
        """Connect to read as of this moment; the file must exist."""
        self._writer, self._reader = None, SnapshotReaderThread(self._path, "sqlite-snapshot")
        try:
            await self._reader.run(_noop)
        except BaseException:
            await self._close_threads()
            raise
        self._is_open = True

    async def close(self) -> None:
        """Close the file, after the transaction in flight."""
        if self._is_open:
            self._is_open = False
            await self._close_threads()

    async def _close_threads(self) -> None:
        try:
            await self._reader.close()
        finally:
            if self._writer is not None:
                await self._writer.close()  # last: the last connection to close clears the log away

    @property
    def is_locked_out(self) -> bool:
        """Whether the last write failed because another process was writing."""
        return self._writer is not None and self._writer.is_locked_out

    async def read(self, query: Work[T]) -> T:
        """Run a query on committed rows, as of one moment."""
        if not self._is_open:
            raise StoreError("the store is not open")

        def read_in_snapshot(connection: sqlite3.Connection) -> T:
            if connection.in_transaction:  # a snapshot reader's, from its first moment on
                return query(connection)
            with transaction(connection, "DEFERRED"):
                return query(connection)

        return await self._reader.run(read_in_snapshot)

    async def read_as_writer(self, query: Work[T]) -> T:
        """Read on the connection that writes, whose own commits do not count as changes."""
        if self._writer is None:
            raise StoreError("the store is not open")
        try:
            return await self._writer.run(query)
        except sqlite3.Error as error:
            raise to_store_error(error, self._path) from error

    async def transact(self, units: Sequence[SqliteUnit]) -> Committed:
        """Run units in one transaction on the writer thread."""
        assert self._writer is not None, "the committer is open only while the writer is"
        return Committed(await self._writer.run(lambda connection: run_in_transaction(connection, units)))

    def transact_with_callback(self, units: Sequence[SqliteUnit], on_done: Callback) -> None:
        assert self._writer is not None, "as above"
        self._writer.post(partial(run_in_transaction, units=units), on_done)
        self._transaction_count += 1
        if self._transaction_count == TRANSACTIONS_BEFORE_STRETCH:
            self._writer.post(lambda connection: stretch_log(connection, self._path), _ignore_outcome)

    def translate_error(self, error: Exception) -> Exception:
        if not isinstance(error, sqlite3.Error):
            return error
        visible = to_store_error(error, self._path, "; nothing was written")
        visible.__cause__ = error
        return visible


def run_in_transaction(connection: sqlite3.Connection, units: Sequence[SqliteUnit]) -> list[Any]:
    """Run units and commit; run them again if one of them raises RetryTransactionError, which none does twice.

    Spelled out, without `transaction`: every write takes this path.
    """
    while True:
        connection.execute("BEGIN IMMEDIATE")
        try:
            results = [unit(connection) for unit in units]
            connection.execute("COMMIT")
        except BaseException as error:
            if connection.in_transaction:  # some faults have ended it already
                connection.execute("ROLLBACK")
            if not isinstance(error, RetryTransactionError):
                raise
        else:
            return results


def _ignore_outcome(result: None, error: BaseException | None) -> None:
    """Do nothing: what keeps the log short also concerns the next transaction, and its caller gets the error."""


def _noop(connection: sqlite3.Connection) -> None:
    """Do nothing but connect."""


class SqliteTable:
    """What every port of this store is built on: reads go to the database, writes through the committer."""

    def __init__(self, database: Database, committer: GroupCommitter[SqliteUnit], queries: Queries) -> None:
        self._database = database
        self._committer = committer
        self._queries = queries

    def _write(self, unit: Work[T]) -> CommitFuture[T]:
        """Run a unit of work in the next transaction."""
        return self._committer.submit(unit)

    def _execute_many(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> CommitFuture[Any]:
        """Run one statement for each row, as one unit of work."""
        return self._committer.submit(lambda connection: connection.executemany(statement, rows))

    async def _fetch_all(self, statement: str, values: tuple[Any, ...] | dict[str, Any] = ()) -> list[Any]:
        """Return the rows of a query."""
        return await self._database.read(lambda connection: connection.execute(statement, values).fetchall())
