"""Task options that are overridden from outside the code, such as by a package's manifest."""

from collections.abc import Iterator, Mapping
from copy import copy
from typing import Any

import msgspec
from msgspec.structs import replace

from tidemill.kernel.backoff import Retry
from tidemill.kernel.suggestions import did_you_mean
from tidemill.workflows.definition import WORKER_EXECUTOR, Task, find_label_problem


class TaskOverrides(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Overrides of a task's options; None keeps the option of the code."""

    retries: int | None = None
    timeout: float | None = None
    """In seconds."""

    pool: str | None = None
    queue: str | None = None
    priority: int | None = None
    executor: str | None = None
    labels: tuple[str, ...] | None = None

    def find_problem(self, name: str, tasks: Mapping[str, Task]) -> str | None:
        """Return why these overrides cannot be applied to the task of a name; None if they can."""
        if name not in tasks:
            return f"there is no such task{did_you_mean(name, tasks)}"
        return find_label_problem(self.labels, self.executor or tasks[name].executor)

    def apply_to(self, task: Task) -> Task:
        """Return a task with these overrides; backoff and error filter of its retries stay as in the code.

        A task that is moved away from workers has no labels any more.
        """
        changes: dict[str, Any] = {
            name: value
            for name in ("timeout", "pool", "queue", "priority", "executor", "labels")
            if (value := getattr(self, name)) is not None
        }
        if self.retries is not None:
            changes["retry"] = _with_retries(task.retry, self.retries)
        if changes.get("executor", WORKER_EXECUTOR) != WORKER_EXECUTOR:
            changes["labels"] = ()
        return replace(task, **changes)


def _with_retries(retry: Retry | None, times: int) -> Retry:
    if retry is None:
        return Retry(times)
    changed = copy(retry)
    changed.times = times
    return changed


def overrides_for(workflow: str, overrides: Mapping[str, TaskOverrides]) -> Iterator[tuple[str, TaskOverrides]]:
    """Yield the overrides of one workflow by task; the input is keyed "workflow.task"."""
    for name, one in overrides.items():
        owner, _, task = name.rpartition(".")
        if owner == workflow:
            yield task, one
