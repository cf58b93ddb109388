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
from tidemill.workflows.task_options import OPTION_NAMES, TaskOptions

TaskOverrides = Mapping[str, Any]
"""The options of one task that are overridden, and its number of `retries`, by name. Others stay as in the code."""


def find_override_problem(overrides: TaskOverrides, name: str, tasks: Mapping[str, Task]) -> str | None:
    """Return why overrides cannot be applied to the task of a name; None if they can."""
    if name not in tasks:
        return f"there is no such task{did_you_mean(name, tasks)}"
    executor = overrides.get("executor") or tasks[name].executor
    options = {option: overrides.get(option) for option in CLUSTER_OPTIONS}
    if options["resources"] is None and executor in CLUSTER_OPTIONS["resources"]:
        options["resources"] = tasks[name].resources
    problems = [find_label_problem(overrides.get("labels"), executor), *find_cluster_problems(options, executor)]
    return "; ".join(filter(None, problems)) or None


def apply_overrides(overrides: TaskOverrides, task: Task) -> Task:
    """Return a task with overrides; backoff and error filter of its retries stay as in the code.

    A task that is moved to another executor loses the options that this one does not heed.
    """
    options = msgspec.convert(overrides, TaskOptions)  # from another process they come without their types
    changes: dict[str, Any] = {name: getattr(options, name) for name in OPTION_NAMES if name in overrides}
    if "retries" in overrides:
        changes["retry"] = _with_retries(task.retry, overrides["retries"])
    if "executor" in overrides:
        changes |= _dropped_options(overrides["executor"])
    return replace(task, **changes)


def _dropped_options(executor: str) -> dict[str, Any]:
    """Return the options that an executor does not heed, with their defaults."""
    dropped = {name for name, executors in CLUSTER_OPTIONS.items() if executor not in executors}
    if executor != WORKER_EXECUTOR:
        dropped.add("labels")
    defaults = TaskOptions()
    return {name: getattr(defaults, name) for name in dropped}


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
