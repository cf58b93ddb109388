"""Runs, tasks and elements as people name them, and what they are told if there is none of that name."""

from collections.abc import Collection

from tidemill.kernel.errors import RequestError
from tidemill.kernel.suggestions import did_you_mean
from tidemill.workflows.plan import UNMAPPED
from tidemill.workflows.records import RunRecord, RunRow

LISTED_NAMES_LIMIT = 12  # names that are told before the rest is only counted


def resolve_task(record: RunRecord, text: str) -> tuple[str, int | None]:
    """Return the task that somebody named, and which element: "clean" or "clean[7]", as runs show them."""
    name, bracket, number = text.removesuffix("]").partition("[")
    tasks = record.by_task()
    if name not in tasks:
        raise unknown_task(record.run.workflow, [name], tasks)
    if not bracket:
        return name, None
    indexes = [row.index for row in tasks[name]]
    if number.isdecimal() and int(number) in indexes:
        return name, int(number)
    elements = "1 element" if len(indexes) == 1 else f"{len(indexes)} elements"
    has = "has no elements" if UNMAPPED in indexes else f"has {elements}, the first is {name}[0]"
    raise RequestError(f"there is no '{text}': task '{name}' {has}", code="unknown_task", status=404, tasks=[text])


def unknown_task(workflow: str, names: Collection[str], known: Collection[str]) -> RequestError:
    """Return what is wrong with tasks that a workflow does not have; it has those that are `known`."""
    said = ", ".join(f"'{name}'{_suggestion(name, known)}" for name in names)
    message = f"workflow '{workflow}' has no task {said}; it has {_format_names(known)}"
    return RequestError(message, code="unknown_task", status=404, tasks=[*names])


def _suggestion(name: str, known: Collection[str]) -> str:
    whole, bracket, _ = name.partition("[")
    if bracket and whole in known:
        return f" (that is one element: here a mapped task is taken as a whole, '{whole}')"
    return did_you_mean(name, known)


def _format_names(names: Collection[str]) -> str:
    """Return names in a row; of many, the first ones, and how many more there are."""
    told = [f"'{name}'" for name in names]
    if len(told) > LISTED_NAMES_LIMIT:
        return f"{', '.join(told[: LISTED_NAMES_LIMIT - 2])} and {len(told) - LISTED_NAMES_LIMIT + 2} more"
    return ", ".join(told) or "none"


def pinned_note(run: RunRow, newest: str) -> str:
    """Return what is to be known of a run whose workflow has a newer version than it is pinned to."""
    again = f"`tidemill runs retry {run.id} --latest`"
    if not run.state.is_terminal:
        again = f"`tidemill runs cancel {run.id}`, and then {again},"
    return (
        f"run {run.id} is pinned to version {run.version} of '{run.workflow}'; {newest} is newer: "
        f"unless a node has {run.version} loaded it waits; {again} goes on with {newest}"
    )


class WorkflowPausedError(RequestError):
    """A run was to be made of a workflow that is paused."""

    def __init__(self, workflow: str) -> None:
        message = (
            f"workflow '{workflow}' is paused: no run of it is made before it is resumed, "
            f"`tidemill workflows resume {workflow}` or await node.resume('{workflow}')"
        )
        super().__init__(message, code="workflow_paused", status=409, workflow=workflow)


def unknown_run(run: str) -> RequestError:
    """Return what is wrong with the id of a run that there is not."""
    return RequestError(f"there is no run {quote_name(run)}", code="unknown_run", status=404, run=run)


def quote_name(name: object) -> str:
    """Return what somebody gave for a name so that it can be printed anywhere: it may not even be a text."""
    return f"'{name}'" if isinstance(name, str) and name.isprintable() else ascii(name)
