"""What attempts say: gathered while the last of it is being written, then written together."""

import logging
from collections.abc import AsyncIterator, Callable, Sequence

import msgspec

from tidemill.engine.workflows.environment import Environment
from tidemill.engine.workflows.executors.interface import LogRecord
from tidemill.kernel.backoff import Backoff
from tidemill.kernel.errors import StoreError
from tidemill.storage.run_ports import LogChunk, Logs
from tidemill.telemetry import events
from tidemill.workflows.records import AttemptKey, TaskKey

logger = logging.getLogger(__name__)

KEPT = 100_000  # records that may wait for a store that does not answer
_AGAIN = Backoff(0.05, 1.0)
_RECORDS = msgspec.msgpack.Decoder(list[LogRecord])


class Logbook:
    """The logs of everything that runs here."""

    def __init__(self, environment: Environment, told: Callable[[str], None]) -> None:
        self._logs = environment.store.logs
        self._clock = environment.clock
        self._tasks = environment.tasks
        self._told = told
        self._waiting: dict[AttemptKey, list[LogRecord]] = {}
        self._count = 0
        self._numbers: dict[AttemptKey, int] = {}
        self.is_idle = True
        self.is_backing_off = False
        """Whether it waits for a while, because the store failed."""

    def add(self, key: AttemptKey, records: Sequence[LogRecord]) -> None:
        """Take what an attempt said; while the store does not answer, no more than memory can bear."""
        if self._count >= KEPT:
            return
        self._waiting.setdefault(key, []).extend(records)
        self._count += len(records)
        if self.is_idle:
            self.is_idle = False
            self._tasks.start("logbook: write", self._write())

    def forget(self, key: AttemptKey) -> None:
        """Take note that an attempt says nothing more."""
        if key not in self._waiting:
            self._numbers.pop(key, None)

    async def _write(self) -> None:
        failures = 0
        try:
            while self._waiting:
                waiting, self._waiting, self._count = self._waiting, {}, 0
                chunks = [self._chunk(key, records) for key, records in waiting.items()]
                while not await self._append(chunks):
                    failures += 1
                    self.is_backing_off = True
                    await self._clock.sleep(_AGAIN.delay(failures))
                    self.is_backing_off = False
                failures = 0
                for run in {key.run for key in waiting}:
                    self._told(run)
        finally:
            self.is_idle, self.is_backing_off = True, False

    def _chunk(self, key: AttemptKey, records: list[LogRecord]) -> LogChunk:
        number = self._numbers[key] = self._numbers.get(key, -1) + 1
        return LogChunk(key=key, number=number, payload=msgspec.msgpack.encode(records))

    async def _append(self, chunks: list[LogChunk]) -> bool:
        try:
            await self._logs.append(chunks)
        except StoreError as error:
            logger.warning(events.REPORT_FAILED, extra={"logs": len(chunks), "error": str(error)})
            return False
        return True


class LogReader:
    """Reads the log of a task run from where it stopped the last time."""

    def __init__(self, logs: Logs, key: TaskKey) -> None:
        self._logs = logs
        self._key = key
        self._after = (0, -1)

    async def new(self) -> AsyncIterator[LogRecord]:
        """Yield what was written since the last time, in order."""
        while chunks := await self._logs.read(self._key, self._after):
            for chunk in chunks:
                self._after = chunk.key.attempt, chunk.number
                for record in _RECORDS.decode(chunk.payload):
                    yield record
