"""The SQLite store: one file, the standard library's driver, two threads."""

import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path

from tidemill.kernel.clock import SystemClock
from tidemill.kernel.concurrency import call_in_thread
from tidemill.kernel.errors import StoreError
from tidemill.storage.backup import Replacement, Snapshot
from tidemill.storage.committer import GroupCommitter
from tidemill.storage.migrations import SchemaState, check_schema_current
from tidemill.storage.sqlite.backup import open_replacement, open_snapshot
from tidemill.storage.sqlite.change_watch import ChangeWatch
from tidemill.storage.sqlite.connections import (
    MIGRATIONS,
    check_application_id,
    open_for_inspection,
    read_schema_version,
)
from tidemill.storage.sqlite.database import FileDatabase, SqliteUnit
from tidemill.storage.sqlite.errors import (
    CORRUPTION_CODES,
    database_title,
    explain_cannot_open,
    primary_error_code,
    to_store_error,
)
from tidemill.storage.sqlite.key_file import KEY_FILE_SUFFIX, read_or_create_keys
from tidemill.storage.sqlite.ports import SqlitePorts
from tidemill.storage.sqlite.write_lock import LockHolder, find_lock_holder
from tidemill.storage.store import Store
from tidemill.storage.store_size import COUNT_LIMIT, COUNTED_TABLES, StoreSize, counted
from tidemill.storage.workflow_ports import ChangeTopic
from tidemill.storage.write_check import check_writable


class SqliteStore(SqlitePorts, Store):
    """A store in one file. Several may be open on it at the same time, in one process or in many.

    A relative path is resolved now: author code may change the working directory later. Leases expire by `now`, the
    machine's clock by default.
    """

    def __init__(self, path: str, now: Callable[[], datetime] | None = None) -> None:
        self._title = database_title(path)
        self._path, now = _absolute_path(path), now or SystemClock().now
        self._database = FileDatabase(self._path)
        self._committer: GroupCommitter[SqliteUnit] = GroupCommitter(self._database)
        super().__init__(self._database, self._committer, now)
        self._change_watch = ChangeWatch(self._database)

    kind = "sqlite"

    @property
    def title(self) -> str:
        return self._title

    async def open(self) -> None:
        await self._database.open()
        await self._committer.open()
        await self._change_watch.open()

    async def open_read_only(self) -> None:
        check_schema_current(await self.read_schema_state(), self.title)
        await self._database.open_read_only()

    async def close(self) -> None:
        try:
            await self._change_watch.close()
            await self._committer.close()
        finally:
            await self._database.close()

    async def read_schema_state(self) -> SchemaState:
        found: int = await call_in_thread(_read_file_version, self._path)
        return SchemaState(found, len(MIGRATIONS))

    async def check_writable(self) -> None:
        await check_writable(self.notes, [self._committer])

    def read_local_keys(self) -> str | None:
        """Return the keys in the file next to the database, which only its owner can read."""
        return read_or_create_keys(Path(f"{self._path}{KEY_FILE_SUFFIX}"))

    async def read_size(self) -> StoreSize:
        return await self._database.read(measure)

    async def check_integrity(self) -> list[str]:
        found: list[str] = await call_in_thread(_find_damage, self._path)
        return found

    @asynccontextmanager
    async def open_snapshot(self) -> AsyncIterator[Snapshot]:
        with open_snapshot(self._path) as snapshot:
            yield snapshot

    @asynccontextmanager
    async def open_replacement(self, schema_version: int, *, replace: bool) -> AsyncIterator[Replacement]:
        with open_replacement(self._path, schema_version, replace=replace) as target:
            yield target

    async def find_write_blocker(self) -> str | None:
        """Return which process holds the write lock of the file, if it is stopped or has kept this one from writing."""
        holder: LockHolder | None = await call_in_thread(find_lock_holder, self._path)
        if holder is None or not (holder.is_stopped or self._database.is_locked_out):
            return None  # a write that is under way, and soon over
        return f"{self.title} cannot be written: {holder} holds its write lock; {holder.advice}"

    async def listen(self, on_change: Callable[[], None], topic: ChangeTopic | None = None) -> None:
        """Look regularly whether mail may have come. Of other changes a file sends no notifications."""
        if topic == "mail":
            self._change_watch.subscribe(on_change)


def measure(connection: sqlite3.Connection) -> StoreSize:
    """Return the bytes of a database, and the rows of its tables that grow."""
    ((pages,),) = connection.execute("PRAGMA page_count")
    ((page_size,),) = connection.execute("PRAGMA page_size")
    rows = {}
    for what, table in COUNTED_TABLES.items():
        ((number,),) = connection.execute(f"SELECT count(*) FROM (SELECT 1 FROM {table} LIMIT {COUNT_LIMIT})")
        rows[what] = counted(number)
    return StoreSize(pages * page_size, rows)


def _absolute_path(path: str) -> str:
    try:
        return str(Path(path).absolute())
    except OSError as error:
        message = f"{database_title(path)}: the working directory of this process is gone; name an absolute path"
        raise StoreError(message) from error


def _read_file_version(path: str) -> int:
    if not Path(path).exists():
        if not Path(path).parent.is_dir():
            raise StoreError(f"{database_title(path)}: {explain_cannot_open(Path(path))}")
        return 0
    try:
        with open_for_inspection(path) as connection:
            check_application_id(connection, database_title(path))
            return read_schema_version(connection)
    except sqlite3.Error as error:
        raise to_store_error(error, path) from error


def _find_damage(path: str) -> list[str]:
    try:
        with open_for_inspection(path) as connection:
            damage = [line for (text,) in connection.execute("PRAGMA quick_check") for line in text.splitlines()]
            orphans = connection.execute("PRAGMA foreign_key_check").fetchall()
    except sqlite3.Error as error:
        if primary_error_code(error) in CORRUPTION_CODES:
            return [str(to_store_error(error, path))]
        raise to_store_error(error, path) from error
    return [
        *(f"{database_title(path)}: {line}" for line in damage if line != "ok" and not line.startswith("***")),
        *(
            f"{database_title(path)}: row {row} of {table} points to nothing in {parent}"
            for table, row, parent, _ in orphans
        ),
    ]
