"""Hints from other processes: a connection that hears when one of them has changed a run, or what is wanted."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from tidemill.kernel.errors import StoreError
from tidemill.storage.postgres.connection import PostgresUrl, close_connection, connect
from tidemill.storage.postgres.errors import DRIVER_ERRORS, translating_errors
from tidemill.storage.workflow_ports import ChangeTopic

logger = logging.getLogger(__name__)

CHANNELS: dict[str, ChangeTopic] = {"tidemill_runs": "runs", "tidemill_packages": "packages"}
KEEPALIVE_INTERVAL = 5.0  # seconds of silence after which the server is asked whether it is still there
RECONNECT_DELAYS = (0.1, 0.3, 1.0, 3.0)  # seconds until the next try to connect; the last one again and again


class NotificationListener:
    """Calls back when another store on the same database has committed a change that is news."""

    def __init__(self, address: PostgresUrl, sender_id: str) -> None:
        self._address = address
        self._sender_id = sender_id
        self._subscribers: list[tuple[Callable[[], None], ChangeTopic | None]] = []
        self._tasks: asyncio.TaskGroup | None = None
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Begin to accept listeners."""
        self._tasks = asyncio.TaskGroup()
        await self._tasks.__aenter__()

    async def close(self) -> None:
        """Hear no more."""
        tasks, self._tasks = self._tasks, None
        if tasks is None:
            return
        if self._task is not None:
            self._task.cancel()
        self._task, self._subscribers = None, []
        await tasks.__aexit__(None, None, None)

    async def listen(self, on_change: Callable[[], None], topic: ChangeTopic | None) -> None:
        """Call back from now on, about some news or all; if there is no connection yet, as soon as there is one."""
        if self._tasks is None:
            raise StoreError("the store is not open")
        self._subscribers.append((on_change, topic))
        if self._task is None:
            began = asyncio.Event()
            self._task = self._tasks.create_task(self._listen(began), name="store: listener")
            await began.wait()

    async def _listen(self, began: asyncio.Event) -> None:
        failures = 0
        while True:
            ended = asyncio.Event()
            try:
                connection = await self._connect(ended)
            except StoreError as error:
                logger.debug("cannot listen", extra={"error": str(error)})
                began.set()
                # Real time: the network's own.
                await asyncio.sleep(RECONNECT_DELAYS[min(failures, len(RECONNECT_DELAYS) - 1)])
                failures += 1
                continue
            try:
                if failures or began.is_set():
                    self._notify_subscribers()  # whatever happened meanwhile was missed
                failures = 0
                began.set()
                await _wait_until_lost(connection, ended)
            finally:
                await close_connection(connection)

    async def _connect(self, ended: asyncio.Event) -> Any:
        connection = await connect(self._address)
        try:
            connection.add_termination_listener(lambda _: ended.set())
            with translating_errors(self._address.title):
                for channel in CHANNELS:
                    await connection.add_listener(channel, self._on_notification)
        except BaseException:
            connection.terminate()
            raise
        return connection

    def _on_notification(self, _connection: Any, _pid: int, channel: str, payload: object) -> None:
        if payload != self._sender_id:
            self._notify_subscribers(CHANNELS[channel])

    def _notify_subscribers(self, topic: ChangeTopic | None = None) -> None:
        """Call those who want to know; everybody if it is not known what the news are."""
        for heard, about in self._subscribers:
            if topic is None or about in (None, topic):
                heard()


async def _wait_until_lost(connection: Any, ended: asyncio.Event) -> None:
    """Return when a connection is lost; one that swallows what it is sent is."""
    while not ended.is_set():
        try:
            async with asyncio.timeout(KEEPALIVE_INTERVAL):
                await ended.wait()
        except TimeoutError:
            try:
                await connection.execute("SELECT 1")
            except DRIVER_ERRORS:
                return
