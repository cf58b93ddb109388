"""The runs that a leader has in mind: everything that has not ended, as it was last written.

The store is the truth. The board makes it fast: it is thrown away with the term, and a run on it is read again as
soon as somebody else turns out to have changed it.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from tidemill.kernel.errors import StoreError
from tidemill.workflows.change import Applied, Refused
from tidemill.workflows.draft import Draft, Place
from tidemill.workflows.endings import Ending
from tidemill.workflows.plan import WHOLE
from tidemill.workflows.records import AttemptKey, FireRow, RunRecord, RunRow, TaskRow, VersionKey
from tidemill.workflows.spec import TaskSpec, WorkflowSpec
from tidemill.workflows.states import RunState, TaskState

SMALL = 64 * 1024
"""Bytes up to which an output is kept in mind beside its run."""

Step = Callable[[Draft], Any]


class Ask(NamedTuple):
    """Something to be done with a run, and who waits for the answer; the answer comes after it is written."""

    step: Step
    answer: "asyncio.Future[Any] | None" = None
    report: tuple[AttemptKey, Ending] | None = None
    """What the step reports, if it does: that must be written even if the run cannot be planned."""
    once: bool = False
    """Whether it is not asked again when the store fails: whoever asked is told."""
    is_claim: bool = False
    """Whether nothing is to be done but to claim what was given a place."""


class Outcome(NamedTuple):
    """A run at its end, as its last change left it."""

    record: RunRecord
    outputs: Mapping[Place, bytes] | None
    """What its tasks returned; None unless all of it is in mind."""


class Birth(NamedTuple):
    """That a run is yet to be made, and what it comes of."""

    fire: FireRow | None


class ActiveRun:
    """One run that has not ended."""

    __slots__ = (
        "_mapped_over",
        "asks",
        "birth",
        "failures",
        "grants",
        "has_pools",
        "is_crowded",
        "is_planned",
        "is_stale",
        "is_working",
        "outputs",
        "retries_later",
        "rows",
        "run",
        "set_aside",
        "spec",
        "store_failed",
        "unread",
        "version",
    )

    def __init__(self, record: RunRecord, spec: WorkflowSpec, birth: Birth | None = None) -> None:
        self.asks: list[Ask] = []
        self.grants: list[Place] = []
        """Task runs that have been given a place, and are yet to be claimed."""
        self.unread: list[TaskRow] = []
        """Task runs that were claimed and are yet to be run: what they take must be read first."""
        self.outputs: dict[Place, bytes] = {}
        self.is_working = False
        self.is_crowded = False
        """Whether a pool turned out to be full for it: then it claims nothing of any pool with its next change."""
        self.is_stale = False
        """Whether somebody else has changed it since it was read."""
        self.is_planned = False
        """Whether it was planned since it was read."""
        self.set_aside: str | None = None
        """Why nothing can be done with it at present."""
        self.store_failed = False
        """Whether the store failed when it was last asked about it."""
        self.failures = 0
        self.retries_later = False
        """Whether somebody is going to look at it again although nobody asks."""
        self.pin(record.run.version_key, spec)
        self.adopt(record)
        self.birth = birth
        """Not None until it is in the store."""

    def pin(self, version: VersionKey, spec: WorkflowSpec) -> None:
        """Take a version of its workflow for the one that it is pinned to."""
        self.version = version
        self.spec = spec
        self.has_pools = any(task.pool is not None for task in spec.tasks)
        self._mapped_over = {task.each for task in spec.tasks}

    def adopt(self, record: RunRecord) -> None:
        """Take the run as it is in the store."""
        self.put(record.run, {(row.task, row.index): row for row in record.tasks})
        self.is_stale = self.is_planned = False

    def put(self, run: RunRow, rows: dict[Place, TaskRow]) -> None:
        """Take the run as it is after a change."""
        self.run = run
        self.rows = rows
        self.birth = None

    def settle(self) -> None:
        """Take note that a change of it was written, as planned: whatever stood against that is over."""
        self.is_planned = True
        self.is_crowded = False
        self.failures, self.set_aside = 0, None

    def changed_by(self, asks: Collection[Ask]) -> set[str] | None:
        """Return the tasks to which something happens with some asks; None if that cannot be told without a plan."""
        is_known = self.is_planned and self.run.state is RunState.RUNNING
        if not is_known or any(ask.report is None and not ask.is_claim for ask in asks):
            return None
        return {ask.report[0].task for ask in asks if ask.report is not None}

    def may_follow(self, draft: Draft, asks: Collection[Ask]) -> bool:
        """Return whether a plan could say anything: not if all that happened is that some of many elements ended."""
        ended = [ask.report[0] for ask in asks if ask.report is not None]
        if not ended or len(ended) < len(asks):
            return True
        return any(key.element == WHOLE or not draft.has_open_element(key.task) for key in ended)

    def draft(self, now: datetime, actor: str, executor_of: Callable[[TaskSpec], str]) -> Draft:
        """Begin a draft of its next change, which is the first of one that is yet to be made."""
        if self.birth is None:
            return Draft(self.run, self.rows, self.spec, now=now, actor=actor)
        return Draft.of_new(self.run, self.spec, executor_of=executor_of, actor=actor, fire=self.birth.fire)

    def waiting(self) -> list[TaskRow]:
        """Return the task runs that wait for a place."""
        return [
            row for place, row in self.rows.items() if row.state is TaskState.SCHEDULED and place not in self.grants
        ]

    def keep(self, place: Place, value: bytes) -> None:
        """Keep an output in mind, if it is small, or if many are about to need it."""
        if len(value) <= SMALL or place[0] in self._mapped_over:
            self.outputs[place] = value

    def outcome(self) -> Outcome:
        """Return the run as it is, for whoever waits for its end."""
        is_whole = all(place in self.outputs for place, row in self.rows.items() if self._has_output(row))
        return Outcome(RunRecord(self.run, list(self.rows.values())), self.outputs if is_whole else None)

    def _has_output(self, row: TaskRow) -> bool:
        """Return whether a task run has a value; a mapping over an empty list has none."""
        return row.state is TaskState.SUCCESS and (row.index != WHOLE or self.spec.by_name[row.task].each is None)


class Writing(NamedTuple):
    """A change on its way to the store: what it holds, and who asked for it."""

    active: ActiveRun
    draft: Draft
    claimed: list[TaskRow]
    """What is ours to run once it is written."""
    asks: list[Ask]
    answers: list[Any]
    """What the asks are told once it is written, one each."""

    @property
    def ended(self) -> list[AttemptKey]:
        """The attempts that it was told the end of."""
        return [ask.report[0] for ask in self.asks if ask.report is not None]

    @property
    def reported(self) -> list[tuple[AttemptKey, Ending]]:
        """The reports that it holds: not those that came too late."""
        return [ask.report for ask, holds in zip(self.asks, self.answers, strict=True) if ask.report and holds]


def came_of(told: "asyncio.Future[Applied | Refused]") -> Applied | Refused | Exception:
    """Return what came of a change, from the answer of the store."""
    if told.cancelled():
        return StoreError("the store was closed before it answered")
    error = told.exception()
    return error if isinstance(error, Exception) else told.result()


def do_nothing(_: Draft) -> None:
    """Have a run looked at: that it is planned, and that what was given a place is claimed, is all that is asked."""


def refuse(asks: Collection[Ask], error: Exception) -> None:
    """Tell those who asked that nothing came of it."""
    for ask in asks:
        if ask.answer is not None and not ask.answer.done():
            ask.answer.set_exception(error)
            ask.answer.exception()  # whoever asked may have gone


def answer(asks: Collection[Ask], answers: Collection[Any]) -> None:
    """Tell those who asked what came of it."""
    for ask, told in zip(asks, answers, strict=True):
        if ask.answer is not None and not ask.answer.done():
            ask.answer.set_result(told)
