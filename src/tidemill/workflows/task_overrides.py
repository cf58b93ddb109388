"""Task options that are overridden from outside the code, such as by a package's manifest."""

from collections.abc import Iterator, Mapping
from copy import copy
from typing import Any

import msgspec
from msgspec.structs import replace

from tidemill.kernel.backoff import Retry
from tidemill.kernel.suggestions import did_you_mean
from tidemill.workflows.cluster_options import CLUSTER_OPTIONS, find_cluster_problems
from tidemill.workflows.definition import WORKER_EXECUTOR, Task, find_label_problem

_NO_OPTIONS: Mapping[str, Any] = {"labels": (), "resources": {}, "image": None, "pod": {}}


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
    resources: dict[str, int | float] | None = None
    image: str | None = None
    pod: dict[str, Any] | None = None

    def find_problem(self, name: str, tasks: Mapping[str, Task]) -> str | None:
        """Return why these overrides cannot be applied to the task of a name; None if they can."""
        if name not in tasks:
            return f"there is no such task{did_you_mean(name, tasks)}"
        executor = self.executor or tasks[name].executor
        options = {option: getattr(self, option) for option in CLUSTER_OPTIONS}
        if options["resources"] is None and executor in CLUSTER_OPTIONS["resources"]:
            options["resources"] = tasks[name].resources
        problems = [find_label_problem(self.labels, executor), *find_cluster_problems(options, executor)]
        return "; ".join(filter(None, problems)) or None

    def apply_to(self, task: Task) -> Task:
        """Return a task with these overrides; backoff and error filter of its retries stay as in the code.

        A task that is moved to another executor loses the options that this one does not heed.
        """
        changes: dict[str, Any] = {
            name: value
            for name in ("timeout", "pool", "queue", "priority", "executor", "labels", *CLUSTER_OPTIONS)
            if (value := getattr(self, name)) is not None
        }
        if self.retries is not None:
            changes["retry"] = _with_retries(task.retry, self.retries)
        if self.executor is not None:
            changes |= _dropped_options(self.executor)
        return replace(task, **changes)


def _dropped_options(executor: str) -> dict[str, Any]:
    """Return the options that an executor does not heed, with their defaults."""
    dropped = {name for name, executors in CLUSTER_OPTIONS.items() if executor not in executors}
    if executor != WORKER_EXECUTOR:
        dropped.add("labels")
    return {name: default for name, default in _NO_OPTIONS.items() if name in dropped}


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
