"""Task logs: records that attempts log are gathered while earlier ones are being written, then written together."""

import logging
from collections.abc import Callable, Sequence, Set

import msgspec

from tidemill.engine.workflows.notifications import RunNotifier
from tidemill.engine.workflows.runtime import StoreRetry, WorkflowRuntime
from tidemill.kernel.errors import StoreError
from tidemill.storage.tables.logs import LogChunk
from tidemill.telemetry import events
from tidemill.telemetry.log_records import LogRecord
from tidemill.workflows.records import AttemptKey

logger = logging.getLogger(__name__)

PENDING_RECORD_LIMIT = 100_000  # records that may wait for a store that fails
WRITE_ATTEMPTS_BEFORE_RELEASE = 8  # failed writes after which results are reported although the logs are not written


class TaskLogWriter:
    """Writes the logs of the attempts that run on this node."""

    def __init__(self, runtime: WorkflowRuntime, notifier: RunNotifier) -> None:
        self.attempts: set[AttemptKey] = set()
        """The open attempts that have logged something."""
        self.is_idle = True
        """Whether all records are written."""
        self._logs = runtime.store.logs
        self._clock = runtime.clock
        self._tasks = runtime.tasks
        self._notifier = notifier
        self._store_retry = StoreRetry(runtime.clock)
        self._pending: dict[AttemptKey, list[LogRecord]] = {}
        self._writing: dict[AttemptKey, list[LogRecord]] = {}
        self._callbacks: dict[AttemptKey, list[Callable[[], None]]] = {}
        self._closed: set[AttemptKey] = set()
        self._pending_count = 0
        self._dropped: dict[AttemptKey, int] = {}
        """By attempt: the number of records dropped since its last write."""
        self._chunk_numbers: dict[AttemptKey, int] = {}

    @property
    def tracked(self) -> set[AttemptKey]:
        """The attempts that it knows of: with records to write, or with chunks that it has written."""
        return {*self.attempts, *self._chunk_numbers}

    @property
    def is_backing_off(self) -> bool:
        """Whether the writer waits before it retries a failed write."""
        return self._store_retry.waiting > 0

    def add(self, key: AttemptKey, records: Sequence[LogRecord]) -> None:
        """Write log records of an attempt soon; while the store fails, at most `PENDING_RECORD_LIMIT` are kept.

        Dropped records leave a marker in the log.
        """
        self.attempts.add(key)
        waiting = self._pending.setdefault(key, [])
        if self._pending_count >= PENDING_RECORD_LIMIT:
            self._dropped[key] = self._dropped.get(key, 0) + len(records)
        else:
            waiting.extend(records)
            self._pending_count += len(records)
        if self.is_idle:
            self.is_idle = False
            self._tasks.start("task logs: write", self._write())

    def when_written(self, key: AttemptKey, callback: Callable[[], None]) -> None:
        """Call back when all log records of an attempt are written; immediately if they are.

        After some failed writes the callback is called all the same, so that a broken log blocks no result.
        """
        if key in self._pending or key in self._writing:
            self._callbacks.setdefault(key, []).append(callback)
        else:
            callback()

    def close_attempt(self, key: AttemptKey) -> None:
        """Stop tracking an attempt that logs nothing more."""
        self.attempts.discard(key)
        if key in self._pending:
            self._closed.add(key)  # its last records are yet to be numbered
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
                    self._notifier.notify_changed(run)
        finally:
            self._writing = {}
            self.is_idle = True

    def _add_dropped_markers(self) -> None:
        """Append a marker with the number of dropped records to the log of each attempt that lost some."""
        dropped, self._dropped = self._dropped, {}
        for key, count in dropped.items():
            marker = f"[... {count} records left out ...]"
            self._pending[key].append(LogRecord(at=self._clock.now(), message=marker, level="warning"))
            logger.warning(events.TASK_LOGS_FAILED, extra={"attempt": str(key), "left_out": count})

    async def _append_with_retries(self, chunks: list[LogChunk]) -> None:
        failures = 0
        while chunks and not await self._append(chunks):
            failures += 1
            if failures == WRITE_ATTEMPTS_BEFORE_RELEASE:
                self._run_callbacks({chunk.key for chunk in chunks})
            await self._store_retry.wait(failures)

    def _run_callbacks(self, keys: Set[AttemptKey]) -> None:
        """Call the callbacks of attempts whose log records are written."""
        for key in keys & self._callbacks.keys():
            for callback in self._callbacks.pop(key):
                try:
                    callback()
                except Exception:  # the other callbacks are called all the same
                    logger.exception(events.TASK_REPORT_FAILED, extra={"attempt": str(key)})

    def _encode_chunk(self, key: AttemptKey, records: list[LogRecord]) -> LogChunk | None:
        number = self._chunk_numbers[key] = self._chunk_numbers.get(key, -1) + 1
        if key in self._closed:
            self._closed.discard(key)
            del self._chunk_numbers[key]
        try:
            return LogChunk(key=key, number=number, payload=msgspec.msgpack.encode(records))
        except Exception as error:  # author code: values that cannot be encoded cost this chunk only
            logger.warning(events.TASK_LOGS_FAILED, extra={"attempt": str(key), "error": repr(error)})
            return None

    async def _append(self, chunks: list[LogChunk]) -> bool:
        """Append chunks; False if the append must be retried."""
        try:
            await self._logs.append(chunks)
        except StoreError as error:
            logger.warning(events.TASK_LOGS_FAILED, extra={"chunks": len(chunks), "error": str(error)})
            return False
        except Exception:  # a fault of the chunks: the store would refuse them again
            logger.exception(events.TASK_LOGS_FAILED, extra={"chunks": len(chunks)})
        return True
