"""Resolves the names of runs, tasks and elements that people type, and builds the errors for unknown ones."""

from collections.abc import Collection

from tidemill.kernel.errors import RequestError
from tidemill.kernel.suggestions import close_names, did_you_mean
from tidemill.workflows.plan import UNMAPPED
from tidemill.workflows.records import RunRecord, RunRow

LISTED_NAMES_LIMIT = 12  # of more names than this, only the first ones are listed


def resolve_task(record: RunRecord, text: str) -> tuple[str, int | None]:
    """Resolve a task or element as runs show it, "clean" or "clean[7]"; return the task's name and the element."""
    name, number = split_element(text)
    tasks = record.by_task()
    if name not in tasks:
        raise unknown_task(record.run.workflow, [name], tasks)
    if number is None:
        return name, None
    indexes = [row.index for row in tasks[name]]
    if number.isdecimal() and int(number) in indexes:
        return name, int(number)
    elements = "1 element" if len(indexes) == 1 else f"{len(indexes)} elements"
    has = "has no elements" if UNMAPPED in indexes else f"has {elements}, the first is {name}[0]"
    raise RequestError(f"there is no '{text}': task '{name}' {has}", code="task_not_found", status=404, tasks=[text])


def split_element(text: str) -> tuple[str, str | None]:
    """Return the task and the number of "clean[7]"; None as the number of "clean"."""
    name, bracket, number = text.removesuffix("]").partition("[")
    return name, number if bracket else None


def unknown_task(workflow: str, names: Collection[str], known: Collection[str]) -> RequestError:
    """Return the error for tasks that a workflow does not have; `known` are those that it has."""
    unknown = ", ".join(f"'{name}'{_suggestion(name, known)}" for name in names)
    message = f"workflow '{workflow}' has no task {unknown}; it has {_format_names(known)}"
    suggestions = [near for name in names for near in close_names(name, known)]
    return RequestError(message, code="task_not_found", status=404, tasks=[*names], suggestions=suggestions)


def _suggestion(name: str, known: Collection[str]) -> str:
    whole, bracket, _ = name.partition("[")
    if bracket and whole in known:
        return f" (that is one element: this command takes a mapped task as a whole, '{whole}')"
    return did_you_mean(name, known)


def _format_names(names: Collection[str]) -> str:
    """Return a comma-separated list of names; of many, the first ones and the number of the others."""
    quoted = [f"'{name}'" for name in names]
    if len(quoted) > LISTED_NAMES_LIMIT:
        return f"{', '.join(quoted[: LISTED_NAMES_LIMIT - 2])} and {len(quoted) - LISTED_NAMES_LIMIT + 2} more"
    return ", ".join(quoted) or "none"


def pinned_note(run: RunRow, newest: str) -> str:
    """Return the note on a run that is pinned to an older version of its workflow."""
    retry = f"`tidemill runs retry {run.id} --latest`"
    return (
        f"run {run.id} is pinned to version {run.version} of '{run.workflow}'; {newest} is newer: "
        f"unless a node has {run.version} loaded it waits; {retry} continues it with {newest}"
    )


class WorkflowPausedError(RequestError):
    """Raised on an attempt to create a run of a paused workflow."""

    def __init__(self, workflow: str) -> None:
        message = (
            f"workflow '{workflow}' is paused, and starts no run before it is resumed: "
            f"`tidemill workflow resume {workflow}` or await node.resume('{workflow}')"
        )
        super().__init__(message, code="workflow_paused", status=409, workflow=workflow)


class StartSuppressedError(RequestError):
    """Raised on an attempt to create a run about something that has one already, or had one too recently."""

    def __init__(self, workflow: str) -> None:
        message = f"workflow '{workflow}' starts no further run about the same, as its cooldown= or dedup= asks for"
        super().__init__(message, code="start_suppressed", status=409, workflow=workflow)


def unknown_run(run: str) -> RequestError:
    """Return the error for the id of a run that does not exist."""
    return RequestError(f"there is no run {quote_name(run)}", code="run_not_found", status=404, run=run)


def quote_name(name: object) -> str:
    """Return a name in quotes, safe to print: a caller may have passed anything."""
    return f"'{name}'" if isinstance(name, str) and name.isprintable() else ascii(name)
