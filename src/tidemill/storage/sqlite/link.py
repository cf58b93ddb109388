"""A link to the database file: one thread, and one connection that lives on it.

A connection can become useless while the file is fine again: after an error of the disk, after a file was replaced.
So it is let go after every fault but a busy lock, and the next call makes a new one. Two things SQLite does not tell,
and this module looks for them before each call:

* The file was deleted, or another put in its place. SQLite would go on writing to the file that nobody can open again.
* The log beside a replaced file is still the old one's. SQLite would read it into the new file and damage that.
"""

import os
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from tidemill.kernel.concurrency import Callback, WorkerThread
from tidemill.kernel.errors import StoreError
from tidemill.storage.sqlite.connections import connect_onlooker, connect_reader, connect_writer
from tidemill.storage.sqlite.faults import code_of, explain, is_fault, title_of

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

_HARMLESS = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


class _Identity(NamedTuple):
    """Which file lies at a path."""

    device: int
    number: int


class Link(ABC):
    """A thread with a connection of its own. Faults of the database come out as StoreError."""

    _remark = ""  # ends the sentence that tells of a fault

    def __init__(self, path: str, name: str) -> None:
        self._path = path
        self._thread = WorkerThread(f"tidemill-{name}")
        self._connection: sqlite3.Connection | None = None
        self._file: _Identity | None = None  # what the last connection was to; None before the first
        self._log: _Identity | None = None

    async def run(self, work: Work[T]) -> T:
        """Run some work on the thread, after all that was asked before."""
        result: T = await self._thread.call(self._run, work)
        return result

    def post(self, work: Work[Any], told: Callback) -> None:
        """Have the same run; `told` is called on the loop with the result, or with what stood against it."""
        self._thread.post(told, self._run, work)

    async def close(self) -> None:
        """Close the connection and let the thread end."""
        try:
            await self._thread.call(self._let_go)
        finally:
            self._thread.close()

    def _run(self, work: Work[T]) -> T:
        try:
            return work(self._connected())
        except sqlite3.Error as error:
            if not is_fault(error):
                raise
            self._recover_from(error)
            raise explain(error, self._path, self._remark) from error

    def _connected(self) -> sqlite3.Connection:
        file = _identify(self._path)
        if self._file is not None:
            self._check_still_there(file)
        if self._connection is None:
            self._connection = self._connect(create=self._file is None)
            self._file, self._log = _identify(self._path), _identify(f"{self._path}-wal")
        return self._connection

    def _check_still_there(self, file: _Identity | None) -> None:
        if file is None:
            raise StoreError(
                f"{title_of(self._path)}: the file was deleted or moved while in use; put it back, or start again "
                f"to begin with an empty one{self._remark}"
            )
        if file != self._file:
            self._let_go()
            if self._log is not None and self._log == _identify(f"{self._path}-wal"):
                raise StoreError(
                    f"{title_of(self._path)}: the file was replaced while in use, and {self._path}-wal belongs to the "
                    f"old one; delete {self._path}-wal and {self._path}-shm{self._remark}"
                )

    @abstractmethod
    def _connect(self, *, create: bool) -> sqlite3.Connection:
        """Make a connection, ready for use; create the file only for the first."""

    def _recover_from(self, error: sqlite3.Error) -> None:
        if code_of(error) == sqlite3.SQLITE_FULL and self._connection is not None:
            with suppress(sqlite3.Error):  # what the log holds may fit into the file, and then the log is room
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        if code_of(error) not in _HARMLESS:
            self._let_go()

    def _let_go(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):  # it is closed all the same
                connection.close()


class WriterLink(Link):
    """The link that writes: creates the file, and brings its schema up to date."""

    _remark = "; nothing was written"

    def _connect(self, *, create: bool) -> sqlite3.Connection:
        return connect_writer(self._path, create=create)


class ReaderLink(Link):
    """The link that reads; never waits for a commit."""

    def _connect(self, *, create: bool) -> sqlite3.Connection:  # noqa: ARG002, the writer has been there before
        return connect_reader(self._path)


class OnlookerLink(Link):
    """The link that reads as of one moment, and leaves no trace."""

    def _connect(self, *, create: bool) -> sqlite3.Connection:  # noqa: ARG002, it never does
        return connect_onlooker(self._path)


def _identify(path: str) -> _Identity | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return _Identity(found.st_dev, found.st_ino)
