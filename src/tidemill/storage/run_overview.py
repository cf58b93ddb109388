"""An overview of runs: what is active now, how many have ended, and which failed ones need a person."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from tidemill.workflows.records import RunRow
from tidemill.workflows.states import RunState, TaskState

SECONDS_PER_HOUR = 3600
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def hour_of(time: datetime) -> int:
    """Return the hour of a time, counted since 1970."""
    return int(time.timestamp() // SECONDS_PER_HOUR)


def start_of(hour: int) -> datetime:
    """Return the beginning of an hour."""
    return EPOCH + timedelta(hours=hour)


class OverviewQuery(NamedTuple):
    """Selects what an overview has."""

    tenant: str
    hours: range
    """The hours since 1970 in which the runs ended that are counted."""
    oldest: int
    """The number of active runs of each state that are listed."""


class FailedRuns(NamedTuple):
    """The unresolved failed runs of a workflow."""

    workflow: str
    id: str
    """The newest."""
    ended_at: datetime
    reason: str
    number: int
    """How many there are."""


class FirstFailure(NamedTuple):
    """The task of a run that failed first, and why."""

    task: str
    reason: str


class WaitingTask(NamedTuple):
    """A task run that waits to be claimed, or for its deferral to end."""

    run: str
    workflow: str
    version: str
    task: str
    state: TaskState
    pool: str | None
    executor: str
    since: datetime


class EndedCount(NamedTuple):
    """The number of runs that ended in one hour in one state."""

    hour: int
    """Since 1970."""
    state: RunState
    number: int


class RunOverview(NamedTuple):
    """What the runs of a tenant do, at one moment."""

    active: Mapping[RunState, int]
    """The number of active runs by state; a state that no run has may be missing."""
    oldest: list[RunRow]
    """The oldest active runs of each state, oldest first, without params."""
    ended: list[EndedCount]
    failed: list[FailedRuns]
    """By workflow."""
