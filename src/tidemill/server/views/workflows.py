"""Workflows as the API shows them."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import asdict

from tidemill.api.schedules import ScheduleInfo
from tidemill.api.triggers import TriggerInfo
from tidemill.engine.workflows.client.catalog import CatalogEntry, WorkflowFacts
from tidemill.kernel.backoff import Retry
from tidemill.server.views.json_schemas import object_schema
from tidemill.storage.run_lists import WorkflowActivity
from tidemill.storage.workflow_ports import WorkflowVersion
from tidemill.workflows.spec import TaskSpec, WorkflowSpec
from tidemill.workflows.states import RunState
from tidemill.workflows.workflow import Workflow


class LastRun(msgspec.Struct, frozen=True):
    """The newest run of a workflow."""

    id: str
    state: RunState
    created_at: datetime
    ended_at: datetime | None


class WorkflowItem(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow in a list."""

    name: str
    version: str
    """The version that new runs get."""
    tags: list[str]
    paused: bool
    loaded: bool
    """Whether its code is loaded on the server that answers."""
    active_runs: int
    last_run: LastRun | None
    recent_runs: list[LastRun]
    """The newest runs, newest first, as many as were asked for."""


class RetryView(msgspec.Struct, frozen=True):
    """The retries of a task; times are seconds."""

    times: int
    delay: float
    backoff: float
    max_delay: float
    jitter: float


class TaskDetails(msgspec.Struct, frozen=True, kw_only=True):
    """A task with its options."""

    name: str
    upstream: list[str]
    rule: str
    each: str | None
    """The task whose list it is mapped over."""
    tries: int
    retry: RetryView | None
    timeout: float | None
    pool: str | None
    priority: int
    queue: str
    executor: str | None
    """None: that of the node."""
    labels: list[str]
    """What a worker must have."""
    resources: dict[str, int | float]
    """What a cluster reserves for it: cores of `cpu`, bytes of `memory`, the count of everything else."""
    image: str | None
    """The container image of its pod; None: that of the operator."""
    pod: dict[str, Any]
    """What it adds to its pod."""
    graph: str | None
    """The graph that it calls."""


class EdgeView(msgspec.Struct, frozen=True, kw_only=True):
    """A dependency of a task."""

    source: str
    target: str
    parameter: str | None
    """The parameter that takes the value; null if only the end of the source matters."""
    takes: list[str] | None
    """The variants of the value that the parameter accepts; null for all."""
    optional: bool


class VersionItem(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a workflow in a list."""

    version: str
    seen_at: datetime
    """When a node last loaded it."""
    current: bool
    """Whether new runs get it."""
    nodes: int
    """The number of nodes that have its code."""


class WorkflowDetails(WorkflowItem, frozen=True, kw_only=True):
    """A workflow with everything that is declared."""

    tasks: list[TaskDetails]
    """In topological order."""
    edges: list[EdgeView]
    schedule: ScheduleInfo | None
    """The first of its schedules."""
    schedules: list[ScheduleInfo]
    triggers: list[TriggerInfo]
    params: dict[str, Any] | None
    """The JSON Schema of its params; null if it is not loaded on this server."""
    versions: list[VersionItem]
    """The newest one first."""
    max_active_runs: int | None
    unfinished: str | None
    """What becomes of unfinished runs when the code changes."""


class VersionDetails(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a workflow: its structure and its source."""

    workflow: str
    version: str
    seen_at: datetime
    tasks: list[TaskDetails]
    """In topological order; empty if the version cannot be read any more."""
    edges: list[EdgeView]
    spec: dict[str, Any]
    """Everything that is stored of its structure."""
    source: str | None
    """The file that declares it, as it was first loaded; null if it was not stored."""


def to_workflow_item(entry: CatalogEntry, activity: WorkflowActivity, *, recent: int = 0) -> WorkflowItem:
    """Return a workflow as lists show it."""
    runs = [LastRun(row.id, row.state, row.created_at, row.ended_at) for row in activity.recent]
    return WorkflowItem(
        name=entry.name,
        version=entry.version,
        tags=[] if entry.workflow is None else list(entry.workflow.tags),
        paused=entry.is_paused,
        loaded=entry.workflow is not None,
        active_runs=activity.active,
        last_run=runs[0] if runs else None,
        recent_runs=runs[:recent],
    )


def to_workflow_details(facts: WorkflowFacts, now: datetime) -> WorkflowDetails:
    """Return everything about a workflow."""
    entry, workflow = facts.entry, facts.entry.workflow
    spec = facts.spec or WorkflowSpec(name=entry.name, tasks=())
    schedules = [ScheduleInfo.of_watched(one, now) for one in facts.schedules]
    return WorkflowDetails(
        **asdict(to_workflow_item(entry, facts.activity)),
        tasks=[_to_task_details(task, workflow) for task in spec.topological_order],
        edges=list(_edges_of(spec)),
        schedule=schedules[0] if schedules else None,
        schedules=schedules,
        triggers=[TriggerInfo.of_entry(one) for one in facts.triggers],
        params=None if workflow is None else object_schema(workflow.params),
        versions=[_to_version_item(one, facts) for one in reversed(entry.versions)],
        max_active_runs=None if workflow is None else workflow.max_active_runs,
        unfinished=None if workflow is None else workflow.unfinished,
    )


def _to_task_details(task: TaskSpec, workflow: Workflow | None) -> TaskDetails:
    declared = next((one for one in workflow.tasks if one.name == task.name), None) if workflow else None
    graph = None if declared is None else declared.graph
    return TaskDetails(
        name=task.name,
        upstream=list(task.upstream),
        rule=task.rule,
        each=task.each,
        tries=task.tries,
        retry=None if declared is None else _to_retry(declared.retry),
        timeout=task.timeout,
        pool=task.pool,
        priority=task.priority,
        queue=task.queue,
        executor=task.executor,
        labels=list(task.labels),
        resources=task.resources,
        image=task.image,
        pod=task.pod,
        graph=graph if graph is None or isinstance(graph, str) else graph.name,
    )


def _to_retry(retry: Retry | None) -> RetryView | None:
    if retry is None:
        return None
    return RetryView(retry.times, retry.delay, retry.backoff, retry.max_delay, retry.jitter)


def _edges_of(spec: WorkflowSpec) -> Iterator[EdgeView]:
    for task in spec.topological_order:
        for edge in task.edges:
            yield EdgeView(
                source=edge.source,
                target=task.name,
                parameter=edge.parameter,
                takes=None if edge.takes is None else list(edge.takes),
                optional=edge.optional,
            )


def _to_version_item(version: WorkflowVersion, facts: WorkflowFacts) -> VersionItem:
    return VersionItem(
        version=version.key.version,
        seen_at=version.seen_at,
        current=version.key.version == facts.entry.version,
        nodes=len({one.owner for one in facts.loaded if one.key == version.key}),
    )


def to_version_details(version: WorkflowVersion) -> VersionDetails:
    """Return a version with its structure and its source."""
    try:
        spec = msgspec.json.decode(version.spec, type=WorkflowSpec)
    except msgspec.DecodeError:  # written by another version of Tidemill: its source can still be read
        spec = WorkflowSpec(name=version.key.workflow, tasks=())
    return VersionDetails(
        workflow=version.key.workflow,
        version=version.key.version,
        seen_at=version.seen_at,
        tasks=[_to_task_details(task, None) for task in spec.topological_order],
        edges=list(_edges_of(spec)),
        spec=msgspec.json.decode(version.spec),
        source=version.source or None,
    )
