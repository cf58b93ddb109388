"""The runs that a leader has in mind: everything that has not ended, as it was last written.

The store is the truth. The board makes it fast: it is thrown away with the term, and a run on it is read again as
soon as somebody else turns out to have changed it.
"""

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

from tidemill.workflows.draft import Draft, Place
from tidemill.workflows.endings import Ending
from tidemill.workflows.records import AttemptKey, RunRecord, RunRow, TaskRow, VersionKey
from tidemill.workflows.spec import WorkflowSpec
from tidemill.workflows.states import TaskState

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


class ActiveRun:
    """One run that has not ended."""

    __slots__ = (
        "_mapped_over",
        "asks",
        "failures",
        "grants",
        "has_pools",
        "is_crowded",
        "is_stale",
        "is_working",
        "outputs",
        "retries_later",
        "rows",
        "run",
        "set_aside",
        "spec",
    )

    def __init__(self, record: RunRecord, spec: WorkflowSpec) -> None:
        self.spec = spec
        self.asks: list[Ask] = []
        self.grants: list[Place] = []
        """Task runs that have been given a place, and are yet to be claimed."""
        self.outputs: dict[Place, bytes] = {}
        self.is_working = False
        self.is_crowded = False
        """Whether a pool turned out to be full for it: then it claims nothing of any pool with its next change."""
        self.is_stale = False
        """Whether somebody else has changed it since it was read."""
        self.set_aside: str | None = None
        """Why nothing can be done with it at present."""
        self.failures = 0
        self.retries_later = False
        """Whether somebody is going to look at it again although nobody asks."""
        self.has_pools = any(task.pool is not None for task in spec.tasks)
        self._mapped_over = {task.each for task in spec.tasks}
        self.adopt(record)

    def adopt(self, record: RunRecord) -> None:
        """Take the run as it is in the store."""
        self.put(record.run, {(row.task, row.index): row for row in record.tasks})
        self.is_stale = False

    def put(self, run: RunRow, rows: dict[Place, TaskRow]) -> None:
        """Take the run as it is after a change."""
        self.run = run
        self.rows = rows

    @property
    def version(self) -> VersionKey:
        """The version that it is pinned to."""
        return self.run.version_key

    def waiting(self) -> list[TaskRow]:
        """Return the task runs that wait for a place."""
        return [
            row for place, row in self.rows.items() if row.state is TaskState.SCHEDULED and place not in self.grants
        ]

    def keep(self, place: Place, value: bytes) -> None:
        """Keep an output in mind, if it is small, or if many are about to need it."""
        if len(value) <= SMALL or place[0] in self._mapped_over:
            self.outputs[place] = value
