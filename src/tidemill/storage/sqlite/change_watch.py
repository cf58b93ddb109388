"""Notices that another process has changed a SQLite file: a file sends no notifications, so it is polled.

A process that is alone with its file looks now and then, which costs nothing that can be measured. While others write,
it looks often.
"""

import asyncio
import logging
import sqlite3
from collections.abc import Callable

from tidemill.kernel.errors import StoreError
from tidemill.storage.sqlite.database import FileDatabase

logger = logging.getLogger(__name__)

IDLE_INTERVAL = 0.25  # seconds between two looks at the file
BUSY_INTERVAL = 0.02  # the same while other processes write
BUSY_LOOKS = 100  # looks without a change after which others count as idle


class ChangeWatch:
    """Calls subscribers when another process has changed the file."""

    def __init__(self, database: FileDatabase) -> None:
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
        version: int | None = None
        quiet_looks = BUSY_LOOKS
        while True:
            is_busy = quiet_looks < BUSY_LOOKS
            await asyncio.sleep(BUSY_INTERVAL if is_busy else IDLE_INTERVAL)  # real time: other processes have no other
            try:
                found = await self._database.read_as_writer(_read_data_version)
            except StoreError as error:
                logger.debug("cannot look for changes", extra={"error": str(error)})
                continue
            quiet_looks = 0 if version not in (None, found) else quiet_looks + 1  # the first look finds no change
            if found != version:
                version = found
                for on_change in self._subscribers:
                    on_change()


def _read_data_version(connection: sqlite3.Connection) -> int:
    """Return a number that changes with each commit of any other connection."""
    (version,) = connection.execute("PRAGMA data_version").fetchone()
    return int(version)
