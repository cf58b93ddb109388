"""Waits for runs and follows them: their ends, their changes, and the log lines of their tasks."""

import asyncio
from collections.abc import AsyncIterator, Collection, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, NamedTuple

from tidemill.access.principal import Caller
from tidemill.engine.workflows.client.log_lines import (
    EVERY_LINE,
    LOG_START,
    LogFilter,
    LogLine,
    LogPage,
    LogPosition,
    TaskLogReader,
    merge_by_time,
    read_log_page,
)
from tidemill.engine.workflows.client.runs import RunReader
from tidemill.engine.workflows.leader.state import LeaderState
from tidemill.engine.workflows.notifications import FinishedRun
from tidemill.engine.workflows.runtime import WorkflowRuntime
from tidemill.kernel.errors import RequestError, StoreError
from tidemill.storage.workflow_ports import WorkflowStore
from tidemill.workflows.lookup import unknown_run
from tidemill.workflows.records import EventRow, RunRecord, TaskKey, TaskRow
from tidemill.workflows.result import RunResult


class WatchedRun(NamedTuple):
    """A run at one moment, and what is new since the last snapshot."""

    record: RunRecord
    log_lines: list[LogLine]
    events: list[EventRow]
    """The new events, if they were requested."""


class RunWatch:
    """Reads from the store what is new of one run; with `tasks`, only the log lines of these tasks."""

    def __init__(
        self, store: WorkflowStore, run: str, *, tasks: Collection[str] | None = None, events: bool = False
    ) -> None:
        self._store = store
        self._run = run
        self._tasks = tasks
        self._readers: dict[TaskKey, TaskLogReader] = {}
        self._rows: dict[TaskKey, TaskRow] = {}
        self._recently_moved: set[TaskKey] = set()
        self._wants_events = events
        self._event_count = 0

    async def read(self, record: RunRecord, *, is_last: bool = False) -> WatchedRun:
        """Return what is new since the last call; the last one reads the logs of all tasks that ever started."""
        keys = self._tasks_to_read(record) if not is_last else self._started_tasks(record)
        lines = [line for key in keys for line in await self._read(key)]
        lines.sort(key=lambda line: line.record.at)
        return WatchedRun(record, lines, await self._new_events() if self._wants_events else [])

    async def _new_events(self) -> list[EventRow]:
        events = await self._store.runs.read_events(self._run)
        new, self._event_count = events[self._event_count :], len(events)
        return new

    def _started_tasks(self, record: RunRecord) -> list[TaskKey]:
        keys = {TaskKey(self._run, row.task, row.index): row for row in record.tasks if row.attempt}
        return [key for key in keys if self._tasks is None or key.task in self._tasks]

    def _tasks_to_read(self, record: RunRecord) -> list[TaskKey]:
        """Return the tasks that may have logged something.

        These are the active tasks, those whose state changed, and those whose state had changed at the last call: the
        log lines of a task that is being stopped, because it was cancelled or cleared, are written after its change.
        """
        rows = {TaskKey(self._run, row.task, row.index): row for row in record.tasks}
        moved = {key for key in self._started_tasks(record) if rows[key].since != self._last_since(key)}
        active = {key for key in self._started_tasks(record) if rows[key].state.is_active}
        due = moved | active | (self._recently_moved & rows.keys())
        self._rows, self._recently_moved = rows, moved
        return [key for key in rows if key in due]

    def _last_since(self, key: TaskKey) -> object:
        row = self._rows.get(key)
        return None if row is None else row.since

    async def _read(self, key: TaskKey) -> list[LogLine]:
        reader = self._readers.setdefault(key, TaskLogReader(self._store.logs, key))
        return [line async for line in reader.read_new()]


class RunWatcher:
    """Waits for what happens to runs, on this node or on others; until it is closed."""

    def __init__(self, runtime: WorkflowRuntime, leader: LeaderState, runs: RunReader, *, is_node: bool) -> None:
        self._runtime = runtime
        self._store = runtime.store
        self._clock = runtime.clock
        self._leader = leader
        self._runs = runs
        self._is_node = is_node
        self._closed = asyncio.Event()

    def close(self) -> None:
        """Fail all calls that wait, and all later ones."""
        self._closed.set()
        self._leader.notifier.notify_all()

    @contextmanager
    def require_open(self) -> Iterator[None]:
        """Raise a RequestError if the client is closed, even if it is closed during the block."""
        self._check_open()
        try:
            yield
        except StoreError:
            self._check_open()
            raise

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise RequestError("the node is no longer running", code="not_running", status=503)

    async def wait(self, caller: Caller, run: str, timeout: float | None = None) -> RunResult:
        """Return the result of a run when it has ended; TimeoutError after the timeout."""
        async with asyncio.timeout(timeout):
            finished = await self._wait_ended(caller, run)
        return await self._runs.build_result(finished)

    async def _wait_ended(self, caller: Caller, run: str) -> FinishedRun:
        """Return a run when it has ended: from memory if this node ends it, else from the store."""
        notifier = self._leader.notifier
        while True:
            self._check_open()
            coordinator = self._leader.coordinator
            active = None if coordinator is None else coordinator.active_runs.get(run)
            if active is not None:
                if active.run.tenant != caller.tenant:
                    raise unknown_run(run)
                ended = notifier.end_signal(run)
                await ended.wait()  # the coordinator learns of every end, and of those that it causes
                if ended.finished is not None:
                    return ended.finished
                continue
            changed = notifier.change_signal(run)
            record = await self._runs.load_record(caller, run)
            if record.run.state.is_terminal:
                return FinishedRun(record, None)
            await self._wait_for_change(changed)

    async def watch(
        self,
        caller: Caller,
        run: str,
        *,
        tasks: Collection[str] | None = None,
        events: bool = False,
        every: float = 0.1,
    ) -> AsyncIterator[WatchedRun]:
        """Yield a snapshot of a run whenever it changes, at most one per `every` seconds; ends with the run.

        With `tasks` the snapshots hold the log lines of these tasks only.
        """
        watch = RunWatch(self._store, run, tasks=tasks, events=events)
        while True:
            changed = self._leader.notifier.change_signal(run)
            snapshot = await watch.read(await self._runs.load_record(caller, run))
            yield snapshot
            if snapshot.record.run.state.is_terminal:
                yield await watch.read(await self._runs.load_record(caller, run), is_last=True)
                return
            await self._sleep(every)
            await self._wait_for_change(changed)

    async def logs(
        self,
        caller: Caller,
        run: str,
        task: str,
        *,
        follow: bool = True,
        after: Mapping[int, LogPosition] = MappingProxyType({}),
    ) -> AsyncIterator[LogLine]:
        """Yield the log lines of a task, or of one of its elements; with `follow` until the task has ended.

        They begin after a position of each element. The lines of an element are in the order of their positions. The
        lines of a task that was cancelled or cleared may be written after its end: without a node, one tick is waited.
        """
        final_delay = 0.0 if self._is_node else self._runtime.settings.tick_interval
        readers: dict[TaskKey, TaskLogReader] = {}
        is_last = not follow
        while True:
            changed = self._leader.notifier.change_signal(run)
            rows = (await self._runs.load_task(caller, run, task)).tasks
            lines: list[list[LogLine]] = []
            for row in rows:
                key = TaskKey(run, row.task, row.index)
                begin = after.get(row.index, LOG_START)
                reader = readers.setdefault(key, TaskLogReader(self._store.logs, key, begin))
                lines.append([line async for line in reader.read_new()])
            for line in merge_by_time(lines):
                yield line
            has_ended = all(row.state.is_terminal for row in rows)
            if is_last or (has_ended and not final_delay):
                return
            is_last = has_ended
            await (self._sleep(final_delay) if has_ended else self._wait_for_change(changed))

    async def list_logs(
        self,
        caller: Caller,
        run: str,
        task: str,
        wanted: LogFilter = EVERY_LINE,
        *,
        after: tuple[int, LogPosition] | None = None,
        limit: int = 50,
    ) -> LogPage:
        """Return log lines of a task, or of one of its elements, after an element and position; and their number."""
        rows = (await self._runs.load_task(caller, run, task)).tasks
        keys = [TaskKey(run, row.task, row.index) for row in rows]
        return await read_log_page(self._store.logs, keys, wanted, after=after, limit=limit)

    async def _sleep(self, seconds: float) -> None:
        """Wait some seconds of the node's time; RequestError if the client is closed meanwhile."""
        await _wait_first(self._clock.sleep(seconds), self._closed.wait())
        self._check_open()

    async def _wait_for_change(self, signal: asyncio.Event) -> None:
        """Wait until a run changes; where other processes may change it unnoticed, one tick at most."""
        if self._runtime.is_single_node and self._leader.coordinator is not None:
            await signal.wait()
        else:
            await _wait_first(signal.wait(), self._clock.sleep(self._runtime.settings.tick_interval))
        self._check_open()


async def _wait_first(*waits: Coroutine[Any, Any, Any]) -> None:
    """Wait for the first of several coroutines, and cancel the others."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(wait, name="workflow client: wait") for wait in waits]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
