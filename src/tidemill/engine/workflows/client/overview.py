"""The overview of a tenant's workflows: what runs, what fails, what is late, and what comes next."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from heapq import merge
from itertools import groupby, islice, takewhile
from typing import NamedTuple

import msgspec

from tidemill.access.principal import Caller
from tidemill.engine.workflows.client.catalog import WatchedSchedule, WorkflowCatalog
from tidemill.storage.run_overview import EndedCount, EndedRun, FirstFailure, OverviewQuery, hour_of
from tidemill.storage.workflow_ports import Runs
from tidemill.workflows.records import RunRow
from tidemill.workflows.states import RunState

SHOWN_RUNS = 20
"""Active runs of each state that are listed, oldest first."""
STREAK_LIMIT = 20
"""Failures in a row are counted up to this number."""
HISTORY = 24
"""Hours in which the runs ended that are counted, with the current one."""
HORIZON = timedelta(hours=1)
"""How far upcoming slots are listed."""
UPCOMING_LIMIT = 100
LATE_RUN = timedelta(seconds=60)
"""A run that has been queued for longer is late."""
LATE_SLOT = timedelta(seconds=15)
"""A slot without a run is late after this time: a leader that is replaced needs some seconds."""


class FailingWorkflow(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow whose last run has failed."""

    workflow: str
    run: str
    at: datetime
    task: str | None
    """The task that failed first."""
    reason: str
    """Why it failed; else why the run did."""
    failures: int
    """Failed runs in a row; 20 means 20 or more."""


class ComingSlot(msgspec.Struct, frozen=True, kw_only=True):
    """A slot that is yet to come."""

    workflow: str
    key: str
    """The schedule."""
    slot: datetime
    local: datetime
    """The same instant, in the time zone of the schedule."""
    paused: bool
    """Whether the workflow is paused: then the slot gets no run."""


class LateSlot(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule whose slots have passed without a run."""

    workflow: str
    key: str
    slot: datetime
    """The first one."""
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
    failing: list[FailingWorkflow]
    late_slots: list[LateSlot]
    upcoming: list[ComingSlot]
    has_more_upcoming: bool


async def read_overview(catalog: WorkflowCatalog, runs: Runs, caller: Caller) -> WorkflowOverview:
    """Return what the workflows of the caller's tenant do."""
    entries, now = await catalog.entries(caller), catalog.now()
    schedules = await catalog.schedules_of(caller, entries)
    query = OverviewQuery(caller.tenant, past_hours(now), SHOWN_RUNS, STREAK_LIMIT)
    overview = await runs.read_overview(query, [entry.name for entry in entries])
    streaks = _failure_streaks(overview.last_ended)
    reasons = await runs.read_first_failures([streak[0].id for streak in streaks])
    upcoming = list(islice(_upcoming_slots(schedules, now), UPCOMING_LIMIT + 1))
    return WorkflowOverview(
        at=now,
        active=overview.active,
        oldest=overview.oldest,
        ended=overview.ended,
        failing=[_to_failing(streak, reasons.get(streak[0].id)) for streak in streaks],
        late_slots=[late for one in schedules if (late := _find_late_slots(one, now)) is not None],
        upcoming=upcoming[:UPCOMING_LIMIT],
        has_more_upcoming=len(upcoming) > UPCOMING_LIMIT,
    )


def past_hours(now: datetime) -> range:
    """Return the hours whose ended runs are counted."""
    return range(hour_of(now) - HISTORY + 1, hour_of(now) + 1)


def _failure_streaks(ended: Iterable[EndedRun]) -> list[list[EndedRun]]:
    """Return the last failed runs of each workflow whose last run has failed, newest first."""
    runs_by_workflow = groupby(ended, key=lambda one: one.workflow)
    streaks = (list(takewhile(lambda one: one.state is RunState.FAILED, runs)) for _, runs in runs_by_workflow)
    return [streak for streak in streaks if streak]


def _to_failing(streak: list[EndedRun], first: FirstFailure | None) -> FailingWorkflow:
    last = streak[0]
    return FailingWorkflow(
        workflow=last.workflow,
        run=last.id,
        at=last.ended_at,
        task=None if first is None else first.task,
        reason=last.reason if first is None else first.reason,
        failures=len(streak),
    )


def _upcoming_slots(schedules: Iterable[WatchedSchedule], now: datetime) -> Iterator[ComingSlot]:
    """Yield the slots of all schedules, in order; none is computed before it is taken."""
    return merge(*(_slots_of(one, now) for one in schedules), key=lambda one: one.slot)


def _slots_of(watched: WatchedSchedule, now: datetime) -> Iterator[ComingSlot]:
    schedule = watched.schedule
    for slot in schedule.slots(now, now + HORIZON):
        yield ComingSlot(
            workflow=watched.workflow,
            key=schedule.key,
            slot=slot,
            local=schedule.in_zone(slot),
            paused=watched.is_paused,
        )


def _find_late_slots(watched: WatchedSchedule, now: datetime) -> LateSlot | None:
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
    return LateSlot(workflow=watched.workflow, key=schedule.key, slot=first, slots=count, reason=reason)
