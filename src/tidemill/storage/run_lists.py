"""Lists of runs, newest first, in pages: what is asked for, and what a page has."""

from collections.abc import Collection, Iterable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import msgspec

from tidemill.workflows.records import RunRow
from tidemill.workflows.states import RunState, TaskState

EARLIEST = datetime.min.replace(tzinfo=UTC)
LATEST = datetime.max.replace(tzinfo=UTC)


def clamp_to_calendar(time: datetime) -> datetime:
    """Return a time that is one in UTC too, which a time of another zone at either end of the calendar is not."""
    return min(max(time, EARLIEST), LATEST)


class RunPosition(NamedTuple):
    """The position of a run in a list: lists are sorted by it. It never changes."""

    created_at: datetime
    id: str


class RunQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Selects a page of a list of runs."""

    tenant: str
    workflows: Collection[str] | None = None
    """None for all."""
    states: Collection[RunState] = ()
    """Empty for all."""
    since: datetime = EARLIEST
    """Runs that were created at this time or later."""
    until: datetime = LATEST
    """Runs that were created at this time or earlier."""
    text: str = ""
    """A part of the id, the workflow or the note, in letters of either case, or of a text in the params, as written."""
    cause: str = ""
    """What started the run, such as "schedule", or the name of what did."""
    key: str = ""
    """What the run is about, or the id of its backfill."""
    started_by: str = ""
    """The id of the firing that started the run, or of the run whose task did."""
    is_unresolved: bool = False
    """Whether only failed runs are selected that need a person: see `storage.unresolved`."""
    after: RunPosition | None = None
    """The last run of the page before; None for the first page."""
    limit: int = 50

    @property
    def is_active_only(self) -> bool:
        """Whether only active runs are selected: these are few, however many runs there are."""
        return bool(self.states) and not any(state.is_terminal for state in self.states)

    @property
    def end(self) -> RunPosition:
        """The position before which the runs of the page are."""
        last = LATEST if self.until >= LATEST else self.until + timedelta.resolution
        return min(RunPosition(last, ""), self.after or RunPosition(LATEST, ""))


class RunPage(NamedTuple):
    """A part of a list of runs."""

    runs: list[RunRow]
    """Newest first."""
    total: int
    """The number of all runs that match, on all pages."""
    large_params: dict[str, int]
    """By run, the bytes of params that are too large for a list: their rows have none."""


class WorkflowActivity(NamedTuple):
    """What a workflow does: how many of its runs are active, and its newest runs."""

    active: int
    recent: list[RunRow]
    """Newest first, without params."""

    @property
    def newest(self) -> RunRow | None:
        """Its newest run."""
        return self.recent[0] if self.recent else None


def group_recent(rows: Iterable[RunRow]) -> dict[str, list[RunRow]]:
    """Return runs by workflow, newest first."""
    grouped: dict[str, list[RunRow]] = {}
    for row in sorted(rows, key=lambda row: (row.created_at, row.id), reverse=True):
        grouped.setdefault(row.workflow, []).append(row)
    return grouped


class TaskStateCount(NamedTuple):
    """The task runs of one task of a run that are in one state."""

    run: str
    task: str
    state: TaskState
    number: int
    """1, or the number of elements of a mapped task."""
    is_mapped: bool
    tries: int
    """Of the one that needed the most."""
    started_at: datetime | None
    """Of the one that started first."""
    ended_at: datetime | None
    """Of the one that ended last."""


class ScheduleName(NamedTuple):
    """A schedule of a workflow."""

    workflow: str
    key: str


class FiredSlot(NamedTuple):
    """A slot of a schedule that has been fired, and what became of its run."""

    slot: datetime
    run: str
    state: RunState | None
    """None if the run was deleted since."""


def group_fired(
    schedules: Iterable[ScheduleName], rows: Iterable[tuple[str, str, datetime, str, str | None]]
) -> dict[ScheduleName, list[FiredSlot]]:
    """Return fired slots by schedule, from rows of its workflow, its key, the slot, the run and its state."""
    found: dict[ScheduleName, list[FiredSlot]] = {one: [] for one in schedules}
    for workflow, key, slot, run, state in rows:
        fired = FiredSlot(slot, run, None if state is None else RunState(state))
        found[ScheduleName(workflow, key)].append(fired)
    return found


def group_states(rows: Iterable[tuple[str, str, int]]) -> dict[str, dict[RunState, int]]:
    """Return counted states by what they belong to, from rows of it, the state and the number."""
    grouped: dict[str, dict[RunState, int]] = {}
    for key, state, number in rows:
        grouped.setdefault(key, {})[RunState(state)] = number
    return grouped


def like_pattern(text: str) -> str:
    """Return the pattern for LIKE that matches every string with a text in it; it escapes with a backslash."""
    escaped = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"%{escaped}%"
