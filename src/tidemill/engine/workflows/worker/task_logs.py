"""What attempts say: gathered while the last of it is being written, then written together."""

import logging
from collections.abc import AsyncIterator, Callable, Sequence, Set

import msgspec

from tidemill.engine.workflows.executors.interface import LogRecord
from tidemill.engine.workflows.runtime import STORE_RETRY, WorkflowRuntime
from tidemill.kernel.errors import StoreError
from tidemill.storage.workflow_ports import LogChunk, Logs
from tidemill.telemetry import events
from tidemill.workflows.records import AttemptKey, TaskKey

logger = logging.getLogger(__name__)

PENDING_RECORD_LIMIT = 100_000  # records that may wait for a store that does not answer
WRITE_ATTEMPTS_BEFORE_RELEASE = 8  # at writing, until ends are reported although what was said before is not written
_RECORDS_DECODER = msgspec.msgpack.Decoder(list[LogRecord])


class TaskLogWriter:
    """The logs of everything that runs here."""

    def __init__(self, runtime: WorkflowRuntime, on_written: Callable[[str], None]) -> None:
        self._logs = runtime.store.logs
        self._clock = runtime.clock
        self._tasks = runtime.tasks
        self._on_written = on_written
        self._pending: dict[AttemptKey, list[LogRecord]] = {}
        self._writing: dict[AttemptKey, list[LogRecord]] = {}
        self._callbacks: dict[AttemptKey, list[Callable[[], None]]] = {}
        self._closed: set[AttemptKey] = set()
        self._pending_count = 0
        self._dropped: dict[AttemptKey, int] = {}
        """How many records of an attempt there was no room for, since the last of it was written."""
        self._chunk_numbers: dict[AttemptKey, int] = {}
        self.is_idle = True
        self.is_backing_off = False
        """Whether it waits for a while, because the store failed."""

    def add(self, key: AttemptKey, records: Sequence[LogRecord]) -> None:
        """Take what an attempt said; while the store does not answer, no more than memory can bear.

        What is left out leaves a line in its place, when there is room again.
        """
        waiting = self._pending.setdefault(key, [])
        if self._pending_count >= PENDING_RECORD_LIMIT:
            self._dropped[key] = self._dropped.get(key, 0) + len(records)
        else:
            waiting.extend(records)
            self._pending_count += len(records)
        if self.is_idle:
            self.is_idle = False
            self._tasks.start("logbook: write", self._write())

    def when_written(self, key: AttemptKey, callback: Callable[[], None]) -> None:
        """Call back when everything that an attempt has said is written: at once, if it is.

        A log that cannot be written keeps nothing back for ever: after some tries the call comes all the same.
        """
        if key in self._pending or key in self._writing:
            self._callbacks.setdefault(key, []).append(callback)
        else:
            callback()

    def close_attempt(self, key: AttemptKey) -> None:
        """Take note that an attempt says nothing more."""
        if key in self._pending:
            self._closed.add(key)  # what it said last is still to be numbered
        else:
            self._chunk_numbers.pop(key, None)

    async def _write(self) -> None:
        try:
            while self._pending:
                self._add_dropped_markers()
                self._writing, self._pending, self._pending_count = self._pending, {}, 0
                chunks = [self._encode_chunk(key, records) for key, records in self._writing.items()]
                await self._append_with_retries([chunk for chunk in chunks if chunk is not None])
                written, self._writing = self._writing, {}
                self._run_callbacks(written.keys() - self._pending.keys())
                for run in {key.run for key in written}:
                    self._on_written(run)
        finally:
            self._writing = {}
            self.is_idle, self.is_backing_off = True, False

    def _add_dropped_markers(self) -> None:
        """Say how many records are missing, behind the last that is not."""
        left_out, self._dropped = self._dropped, {}
        for key, count in left_out.items():
            note = f"[... {count} records left out ...]"
            self._pending[key].append(LogRecord(at=self._clock.now(), message=note, level="warning"))
            logger.warning(events.TASK_LOGS_FAILED, extra={"attempt": str(key), "left_out": count})

    async def _append_with_retries(self, chunks: list[LogChunk]) -> None:
        failures = 0
        while chunks and not await self._append(chunks):
            failures += 1
            if failures == WRITE_ATTEMPTS_BEFORE_RELEASE:
                self._run_callbacks({chunk.key for chunk in chunks})
            self.is_backing_off = True
            await self._clock.sleep(STORE_RETRY.delay(failures))
            self.is_backing_off = False

    def _run_callbacks(self, keys: Set[AttemptKey]) -> None:
        """Call back those that have waited for what attempts said to be written."""
        for key in keys & self._callbacks.keys():
            for then in self._callbacks.pop(key):
                try:
                    then()
                except Exception:  # whatever one of them does, the others are called too
                    logger.exception(events.TASK_REPORT_FAILED, extra={"attempt": str(key)})

    def _encode_chunk(self, key: AttemptKey, records: list[LogRecord]) -> LogChunk | None:
        number = self._chunk_numbers[key] = self._chunk_numbers.get(key, -1) + 1
        if key in self._closed:
            self._closed.discard(key)
            del self._chunk_numbers[key]
        try:
            return LogChunk(key=key, number=number, payload=msgspec.msgpack.encode(records))
        except Exception as error:  # author code: values that cannot be encoded cost this chunk, not the others
            logger.warning(events.TASK_LOGS_FAILED, extra={"attempt": str(key), "error": repr(error)})
            return None

    async def _append(self, chunks: list[LogChunk]) -> bool:
        """Return whether there is no more to be done about some chunks."""
        try:
            await self._logs.append(chunks)
        except StoreError as error:
            logger.warning(events.TASK_LOGS_FAILED, extra={"chunks": len(chunks), "error": str(error)})
            return False
        except Exception:  # not the store's state, but what it was given: it would be refused again
            logger.exception(events.TASK_LOGS_FAILED, extra={"chunks": len(chunks)})
        return True


class TaskLogReader:
    """Reads the log of a task run from where it stopped the last time."""

    def __init__(self, logs: Logs, key: TaskKey) -> None:
        self._logs = logs
        self._key = key
        self._position = (0, -1)

    async def read_new(self) -> AsyncIterator[LogRecord]:
        """Yield what was written since the last time, in order."""
        async for _, record in self.read_new_by_attempt():
            yield record

    async def read_new_by_attempt(self) -> AsyncIterator[tuple[int, LogRecord]]:
        """Yield the same with the number of the attempt that said it."""
        while chunks := await self._logs.read(self._key, self._position):
            for chunk in chunks:
                self._position = chunk.key.attempt, chunk.number
                for record in _RECORDS_DECODER.decode(chunk.payload):
                    yield chunk.key.attempt, record
