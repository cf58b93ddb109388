"""The database file: one link that writes, one that reads, and the transactions between them."""

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tidemill.kernel.errors import StoreError
from tidemill.storage.answers import Answer
from tidemill.storage.committer import Callback, Committed, GroupCommitter, Transactor
from tidemill.storage.sqlite.faults import explain
from tidemill.storage.sqlite.link import Link, OnlookerLink, ReaderLink, WriterLink
from tidemill.storage.sqlite.transactions import RunAgainError, transaction

T = TypeVar("T")
Unit = Callable[[sqlite3.Connection], Any]


class Database(Transactor[Unit]):
    """What the ports read from and write to."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._writer: Link | None = None
        self._reader: Link
        self._committer: GroupCommitter[Unit] = GroupCommitter(self, self._explain, self._send)
        self._is_open = False
        self.fail_next = self._committer.fail_next

    async def open(self) -> None:
        """Connect both links; the writer creates the file and its schema. May be tried again after a failure."""
        self._writer = WriterLink(self._path, "sqlite-writer")
        self._reader = ReaderLink(self._path, "sqlite-reader")
        try:
            await self._writer.run(_nothing)
            await self._reader.run(_nothing)
            await self._committer.open()
        except BaseException:
            await self._close_links()
            raise
        self._is_open = True

    async def look(self) -> None:
        """Connect to read as of this moment; the file must be there."""
        self._writer, self._reader = None, OnlookerLink(self._path, "sqlite-onlooker")
        try:
            await self._reader.run(_nothing)
        except BaseException:
            await self._close_links()
            raise
        self._is_open = True

    async def close(self) -> None:
        """Let go of the file, after the transaction that is on its way."""
        if self._is_open:
            self._is_open = False
            try:
                await self._committer.close()
            finally:
                await self._close_links()

    async def _close_links(self) -> None:
        try:
            await self._reader.close()
        finally:
            if self._writer is not None:
                await self._writer.close()  # last, so that it finds nobody else and clears the log away

    def submit(self, unit: Callable[[sqlite3.Connection], T]) -> Answer[T]:
        """Run a unit of work in the next transaction; its result comes when it is committed."""
        return self._committer.submit(unit)

    async def write(self, unit: Callable[[sqlite3.Connection], T]) -> T:
        """Run a unit of work in the next transaction."""
        return await self.submit(unit)

    def _explain(self, error: Exception) -> Exception:
        """Return how a unit's own error is told: a fault of the database is a StoreError already."""
        if not isinstance(error, sqlite3.Error):
            return error
        told = explain(error, self._path, "; nothing was written")
        told.__cause__ = error
        return told

    async def read(self, question: Callable[[sqlite3.Connection], T]) -> T:
        """Answer a question from what is committed, as of one moment."""
        if not self._is_open:
            raise StoreError("the store is not open")

        def answer(connection: sqlite3.Connection) -> T:
            if connection.in_transaction:  # an onlooker's, from its first moment on
                return question(connection)
            with transaction(connection, "DEFERRED"):
                return question(connection)

        return await self._reader.run(answer)

    async def write_many(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Run one statement for each of some rows, as one unit of work."""
        await self.write(lambda connection: connection.executemany(statement, rows))

    async def rows(self, statement: str, values: tuple[Any, ...] = ()) -> list[Any]:
        """Return what a statement finds."""
        return await self.read(lambda connection: connection.execute(statement, values).fetchall())

    async def transact(self, units: Sequence[Unit]) -> Committed:
        assert self._writer is not None, "the committer is open only while the writer is"
        return Committed(await self._writer.run(lambda connection: _run_all(connection, units)))

    def _send(self, units: Sequence[Unit], told: Callback) -> None:
        """Run units as `transact` does, and call back."""
        assert self._writer is not None, "as above"
        self._writer.post(lambda connection: _run_all(connection, units), told)

    async def was_committed(self, token: Any) -> bool:
        raise AssertionError(f"a commit to a local file is never ambiguous: {token}")


def _run_all(connection: sqlite3.Connection, units: Sequence[Unit]) -> list[Any]:
    while True:
        try:
            with transaction(connection, "IMMEDIATE"):
                return [unit(connection) for unit in units]
        except RunAgainError:  # whoever raised it does not do so twice
            continue


def _nothing(connection: sqlite3.Connection) -> None:
    """Ask for nothing but the connection."""
