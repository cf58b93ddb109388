"""Every port on every database: `store` is an open one of each, on `database` several can be opened."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Protocol

import pytest

from tests.contract.samples import NOON
from tests.postgres import PostgresServer
from tests.sqlite import create_database
from tidemill.kernel.clock import VirtualClock
from tidemill.storage.migrations import load_migrations
from tidemill.storage.postgres.store import PostgresStore
from tidemill.storage.sqlite.connections import APPLICATION_ID
from tidemill.storage.sqlite.memory import MemoryStore
from tidemill.storage.sqlite.store import SqliteStore
from tidemill.storage.store import Store

Now = Callable[[], datetime]


class ContractDatabase(Protocol):
    """A database that outlives the stores on it."""

    def store(self, now: Now | None = None) -> Store:
        """Return a new store on it, which is not open yet; with its own clock, if one is given."""

    async def pretend_version(self, number: int) -> None:
        """Set the version of its schema."""

    async def make_older(self, number: int, rows: str) -> None:
        """Create it as an older Tidemill would, which knew so many migrations, with some rows."""


class MemoryDatabase(ContractDatabase):
    """One store object, returned every time."""

    def __init__(self, now: Now | None = None) -> None:
        self._store = MemoryStore(now)

    def store(self, now: Now | None = None) -> Store:
        return self._store


class SqliteFile(ContractDatabase):
    """A file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def store(self, now: Now | None = None) -> Store:
        return SqliteStore(str(self._path), now)

    async def pretend_version(self, number: int) -> None:
        def write() -> None:
            with closing(sqlite3.connect(self._path)) as connection:
                connection.execute(f"PRAGMA user_version = {number}")

        await asyncio.to_thread(write)

    async def make_older(self, number: int, rows: str) -> None:
        script = [migration.sql for migration in load_migrations("tidemill.storage.sqlite")[:number]]
        script += [rows, f"PRAGMA user_version = {number};", f"PRAGMA application_id = {APPLICATION_ID};"]

        def write() -> None:
            with closing(sqlite3.connect(self._path)) as connection:
                connection.executescript("\n".join(script))

        await asyncio.to_thread(write)


class PostgresDatabase(ContractDatabase):
    """A database on a server."""

    def __init__(self, server: PostgresServer, url: str) -> None:
        self._server = server
        self._url = url

    def store(self, now: Now | None = None) -> Store:
        return PostgresStore(self._url, now=now)

    async def pretend_version(self, number: int) -> None:
        await self._server.execute(f"INSERT INTO tidemill.schema_versions VALUES ({number}, 'pretended')", self._name)

    async def make_older(self, number: int, rows: str) -> None:
        migrations = load_migrations("tidemill.storage.postgres")[:number]
        for statement in [one for migration in migrations for one in migration.statements]:
            await self._server.execute(statement, self._name)
        for one in migrations:
            await self.pretend_version(one.number)
        await self._server.execute(rows, self._name)

    @property
    def _name(self) -> str:
        return self._url.rpartition("/")[2]


@pytest.fixture(params=["sqlite", "postgres"])
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> ContractDatabase:
    """A new, empty database that several stores can be opened on; the server starts on first use."""
    if request.param == "sqlite":
        return SqliteFile(tmp_path / "tidemill.db")
    server: PostgresServer = request.getfixturevalue("postgres")
    return PostgresDatabase(server, await server.fresh_database())


@pytest.fixture
def clock() -> VirtualClock:
    """The clock of `store`; it begins at NOON."""
    return VirtualClock(NOON)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path, clock: VirtualClock) -> AsyncIterator[Store]:
    """An open store with nothing in it."""
    store: Store = MemoryStore(clock.now)
    if request.param == "sqlite":
        create_database(tmp_path / "tidemill.db")
        store = SqliteStore(str(tmp_path / "tidemill.db"), clock.now)
    elif request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        store = PostgresStore(await server.fresh_store(), now=clock.now)
    await store.open()
    yield store
    await store.close()
