"""What attempts say: gathered while the last of it is being written, then written together."""

import logging
from collections.abc import AsyncIterator, Callable, Sequence, Set

import msgspec

from tidemill.engine.workflows.environment import STORE_RETRY, Environment
from tidemill.engine.workflows.executors.interface import LogRecord
from tidemill.kernel.errors import StoreError
from tidemill.storage.run_ports import LogChunk, Logs
from tidemill.telemetry import events
from tidemill.workflows.records import AttemptKey, TaskKey

logger = logging.getLogger(__name__)

KEPT = 100_000  # records that may wait for a store that does not answer
TRIES = 8  # at writing, until ends are reported although what was said before is not written
_RECORDS = msgspec.msgpack.Decoder(list[LogRecord])


class Logbook:
    """The logs of everything that runs here."""

    def __init__(self, environment: Environment, told: Callable[[str], None]) -> None:
        self._logs = environment.store.logs
        self._clock = environment.clock
        self._tasks = environment.tasks
        self._told = told
        self._waiting: dict[AttemptKey, list[LogRecord]] = {}
        self._writing: dict[AttemptKey, list[LogRecord]] = {}
        self._afterwards: dict[AttemptKey, list[Callable[[], None]]] = {}
        self._over: set[AttemptKey] = set()
        self._count = 0
        self._left_out: dict[AttemptKey, int] = {}
        """How many records of an attempt there was no room for, since the last of it was written."""
        self._numbers: dict[AttemptKey, int] = {}
        self.is_idle = True
        self.is_backing_off = False
        """Whether it waits for a while, because the store failed."""

    def add(self, key: AttemptKey, records: Sequence[LogRecord]) -> None:
        """Take what an attempt said; while the store does not answer, no more than memory can bear.

        What is left out leaves a line in its place, when there is room again.
        """
        waiting = self._waiting.setdefault(key, [])
        if self._count >= KEPT:
            self._left_out[key] = self._left_out.get(key, 0) + len(records)
        else:
            waiting.extend(records)
            self._count += len(records)
        if self.is_idle:
            self.is_idle = False
            self._tasks.start("logbook: write", self._write())

    def when_written(self, key: AttemptKey, then: Callable[[], None]) -> None:
        """Call back when everything that an attempt has said is written: at once, if it is.

        A log that cannot be written keeps nothing back for ever: after some tries the call comes all the same.
        """
        if key in self._waiting or key in self._writing:
            self._afterwards.setdefault(key, []).append(then)
        else:
            then()

    def forget(self, key: AttemptKey) -> None:
        """Take note that an attempt says nothing more."""
        if key in self._waiting:
            self._over.add(key)  # what it said last is still to be numbered
        else:
            self._numbers.pop(key, None)

    async def _write(self) -> None:
        try:
            while self._waiting:
                self._mark_left_out()
                self._writing, self._waiting, self._count = self._waiting, {}, 0
                chunks = [self._chunk(key, records) for key, records in self._writing.items()]
                await self._write_out([chunk for chunk in chunks if chunk is not None])
                written, self._writing = self._writing, {}
                self._go_on(written.keys() - self._waiting.keys())
                for run in {key.run for key in written}:
                    self._told(run)
        finally:
            self._writing = {}
            self.is_idle, self.is_backing_off = True, False

    def _mark_left_out(self) -> None:
        """Say how many records are missing, behind the last that is not."""
        left_out, self._left_out = self._left_out, {}
        for key, count in left_out.items():
            note = f"[... {count} records left out ...]"
            self._waiting[key].append(LogRecord(at=self._clock.now(), message=note, level="warning"))
            logger.warning(events.LOGS_FAILED, extra={"attempt": str(key), "left_out": count})

    async def _write_out(self, chunks: list[LogChunk]) -> None:
        failures = 0
        while chunks and not await self._append(chunks):
            failures += 1
            if failures == TRIES:
                self._go_on({chunk.key for chunk in chunks})
            self.is_backing_off = True
            await self._clock.sleep(STORE_RETRY.delay(failures))
            self.is_backing_off = False

    def _go_on(self, keys: Set[AttemptKey]) -> None:
        """Call back those that have waited for what attempts said to be written."""
        for key in keys & self._afterwards.keys():
            for then in self._afterwards.pop(key):
                try:
                    then()
                except Exception:  # whatever one of them does, the others are called too
                    logger.exception(events.REPORT_FAILED, extra={"attempt": str(key)})

    def _chunk(self, key: AttemptKey, records: list[LogRecord]) -> LogChunk | None:
        number = self._numbers[key] = self._numbers.get(key, -1) + 1
        if key in self._over:
            self._over.discard(key)
            del self._numbers[key]
        try:
            return LogChunk(key=key, number=number, payload=msgspec.msgpack.encode(records))
        except Exception as error:  # author code: values that cannot be encoded cost this chunk, not the others
            logger.warning(events.LOGS_FAILED, extra={"attempt": str(key), "error": repr(error)})
            return None

    async def _append(self, chunks: list[LogChunk]) -> bool:
        """Return whether there is no more to be done about some chunks."""
        try:
            await self._logs.append(chunks)
        except StoreError as error:
            logger.warning(events.LOGS_FAILED, extra={"chunks": len(chunks), "error": str(error)})
            return False
        except Exception:  # not the store's state, but what it was given: it would be refused again
            logger.exception(events.LOGS_FAILED, extra={"chunks": len(chunks)})
        return True


class LogReader:
    """Reads the log of a task run from where it stopped the last time."""

    def __init__(self, logs: Logs, key: TaskKey) -> None:
        self._logs = logs
        self._key = key
        self._after = (0, -1)

    async def new(self) -> AsyncIterator[LogRecord]:
        """Yield what was written since the last time, in order."""
        async for _, record in self.new_by_attempt():
            yield record

    async def new_by_attempt(self) -> AsyncIterator[tuple[int, LogRecord]]:
        """Yield the same with the number of the attempt that said it."""
        while chunks := await self._logs.read(self._key, self._after):
            for chunk in chunks:
                self._after = chunk.key.attempt, chunk.number
                for record in _RECORDS.decode(chunk.payload):
                    yield chunk.key.attempt, record
