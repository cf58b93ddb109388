"""Looking on while a run goes: how it stands, what has happened since, what its tasks say.

Everything is read from the store, so that it does not matter where the run is planned, and where its tasks run.
"""

from collections.abc import Collection
from typing import NamedTuple

from tidemill.engine.workflows.executors.interface import LogRecord
from tidemill.engine.workflows.worker.task_logs import TaskLogReader
from tidemill.kernel.limits import is_storable
from tidemill.storage.workflow_ports import WorkflowStore
from tidemill.workflows.lookup import unknown_run
from tidemill.workflows.records import EventRow, RunRecord, TaskKey, TaskRow


class LogLine(NamedTuple):
    """A record of a task run's log."""

    key: TaskKey
    record: LogRecord
    attempt: int


class RunSnapshot(NamedTuple):
    """A run at one moment, and what is new since the last one."""

    record: RunRecord
    log_lines: list[LogLine]
    events: list[EventRow]
    """What has happened since, if that was asked for."""


class RunWatch:
    """Follows one run; of what is said only what some of its tasks say, if `tasks` names them."""

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

    async def read(self, *, is_last: bool = False) -> RunSnapshot:
        """Return how the run stands, and what was said since; the last time of all that ever ran, to miss nothing."""
        for record in await self._store.runs.load([self._run]) if is_storable(self._run) else ():
            keys = self._tasks_to_read(record) if not is_last else self._started_tasks(record)
            said = [one for key in keys for one in await self._read(key)]
            said.sort(key=lambda one: one.record.at)
            return RunSnapshot(record, said, await self._new_events() if self._wants_events else [])
        raise unknown_run(self._run)

    async def _new_events(self) -> list[EventRow]:
        found = await self._store.runs.read_events(self._run)
        new, self._event_count = found[self._event_count :], len(found)
        return new

    def _started_tasks(self, record: RunRecord) -> list[TaskKey]:
        keys = {TaskKey(self._run, row.task, row.index): row for row in record.tasks if row.attempt}
        return [key for key in keys if self._tasks is None or key.task in self._tasks]

    def _tasks_to_read(self, record: RunRecord) -> list[TaskKey]:
        """Return the task runs that may have said something.

        Those that run, those that moved, and those that had moved the last time: what a task says while it is being
        stopped, because it was cancelled or cleared, is written after that.
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
        return [LogLine(key, record, attempt) async for attempt, record in reader.read_new_by_attempt()]
