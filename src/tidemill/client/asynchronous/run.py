"""A run on the server: wait for it, read it, follow its log, cancel and retry it."""

from collections.abc import AsyncGenerator, AsyncIterator, Collection
from contextlib import aclosing, suppress

import msgspec

from tidemill.api.paging import Page
from tidemill.api.runs import Rerun, RunInfo, RunTransition
from tidemill.api.tasks import AttemptInfo, Reasons, TaskLogLine
from tidemill.client.asynchronous.transport import STREAM_IDLE_LIMIT, AsyncTransport
from tidemill.client.calls import ApiCall, QueryValue, command, get, name_in_path, put
from tidemill.client.pauses import Deadline
from tidemill.kernel.durations import Duration
from tidemill.workflows.lookup import split_element
from tidemill.workflows.result import RunResult
from tidemill.workflows.states import RunState

WATCH_LIMIT = 10.0
"""Seconds after which a waiting client looks at a run again, if no event of it arrives."""

END_STATES = frozenset(state.value for state in RunState if state.is_terminal)


class AsyncRemoteRun:
    """One run on the server, also after it has ended."""

    def __init__(self, transport: AsyncTransport, id: str) -> None:
        self.id = id
        self._transport = transport
        self._path = f"/runs/{name_in_path(id)}"

    def __repr__(self) -> str:
        return f"<run {self.id}>"

    async def info(self) -> RunInfo:
        """Return the run without its tasks: params, origin, version, times, note."""
        return await self._transport.send(get(self._path, RunInfo))

    async def state(self, *, outputs: bool = True) -> RunResult:
        """Return the present state of the run and its tasks; `outputs=False` leaves out outputs and elements."""
        return await self._transport.send(get(self._path, RunResult, outputs=outputs))

    async def wait(self, timeout: Duration | None = None) -> RunResult:
        """Return the result when the run has ended; TimeoutError after so long, which does not affect the run."""
        deadline = Deadline(timeout)
        while not (await self.info()).state.is_terminal:
            if not (seconds := deadline.remaining(WATCH_LIMIT)):
                raise TimeoutError(f"run {self.id} has not ended within {timeout}; it continues")
            with suppress(TimeoutError):
                await self._wait_for_end(deadline, seconds)
        return await self.state()

    async def result(self, timeout: Duration | None = None) -> RunResult:
        """Return the result when the run has succeeded; OperationError with the errors of its tasks if it did not."""
        return (await self.wait(timeout)).raise_for_status()

    async def _wait_for_end(self, deadline: Deadline, seconds: float) -> None:
        """Return when the run has ended, or too little time remains to wait so many seconds for another event."""
        async with aclosing(self._follow_events(idle_limit=seconds)) as events:
            async for event in events:
                if event.task is None and event.after in END_STATES:
                    return
                if deadline.remaining(seconds) < seconds:
                    return

    async def events(self, *, follow: bool = False) -> AsyncIterator[RunTransition]:
        """Yield the transitions of the run and its tasks, oldest first; with `follow` until the run has ended."""
        if not follow:
            async for event in self._transport.items(get(f"{self._path}/events", Page[RunTransition])):
                yield event
            return
        async with aclosing(self._follow_events()) as events:
            async for event in events:
                yield event

    async def _follow_events(self, idle_limit: float = STREAM_IDLE_LIMIT) -> AsyncGenerator[RunTransition, None]:
        call: ApiCall[RunTransition] = get(f"{self._path}/events", RunTransition)
        async with aclosing(self._transport.follow(call, ends=True, idle_limit=idle_limit)) as messages:
            async for message in messages:
                yield msgspec.json.decode(message.data, type=RunTransition)

    async def logs(self, task: str, *, follow: bool = False, attempt: int | None = None) -> AsyncIterator[TaskLogLine]:
        """Yield the log of a task, or of one element of it (`"clean[7]"`); with `follow` until the task has ended."""
        path, index = self._task_path(task)
        if not follow:
            call = get(f"{path}/logs", Page[TaskLogLine], index=index, attempt=attempt)
            async for line in self._transport.items(call):
                yield line
            return
        stream = get(f"{path}/logs", TaskLogLine, index=index, attempt=attempt)
        async with aclosing(self._transport.follow(stream, ends=True)) as messages:
            async for message in messages:
                yield stream.read(message.data.encode())

    async def attempts(self, task: str) -> list[AttemptInfo]:
        """Return the attempts of a task, or of one element of it, oldest first."""
        path, index = self._task_path(task)
        return await self._transport.collect(get(f"{path}/attempts", Page[AttemptInfo], index=index))

    async def why(self, task: str) -> list[str]:
        """Return why a task has not run, or how it ended: one sentence per reason."""
        path, index = self._task_path(task)
        return (await self._transport.send(get(f"{path}/why", Reasons, index=index))).reasons

    async def cancel(self, reason: str = "cancelled") -> None:
        """Cancel the run and its active tasks; running code is stopped."""
        await self._transport.send(command(f"{self._path}/cancel", RunInfo, {"reason": reason}))

    async def retry(
        self, from_: str | Collection[str] | None = None, *, preview: bool = False, latest: bool = False
    ) -> Rerun:
        """Rerun a task, or several, and all tasks after; return what reruns.

        Without a task: all that failed, were cancelled or could not run. With `preview` nothing is changed. With
        `latest` a run that has ended continues with the newest version of its workflow; else it keeps its own.
        """
        tasks = from_ if isinstance(from_, str | None) else list(from_)
        body = {"from": tasks, "latest": latest, "preview": preview}
        return await self._transport.send(command(f"{self._path}/retry", Rerun, body))

    async def clear(self, tasks: str | Collection[str], *, preview: bool = False, latest: bool = False) -> Rerun:
        """Clear the results of tasks, and of all tasks after them, so that they rerun; return what reruns."""
        body = {"tasks": [tasks] if isinstance(tasks, str) else list(tasks), "latest": latest, "preview": preview}
        return await self._transport.send(command(f"{self._path}/clear", Rerun, body))

    async def note(self, text: str) -> None:
        """Write a note on the run; an empty text removes it."""
        await self._transport.send(put(f"{self._path}/note", RunInfo, {"text": text}))

    def _task_path(self, task: str) -> tuple[str, QueryValue]:
        """Return the path of a task, and the number of the element that is meant, if it names one."""
        name, index = split_element(task)
        return f"{self._path}/tasks/{name_in_path(name)}", index
