"""Schedules and triggers as the API shows them."""

from datetime import datetime
from itertools import islice

import msgspec
from msgspec.structs import replace

from tidemill.engine.workflows.client.calendar import CalendarSlot, DenseSchedule
from tidemill.engine.workflows.client.catalog import TriggerEntry, WatchedSchedule
from tidemill.storage.run_lists import LATEST
from tidemill.workflows.definition import OnFiring, OnOutput, Trigger, describe_expression
from tidemill.workflows.schedule import Cron, Schedule

SHOWN_SLOTS = 5
"""The number of next slots that a schedule shows."""


class ScheduleView(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule of a workflow."""

    workflow: str
    key: str
    rule: str
    """The rule in words: an expression and its time zone, or an interval."""
    expression: str | None
    """Of a cron schedule."""
    timezone: str
    catchup: str
    start: datetime | None
    end: datetime | None
    paused: bool
    """Whether the workflow is paused."""
    last: datetime | None
    """Until when its slots were processed."""
    dropped: int
    """The number of slots that were dropped on purpose."""
    next: list[datetime]
    """The next slots, in the time zone of the schedule."""


class SlotView(msgspec.Struct, frozen=True, kw_only=True):
    """A slot of a schedule that is yet to come."""

    key: str
    """The schedule."""
    slot: datetime
    local: datetime
    """The same instant, in the time zone of the schedule."""


class CalendarView(msgspec.Struct, frozen=True, kw_only=True):
    """The slots of all schedules in a range of time."""

    start: datetime
    end: datetime
    slots: list[CalendarSlot]
    """In order."""
    dense: list[DenseSchedule]
    """The schedules that have more than 500 slots in the range: these are not listed."""
    more: bool
    """Whether there are more slots than are listed, 5,000: choose a shorter range."""


class TriggerView(msgspec.Struct, frozen=True, kw_only=True):
    """A trigger: polled, or a subscription of a workflow to a reactor or to a node of a graph."""

    name: str
    kind: str
    """poll, on_firing or on_output; unknown if no trigger of that name is loaded."""
    workflows: list[str]
    """The workflows that it starts."""
    paused: bool
    every: float | None = None
    timeout: float | None = None
    allow_concurrent: bool | None = None
    reactor: str | None = None
    graph: str | None = None
    node: str | None = None
    when: str | None = None
    cooldown: float | None = None
    dedup: str | None = None


def to_schedule(watched: WatchedSchedule, now: datetime) -> ScheduleView:
    """Return a schedule with its next slots."""
    schedule, cursor = watched.schedule, watched.cursor
    return ScheduleView(
        workflow=watched.workflow,
        key=schedule.key,
        rule=str(schedule),
        expression=schedule.expression if isinstance(schedule, Cron) else None,
        timezone=schedule.timezone if isinstance(schedule, Cron) else "UTC",
        catchup=schedule.catchup,
        start=schedule.start,
        end=schedule.end,
        paused=watched.is_paused,
        last=None if cursor is None else cursor.last,
        dropped=0 if cursor is None else cursor.dropped,
        next=[one.local for one in next_slots(schedule, now, SHOWN_SLOTS)],
    )


def next_slots(schedule: Schedule, now: datetime, count: int) -> list[SlotView]:
    """Return the next slots of a schedule."""
    return [
        SlotView(key=schedule.key, slot=slot, local=schedule.in_zone(slot))
        for slot in islice(schedule.slots(now, LATEST), count)
    ]


def to_trigger(declared: TriggerEntry) -> TriggerView:
    """Return a trigger with the fields of its kind."""
    view = TriggerView(name=declared.name, kind="unknown", workflows=declared.workflows, paused=declared.is_paused)
    match declared.trigger:
        case Trigger() as one:
            return replace(
                view, kind="poll", every=one.every, timeout=one.timeout, allow_concurrent=one.allow_concurrent
            )
        case OnFiring() as one:
            return replace(view, kind="on_firing", reactor=one.reactor, when=describe_expression(one.when))
        case OnOutput() as one:
            return replace(
                view,
                kind="on_output",
                graph=one.graph,
                node=one.node,
                when=describe_expression(one.when),
                cooldown=one.cooldown,
                dedup=describe_expression(one.dedup),
            )
    return view
