"""The database file: one link that writes, one that reads, and the transactions between them."""

import os
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from tidemill.kernel.concurrency import ResultCallback, WorkerThread
from tidemill.kernel.errors import StoreError
from tidemill.storage.committer import Callback, CommitFuture, Committed, GroupCommitter, Transactor
from tidemill.storage.sqlite.connections import (
    RetryTransactionError,
    connect_reader,
    connect_snapshot_reader,
    connect_writer,
    transaction,
)
from tidemill.storage.sqlite.errors import database_title, is_database_fault, primary_error_code, to_store_error

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

_LOCK_ERROR_CODES = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


class _FileIdentity(NamedTuple):
    """Which file lies at a path."""

    device: int
    inode: int


class ConnectionThread(ABC):
    """A thread with a connection of its own. Faults of the database come out as StoreError."""

    _error_suffix = ""  # ends the sentence that tells of a fault

    def __init__(self, path: str, name: str) -> None:
        self._path = path
        self._thread = WorkerThread(f"tidemill-{name}")
        self._connection: sqlite3.Connection | None = None
        self._file_identity: _FileIdentity | None = None  # what the last connection was to; None before the first
        self._wal_identity: _FileIdentity | None = None

    async def run(self, work: Work[T]) -> T:
        """Run some work on the thread, after all that was asked before."""
        result: T = await self._thread.call(self._run, work)
        return result

    def post(self, work: Work[Any], on_done: ResultCallback) -> None:
        """Have the same run; `told` is called on the loop with the result, or with what stood against it."""
        self._thread.submit(on_done, self._run, work)

    async def close(self) -> None:
        """Close the connection and let the thread end."""
        try:
            await self._thread.call(self._close_connection)
        finally:
            self._thread.close()

    def _run(self, work: Work[T]) -> T:
        try:
            return work(self._ensure_connected())
        except sqlite3.Error as error:
            if not is_database_fault(error):
                raise
            self._recover_from(error)
            raise to_store_error(error, self._path, self._error_suffix) from error

    def _ensure_connected(self) -> sqlite3.Connection:
        file = _read_file_identity(self._path)
        if self._file_identity is not None:
            self._check_file_unchanged(file)
        if self._connection is None:
            self._connection = self._connect(create=self._file_identity is None)
            self._file_identity, self._wal_identity = (
                _read_file_identity(self._path),
                _read_file_identity(f"{self._path}-wal"),
            )
        return self._connection

    def _check_file_unchanged(self, file: _FileIdentity | None) -> None:
        if file is None:
            raise StoreError(
                f"{database_title(self._path)}: the file was deleted or moved while in use; put it back, or "
                "start again "
                f"to begin with an empty one{self._error_suffix}"
            )
        if file != self._file_identity:
            self._close_connection()
            if self._wal_identity is not None and self._wal_identity == _read_file_identity(f"{self._path}-wal"):
                raise StoreError(
                    f"{database_title(self._path)}: the file was replaced while in use, and "
                    f"{self._path}-wal belongs to the "
                    f"old one; delete {self._path}-wal and {self._path}-shm{self._error_suffix}"
                )

    @abstractmethod
    def _connect(self, *, create: bool) -> sqlite3.Connection:
        """Make a connection, ready for use; create the file only for the first."""

    def _recover_from(self, error: sqlite3.Error) -> None:
        if primary_error_code(error) == sqlite3.SQLITE_FULL and self._connection is not None:
            with suppress(sqlite3.Error):  # what the log holds may fit into the file, and then the log is room
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        if primary_error_code(error) not in _LOCK_ERROR_CODES:
            self._close_connection()

    def _close_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):  # it is closed all the same
                connection.close()


class WriterThread(ConnectionThread):
    """The link that writes: creates the file, and brings its schema up to date."""

    _error_suffix = "; nothing was written"

    def _connect(self, *, create: bool) -> sqlite3.Connection:
        return connect_writer(self._path, create=create)


class ReaderThread(ConnectionThread):
    """The link that reads; never waits for a commit."""

    def _connect(self, *, create: bool) -> sqlite3.Connection:  # noqa: ARG002, the writer has been there before
        return connect_reader(self._path)


class SnapshotReaderThread(ConnectionThread):
    """The link that reads as of one moment, and leaves no trace."""

    def _connect(self, *, create: bool) -> sqlite3.Connection:  # noqa: ARG002, it never does
        return connect_snapshot_reader(self._path)


def _read_file_identity(path: str) -> _FileIdentity | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return _FileIdentity(found.st_dev, found.st_ino)


Unit = Callable[[sqlite3.Connection], Any]


class Database(Transactor[Unit]):
    """What the ports read from and write to."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._writer: ConnectionThread | None = None
        self._reader: ConnectionThread
        self._committer: GroupCommitter[Unit] = GroupCommitter(
            self, self._translate_error, self._transact_with_callback
        )
        self._is_open = False
        self.fail_next = self._committer.fail_next

    async def open(self) -> None:
        """Connect both links; the writer creates the file and its schema. May be tried again after a failure."""
        self._writer = WriterThread(self._path, "sqlite-writer")
        self._reader = ReaderThread(self._path, "sqlite-reader")
        try:
            await self._writer.run(_noop)
            await self._reader.run(_noop)
            await self._committer.open()
        except BaseException:
            await self._close_threads()
            raise
        self._is_open = True

    async def open_read_only(self) -> None:
        """Connect to read as of this moment; the file must be there."""
        self._writer, self._reader = None, SnapshotReaderThread(self._path, "sqlite-onlooker")
        try:
            await self._reader.run(_noop)
        except BaseException:
            await self._close_threads()
            raise
        self._is_open = True

    async def close(self) -> None:
        """Let go of the file, after the transaction that is on its way."""
        if self._is_open:
            self._is_open = False
            try:
                await self._committer.close()
            finally:
                await self._close_threads()

    async def _close_threads(self) -> None:
        try:
            await self._reader.close()
        finally:
            if self._writer is not None:
                await self._writer.close()  # last, so that it finds nobody else and clears the log away

    def submit(self, unit: Callable[[sqlite3.Connection], T]) -> CommitFuture[T]:
        """Run a unit of work in the next transaction; its result comes when it is committed."""
        return self._committer.submit(unit)

    async def write(self, unit: Callable[[sqlite3.Connection], T]) -> T:
        """Run a unit of work in the next transaction."""
        return await self.submit(unit)

    def _translate_error(self, error: Exception) -> Exception:
        """Return how a unit's own error is told: a fault of the database is a StoreError already."""
        if not isinstance(error, sqlite3.Error):
            return error
        told = to_store_error(error, self._path, "; nothing was written")
        told.__cause__ = error
        return told

    async def read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Answer a question from what is committed, as of one moment."""
        if not self._is_open:
            raise StoreError("the store is not open")

        def answer(connection: sqlite3.Connection) -> T:
            if connection.in_transaction:  # an onlooker's, from its first moment on
                return query(connection)
            with transaction(connection, "DEFERRED"):
                return query(connection)

        return await self._reader.run(answer)

    async def execute_many(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Run one statement for each of some rows, as one unit of work."""
        await self.write(lambda connection: connection.executemany(statement, rows))

    async def fetch_all(self, statement: str, values: tuple[Any, ...] = ()) -> list[Any]:
        """Return what a statement finds."""
        return await self.read(lambda connection: connection.execute(statement, values).fetchall())

    async def transact(self, units: Sequence[Unit]) -> Committed:
        assert self._writer is not None, "the committer is open only while the writer is"
        return Committed(await self._writer.run(lambda connection: _run_in_transaction(connection, units)))

    def _transact_with_callback(self, units: Sequence[Unit], on_done: Callback) -> None:
        """Run units as `transact` does, and call back."""
        assert self._writer is not None, "as above"
        self._writer.post(lambda connection: _run_in_transaction(connection, units), on_done)

    async def was_committed(self, token: Any) -> bool:
        raise AssertionError(f"a commit to a local file is never ambiguous: {token}")


def _run_in_transaction(connection: sqlite3.Connection, units: Sequence[Unit]) -> list[Any]:
    while True:
        try:
            with transaction(connection, "IMMEDIATE"):
                return [unit(connection) for unit in units]
        except RetryTransactionError:  # whoever raised it does not do so twice
            continue


def _noop(connection: sqlite3.Connection) -> None:
    """Ask for nothing but the connection."""
