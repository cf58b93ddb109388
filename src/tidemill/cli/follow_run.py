"""Following a run to its end: shown while it goes, cancelled when somebody asks, explained when it stands still."""

import asyncio
from contextlib import suppress

from tidemill.cli.formatting import format_short_duration
from tidemill.cli.progress import Progress
from tidemill.engine.workflows.client.handle import RunHandle
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import RequestError, TidemillError
from tidemill.script import ScriptNode
from tidemill.workflows.records import RunRecord
from tidemill.workflows.states import RunState, TaskState

STOP_TIMEOUT = 0.2  # seconds within which what can be stopped usually is
STALL_TIMEOUT = 1.0  # seconds for which nothing goes on before somebody wants to know why


async def follow_run(
    handle: RunHandle, cancel_requested: asyncio.Event, progress: Progress, node: ScriptNode, clock: Clock
) -> None:
    """Show a run until it has ended, and cancel it when somebody asks."""
    following = _RunFollower(handle, cancel_requested, progress, clock)
    try:
        async with asyncio.TaskGroup() as group:
            helpers = [
                group.create_task(following.cancel_on_request(), name="run: cancel when asked"),
                group.create_task(following.explain_stalls(), name="run: say why nothing goes on"),
            ]
            await following.show_until_end()
            for one in helpers:
                one.cancel()
    except ExceptionGroup as several:
        raise several.exceptions[0] from several
    if node.still_running_tasks():
        await clock.sleep(STOP_TIMEOUT)
    if names := node.still_running_tasks():
        said = ", ".join(f"'{name}'" for name in names)
        progress.set_status(
            f"waiting up to {format_short_duration(node.settings.unload_timeout)} for {said}, which cannot be stopped; "
            f"{'Ctrl-C again' if cancel_requested.is_set() else 'Ctrl-C twice'} stops at once"
        )


class _RunFollower:
    """One run, as it was last seen."""

    def __init__(self, handle: RunHandle, cancel_requested: asyncio.Event, progress: Progress, clock: Clock) -> None:
        self._handle = handle
        self._cancel_requested = cancel_requested
        self._progress = progress
        self._clock = clock
        self._record: RunRecord | None = None

    async def show_until_end(self) -> None:
        """Show the run until it has ended."""
        async for glance in self._handle.watch(events=self._progress.wants_events):
            self._record = glance.record
            self._progress.show(glance)

    async def cancel_on_request(self) -> None:
        """Cancel the run when somebody asks."""
        await self._cancel_requested.wait()
        with suppress(RequestError):  # it has ended meanwhile
            await self._handle.cancel("interrupted")

    async def explain_stalls(self) -> None:
        """Say why the run stands still whenever it does for a while."""
        said, before = "", None
        while not self._cancel_requested.is_set():
            await self._clock.sleep(STALL_TIMEOUT / 2)
            waiting = self._stalled_task()
            text = await self._explain_stall(waiting) if waiting is not None and waiting == before else ""
            if text != said and not self._cancel_requested.is_set():
                self._progress.set_status(text)
                said = text
            before = waiting

    def _stalled_task(self) -> str | None:
        """Return a task that could go on, if nothing of the run does."""
        record = self._record
        if record is None or any(row.state.is_active and row.state is not TaskState.SCHEDULED for row in record.tasks):
            return None
        wanted = TaskState.NONE if record.run.state is RunState.QUEUED else TaskState.SCHEDULED
        return next((row.task for row in record.tasks if row.state is wanted), None)

    async def _explain_stall(self, task: str) -> str:
        try:
            return f"waiting: {'; '.join(await self._handle.why(task))}"
        except TidemillError as error:  # it is only to be told: the run goes on
            return f"waiting: {error}"
