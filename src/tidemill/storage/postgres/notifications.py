"""Notifications from other processes: a connection that listens for changes of runs, packages, access and mail."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from tidemill.kernel.errors import StoreError
from tidemill.storage.postgres.connection import PostgresUrl, close_connection, connect
from tidemill.storage.postgres.errors import DRIVER_ERRORS, translating_errors
from tidemill.storage.workflow_ports import ChangeTopic

logger = logging.getLogger(__name__)

CHANNELS: dict[str, ChangeTopic] = {
    "tidemill_runs": "runs",
    "tidemill_packages": "packages",
    "tidemill_access": "access",
    "tidemill_mail": "mail",
}
KEEPALIVE_INTERVAL = 5.0  # seconds without a notification after which the connection is checked
RECONNECT_DELAYS = (0.1, 0.3, 1.0, 3.0)  # seconds until the next attempt to connect; the last one repeats


class NotificationListener:
    """Calls subscribers when another store on the same database has committed a change."""

    def __init__(self, address: PostgresUrl, sender_id: str) -> None:
        self._address = address
        self._sender_id = sender_id
        self._subscribers: list[tuple[Callable[[], None], ChangeTopic | None]] = []
        self._tasks: asyncio.TaskGroup | None = None
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Begin to accept subscribers."""
        self._tasks = asyncio.TaskGroup()
        await self._tasks.__aenter__()

    async def close(self) -> None:
        """Stop listening."""
        tasks, self._tasks = self._tasks, None
        if tasks is None:
            return
        if self._task is not None:
            self._task.cancel()
        self._task, self._subscribers = None, []
        await tasks.__aexit__(None, None, None)

    async def listen(self, on_change: Callable[[], None], topic: ChangeTopic | None) -> None:
        """Call `on_change` from now on, for one topic or all; without a connection, as soon as there is one."""
        if self._tasks is None:
            raise StoreError("the store is not open")
        self._subscribers.append((on_change, topic))
        if self._task is None:
            started = asyncio.Event()
            self._task = self._tasks.create_task(self._listen(started), name="store: listener")
            await started.wait()

    async def _listen(self, started: asyncio.Event) -> None:
        failures = 0
        while True:
            lost = asyncio.Event()
            try:
                connection = await self._connect(lost)
            except StoreError as error:
                logger.debug("cannot listen", extra={"error": str(error)})
                started.set()
                # Real time: the network's own.
                await asyncio.sleep(RECONNECT_DELAYS[min(failures, len(RECONNECT_DELAYS) - 1)])
                failures += 1
                continue
            try:
                if failures or started.is_set():
                    self._notify_subscribers()  # changes since the connection was lost were missed
                failures = 0
                started.set()
                await _wait_until_lost(connection, lost)
            finally:
                await close_connection(connection)

    async def _connect(self, lost: asyncio.Event) -> Any:
        connection = await connect(self._address)
        try:
            connection.add_termination_listener(lambda _: lost.set())
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
        """Call the subscribers of a topic; all of them if the topic is not known."""
        for on_change, subscribed in self._subscribers:
            if topic is None or subscribed == topic or (subscribed is None and topic != "mail"):
                on_change()


async def _wait_until_lost(connection: Any, lost: asyncio.Event) -> None:
    """Return when a connection is lost, or no longer answers."""
    while not lost.is_set():
        try:
            async with asyncio.timeout(KEEPALIVE_INTERVAL):
                await lost.wait()
        except TimeoutError:
            try:
                await connection.execute("SELECT 1")
            except DRIVER_ERRORS:
                return
