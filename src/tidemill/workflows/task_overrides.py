"""Task options that are overridden from outside the code, such as by a package's manifest."""

from collections.abc import Iterator, Mapping
from copy import copy
from typing import Any

import msgspec
from msgspec.structs import replace

from tidemill.kernel.backoff import Retry
from tidemill.workflows.definition import Task


class TaskOverrides(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Overrides of a task's options; None keeps the option of the code."""

    retries: int | None = None
    timeout: float | None = None
    """In seconds."""

    pool: str | None = None
    queue: str | None = None
    priority: int | None = None
    executor: str | None = None

    def apply_to(self, task: Task) -> Task:
        """Return a task with these overrides; backoff and error filter of its retries stay as in the code."""
        changes: dict[str, Any] = {
            name: value
            for name in ("timeout", "pool", "queue", "priority", "executor")
            if (value := getattr(self, name)) is not None
        }
        if self.retries is not None:
            changes["retry"] = _with_retries(task.retry, self.retries)
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
