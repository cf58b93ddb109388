"""A handle on one run: wait for it, read it, cancel it, retry it, explain it, follow its logs."""

from collections.abc import AsyncIterator, Collection

from tidemill.access.principal import Caller
from tidemill.engine.workflows.client.values import RunSnapshot
from tidemill.engine.workflows.client.workflow_client import WorkflowClient
from tidemill.engine.workflows.executors.interface import LogRecord
from tidemill.kernel.durations import Duration, parse_duration
from tidemill.kernel.errors import RequestError
from tidemill.workflows.result import RunResult


class RunHandle:
    """One run, on any node, also after it has ended."""

    def __init__(self, client: WorkflowClient, caller: Caller, id: str) -> None:
        self.id = id
        self._client = client
        self._caller = caller

    def __repr__(self) -> str:
        return f"<run {self.id}>"

    async def state(self) -> RunResult:
        """Return the present state of the run and its tasks."""
        with self._client.require_open():
            return await self._client.load_result(self._caller, self.id)

    async def wait(self, timeout: Duration | None = None) -> RunResult:
        """Return the result when the run has ended; TimeoutError after so long, which does not affect the run."""
        with self._client.require_open():
            seconds = None if timeout is None else _parse_timeout(timeout)
            return await self._client.wait(self._caller, self.id, seconds)

    async def cancel(self, reason: str = "cancelled") -> None:
        """Cancel the run and its active tasks; running code is stopped."""
        with self._client.require_open():
            await self._client.cancel(self._caller, self.id, reason)

    async def retry(
        self, from_: str | Collection[str] | None = None, *, preview: bool = False, latest: bool = False
    ) -> list[str]:
        """Rerun a task, or several, and all tasks after; return the names of the tasks that rerun.

        Without a task: all that failed, were cancelled or could not run. With `preview` nothing is changed. With
        `latest` a run that has ended continues with the newest version of its workflow; else it keeps its own.
        """
        with self._client.require_open():
            tasks = _parse_tasks(from_)
            plan = await self._client.clear(self._caller, self.id, tasks, preview=preview, latest=latest)
            return plan.names

    async def clear(self, tasks: str | Collection[str], *, preview: bool = False, latest: bool = False) -> list[str]:
        """Clear the results of tasks, and of all tasks after them, so that they rerun; return their names."""
        return await self.retry(tasks, preview=preview, latest=latest)

    async def why(self, task: str) -> list[str]:
        """Return why a task has not run, or how it ended: one sentence per reason."""
        with self._client.require_open():
            return await self._client.why(self._caller, self.id, task)

    async def note(self, text: str, task: str | None = None) -> None:
        """Write a note on the run, or on one of its tasks; an empty text removes it."""
        with self._client.require_open():
            await self._client.note(self._caller, self.id, text, task)

    async def notes(self) -> dict[str | None, str]:
        """Return the notes: the run's own under None, those on tasks under their names."""
        with self._client.require_open():
            return await self._client.notes(self._caller, self.id)

    async def logs(self, task: str) -> AsyncIterator[LogRecord]:
        """Yield the log records of a task as they are written; ends with the task."""
        with self._client.require_open():
            async for line in self._client.logs(self._caller, self.id, task):
                yield line.record

    async def watch(self, *, events: bool = False, every: float = 0.1) -> AsyncIterator[RunSnapshot]:
        """Yield a snapshot whenever the run changes, at most one per `every` seconds; ends with the run."""
        with self._client.require_open():
            async for snapshot in self._client.watch(self._caller, self.id, events=events, every=every):
                yield snapshot


def _parse_timeout(timeout: Duration) -> float:
    try:
        return parse_duration(timeout)
    except ValueError as error:
        raise RequestError(f"timeout: {error}", code="invalid_timeout") from None


def _parse_tasks(named: str | Collection[str] | None) -> list[str] | None:
    """Return the named tasks; None, unlike an empty list, means all tasks that failed."""
    if named is None:
        return None
    tasks = [named] if isinstance(named, str) else named
    if not isinstance(tasks, Collection) or not tasks or not all(isinstance(task, str) for task in tasks):
        message = f"a task is named, or several in a list, not {named!r}: leave it out for everything that failed"
        raise RequestError(message, code="invalid_tasks")
    return list(tasks)
