"""The overview: what a tenant's workflows and reactors do, in one answer."""

from datetime import datetime
from typing import TYPE_CHECKING, Literal

from tidemill.access.principal import Permission, Principal
from tidemill.api.operation import GET, Message, operation
from tidemill.api.services import Services
from tidemill.graphs.health import UnhealthyPart
from tidemill.workflows.states import RunState

if TYPE_CHECKING:
    from collections.abc import Collection

    from tidemill.engine.graphs.client.values import HealthReport
    from tidemill.engine.workflows.client.nodes import NodeLoad
    from tidemill.engine.workflows.client.overview import DueSlot, FailedWorkflow, LateSchedule, WorkflowOverview
    from tidemill.engine.workflows.client.waiting import WaitingWork
    from tidemill.packages.status import PackageStatus
    from tidemill.workflows.records import RunRow

EXPLAINED_RUNS = 5
"""Late runs that are explained: each explanation reads more than the overview of all runs."""


class UnfinishedRun(Message, frozen=True, kw_only=True):
    """A run that has not ended."""

    id: str
    workflow: str
    state: RunState
    origin: str
    created_at: datetime
    started_at: datetime | None
    slot: datetime | None


class FailingWorkflow(Message, frozen=True, kw_only=True):
    """A workflow with failed runs that need a person: see `unresolved` of the list of runs."""

    workflow: str
    run: str
    """The newest of them."""
    at: datetime
    task: str | None
    """The task that failed first."""
    reason: str
    """Why it failed; else why the run did."""
    failures: int
    """How many there are."""

    @classmethod
    def of_failed(cls, failed: "FailedWorkflow") -> "FailingWorkflow":
        """Return the message about a workflow."""
        last, first = failed.runs, failed.first
        return cls(
            workflow=last.workflow,
            run=last.id,
            at=last.ended_at,
            task=None if first is None else first.task,
            reason=last.reason if first is None else first.reason,
            failures=last.number,
        )


class LateRun(Message, frozen=True, kw_only=True):
    """A run that has been queued for long."""

    run: str
    workflow: str
    since: datetime
    reasons: list[str]
    """Why it has not started, one sentence each."""


class WaitingTasks(Message, frozen=True, kw_only=True):
    """The tasks of a workflow that have waited for long for the same."""

    workflow: str
    waits_for: Literal["code", "pool", "worker", "slot", "answer"]
    """The code of its version, a slot of its pool, a worker, a slot of its executor, or the end of a deferral."""
    runs: int
    """How many runs have such a task; 1000 means 1000 or more."""
    run: str
    """The one that has waited longest."""
    task: str
    since: datetime
    reasons: list[str]
    """Why the task waits, one sentence each; empty for all but the first items."""


class DeadLetterCount(Message, frozen=True, kw_only=True):
    """How many dead letters a reactor or an accumulator has."""

    kind: str
    """Reactor or accumulator."""
    name: str
    reactor: str
    """The reactor that shows them."""
    number: int


class LateSlot(Message, frozen=True, kw_only=True):
    """A schedule whose slots have passed without a run."""

    workflow: str
    key: str
    slot: datetime
    """The first one."""
    slots: int
    """How many have passed."""
    reason: str

    @classmethod
    def of_schedule(cls, late: "LateSchedule") -> "LateSlot":
        """Return the message about a schedule."""
        return cls(
            workflow=late.watched.workflow,
            key=late.watched.schedule.key,
            slot=late.first,
            slots=late.slots,
            reason=late.reason,
        )


class LateWork(Message, frozen=True, kw_only=True):
    """What should have started."""

    slots: list[LateSlot]
    runs: list[LateRun]


class ComingSlot(Message, frozen=True, kw_only=True):
    """A slot that is yet to come."""

    workflow: str
    key: str
    """The schedule."""
    slot: datetime
    local: datetime
    """The same instant, in the time zone of the schedule."""
    paused: bool
    """Whether the workflow is paused: then the slot gets no run."""

    @classmethod
    def of_slot(cls, due: "DueSlot") -> "ComingSlot":
        """Return the message about a slot."""
        watched, slot = due
        schedule = watched.schedule
        return cls(
            workflow=watched.workflow,
            key=schedule.key,
            slot=slot,
            local=schedule.in_zone(slot),
            paused=watched.is_paused,
        )


class ComingSlots(Message, frozen=True, kw_only=True):
    """The slots of the next hour."""

    items: list[ComingSlot]
    more: bool
    """Whether there are more slots than are listed."""


class EndedHour(Message, frozen=True, kw_only=True):
    """The runs that ended in one hour."""

    start: datetime
    success: int = 0
    failed: int = 0
    cancelled: int = 0


class FailedPackage(Message, frozen=True, kw_only=True):
    """A package that could not be loaded or removed."""

    name: str
    since: datetime
    reason: str


class NodeCounts(Message, frozen=True, kw_only=True):
    """The nodes of the store, by state."""

    leader: str | None
    """The name of the node that plans runs; null if none does."""
    alive: int
    silent: int
    dead: int

    @classmethod
    def of_loads(cls, loads: "Collection[NodeLoad]") -> "NodeCounts":
        """Return the message about some nodes."""
        states = [one.state for one in loads]
        return cls(
            leader=next((one.owner.name or one.owner.id for one in loads if one.leads), None),
            alive=states.count("alive"),
            silent=states.count("silent"),
            dead=states.count("dead"),
        )


class Overview(Message, frozen=True, kw_only=True):
    """What a tenant's workflows and reactors do, at one moment."""

    at: datetime
    active: dict[RunState, int]
    """The number of runs that have not ended, by state."""
    oldest: list[UnfinishedRun]
    """The oldest 20 runs of each state that have not ended, oldest first."""
    failing: list[FailingWorkflow]
    """The workflows with failed runs that need a person."""
    failed_runs: int = 0
    """The failed runs that need a person: those of all workflows."""
    late: LateWork
    reactors: int
    degraded: list[UnhealthyPart]
    """The reactors and accumulators that are not live."""
    dead_letters: int
    dead_letter_sources: list[DeadLetterCount] = []
    """What has dead letters: their numbers are all of them."""
    waiting: list[WaitingTasks] = []
    """The tasks that have waited for long to be claimed, or for an answer, by workflow; the longest first."""
    failed_packages: list[FailedPackage]
    upcoming: ComingSlots
    ended: list[EndedHour]
    """The runs that ended in each of the last 24 hours, oldest first, the current hour last."""
    nodes: NodeCounts

    @classmethod
    def of_parts(
        cls,
        workflows: "WorkflowOverview",
        late_runs: list[LateRun],
        waiting: list[WaitingTasks],
        health: "dict[str, HealthReport]",
        packages: "list[PackageStatus]",
        nodes: "Collection[NodeLoad]",
    ) -> "Overview":
        """Return the overview from what each engine knows."""
        degraded = {(part.kind, part.name): part for report in health.values() for part in report.unhealthy}
        dead_letters = _count_dead_letters(health)
        return cls(
            at=workflows.at,
            active={state: workflows.active.get(state, 0) for state in RunState if not state.is_terminal},
            oldest=[UnfinishedRun.of(row) for row in workflows.oldest],
            failing=[FailingWorkflow.of_failed(one) for one in workflows.failing],
            failed_runs=sum(one.runs.number for one in workflows.failing),
            late=LateWork(slots=[LateSlot.of_schedule(one) for one in workflows.late], runs=late_runs),
            reactors=len(health),
            degraded=list(degraded.values()),
            dead_letters=sum(one.number for one in dead_letters),
            dead_letter_sources=dead_letters,
            waiting=waiting,
            failed_packages=[FailedPackage.of(one) for one in packages if one.state == "failed"],
            upcoming=ComingSlots(
                items=[ComingSlot.of_slot(one) for one in workflows.upcoming], more=workflows.has_more_upcoming
            ),
            ended=[EndedHour(start=start, **counts) for start, counts in workflows.ended_by_hour()],
            nodes=NodeCounts.of_loads(nodes),
        )


@operation(GET("/overview"), Permission.READ)
async def get_overview(services: Services, caller: Principal) -> Overview:
    """Return what is running, failing, late and degraded, and what the next hour brings."""
    health = await services.graphs.health_reports(caller)
    workflows = await services.workflows.overview(caller)
    late = [
        await _explain(services, caller, row, is_explained=index < EXPLAINED_RUNS)
        for index, row in enumerate(workflows.late_runs())
    ]
    packages = [one for one in services.packages.status() if one.tenant == caller.tenant]
    waiting = [
        await _explain_waiting(services, caller, one, is_explained=index < EXPLAINED_RUNS)
        for index, one in enumerate(await services.workflows.waiting(caller))
    ]
    return Overview.of_parts(workflows, late, waiting, health, packages, await services.workflows.nodes.list_all())


async def _explain_waiting(
    services: Services, caller: Principal, work: "WaitingWork", *, is_explained: bool
) -> WaitingTasks:
    task = work.oldest
    return WaitingTasks(
        workflow=task.workflow,
        waits_for=work.wanted,
        runs=work.runs,
        run=task.run,
        task=task.task,
        since=task.since,
        reasons=await services.workflows.explainer.why(caller, task.run, task.task) if is_explained else [],
    )


def _count_dead_letters(health: "dict[str, HealthReport]") -> list[DeadLetterCount]:
    """Return the dead letters by part; an accumulator may have several reactors, and a part several partitions."""
    from tidemill.graphs.partitions import declared_name  # on use: it imports asyncio, which help does not need

    counts: dict[str, tuple[str, int]] = {}
    for reactor, report in health.items():
        counts |= {part: (reactor, number) for part, number in report.dead_letters.items() if part not in counts}
    sums: dict[tuple[str, str], DeadLetterCount] = {}
    for part, (reactor, number) in counts.items():
        kind, _, full_name = part.partition(" ")
        name = declared_name(full_name)
        before = sums[kind, name].number if (kind, name) in sums else 0
        sums[kind, name] = DeadLetterCount(kind=kind, name=name, reactor=reactor, number=before + number)
    return sorted(sums.values(), key=lambda one: (-one.number, one.kind, one.name))


async def _explain(services: Services, caller: Principal, row: "RunRow", *, is_explained: bool) -> LateRun:
    reasons = await services.workflows.explainer.why_queued(caller, row.id) if is_explained else []
    return LateRun(run=row.id, workflow=row.workflow, since=row.created_at, reasons=reasons)
