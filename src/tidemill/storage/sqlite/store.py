"""The SQLite store: one file, the standard library's driver, two threads."""

import sqlite3
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from tidemill.kernel.clock import SystemClock
from tidemill.kernel.concurrency import in_thread
from tidemill.kernel.errors import StoreError
from tidemill.storage.migrations import check_current
from tidemill.storage.ports import SchemaState, Store
from tidemill.storage.queries import Queries
from tidemill.storage.run_ports import News
from tidemill.storage.sqlite.backfills import SqliteBackfills
from tidemill.storage.sqlite.checkpoints import SqliteCheckpoints
from tidemill.storage.sqlite.connections import inspecting
from tidemill.storage.sqlite.database import Database
from tidemill.storage.sqlite.dead_letters import SqliteDeadLetters
from tidemill.storage.sqlite.faults import DAMAGE, code_of, explain, title_of, why_not_opened
from tidemill.storage.sqlite.leases import SqliteLeases
from tidemill.storage.sqlite.logs import SqliteLogs
from tidemill.storage.sqlite.notes import SqliteNotes
from tidemill.storage.sqlite.owners import SqliteOwners
from tidemill.storage.sqlite.package_states import SqlitePackageStates
from tidemill.storage.sqlite.packages import SqlitePackages
from tidemill.storage.sqlite.pauses import SqlitePauses
from tidemill.storage.sqlite.recoveries import SqliteRecoveries
from tidemill.storage.sqlite.runs import SqliteRuns
from tidemill.storage.sqlite.schedules import SqliteSchedules
from tidemill.storage.sqlite.schema import MIGRATIONS, check_ours, version_of
from tidemill.storage.sqlite.trusted_keys import SqliteTrustedKeys
from tidemill.storage.sqlite.versions import SqliteVersions

QUERIES = Queries.of(__package__)


class SqliteStore(Store):
    """A store in one file. Several may be open on it at the same time, in one process or in many.

    A relative path is one from where the process works now: author code may move it later. Leases run out by `now`, the
    machine's clock unless another is given.
    """

    def __init__(self, path: str, now: Callable[[], datetime] | None = None) -> None:
        self._title = title_of(path)
        self._path, now = _lasting(path), now or SystemClock().now
        self._database = Database(self._path)
        self.checkpoints = SqliteCheckpoints(self._database, QUERIES)
        self.dead_letters = SqliteDeadLetters(self._database, QUERIES)
        self.recoveries = SqliteRecoveries(self._database, QUERIES)
        self.pauses = SqlitePauses(self._database, QUERIES)
        self.runs = SqliteRuns(self._database, QUERIES, now)
        self.leases = SqliteLeases(self._database, QUERIES, now)
        self.notes = SqliteNotes(self._database, QUERIES)
        self.versions = SqliteVersions(self._database, QUERIES)
        self.schedules = SqliteSchedules(self._database, QUERIES)
        self.owners = SqliteOwners(self._database, QUERIES)
        self.logs = SqliteLogs(self._database, QUERIES)
        self.backfills = SqliteBackfills(self._database, QUERIES)
        self.packages = SqlitePackages(self._database, QUERIES)
        self.package_states = SqlitePackageStates(self._database, QUERIES)
        self.trusted_keys = SqliteTrustedKeys(self._database, QUERIES)

    @property
    def title(self) -> str:
        return self._title

    async def open(self) -> None:
        await self._database.open()

    async def look(self) -> None:
        check_current(await self.schema(), self.title)
        await self._database.look()

    async def close(self) -> None:
        await self._database.close()

    async def schema(self) -> SchemaState:
        found: int = await in_thread(_read_version, self._path)
        return SchemaState(found, len(MIGRATIONS))

    async def problems(self) -> list[str]:
        found: list[str] = await in_thread(_look_for_damage, self._path)
        return found

    async def listen(self, heard: Callable[[], None], about: News | None = None) -> None:
        """Do nothing: a file does not tell who writes to it."""

    def fail_next(self, times: int) -> None:
        self._database.fail_next(times)


def _lasting(path: str) -> str:
    try:
        return str(Path(path).absolute())
    except OSError as error:
        message = f"{title_of(path)}: the folder in which this process works is gone; name an absolute path"
        raise StoreError(message) from error


def _read_version(path: str) -> int:
    if not Path(path).exists():
        if not Path(path).parent.is_dir():
            raise StoreError(f"{title_of(path)}: {why_not_opened(Path(path))}")
        return 0
    try:
        with inspecting(path) as connection:
            check_ours(connection, title_of(path))
            return version_of(connection)
    except sqlite3.Error as error:
        raise explain(error, path) from error


def _look_for_damage(path: str) -> list[str]:
    try:
        with inspecting(path) as connection:
            damage = [line for (text,) in connection.execute("PRAGMA quick_check") for line in text.splitlines()]
            orphans = connection.execute("PRAGMA foreign_key_check").fetchall()
    except sqlite3.Error as error:
        if code_of(error) in DAMAGE:
            return [str(explain(error, path))]
        raise explain(error, path) from error
    return [
        *(f"{title_of(path)}: {line}" for line in damage if line != "ok" and not line.startswith("***")),
        *(f"{title_of(path)}: row {row} of {table} points to nothing in {parent}" for table, row, parent, _ in orphans),
    ]
