"""Follows a run: its state, its new events, the new log lines of its tasks.

Everything is read from the store, so it does not matter which nodes coordinate the run and run its tasks.
"""

from collections.abc import Collection

from tidemill.engine.workflows.client.log_lines import LogLine, TaskLogReader
from tidemill.engine.workflows.client.values import WatchedRun
from tidemill.storage.workflow_ports import WorkflowStore
from tidemill.workflows.records import EventRow, RunRecord, TaskKey, TaskRow


class RunWatch:
    """Follows one run; with `tasks`, only the log lines of these tasks."""

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
