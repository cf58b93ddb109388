"""The overview of a tenant, as the API shows it."""

from datetime import datetime

import msgspec

from tidemill.engine.graphs.client.values import HealthReport, UnhealthyPart
from tidemill.engine.workflows.client.nodes import NodeLoad
from tidemill.engine.workflows.client.overview import (
    LATE_RUN,
    ComingSlot,
    FailingWorkflow,
    LateSlot,
    WorkflowOverview,
    past_hours,
)
from tidemill.packages.status import PackageStatus
from tidemill.storage.run_overview import start_of
from tidemill.workflows.records import RunRow
from tidemill.workflows.states import RunState


class UnfinishedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that has not ended."""

    id: str
    workflow: str
    state: RunState
    origin: str
    created_at: datetime
    started_at: datetime | None
    slot: datetime | None


class LateRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that has been queued for long."""

    run: str
    workflow: str
    since: datetime
    reasons: list[str]
    """Why it has not begun, one sentence each."""


class EndedHour(msgspec.Struct, frozen=True, kw_only=True):
    """The runs that ended in one hour."""

    start: datetime
    success: int = 0
    failed: int = 0
    cancelled: int = 0


class UpcomingSlots(msgspec.Struct, frozen=True, kw_only=True):
    """The slots of the next hour."""

    items: list[ComingSlot]
    more: bool
    """Whether there are more slots than are listed."""


class LateWork(msgspec.Struct, frozen=True, kw_only=True):
    """What should have begun."""

    slots: list[LateSlot]
    runs: list[LateRun]


class FailedPackage(msgspec.Struct, frozen=True, kw_only=True):
    """A package that could not be loaded or removed."""

    name: str
    since: datetime
    reason: str


class NodeCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes of the store, by state."""

    leader: str | None
    """The name of the node that plans runs; null if none does."""
    alive: int
    silent: int
    dead: int


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """What a tenant's workflows and reactors do, at one moment."""

    at: datetime
    active: dict[RunState, int]
    """The number of runs that have not ended, by state."""
    oldest: list[UnfinishedRun]
    """The oldest 20 runs of each state that have not ended, oldest first."""
    failing: list[FailingWorkflow]
    """The workflows whose last run has failed."""
    late: LateWork
    reactors: int
    degraded: list[UnhealthyPart]
    """The reactors and accumulators that are not live."""
    dead_letters: int
    failed_packages: list[FailedPackage]
    upcoming: UpcomingSlots
    ended: list[EndedHour]
    """The runs that ended in each of the last 24 hours, oldest first, the current hour last."""
    nodes: NodeCounts


def to_overview(
    workflows: WorkflowOverview,
    late_runs: list[LateRun],
    health: dict[str, HealthReport],
    packages: list[PackageStatus],
    nodes: list[NodeLoad],
) -> Overview:
    """Return the overview from what each engine knows."""
    degraded = {(part.kind, part.name): part for report in health.values() for part in report.unhealthy}
    dead_letters = {name: number for report in health.values() for name, number in report.dead_letters.items()}
    return Overview(
        at=workflows.at,
        active={state: workflows.active.get(state, 0) for state in RunState if not state.is_terminal},
        oldest=[_to_active(row) for row in workflows.oldest],
        failing=workflows.failing,
        late=LateWork(slots=workflows.late_slots, runs=late_runs),
        reactors=len(health),
        degraded=list(degraded.values()),
        dead_letters=sum(dead_letters.values()),
        failed_packages=[
            FailedPackage(name=one.name, since=one.since, reason=one.reason)
            for one in packages
            if one.state == "failed"
        ],
        upcoming=UpcomingSlots(items=workflows.upcoming, more=workflows.has_more_upcoming),
        ended=_to_hours(workflows),
        nodes=_count_nodes(nodes),
    )


def late_rows(workflows: WorkflowOverview) -> list[RunRow]:
    """Return the runs that have been queued for long."""
    before = workflows.at - LATE_RUN
    return [row for row in workflows.oldest if row.state is RunState.QUEUED and row.created_at < before]


def _to_active(row: RunRow) -> UnfinishedRun:
    return UnfinishedRun(
        id=row.id,
        workflow=row.workflow,
        state=row.state,
        origin=row.origin,
        created_at=row.created_at,
        started_at=row.started_at,
        slot=row.slot,
    )


def _to_hours(workflows: WorkflowOverview) -> list[EndedHour]:
    """Return the counts of every hour, also of those in which no run has ended."""
    counted: dict[int, dict[str, int]] = {}
    for one in workflows.ended:
        counted.setdefault(one.hour, {})[one.state] = one.number
    return [EndedHour(start=start_of(hour), **counted.get(hour, {})) for hour in past_hours(workflows.at)]


def _count_nodes(nodes: list[NodeLoad]) -> NodeCounts:
    states = [node.state for node in nodes]
    return NodeCounts(
        leader=next((node.owner.name or node.owner.id for node in nodes if node.leads), None),
        alive=states.count("alive"),
        silent=states.count("silent"),
        dead=states.count("dead"),
    )
