"""Faults of real databases, each from its beginning to its repair."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path

import asyncpg

from tests.contract.disks import files_limited_to, small_disk
from tests.postgres import PostgresServer

AGAIN = 0.002  # seconds until a transient fault is injected again

Fault = Callable[[], AbstractAsyncContextManager[None]]

# Holds the write lock of the file $1 until its input ends.
HOLDER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("holding", flush=True)
sys.stdin.read()
"""

TABLES = "tidemill.writers, tidemill.parts, tidemill.journal, tidemill.dead_letters, tidemill.recoveries"
BACKENDS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"


class SqlitePlace:
    """A database file on a disk of its own, which is small if the system allows a mount."""

    def __init__(self, folder: Path, *, is_small: bool) -> None:
        self.store = f"sqlite:///{folder / 'tidemill.db'}"
        self.faults: dict[str, Fault] = {
            "locked by another process": self._locked,
            "disk full": self._full if is_small else self._limited,
            "file moved away": self._moved,
        }
        self._folder = folder
        self._path = folder / "tidemill.db"

    @asynccontextmanager
    async def _locked(self) -> AsyncIterator[None]:
        command = sys.executable, "-c", HOLDER, str(self._path)
        holder = await asyncio.create_subprocess_exec(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert holder.stdin is not None
        assert holder.stdout is not None
        try:
            assert await holder.stdout.readline() == b"holding\n"
            yield
        finally:
            holder.stdin.close()
            await holder.wait()

    @asynccontextmanager
    async def _full(self) -> AsyncIterator[None]:
        """Fill the disk, and everything that becomes free."""
        ballast = self._folder / "ballast"

        async def grow() -> None:
            with ballast.open("ab", buffering=0) as file:
                while True:
                    for size in (65_536, 4096, 1):
                        with suppress(OSError):
                            while file.write(bytes(size)) == size:
                                pass
                    await asyncio.sleep(AGAIN)

        async with asyncio.TaskGroup() as tasks:
            growing = tasks.create_task(grow(), name="ballast")
            yield
            growing.cancel()
        ballast.unlink()

    @asynccontextmanager
    async def _limited(self) -> AsyncIterator[None]:
        """Without the right to mount: limit the size of files."""
        log = Path(f"{self._path}-wal")
        with files_limited_to(log.stat().st_size if log.exists() else 0):
            yield

    @asynccontextmanager
    async def _moved(self) -> AsyncIterator[None]:
        away = self._path.rename(self._path.with_name("away.db"))
        try:
            yield
        finally:
            away.rename(self._path)


class PostgresPlace:
    """A database on a server that may be stopped."""

    def __init__(self, server: PostgresServer, store: str) -> None:
        self.store = store
        self.faults: dict[str, Fault] = {
            "stopped fast": lambda: self._down(lambda: server.stop("fast")),
            "stopped immediately": lambda: self._down(lambda: server.stop("immediate")),
            "killed": lambda: self._down(server.kill),
            "locked out": self._locked_out,
            "tables locked": self._tables_locked,
        }
        self._server = server
        self._name = store.rpartition("/")[2]

    @asynccontextmanager
    async def _down(self, bring_down: Callable[[], None]) -> AsyncIterator[None]:
        await asyncio.to_thread(bring_down)
        try:
            yield
        finally:
            await asyncio.to_thread(self._server.start)

    @asynccontextmanager
    async def _locked_out(self) -> AsyncIterator[None]:
        """Close all connections, and accept no new ones."""
        await self._server.execute(f"ALTER DATABASE {self._name} ALLOW_CONNECTIONS false")
        await self.end_connections()
        try:
            yield
        finally:
            await self._server.execute(f"ALTER DATABASE {self._name} ALLOW_CONNECTIONS true")

    async def end_connections(self) -> None:
        """Close all connections; accept new ones."""
        await self._server.execute(BACKENDS.format(name=self._name))

    @asynccontextmanager
    async def _tables_locked(self) -> AsyncIterator[None]:
        """Let another session lock all tables."""
        connection = await asyncpg.connect(self.store)
        try:
            async with connection.transaction():
                await connection.execute(f"LOCK TABLE {TABLES} IN ACCESS EXCLUSIVE MODE")
                yield
        finally:
            await connection.close()


SQLITE_FAULTS = ["locked by another process", "disk full", "file moved away"]
POSTGRES_FAULTS = ["stopped fast", "stopped immediately", "killed", "locked out", "tables locked"]

Place = SqlitePlace | PostgresPlace


@asynccontextmanager
async def sqlite_place(folder: Path) -> AsyncIterator[SqlitePlace]:
    """Yield a database file, on a small disk if that is possible."""
    disk = folder / "disk"
    disk.mkdir()
    with small_disk(disk) as mounted:
        yield SqlitePlace(disk, is_small=mounted is not None)
