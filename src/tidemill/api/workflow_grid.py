"""The grid of a workflow: its runs, each with the state of every task."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Annotated

from msgspec import Meta

from tidemill.access.principal import Permission, Principal
from tidemill.api.operation import GET, Message, operation
from tidemill.api.paging import DEFAULT_LIMIT, MAX_LIMIT
from tidemill.api.run_filters import decode_position, next_position
from tidemill.api.services import Services
from tidemill.api.workflows import Name
from tidemill.storage.run_lists import RunPage, TaskStateCount
from tidemill.workflows.plan import mapped_state
from tidemill.workflows.records import RunRow
from tidemill.workflows.spec import WorkflowSpec
from tidemill.workflows.states import RunState, TaskState

Limit = Annotated[int, Meta(ge=1, le=MAX_LIMIT, description=f"The number of runs of a page, {MAX_LIMIT} at most.")]
Cursor = Annotated[str | None, Meta(description="`next` of the page before; absent for the first page.")]


class GridCell(Message, frozen=True, kw_only=True):
    """A task of a run."""

    state: TaskState
    attempts: int
    """The number of tries; of a mapped task, of the element that needed the most."""
    started_at: datetime | None
    ended_at: datetime | None
    """Null while a part of it has not ended."""
    elements: dict[TaskState, int] | None
    """The number of elements in each state; null unless it is mapped."""

    @classmethod
    def of_states(cls, states: Sequence[TaskStateCount]) -> "GridCell":
        """Return the message about a task whose parts are in these states."""
        first = states[0]
        is_mapped = any(one.is_mapped for one in states)
        ends = [one.ended_at for one in states if one.ended_at is not None]
        has_ended = all(one.state.is_terminal for one in states)
        return cls(
            state=mapped_state(one.state for one in states) if is_mapped else first.state,
            attempts=max(one.tries for one in states),
            started_at=min((one.started_at for one in states if one.started_at is not None), default=None),
            ended_at=max(ends, default=None) if has_ended else None,
            elements={one.state: one.number for one in states} if is_mapped else None,
        )


class GridRun(Message, frozen=True, kw_only=True):
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

    @classmethod
    def of_row(cls, row: RunRow, tasks: Mapping[str, Sequence[TaskStateCount]]) -> "GridRun":
        """Return the message about a run."""
        return cls(
            id=row.id,
            version=row.version,
            state=row.state,
            origin=row.origin,
            created_at=row.created_at,
            started_at=row.started_at,
            ended_at=row.ended_at,
            slot=row.slot,
            cells={task: GridCell.of_states(states) for task, states in tasks.items()},
        )


class GridTask(Message, frozen=True, kw_only=True):
    """A row of the grid."""

    name: str
    upstream: list[str]
    current: bool
    """Whether the version that new runs get has it."""


class Grid(Message, frozen=True, kw_only=True):
    """Runs of a workflow, newest first, with the state of every task."""

    tasks: list[GridTask]
    """In topological order; after them, by name, those that only older versions have."""
    items: list[GridRun]
    total: int
    """The number of all runs, on all pages."""
    next: str | None
    """The cursor of the next page; null on the last one."""

    @classmethod
    def of_page(cls, spec: WorkflowSpec | None, page: RunPage, limit: int, counts: Iterable[TaskStateCount]) -> "Grid":
        """Return the first `limit` runs of a page as a grid."""
        runs = page.runs[:limit]
        found: dict[str, dict[str, list[TaskStateCount]]] = {row.id: {} for row in runs}
        for one in counts:
            found[one.run].setdefault(one.task, []).append(one)
        return cls(
            tasks=_list_tasks(spec, {task for cells in found.values() for task in cells}),
            items=[GridRun.of_row(row, found[row.id]) for row in runs],
            total=page.total,
            next=next_position(page, limit),
        )


def _list_tasks(spec: WorkflowSpec | None, shown: set[str]) -> list[GridTask]:
    current = () if spec is None else spec.topological_order
    names = {task.name for task in current}
    return [GridTask(name=task.name, upstream=list(task.upstream), current=True) for task in current] + [
        GridTask(name=name, upstream=[], current=False) for name in sorted(shown - names)
    ]


@operation(GET("/workflows/{name}/grid"), Permission.READ)
async def get_workflow_grid(
    services: Services, caller: Principal, name: Name, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None
) -> Grid:
    """Return the runs of a workflow, newest first, with the state of every task; a mapped task is one cell."""
    client = services.workflows
    spec = await client.catalog.read_spec(caller, name)
    page = await client.runs.list_page(caller, workflow=name, after=decode_position(cursor), limit=limit + 1)
    return Grid.of_page(spec, page, limit, await client.runs.count_task_states(page.runs[:limit]))
