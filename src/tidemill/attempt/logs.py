"""Sends the log of the attempt to the server, in numbered batches, soon after it is written."""

import asyncio
import sys
from collections import deque
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from tidemill.attempt.connection import CALL_TIMEOUT, ServerConnection, TooLargeError
from tidemill.kernel.clock import SystemClock
from tidemill.telemetry.log_records import LogRecord

SEND_INTERVAL = 0.25
"""Seconds between two batches."""
BATCH_SIZE = 1024 * 1024
"""Bytes of a batch, unless its only record has more: a server takes some megabytes."""
RECORD_LIMIT = 1024 * 1024
"""Bytes of a record with its fields: those of a longer one are left out."""
BUFFER_LIMIT = 32 * 1024 * 1024
"""Bytes that may wait while no server answers, or slowly. Further records are left out, and a marker says how many."""


class LogSender:
    """Buffers log records, and sends them in order."""

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection
        self._records: deque[bytes] = deque()
        """Encoded."""
        self._size = 0
        """The bytes of all of them."""
        self._left_out = 0
        """The number of records that were left out since the last one that was not."""
        self._number = 0
        self._batch_size = BATCH_SIZE
        """Less if a proxy before the server takes less."""
        self._lock = asyncio.Lock()

    def add(self, records: Sequence[LogRecord]) -> None:
        """Send records soon; what the code prints is printed here too, for the logs of the cluster."""
        for record in records:
            self._add(record)
            if record.stream != "log":
                print(record.message, file=sys.stderr if record.stream == "stderr" else sys.stdout, flush=True)

    def _add(self, record: LogRecord) -> None:
        encoded = msgspec.msgpack.encode(record)
        if len(encoded) > RECORD_LIMIT:
            encoded = msgspec.msgpack.encode(replace(record, fields={}))
        if self._size + len(encoded) > BUFFER_LIMIT:
            self._left_out += 1
            return
        self._add_marker()
        self._records.append(encoded)
        self._size += len(encoded)

    def _add_marker(self) -> None:
        """Say how many records were left out, if some were."""
        if self._left_out:
            message = f"[... {self._left_out} records left out ...]"
            marker = msgspec.msgpack.encode(LogRecord(at=SystemClock().now(), message=message, level="warning"))
            self._left_out = 0
            self._records.append(marker)
            self._size += len(marker)

    async def run(self) -> None:
        """Send records until cancelled."""
        while True:
            await asyncio.sleep(SEND_INTERVAL)  # real time: readers follow the log live
            await self.flush()

    async def flush(self) -> None:
        """Send everything that is buffered."""
        async with self._lock:
            while self._records:
                batch, is_sent = self._take_batch(), True
                body = {"number": self._number, "records": batch}
                try:
                    await self._connection.post("/logs", body, type(None), CALL_TIMEOUT)
                except TooLargeError:
                    if len(batch) > 1:
                        self._batch_size = sum(map(len, batch)) // 2
                        continue
                    self._left_out, is_sent = self._left_out + 1, False
                self._number += is_sent
                for _ in batch:
                    self._size -= len(self._records.popleft())
                if is_sent and not self._records:
                    self._add_marker()

    def _take_batch(self) -> list[msgspec.Raw]:
        """Return the oldest records, which stay in the buffer until they are sent."""
        batch: list[msgspec.Raw] = []
        size = 0
        for record in self._records:
            size += len(record)
            if batch and size > self._batch_size:
                break
            batch.append(msgspec.Raw(record))
        return batch
