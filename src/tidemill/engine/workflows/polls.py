"""Deferrals that wait for something: asked every so often, by the node in whose memory the question is.

The question is a function of the author's and lives as long as the process. After a restart nobody can ask it, so the
task itself is called again at the time that the store knows, and comes to ask it.
"""

import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple

from tidemill.engine.service import Tasks
from tidemill.engine.workflows.questions import Question
from tidemill.kernel.author_errors import AUTHOR_ERRORS, is_cut_off
from tidemill.kernel.clock import Clock
from tidemill.telemetry import events
from tidemill.workflows.draft import Place
from tidemill.workflows.endings import Poll
from tidemill.workflows.records import AttemptKey, TaskRow
from tidemill.workflows.states import TaskState

logger = logging.getLogger(__name__)


class _Asked(NamedTuple):
    """A question, and how many seconds there are between two times it is asked."""

    question: Question
    every: float


class Polls:
    """The questions that deferred task runs wait for."""

    def __init__(self, clock: Clock, tasks: Tasks, is_over: Callable[[AttemptKey], None]) -> None:
        self._clock = clock
        self._tasks = tasks
        self._is_over = is_over
        self._asked: dict[str, dict[AttemptKey, _Asked]] = {}
        """By run: which attempts wait for a question."""
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
        return {(key.task, key.element): asked.every for key, asked in self._asked.get(run, {}).items()}

    def unanswered(self, run: str) -> dict[Place, float]:
        """Return for how many seconds the task runs of a run have waited for an answer, if they were asked."""
        waits = {(key.task, key.element): asked.question.waits for key, asked in self._asked.get(run, {}).items()}
        return {place: seconds for place, seconds in waits.items() if seconds is not None}

    def add(self, key: AttemptKey, poll: Poll, every: float) -> None:
        """Begin to ask a question for an attempt that was deferred."""
        asked = _Asked(Question(f"the poll of {key}", poll, self._clock, self._tasks), every)
        self._asked.setdefault(key.run, {})[key] = asked
        self._tasks.start(f"poll: {key}", self._ask(key, asked))

    def drop(self, run: str) -> None:
        """Ask nothing more for a run."""
        self._asked.pop(run, None)

    def close(self) -> None:
        """Ask nothing more at all."""
        self._asked.clear()

    async def _ask(self, key: AttemptKey, asked: _Asked) -> None:
        while True:
            await self._clock.sleep(asked.every)
            if self._asked.get(key.run, {}).get(key) is not asked:
                return
            if await self._says_yes(asked.question, key.run):
                self._asked.get(key.run, {}).pop(key, None)
                self._is_over(key)
                return

    async def _says_yes(self, question: Question, run: str) -> bool:
        self.asking += 1
        try:
            return bool(await question.ask())
        except AUTHOR_ERRORS as error:  # author code: a question that fails is asked again
            if is_cut_off(error):
                raise
            logger.warning(events.POLL_FAILED, extra={"run": run, "error": repr(error)})
            return False
        finally:
            self.asking -= 1


def _waits(row: TaskRow | None, key: AttemptKey) -> bool:
    return row is not None and row.state is TaskState.DEFERRED and row.attempt == key.attempt
