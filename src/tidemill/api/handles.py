"""Handles on what a node or a server has: one class for both, over the port that carries operations out."""

from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import aclosing
from typing import Any

from tidemill.api.accumulators import get_accumulator, restart_accumulator
from tidemill.api.dead_letters import (
    drop_accumulator_dead_letter,
    drop_reactor_dead_letter,
    get_accumulator_dead_letter,
    get_reactor_dead_letter,
    list_accumulator_dead_letters,
    list_reactor_dead_letters,
    replay_accumulator_dead_letter,
    replay_reactor_dead_letter,
)
from tidemill.api.dismissals import dismiss_run
from tidemill.api.handlers import HandlerRun, list_handlers
from tidemill.api.port import AsyncApi
from tidemill.api.reactors import command_reactor, get_reactor, get_timeseries, list_firings, list_recoveries
from tidemill.api.reruns import Rerun
from tidemill.api.runs import (
    RunDetails,
    RunInfo,
    RunSnapshot,
    RunTransition,
    cancel_run,
    clear_run,
    get_run,
    list_run_events,
    note_run,
    retry_run,
    watch_run,
)
from tidemill.api.series import ReactorSeries, get_reactor_series
from tidemill.api.tasks import AttemptInfo, StepInfo, TaskLogLine, explain_task, list_attempts, list_logs, list_steps
from tidemill.api.waits import Wait, answer, answer_fields, find_open_wait, list_run_waits
from tidemill.graphs.definition import Accumulator
from tidemill.graphs.key_forms import format_key, key_to_json
from tidemill.graphs.outcomes import DeadLetter
from tidemill.graphs.state import Latency, ReactorState, Recovery
from tidemill.graphs.views import AccumulatorDetails, CommandResult, FiringView, ReactorCommand, ReplayResult
from tidemill.kernel.durations import Duration
from tidemill.kernel.errors import RequestError
from tidemill.workflows.lookup import split_element, unknown_run
from tidemill.workflows.result import RunResult
from tidemill.workflows.workflow import Workflow


def name_of(declared: str | Accumulator | Workflow) -> str:
    """Return the name of what has been declared, or the name that was given."""
    return declared.name if isinstance(declared, Accumulator | Workflow) else declared


class AsyncRun:
    """One run of a node or of a server, running or ended."""

    def __init__(self, api: AsyncApi, id: str, listed: RunInfo | None = None) -> None:
        self.id = id
        self.listed = listed
        """The run as the list had it that the handle comes from; None if it comes from no list."""
        self._api = api

    def __repr__(self) -> str:
        return f"<run {self.id}>"

    async def info(self) -> RunDetails:
        """Return the run: params, origin, version, times, notes, and its tasks without their outputs."""
        return await self._api.call(get_run, self._fields())

    async def state(self, *, outputs: bool = True) -> RunResult:
        """Return the present state of the run and its tasks; `outputs=False` leaves out outputs and elements."""
        return await self._api.result(self._fields()["run"], outputs=outputs)

    async def wait(self, timeout: Duration | None = None) -> RunResult:
        """Return the result when the run has ended; TimeoutError after the timeout, which does not affect the run."""
        return await self._api.wait(self._fields()["run"], timeout)

    async def result(self, timeout: Duration | None = None) -> RunResult:
        """Return the result when the run has succeeded; OperationError with the errors of its tasks if it did not."""
        return (await self.wait(timeout)).raise_for_status()

    async def watch(self, *, events: bool = False, every: float = 0.1) -> AsyncIterator[RunSnapshot]:
        """Yield a snapshot whenever the run changes, at most one per `every` seconds; ends with the run."""
        async with aclosing(self._api.stream(watch_run, self._fields(events=events, every=every))) as snapshots:
            async for snapshot in snapshots:
                yield snapshot

    async def events(self, *, follow: bool = False) -> AsyncIterator[RunTransition]:
        """Yield the transitions of the run and its tasks, oldest first; with `follow` until the run has ended."""
        if not follow:
            for event in await self._api.collect(list_run_events, self._fields(), None):
                yield event
            return
        async with aclosing(self._api.stream(list_run_events, self._fields())) as events:
            async for event in events:
                yield event

    async def logs(self, task: str, *, follow: bool = True, attempt: int | None = None) -> AsyncIterator[TaskLogLine]:
        """Yield the log of a task, or of one element of it (`"clean[7]"`); with `follow` until the task has ended."""
        fields = self._task_fields(task, attempt=attempt, text="")
        if not follow:
            for line in await self._api.collect(list_logs, fields, None):
                yield line
            return
        async with aclosing(self._api.stream(list_logs, fields)) as lines:
            async for line in lines:
                yield line

    async def attempts(self, task: str) -> list[AttemptInfo]:
        """Return the attempts of a task, or of one element of it, oldest first."""
        return await self._api.collect(list_attempts, self._task_fields(task), None)

    async def steps(self, task: str, index: int | None = None) -> list[StepInfo]:
        """Return what a task, or one element of it, has done under a name, oldest first."""
        fields = self._task_fields(task) if index is None else self._fields(task=task, index=index)
        return await self._api.collect(list_steps, fields, None)

    async def waits(self) -> list[Wait]:
        """Return what the tasks of the run have asked, in any state, oldest first."""
        return await self._api.collect(list_run_waits, self._fields(), None)

    async def answer(
        self, name: str, value: Any, *, variant: str | None = None, comment: str = "", index: int | None = None
    ) -> Wait:
        """Answer the open wait of this name, and return it; `index` chooses among those of a mapped task."""
        wait = find_open_wait(await self.waits(), name, index)
        return await self._api.call(answer, answer_fields(wait, value, variant=variant, comment=comment))

    async def why(self, task: str) -> list[str]:
        """Return why a task has not run, or how it ended: one sentence per reason."""
        return (await self._api.call(explain_task, self._task_fields(task))).reasons

    async def handlers(self) -> list[HandlerRun]:
        """Return what the ends of the run have called, oldest first: the handlers of each end, with their states."""
        return await self._api.collect(list_handlers, self._fields(), None)

    async def cancel(self, reason: str = "cancelled") -> RunDetails:
        """Cancel the run and its active tasks; running code is stopped."""
        return await self._api.call(cancel_run, self._fields(reason=reason))

    async def retry(
        self, from_: str | Collection[str] | None = None, *, preview: bool = False, latest: bool = False
    ) -> Rerun:
        """Rerun a task, or several, and all tasks after; return what reruns.

        Without a task: all that failed, were cancelled or could not run. With `preview` nothing is changed. With
        `latest` a run that has ended continues with the newest version of its workflow; else it keeps its own.
        """
        tasks = None if from_ is None else _task_list(from_)
        return await self._api.call(retry_run, self._fields(from_=tasks, latest=latest, preview=preview))

    async def clear(self, tasks: str | Collection[str], *, preview: bool = False, latest: bool = False) -> Rerun:
        """Clear the results of tasks, and of all tasks after them, so that they rerun; return what reruns."""
        return await self._api.call(clear_run, self._fields(tasks=_task_list(tasks), latest=latest, preview=preview))

    async def dismiss(self) -> RunInfo:
        """Dismiss the failure of the run: it no longer needs a person, until it is retried and fails once more."""
        return await self._api.call(dismiss_run, self._fields())

    async def note(self, text: str, task: str | None = None) -> RunInfo:
        """Write a note on the run, or on one of its tasks; an empty text removes it."""
        return await self._api.call(note_run, self._fields(text=text, task=task))

    async def notes(self) -> dict[str | None, str]:
        """Return the notes: the run's own under None, those on tasks under their names."""
        run = await self.info()
        notes: dict[str | None, str] = {} if run.note is None else {None: run.note}
        return notes | dict(run.notes)

    def _fields(self, **fields: Any) -> dict[str, Any]:
        if not isinstance(self.id, str) or not self.id:
            raise unknown_run(self.id)
        return {"run": self.id, **fields}

    def _task_fields(self, task: str, **fields: Any) -> dict[str, Any]:
        """Return the fields of a request about a task; the number of the element that is meant, if it names one."""
        name, number = split_element(task)
        if number is None or not number.isdecimal():
            return self._fields(task=task, index=None, **fields)
        return self._fields(task=name, index=int(number), **fields)


def _task_list(named: str | Collection[str]) -> list[str]:
    tasks = [named] if isinstance(named, str) else named
    if not isinstance(tasks, Collection) or not tasks or not all(isinstance(task, str) for task in tasks):
        message = f"a task is named, or several in a list, not {named!r}: leave it out for everything that failed"
        raise RequestError(message, code="invalid_tasks")
    return list(tasks)


class AsyncAccumulatorHandle:
    """One accumulator, for operators."""

    def __init__(self, api: AsyncApi, name: str) -> None:
        self.name = name
        self._api = api
        self._fields = {"name": name}

    def __repr__(self) -> str:
        return f"<accumulator {self.name}>"

    async def state(self) -> AccumulatorDetails:
        """Return the present state of the accumulator, and the JSON Schema of its events."""
        return await self._api.call(get_accumulator, self._fields)

    async def restart(self) -> AccumulatorDetails:
        """Restart the accumulator if it has failed or hangs."""
        return await self._api.call(restart_accumulator, self._fields)

    async def dead_letters(self, limit: int | None = None) -> list[DeadLetter]:
        """Return the dead letters of the accumulator, newest first."""
        return await self._api.collect(list_accumulator_dead_letters, self._fields, limit)

    async def dead_letter(self, dead_letter_id: str) -> DeadLetter:
        """Return a dead letter, with values that are too large for a list."""
        return await self._api.call(get_accumulator_dead_letter, {**self._fields, "id": dead_letter_id})

    async def replay(self, dead_letter_id: str, event: Any = None) -> ReplayResult:
        """Process a dead letter again, or another event instead of its own."""
        fields = {**self._fields, "id": dead_letter_id, "event": event}
        return await self._api.call(replay_accumulator_dead_letter, fields)

    async def drop(self, dead_letter_id: str) -> None:
        """Delete a dead letter."""
        await self._api.call(drop_accumulator_dead_letter, {**self._fields, "id": dead_letter_id})


class AsyncReactorHandle:
    """One reactor of a server, for operators."""

    def __init__(self, api: AsyncApi, name: str) -> None:
        self.name = name
        self._api = api
        self._fields = {"name": name}

    def __repr__(self) -> str:
        return f"<reactor {self.name}>"

    async def state(self, key: Any = None) -> ReactorState:
        """Return the present state of the reactor and its accumulators; or the state of one key of a keyed reactor."""
        return await self._api.call(get_reactor, {**self._fields, "key": _in_query(key)})

    async def firings(self, limit: int = 50, key: Any = None) -> list[FiringView]:
        """Return the newest firings that are kept, newest first, or those of one key of a keyed reactor."""
        return await self._api.collect(list_firings, {**self._fields, "key": _in_query(key)}, limit)

    async def timeseries(self) -> list[int]:
        """Return the firing counts of the last 60 minutes, oldest first."""
        return (await self._api.call(get_timeseries, self._fields)).per_minute

    async def series(self, seconds: int = 3600) -> ReactorSeries:
        """Return firings, durations and boundaries over time, by the second up to an hour, else by the minute."""
        return await self._api.call(get_reactor_series, {**self._fields, "seconds": seconds})

    async def latency(self) -> Latency:
        """Return median and 99th percentile of the newest firings' durations, in seconds."""
        state = await self.state()
        return Latency(state.p50, state.p99)

    async def events(self, limit: int | None = 50) -> list[Recovery]:
        """Return what the supervisor did with the reactor and its accumulators, newest first."""
        return await self._api.collect(list_recoveries, self._fields, limit)

    async def pause(self) -> ReactorState:
        """Pause the reactor: it keeps its inputs, and does not fire."""
        return (await self._command("pause")).state

    async def resume(self) -> ReactorState:
        """Resume the reactor."""
        return (await self._command("resume")).state

    async def restart(self) -> ReactorState:
        """Restart the reactor with what is stored of it."""
        return (await self._command("restart")).state

    async def force_fire(self, key: Any = None) -> FiringView:
        """Fire now, with the inputs as they are; of a keyed reactor, those of one key."""
        return _firing(await self._command("force_fire", None, key))

    async def fire_with(self, inputs: Mapping[str, Any], key: Any = None) -> FiringView:
        """Fire now with other inputs, which replace the kept ones; of a keyed reactor, those of one key."""
        return _firing(await self._command("fire_with", inputs, key))

    async def _command(
        self, command: ReactorCommand, inputs: Mapping[str, Any] | None = None, key: Any = None
    ) -> CommandResult:
        given = {"inputs": inputs, "key": key_to_json(key)}
        fields = self._fields | {"command": command} | {name: one for name, one in given.items() if one is not None}
        return await self._api.call(command_reactor, fields)

    async def dead_letters(self, limit: int | None = None) -> list[DeadLetter]:
        """Return the dead letters of the reactor and its accumulators, newest first."""
        return await self._api.collect(list_reactor_dead_letters, self._fields, limit)

    async def dead_letter(self, dead_letter_id: str) -> DeadLetter:
        """Return a dead letter, with values that are too large for a list."""
        return await self._api.call(get_reactor_dead_letter, {**self._fields, "id": dead_letter_id})

    async def replay(self, dead_letter_id: str, event: Any = None) -> ReplayResult:
        """Process a dead letter again, or another event instead of its own."""
        fields = {**self._fields, "id": dead_letter_id, "event": event}
        return await self._api.call(replay_reactor_dead_letter, fields)

    async def drop(self, dead_letter_id: str) -> None:
        """Delete a dead letter."""
        await self._api.call(drop_reactor_dead_letter, {**self._fields, "id": dead_letter_id})

    async def watch(self, every: Duration = 0.25) -> AsyncIterator[ReactorState]:
        """Yield the state of the reactor whenever it has changed, at most so often, across reconnects."""
        async with aclosing(self._api.watch_reactor(self.name, every)) as states:
            async for state in states:
                yield state


def _in_query(key: Any) -> str | None:
    return None if key is None else format_key(key)


def _firing(result: CommandResult) -> FiringView:
    assert result.firing is not None, "a command to fire is answered with the firing"
    return result.firing
