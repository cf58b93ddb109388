"""Following a run to its end: shown while it goes, cancelled when somebody asks, explained when it stands still."""

import asyncio
from contextlib import suppress

from tidemill.cli.progress import Progress
from tidemill.cli.words import length
from tidemill.engine.workflows.commands import RunHandle
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import RequestError, TidemillError
from tidemill.script import ScriptNode
from tidemill.workflows.records import RunRecord
from tidemill.workflows.states import RunState, TaskState

SOON = 0.2  # seconds within which what can be stopped usually is
STILL = 1.0  # seconds for which nothing goes on before somebody wants to know why


async def follow(handle: RunHandle, asked: asyncio.Event, progress: Progress, node: ScriptNode, clock: Clock) -> None:
    """Show a run until it has ended, and cancel it when somebody asks."""
    following = _Following(handle, asked, progress, clock)
    try:
        async with asyncio.TaskGroup() as group:
            helpers = [
                group.create_task(following.cancel(), name="run: cancel when asked"),
                group.create_task(following.explain(), name="run: say why nothing goes on"),
            ]
            await following.show()
            for one in helpers:
                one.cancel()
    except ExceptionGroup as several:
        raise several.exceptions[0] from several
    if node.unstopped():
        await clock.sleep(SOON)
    if names := node.unstopped():
        said = ", ".join(f"'{name}'" for name in names)
        progress.say(
            f"waiting up to {length(node.settings.unload_timeout)} for {said}, which cannot be stopped; "
            f"{'Ctrl-C again' if asked.is_set() else 'Ctrl-C twice'} stops at once"
        )


class _Following:
    """One run, as it was last seen."""

    def __init__(self, handle: RunHandle, asked: asyncio.Event, progress: Progress, clock: Clock) -> None:
        self._handle = handle
        self._asked = asked
        self._progress = progress
        self._clock = clock
        self._record: RunRecord | None = None

    async def show(self) -> None:
        """Show the run until it has ended."""
        async for glance in self._handle.watch(events=self._progress.wants_events):
            self._record = glance.record
            self._progress.show(glance)

    async def cancel(self) -> None:
        """Cancel the run when somebody asks."""
        await self._asked.wait()
        with suppress(RequestError):  # it has ended meanwhile
            await self._handle.cancel("interrupted")

    async def explain(self) -> None:
        """Say why the run stands still whenever it does for a while."""
        said, before = "", None
        while not self._asked.is_set():
            await self._clock.sleep(STILL / 2)
            waiting = self._waiting()
            text = await self._why(waiting) if waiting is not None and waiting == before else ""
            if text != said and not self._asked.is_set():
                self._progress.say(text)
                said = text
            before = waiting

    def _waiting(self) -> str | None:
        """Return a task that could go on, if nothing of the run does."""
        record = self._record
        if record is None or any(row.state.is_active and row.state is not TaskState.SCHEDULED for row in record.tasks):
            return None
        wanted = TaskState.NONE if record.run.state is RunState.QUEUED else TaskState.SCHEDULED
        return next((row.task for row in record.tasks if row.state is wanted), None)

    async def _why(self, task: str) -> str:
        try:
            return f"waiting: {'; '.join(await self._handle.why(task))}"
        except TidemillError as error:  # it is only to be told: the run goes on
            return f"waiting: {error}"
