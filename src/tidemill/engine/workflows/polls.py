"""Deferrals that wait for something: asked every so often, by the node in whose memory the question is.

The question is a function of the author's and lives as long as the process. After a restart nobody can ask it, so the
task itself is called again at the time that the store knows, and comes to ask it.
"""

import inspect
import logging
from collections.abc import Callable, Mapping

from tidemill.engine.service import Tasks
from tidemill.kernel.author_errors import AUTHOR_ERRORS, is_cut_off
from tidemill.kernel.clock import Clock
from tidemill.kernel.concurrency import in_thread
from tidemill.telemetry import events
from tidemill.workflows.draft import Place
from tidemill.workflows.endings import Poll
from tidemill.workflows.records import AttemptKey, TaskRow
from tidemill.workflows.states import TaskState

logger = logging.getLogger(__name__)


class Polls:
    """The questions that deferred task runs wait for."""

    def __init__(self, clock: Clock, tasks: Tasks, is_over: Callable[[AttemptKey], None]) -> None:
        self._clock = clock
        self._tasks = tasks
        self._is_over = is_over
        self._asked: dict[str, dict[AttemptKey, float]] = {}
        """By run: which attempts wait for a question, and how many seconds there are between two times it is asked."""
        self.asking = 0
        """How many questions are being answered at this moment."""

    def places(self, run: str, rows: Mapping[Place, TaskRow]) -> set[Place]:
        """Return the task runs of a run that are woken by a question, not by the time; others' questions are dropped.

        A question belongs to the attempt that asked it: a task run that was cleared may sleep for another reason.
        """
        if run not in self._asked:
            return set()
        asked = self._asked[run]
        self._asked[run] = {key: asked[key] for key in asked if _waits(rows.get((key.task, key.element)), key)}
        return {(key.task, key.element) for key in self._asked[run]}

    def intervals(self, run: str) -> dict[Place, float]:
        """Return how many seconds there are between questions, for the task runs of a run that are woken by one."""
        return {(key.task, key.element): every for key, every in self._asked.get(run, {}).items()}

    def add(self, key: AttemptKey, poll: Poll, every: float) -> None:
        """Begin to ask a question for an attempt that was deferred."""
        self._asked.setdefault(key.run, {})[key] = every
        self._tasks.start(f"poll: {key}", self._ask(key, poll, every))

    def drop(self, run: str) -> None:
        """Ask nothing more for a run."""
        self._asked.pop(run, None)

    def close(self) -> None:
        """Ask nothing more at all."""
        self._asked.clear()

    async def _ask(self, key: AttemptKey, poll: Poll, every: float) -> None:
        while True:
            await self._clock.sleep(every)
            if key not in self._asked.get(key.run, ()):
                return
            self.asking += 1
            try:
                is_over = await _says_yes(poll, key.run)
            finally:
                self.asking -= 1
            if is_over:
                self._asked.get(key.run, {}).pop(key, None)
                self._is_over(key)
                return


def _waits(row: TaskRow | None, key: AttemptKey) -> bool:
    return row is not None and row.state is TaskState.DEFERRED and row.attempt == key.attempt


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
