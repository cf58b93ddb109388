"""Hints from other processes: a connection that hears when one of them has changed a run, or what is wanted."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from tidemill.kernel.errors import StoreError
from tidemill.storage.postgres.address import Address
from tidemill.storage.postgres.database import connect, hang_up
from tidemill.storage.postgres.faults import DRIVER_ERRORS, told_as_store_error
from tidemill.storage.run_ports import News

logger = logging.getLogger(__name__)

CHANNELS: dict[str, News] = {"tidemill_runs": "runs", "tidemill_packages": "packages"}
PULSE = 5.0  # seconds of silence after which the server is asked whether it is still there
BACK_OFF = (0.1, 0.3, 1.0, 3.0)  # seconds until the next try to connect; the last one again and again


class Listener:
    """Calls back when another store on the same database has committed a change that is news."""

    def __init__(self, address: Address, sender: str) -> None:
        self._address = address
        self._sender = sender
        self._callers: list[tuple[Callable[[], None], News | None]] = []
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
        self._task, self._callers = None, []
        await tasks.__aexit__(None, None, None)

    async def listen(self, heard: Callable[[], None], about: News | None) -> None:
        """Call back from now on, about some news or all; if there is no connection yet, as soon as there is one."""
        if self._tasks is None:
            raise StoreError("the store is not open")
        self._callers.append((heard, about))
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
                await asyncio.sleep(BACK_OFF[min(failures, len(BACK_OFF) - 1)])
                failures += 1
                continue
            try:
                if failures or began.is_set():
                    self._call()  # whatever happened meanwhile was missed
                failures = 0
                began.set()
                await _stay(connection, ended)
            finally:
                await hang_up(connection)

    async def _connect(self, ended: asyncio.Event) -> Any:
        connection = await connect(self._address)
        try:
            connection.add_termination_listener(lambda _: ended.set())
            with told_as_store_error(self._address.title):
                for channel in CHANNELS:
                    await connection.add_listener(channel, self._hear)
        except BaseException:
            connection.terminate()
            raise
        return connection

    def _hear(self, _connection: Any, _pid: int, channel: str, payload: object) -> None:
        if payload != self._sender:
            self._call(CHANNELS[channel])

    def _call(self, news: News | None = None) -> None:
        """Call those who want to know; everybody if it is not known what the news are."""
        for heard, about in self._callers:
            if news is None or about in (None, news):
                heard()


async def _stay(connection: Any, ended: asyncio.Event) -> None:
    """Return when a connection is lost; one that swallows what it is sent is."""
    while not ended.is_set():
        try:
            async with asyncio.timeout(PULSE):
                await ended.wait()
        except TimeoutError:
            try:
                await connection.execute("SELECT 1")
            except DRIVER_ERRORS:
                return
