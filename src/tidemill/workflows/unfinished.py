"""Unfinished runs whose code has changed: whether they keep their version, are upgraded, or are cancelled. Pure.

A run is pinned to the version that it began with. If no node still has the code of that version, because it was
edited and the process restarted, the run waits. The author decides per workflow whether that is right.
"""

from collections.abc import Iterable, Sequence
from enum import Enum, auto
from typing import Literal, get_args

from tidemill.workflows.records import RunRecord, RunRow, TaskRow
from tidemill.workflows.spec import WorkflowSpec
from tidemill.workflows.states import TaskState

UnfinishedPolicy = Literal["pin", "upgrade", "cancel"]
UNFINISHED_POLICIES: tuple[UnfinishedPolicy, ...] = get_args(UnfinishedPolicy)
DEFAULT_UNFINISHED_POLICY: UnfinishedPolicy = "pin"


class Continuation(Enum):
    """How an unfinished run of a version that is no longer current goes on."""

    KEEP = auto()
    """Its code is there, or something of it still runs: it continues as it is."""
    WAIT = auto()
    """Its code is gone: an operator has to decide."""
    UPGRADE = auto()
    CANCEL = auto()


def has_begun(rows: Iterable[TaskRow]) -> bool:
    """Return whether anything of a run was ever tried or decided: otherwise any version of its workflow will do."""
    return any(row.state is not TaskState.NONE or row.attempt for row in rows)


def decide_continuation(
    record: RunRecord, newest: WorkflowSpec | None, policy: UnfinishedPolicy, *, has_code: bool
) -> Continuation:
    """Decide about an unfinished run; `newest` is the structure of the newer version, if the deciding node has one."""
    is_running = any(row.state.is_claimed for row in record.tasks)
    if newest is not None and policy == "cancel":
        return Continuation.CANCEL
    if newest is not None and policy == "upgrade" and not missing_tasks(record, newest):
        return Continuation.KEEP if is_running else Continuation.UPGRADE
    return Continuation.WAIT if waits_for_code(record, has_code=has_code) else Continuation.KEEP


def waits_for_code(record: RunRecord, *, has_code: bool) -> bool:
    """Return whether an unfinished run cannot go on because no node has the code of its version."""
    is_running = any(row.state.is_claimed for row in record.tasks)
    return not (record.run.state.is_terminal or has_code or is_running) and has_begun(record.tasks)


def missing_tasks(record: RunRecord, newest: WorkflowSpec) -> list[str]:
    """Return the tasks of a run that have ended, and that a newer version does not have."""
    ended = dict.fromkeys(row.task for row in record.tasks if row.state.is_terminal)
    return [name for name in ended if name not in newest.by_name]


def missing_code_note(run: RunRow, newest: str | None, lost_tasks: Sequence[str] = (), problem: str = "") -> str:
    """Return what to do about a run that waits for code that no node has; the newest version is None if unknown.

    `problem` says why the code is not loaded from the registry, if it was published there.
    """
    because = f" ({problem})" if problem else ""
    waits = f"run {run.id} waits for version {run.version} of '{run.workflow}', which no node has the code of{because}"
    cancel = f"`tidemill runs cancel {run.id}` ends it"
    if newest is None:
        return f"{waits}: load that version again, or {cancel}"
    without = f" without {', '.join(map(repr, lost_tasks))}, which that version does not have" if lost_tasks else ""
    retry = f"`tidemill runs retry {run.id} --latest` continues it with version {newest}{without}"
    return f"{waits}: {retry}, {cancel}"
