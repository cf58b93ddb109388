"""Sends the log of the attempt to the server, in numbered batches, soon after it is written."""

import asyncio
import sys
from collections import deque
from collections.abc import Sequence

from tidemill.attempt.connection import CALL_TIMEOUT, ServerConnection
from tidemill.engine.workflows.executors.interface import LogRecord

SEND_INTERVAL = 0.25
"""Seconds between two batches."""
BATCH_SIZE = 1024 * 1024
"""Characters of a batch, about: a server takes some megabytes."""


class LogSender:
    """Buffers log records, and sends them in order."""

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection
        self._records: deque[LogRecord] = deque()
        self._number = 0
        self._lock = asyncio.Lock()

    def add(self, records: Sequence[LogRecord]) -> None:
        """Send records soon; what the code prints is printed here too, for the logs of the cluster."""
        self._records += records
        for record in records:
            if record.stream != "log":
                print(record.message, file=sys.stderr if record.stream == "stderr" else sys.stdout, flush=True)

    async def run(self) -> None:
        """Send records until cancelled."""
        while True:
            await asyncio.sleep(SEND_INTERVAL)  # real time: readers follow the log live
            await self.flush()

    async def flush(self) -> None:
        """Send everything that is buffered."""
        async with self._lock:
            while self._records:
                batch = self._take_batch()
                body = {"number": self._number, "records": batch}
                await self._connection.post("/logs", body, type(None), CALL_TIMEOUT)
                self._number += 1
                for _ in batch:
                    self._records.popleft()

    def _take_batch(self) -> list[LogRecord]:
        """Return the oldest records, which stay in the buffer until they are sent."""
        batch, size = [], 0
        for record in self._records:
            batch.append(record)
            size += len(record.message) + 200 * len(record.fields)
            if size >= BATCH_SIZE:
                break
        return batch
