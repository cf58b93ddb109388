"""The grid of a workflow: its runs, each with the state of every task."""

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from tidemill.storage.run_lists import RunPage, TaskStateCount
from tidemill.workflows.plan import mapped_state
from tidemill.workflows.records import RunRow
from tidemill.workflows.spec import WorkflowSpec
from tidemill.workflows.states import RunState, TaskState


class GridCell(msgspec.Struct, frozen=True, kw_only=True):
    """A task of a run."""

    state: TaskState
    attempts: int
    """The number of tries; of a mapped task, of the element that needed the most."""
    started_at: datetime | None
    ended_at: datetime | None
    """Null while a part of it has not ended."""
    elements: dict[TaskState, int] | None
    """The number of elements in each state; null unless it is mapped."""


class GridRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run with its tasks."""

    id: str
    version: str
    state: RunState
    origin: str
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    slot: datetime | None
    cells: dict[str, GridCell]
    """By task. A task of another version may be missing."""


class GridTask(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the grid."""

    name: str
    upstream: list[str]
    current: bool
    """Whether the version that new runs get has it."""


class Grid(msgspec.Struct, frozen=True, kw_only=True):
    """Runs of a workflow, newest first, with the state of every task."""

    tasks: list[GridTask]
    """In topological order; after them, by name, those that only older versions have."""
    items: list[GridRun]
    total: int
    """The number of all runs, on all pages."""
    next: str | None
    """The cursor of the next page; null on the last one."""


def to_grid(
    spec: WorkflowSpec | None, page: RunPage, limit: int, counts: Iterable[TaskStateCount], following: str | None
) -> Grid:
    """Return the first `limit` runs of a page as a grid."""
    runs = page.runs[:limit]
    found: dict[str, dict[str, list[TaskStateCount]]] = {row.id: {} for row in runs}
    for one in counts:
        found[one.run].setdefault(one.task, []).append(one)
    return Grid(
        tasks=_list_tasks(spec, {task for cells in found.values() for task in cells}),
        items=[_to_run(row, {task: _to_cell(states) for task, states in found[row.id].items()}) for row in runs],
        total=page.total,
        next=following,
    )


def _list_tasks(spec: WorkflowSpec | None, shown: set[str]) -> list[GridTask]:
    current = () if spec is None else spec.topological_order
    names = {task.name for task in current}
    return [GridTask(name=task.name, upstream=list(task.upstream), current=True) for task in current] + [
        GridTask(name=name, upstream=[], current=False) for name in sorted(shown - names)
    ]


def _to_run(row: RunRow, cells: dict[str, GridCell]) -> GridRun:
    return GridRun(
        id=row.id,
        version=row.version,
        state=row.state,
        origin=row.origin,
        created_at=row.created_at,
        started_at=row.started_at,
        ended_at=row.ended_at,
        slot=row.slot,
        cells=cells,
    )


def _to_cell(states: Sequence[TaskStateCount]) -> GridCell:
    first = states[0]
    is_mapped = any(one.is_mapped for one in states)
    has_ended = all(one.state.is_terminal for one in states)
    return GridCell(
        state=mapped_state(one.state for one in states) if is_mapped else first.state,
        attempts=max(one.tries for one in states),
        started_at=min((one.started_at for one in states if one.started_at is not None), default=None),
        ended_at=max((one.ended_at for one in states if one.ended_at is not None), default=None) if has_ended else None,
        elements={one.state: one.number for one in states} if is_mapped else None,
    )
