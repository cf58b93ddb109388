"""A run, for whoever started it: wait, look, cancel, retry, ask why, read its logs."""

import asyncio
from collections.abc import AsyncIterator, Collection

from tidemill.engine.workflows.client.queries import RunQueries
from tidemill.engine.workflows.client.watch import RunSnapshot, RunWatch
from tidemill.engine.workflows.executors.interface import LogRecord
from tidemill.engine.workflows.worker.task_logs import TaskLogReader
from tidemill.kernel.durations import Duration, parse_duration
from tidemill.kernel.errors import RequestError
from tidemill.workflows.records import TaskKey
from tidemill.workflows.result import RunResult


def _parse_timeout(timeout: Duration) -> float:
    try:
        return parse_duration(timeout)
    except ValueError as error:
        raise RequestError(f"timeout: {error}", code="invalid_timeout") from None


def _parse_tasks(named: str | Collection[str] | None) -> list[str] | None:
    """Return the tasks that somebody named; None for all that failed, which a list of none does not mean."""
    if named is None:
        return None
    tasks = [named] if isinstance(named, str) else named
    if not isinstance(tasks, Collection) or not tasks or not all(isinstance(one, str) for one in tasks):
        message = f"a task is named, or several in a list, not {named!r}: leave it out for everything that failed"
        raise RequestError(message, code="invalid_tasks")
    return list(tasks)


class RunHandle:
    """One run, whether it runs here or elsewhere, or has ended."""

    def __init__(self, id: str, queries: RunQueries) -> None:
        self.id = id
        self._queries = queries

    def __repr__(self) -> str:
        return f"<run {self.id}>"

    async def state(self) -> RunResult:
        """Return the run and its tasks as they are at this moment."""
        with self._queries.require_open():
            return await self._queries.operations.load_result(self.id)

    async def wait(self, timeout: Duration | None = None) -> RunResult:
        """Return the result when the run has ended; TimeoutError after so long, which harms nothing."""
        with self._queries.require_open():
            async with asyncio.timeout(None if timeout is None else _parse_timeout(timeout)):
                outcome = await self._queries.wait_ended(self.id)
            return await self._queries.operations.load_result(self.id, outcome)

    async def cancel(self, reason: str = "cancelled") -> None:
        """Cancel the run: what has not ended never will, and running code is stopped."""
        with self._queries.require_open():
            await self._queries.operations.cancel(self.id, reason)

    async def retry(
        self, from_: str | Collection[str] | None = None, *, preview: bool = False, latest: bool = False
    ) -> list[str]:
        """Run a task again, or several, and everything after; return the names of what reruns.

        Without a task: everything that failed, was cancelled or could not run. With `preview` nothing is done. With
        `latest` a run that has ended goes on with the newest version of its workflow; else it is pinned to its own.
        """
        with self._queries.require_open():
            return await self._queries.operations.clear(self.id, _parse_tasks(from_), preview=preview, latest=latest)

    async def clear(self, tasks: str | Collection[str], *, preview: bool = False, latest: bool = False) -> list[str]:
        """Forget how tasks ended, and everything after them, so that they run again; return their names."""
        return await self.retry(tasks, preview=preview, latest=latest)

    async def why(self, task: str) -> list[str]:
        """Return why a task has not run, or what became of it: one sentence per reason."""
        with self._queries.require_open():
            return await self._queries.why(self.id, task)

    async def note(self, text: str, task: str | None = None) -> None:
        """Write a note on the run, or on one of its tasks; an empty text removes it."""
        with self._queries.require_open():
            await self._queries.operations.note(self.id, text, task)

    async def notes(self) -> dict[str | None, str]:
        """Return the notes: the run's own under None, those on tasks under their names."""
        with self._queries.require_open():
            return await self._queries.operations.notes(self.id)

    async def logs(self, task: str) -> AsyncIterator[LogRecord]:
        """Yield what a task said, as it says it; ends with the task."""
        readers: dict[TaskKey, TaskLogReader] = {}
        with self._queries.require_open():
            while True:
                news = self._queries.notifier.change_signal(self.id)
                rows = await self._queries.task_rows(self.id, task)
                for row in rows:
                    key = TaskKey(self.id, row.task, row.index)
                    reader = readers.setdefault(key, TaskLogReader(self._queries.store.logs, key))
                    async for record in reader.read_new():
                        yield record
                if all(row.state.is_terminal for row in rows):  # what was said is written before the end is
                    return
                await self._queries.wait_for_change(news)

    async def watch(self, *, events: bool = False, every: float = 0.1) -> AsyncIterator[RunSnapshot]:
        """Yield how the run stands and what is new of it, whenever something is, at most so often; ends with it."""
        watch = RunWatch(self._queries.store, self.id, events=events)
        with self._queries.require_open():
            while True:
                news = self._queries.notifier.change_signal(self.id)
                glance = await watch.read()
                yield glance
                if glance.record.run.state.is_terminal:
                    yield await watch.read(is_last=True)
                    return
                await self._queries.sleep(every)
                await self._queries.wait_for_change(news)
