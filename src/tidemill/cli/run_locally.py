"""Runs a workflow on a node in this process, for `tidemill run`: shows it, cancels it, and explains why it waits.

Its imports are at the top, unlike those of a command: they happen before `run_async` starts the garbage collector.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from tidemill.api.handles import AsyncRun
from tidemill.api.runs import RunSnapshot
from tidemill.api.tasks import TaskLogLine
from tidemill.cli.formatting import format_short_duration
from tidemill.cli.interrupts import Interrupts
from tidemill.cli.progress import Progress
from tidemill.kernel.clock import Clock, SystemClock
from tidemill.kernel.errors import RequestError, TidemillError
from tidemill.script import ScriptNode
from tidemill.workflows.result import RunResult
from tidemill.workflows.states import RunState, TaskState
from tidemill.workflows.workflow import Workflow

STOP_TIMEOUT = 0.2  # seconds that cancelled tasks usually need to stop
STALL_TIMEOUT = 1.0  # seconds without progress before the reason is shown


async def run_locally(
    workflow: Workflow, params: Mapping[str, Any], progress: Progress, interrupts: Interrupts, **node_options: Any
) -> RunResult:
    """Run a workflow and show its progress; the first interrupt cancels it. The options are those of ScriptNode."""
    loop, cancel_requested = asyncio.get_running_loop(), asyncio.Event()

    def request_cancel() -> None:
        progress.set_status("cancelling; Ctrl-C again stops at once")  # not in the loop: author code may block it
        loop.call_soon_threadsafe(cancel_requested.set)

    interrupts.on_first(request_cancel)
    async with ScriptNode(workflow, **node_options) as node:
        for sentence in node.executor_warnings():
            progress.print_note(sentence)
        handle = await node.start(workflow.name, params)
        await _follow_run(handle, cancel_requested, progress, node, SystemClock())
        for sentence in await node.wait_for_handlers(handle.id):
            progress.print_note(sentence)
        return await handle.state()


async def _follow_run(
    handle: AsyncRun, cancel_requested: asyncio.Event, progress: Progress, node: ScriptNode, clock: Clock
) -> None:
    """Show a run until it has ended, and cancel it on request."""
    follower = _RunFollower(handle, cancel_requested, progress, clock)
    try:
        async with asyncio.TaskGroup() as group:
            helpers = [
                group.create_task(follower.cancel_on_request(), name="run: cancel on request"),
                group.create_task(follower.explain_stalls(), name="run: explain stalls"),
            ]
            await follower.show_until_end()
            for task in helpers:
                task.cancel()
    except ExceptionGroup as several:
        raise several.exceptions[0] from several
    if node.still_running_tasks():
        await clock.sleep(STOP_TIMEOUT)
    if names := node.still_running_tasks():
        tasks = ", ".join(f"'{name}'" for name in names)
        progress.set_status(
            f"waiting up to {format_short_duration(node.settings.unload_timeout)} for {tasks}, "
            "which cannot be stopped; "
            f"{'Ctrl-C again' if cancel_requested.is_set() else 'Ctrl-C twice'} stops at once"
        )


def _without_shown_lines(snapshot: RunSnapshot) -> RunSnapshot:
    """Return a snapshot without the lines that tasks of this process have written to the terminal themselves."""
    here = {one.task for one in snapshot.tasks if one.executor == "in_process"}
    return replace(snapshot, lines=[one for one in snapshot.lines if one.task not in here or not _is_shown(one)])


def _is_shown(line: TaskLogLine) -> bool:
    """Return whether a line has been printed, or is a record that Python shows unless handlers are set up."""
    return line.stream != "log" or (bool(line.logger) and line.level not in ("debug", "info"))


class _RunFollower:
    """Follows one run; remembers its last snapshot."""

    def __init__(self, handle: AsyncRun, cancel_requested: asyncio.Event, progress: Progress, clock: Clock) -> None:
        self._handle = handle
        self._cancel_requested = cancel_requested
        self._progress = progress
        self._clock = clock
        self._snapshot: RunSnapshot | None = None

    async def show_until_end(self) -> None:
        """Show the run until it has ended."""
        async for snapshot in self._handle.watch(events=self._progress.wants_events):
            self._snapshot = snapshot
            self._progress.show(_without_shown_lines(snapshot))

    async def cancel_on_request(self) -> None:
        """Cancel the run when cancellation is requested."""
        await self._cancel_requested.wait()
        with suppress(RequestError):  # it has ended in the meantime
            await self._handle.cancel("interrupted")

    async def explain_stalls(self) -> None:
        """Show the reason whenever the run makes no progress for a while."""
        shown, last_stalled = "", None
        while not self._cancel_requested.is_set():
            await self._clock.sleep(STALL_TIMEOUT / 2)
            stalled = self._stalled_task()
            text = await self._explain_stall(stalled) if stalled is not None and stalled == last_stalled else ""
            if text != shown and not self._cancel_requested.is_set():
                self._progress.set_status(text)
                shown = text
            last_stalled = stalled

    def _stalled_task(self) -> str | None:
        """Return a task that waits to start, if no task of the run is active."""
        found = self._snapshot
        if found is None or any(one.state.is_active and one.state is not TaskState.SCHEDULED for one in found.tasks):
            return None
        state = TaskState.NONE if found.run.state is RunState.QUEUED else TaskState.SCHEDULED
        return next((one.task for one in found.tasks if one.state is state), None)

    async def _explain_stall(self, task: str) -> str:
        try:
            return f"waiting: {'; '.join(await self._handle.why(task))}"
        except TidemillError as error:  # the explanation is optional: the run continues
            return f"waiting: {error}"
