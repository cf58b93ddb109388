"""Another version of its workflow for a run that has ended: what of the run stays, what goes, and what begins. Pure.

What has succeeded stays as it is, if the new version has a task of that name which is mapped as it was.
"""

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from tidemill.workflows.draft import fresh_row
from tidemill.workflows.plan import WHOLE
from tidemill.workflows.records import RunRecord, TaskRow
from tidemill.workflows.spec import TaskSpec, WorkflowSpec
from tidemill.workflows.states import TaskState


class Succession(msgspec.Struct, frozen=True, kw_only=True):
    """A run, and the version that it is to go on with."""

    record: RunRecord
    version: str
    spec: WorkflowSpec
    """The structure that it is to have."""
    older: WorkflowSpec | None = None
    """The structure that it had; None if that cannot be read."""
    numbers: Mapping[str, tuple[int, int]] = {}
    """Of each task that was ever tried in the run: its highest attempt, and its highest try."""

    @property
    def gone(self) -> dict[str, list[TaskRow]]:
        """The task runs of tasks that the new version does not have."""
        return {name: rows for name, rows in self.record.by_task().items() if name not in self.spec.by_name}

    @property
    def begun_anew(self) -> set[str]:
        """The tasks that are new, those whose list is another one, and those on which nobody has decided yet."""
        rows = self.record.by_task()
        return {task.name for task in self.spec.tasks if self._begins_anew(task, rows.get(task.name, []))}

    def _begins_anew(self, task: TaskSpec, rows: list[TaskRow]) -> bool:
        if all(row.state is TaskState.NONE for row in rows):
            return True
        known = None if self.older is None else self.older.by_name.get(task.name)
        if known is not None:
            return _list_of(known) != _list_of(task)
        return (rows[0].index != WHOLE) != (task.each is not None)

    def first_row(self, task: TaskSpec) -> TaskRow:
        """Return a task run of a task that the run did not have; numbers go on if it had it once."""
        attempt, tries = self.numbers.get(task.name, (0, 0))
        return replace(fresh_row(task, self._executor_of(task)), attempt=attempt, tries=tries)

    def placed(self, row: TaskRow) -> TaskRow:
        """Return a task run that is to run where the new version says."""
        task = self.spec.by_name[row.task]
        where = self._executor_of(task)
        return replace(row, pool=task.pool, priority=task.priority, queue=task.queue, executor=where)

    def _executor_of(self, task: TaskSpec) -> str:
        """Return the executor that a task names, or that at which those run that name none."""
        if task.executor is not None:
            return task.executor
        naming = {one.name for one in self.older.tasks if one.executor is not None} if self.older is not None else set()
        rows = self.record.tasks
        return next((row.executor for row in rows if row.task not in naming), rows[0].executor)


def _list_of(task: TaskSpec) -> tuple[str | None, tuple[str, ...] | None]:
    """Return what a task is mapped over, and which variants of that it takes."""
    return task.each, None if task.mapping is None else task.mapping.takes
