"""Deferrals that wait for something: asked every so often, by the node in whose memory the question is.

The question is a function of the author's and lives as long as the process. After a restart nobody can ask it, so the
task itself is called again at the time that the store knows, and comes to ask it.
"""

import inspect
import logging
from collections.abc import Callable

from tidemill.engine.service import Tasks
from tidemill.kernel.author_errors import AUTHOR_ERRORS, is_cut_off
from tidemill.kernel.clock import Clock
from tidemill.kernel.concurrency import in_thread
from tidemill.telemetry import events
from tidemill.workflows.draft import Place
from tidemill.workflows.endings import Poll

logger = logging.getLogger(__name__)


class Polls:
    """The questions that deferred task runs wait for."""

    def __init__(self, clock: Clock, tasks: Tasks, is_over: Callable[[str, Place], None]) -> None:
        self._clock = clock
        self._tasks = tasks
        self._is_over = is_over
        self._asked: dict[str, set[Place]] = {}
        self.asking = 0
        """How many questions are being answered at this moment."""

    def places(self, run: str) -> set[Place]:
        """Return the task runs of a run that are woken by a question, not by the time."""
        return self._asked.get(run, set())

    def add(self, run: str, place: Place, poll: Poll, every: float) -> None:
        """Begin to ask a question for a deferred task run."""
        self._asked.setdefault(run, set()).add(place)
        self._tasks.start(f"poll: {run}/{place[0]}", self._ask(run, place, poll, every))

    def drop(self, run: str) -> None:
        """Ask nothing more for a run."""
        self._asked.pop(run, None)

    def close(self) -> None:
        """Ask nothing more at all."""
        self._asked.clear()

    async def _ask(self, run: str, place: Place, poll: Poll, every: float) -> None:
        while True:
            await self._clock.sleep(every)
            if place not in self.places(run):
                return
            self.asking += 1
            try:
                is_over = await _says_yes(poll, run)
            finally:
                self.asking -= 1
            if is_over:
                self._asked.get(run, set()).discard(place)
                self._is_over(run, place)
                return


async def _says_yes(poll: Poll, run: str) -> bool:
    try:
        if inspect.iscoroutinefunction(poll):
            return bool(await poll())
        answer = await in_thread(poll)
        return bool(await answer if inspect.isawaitable(answer) else answer)
    except AUTHOR_ERRORS as error:  # author code: a question that fails is asked again
        if is_cut_off(error):
            raise
        logger.warning(events.POLL_FAILED, extra={"run": run, "error": repr(error)})
        return False
