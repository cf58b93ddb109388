"""The overview of a tenant's workflows: what runs, what fails, what is late, and what comes next."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from heapq import merge
from itertools import islice
from typing import NamedTuple

from tidemill.access.principal import Caller
from tidemill.engine.workflows.client.catalog import WatchedSchedule, WorkflowCatalog
from tidemill.storage.run_overview import EndedCount, FailedRuns, FirstFailure, OverviewQuery, hour_of, start_of
from tidemill.storage.workflow_ports import Runs
from tidemill.workflows.records import RunRow
from tidemill.workflows.states import RunState

SHOWN_RUNS = 20
"""Active runs of each state that are listed, oldest first."""
HISTORY = 24
"""Hours in which the runs ended that are counted, with the current one."""
HORIZON = timedelta(hours=1)
"""How far upcoming slots are listed."""
UPCOMING_LIMIT = 100
LATE_RUN = timedelta(seconds=60)
"""A run that has been queued for longer is late."""
LATE_SLOT = timedelta(seconds=15)
"""A slot without a run is late after this time: a leader that is replaced needs some seconds."""


class FailedWorkflow(NamedTuple):
    """A workflow with failed runs that need a person."""

    runs: FailedRuns
    first: FirstFailure | None
    """The task of the newest that failed first."""


class DueSlot(NamedTuple):
    """A slot that is yet to come."""

    watched: WatchedSchedule
    slot: datetime


class LateSchedule(NamedTuple):
    """A schedule whose slots have passed without a run."""

    watched: WatchedSchedule
    first: datetime
    """The first of these slots."""
    slots: int
    """How many have passed."""
    reason: str


class WorkflowOverview(NamedTuple):
    """What the workflows of a tenant do, at one moment."""

    at: datetime
    active: Mapping[RunState, int]
    oldest: list[RunRow]
    """The oldest active runs of each state, oldest first."""
    ended: list[EndedCount]
    failing: list[FailedWorkflow]
    late: list[LateSchedule]
    upcoming: list[DueSlot]
    has_more_upcoming: bool

    def late_runs(self) -> list[RunRow]:
        """Return the runs that have been queued for long."""
        before = self.at - LATE_RUN
        return [row for row in self.oldest if row.state is RunState.QUEUED and row.created_at < before]

    def ended_by_hour(self) -> list[tuple[datetime, dict[str, int]]]:
        """Return the number of runs that ended in each hour, by state; hours in which none has ended too."""
        counted: dict[int, dict[str, int]] = {}
        for one in self.ended:
            counted.setdefault(one.hour, {})[one.state] = one.number
        return [(start_of(hour), counted.get(hour, {})) for hour in past_hours(self.at)]


async def read_overview(catalog: WorkflowCatalog, runs: Runs, caller: Caller) -> WorkflowOverview:
    """Return what the workflows of the caller's tenant do."""
    entries, now = await catalog.entries(caller), catalog.now()
    schedules = await catalog.schedules_of(caller, entries)
    overview = await runs.read_overview(OverviewQuery(caller.tenant, past_hours(now), SHOWN_RUNS))
    reasons = await runs.read_first_failures([one.id for one in overview.failed])
    upcoming = list(islice(_upcoming_slots(schedules, now), UPCOMING_LIMIT + 1))
    return WorkflowOverview(
        at=now,
        active=overview.active,
        oldest=overview.oldest,
        ended=overview.ended,
        failing=[FailedWorkflow(one, reasons.get(one.id)) for one in overview.failed],
        late=[late for one in schedules if (late := _find_late_slots(one, now)) is not None],
        upcoming=upcoming[:UPCOMING_LIMIT],
        has_more_upcoming=len(upcoming) > UPCOMING_LIMIT,
    )


def past_hours(now: datetime) -> range:
    """Return the hours whose ended runs are counted."""
    return range(hour_of(now) - HISTORY + 1, hour_of(now) + 1)


def _upcoming_slots(schedules: Iterable[WatchedSchedule], now: datetime) -> Iterator[DueSlot]:
    """Yield the slots of all schedules, in order; none is computed before it is taken."""
    return merge(*(_slots_of(one, now) for one in schedules), key=lambda one: one.slot)


def _slots_of(watched: WatchedSchedule, now: datetime) -> Iterator[DueSlot]:
    return (DueSlot(watched, slot) for slot in watched.schedule.slots(now, now + HORIZON))


def _find_late_slots(watched: WatchedSchedule, now: datetime) -> LateSchedule | None:
    """Return the slots of a schedule that have passed unnoticed; a paused workflow has none."""
    schedule, cursor = watched.schedule, watched.cursor
    if cursor is None or watched.is_paused:
        return None
    first = next(schedule.slots(cursor.last, now - LATE_SLOT), None)
    if first is None:
        return None
    waits = "no leader has evaluated its slots" if cursor.armed else "it waits for what its runs need to be loaded,"
    reason = f"{waits} since {cursor.last.isoformat(sep=' ', timespec='seconds')}"
    count = schedule.count(cursor.last, now)
    return LateSchedule(watched, first, count, reason)
