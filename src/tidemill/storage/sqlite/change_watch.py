"""Notices that another connection has changed a SQLite file: a file sends no notifications, so it is polled."""

import asyncio
import logging
import sqlite3
from collections.abc import Callable

from tidemill.kernel.errors import StoreError
from tidemill.storage.sqlite.database import Database

logger = logging.getLogger(__name__)

POLL_INTERVAL = 0.02  # seconds between two looks at the file, each of which takes microseconds


class ChangeWatch:
    """Calls subscribers when the file was changed, also by this process."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._subscribers: list[Callable[[], None]] = []
        self._tasks: asyncio.TaskGroup | None = None
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Begin to accept subscribers."""
        self._tasks = asyncio.TaskGroup()
        await self._tasks.__aenter__()

    async def close(self) -> None:
        """Stop polling."""
        tasks, self._tasks = self._tasks, None
        if tasks is None:
            return
        if self._task is not None:
            self._task.cancel()
        self._task, self._subscribers = None, []
        await tasks.__aexit__(None, None, None)

    def subscribe(self, on_change: Callable[[], None]) -> None:
        """Call `on_change` from now on; the first subscriber starts the polling."""
        if self._tasks is None:
            raise StoreError("the store is not open")
        self._subscribers.append(on_change)
        if self._task is None:
            self._task = self._tasks.create_task(self._poll(), name="store: change watch")

    async def _poll(self) -> None:
        version = -1
        while True:
            await asyncio.sleep(POLL_INTERVAL)  # real time: other processes have no other
            try:
                found = await self._database.read(_read_data_version)
            except StoreError as error:
                logger.debug("cannot look for changes", extra={"error": str(error)})
                continue
            if found != version:
                version = found
                for on_change in self._subscribers:
                    on_change()


def _read_data_version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA data_version").fetchone()
    return int(version)
