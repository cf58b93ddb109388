"""Workflows: what is declared, in which versions, and whether they are paused."""

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta
from msgspec.structs import asdict

from tidemill.access.principal import Permission, Principal
from tidemill.api.fields import NameOf, WireName
from tidemill.api.operation import GET, PATCH, CommandForm, Message, Verb, operation
from tidemill.api.paging import Page, PageRequest, page_of
from tidemill.api.schedules import ScheduleInfo
from tidemill.api.services import Services
from tidemill.api.triggers import TriggerInfo
from tidemill.kernel.about import About
from tidemill.kernel.backoff import RetryNumbers
from tidemill.workflows.spec import TaskEdge, TaskSpec, WorkflowSpec
from tidemill.workflows.states import RunState
from tidemill.workflows.task_options import TaskOptions

if TYPE_CHECKING:
    from tidemill.engine.workflows.client.catalog import CatalogEntry, WorkflowFacts
    from tidemill.kernel.backoff import Retry
    from tidemill.storage.run_lists import WorkflowActivity
    from tidemill.storage.tables.versions import WorkflowAbout, WorkflowVersion
    from tidemill.workflows.records import RunRow
    from tidemill.workflows.workflow import Workflow

_PREFIX = "#/$defs/"


def object_schema(declared: type[msgspec.Struct] | None) -> dict[str, Any]:
    """Return the schema of a class of params, with its fields at the top; any object without one."""
    if declared is None:
        return {"type": "object"}
    schema = msgspec.json.schema(declared, schema_hook=_describe_unknown)
    definitions = dict(schema.get("$defs", {}))
    name = schema.get("$ref", "").removeprefix(_PREFIX)
    if name not in definitions:
        return schema
    own = definitions[name] if _refers_to(definitions, name) else definitions.pop(name)
    return {**own, "$defs": definitions} if definitions else own


def _refers_to(definitions: dict[str, Any], name: str) -> bool:
    """Return whether some definition refers to another one, or to itself, by name."""
    return f'"{_PREFIX}{name}"'.encode() in msgspec.json.encode(definitions)


def _describe_unknown(kind: type) -> dict[str, Any]:
    """Return the schema of a class that msgspec does not know: any value, with the name of the class."""
    return {"title": kind.__name__}


Name = Annotated[str, Meta(description="The name of a workflow."), NameOf("workflow")]
Text = Annotated[str, Meta(description="A part of the name or of a tag, in letters of any case."), WireName("q")]
Tag = Annotated[str | None, Meta(description="Only workflows with this tag.")]
IsPaused = Annotated[bool | None, Meta(description="Only workflows that are paused, or only others.")]
WithHandlers = Annotated[bool, Meta(description="Whether the workflows of handlers are listed, too.")]
Recent = Annotated[int, Meta(ge=0, le=50, description="How many of its newest runs each workflow comes with.")]


class LastRun(Message, frozen=True, kw_only=True):
    """The newest run of a workflow."""

    id: str
    state: RunState
    created_at: datetime
    ended_at: datetime | None

    @classmethod
    def of_row(cls, row: "RunRow") -> "LastRun":
        """Return the message about a run."""
        return cls(id=row.id, state=row.state, created_at=row.created_at, ended_at=row.ended_at)


class WorkflowItem(Message, frozen=True, kw_only=True):
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
    owner: str = ""
    """Whom to ask, as its author declares it."""
    description: str = ""
    """What it is for."""
    handles: str | None = None
    """The workflow whose ends its tasks handle; null if it is one that an author declared."""

    @classmethod
    def of_entry(cls, entry: "CatalogEntry", activity: "WorkflowActivity", *, recent: int = 0) -> "WorkflowItem":
        """Return the message about a workflow, with this number of its runs."""
        runs = [LastRun.of_row(row) for row in activity.recent]
        return cls(
            name=entry.name,
            version=entry.version,
            tags=list(entry.tags),
            paused=entry.is_paused,
            loaded=entry.workflow is not None,
            active_runs=activity.active,
            last_run=runs[0] if runs else None,
            recent_runs=runs[:recent],
            owner=entry.about.workflow.owner,
            description=entry.about.workflow.description,
            handles=entry.handles,
        )


class TaskRetry(RetryNumbers, Message, frozen=True, kw_only=True):
    """The retries of a task; times are seconds."""


class TaskDetails(TaskOptions, frozen=True, kw_only=True, omit_defaults=False):
    """A task with its options."""

    name: str
    upstream: list[str]
    rule: str
    each: str | None
    """The task whose list it is mapped over."""
    tries: int
    retry: TaskRetry | None
    graph: str | None
    """The graph that it calls."""
    owner: str = ""
    """Whom to ask; empty if nothing is declared for the task."""
    description: str = ""
    """Its description, or the docstring of its function."""

    @classmethod
    def of_spec(cls, task: TaskSpec, workflow: "Workflow | None", about: "WorkflowAbout") -> "TaskDetails":
        """Return the message about a task; what only its declaration has is null without one."""
        own = about.tasks.get(task.name, About())
        declared = next((one for one in workflow.tasks if one.name == task.name), None) if workflow else None
        graph = None if declared is None else declared.graph
        return cls(
            name=task.name,
            upstream=list(task.upstream),
            rule=task.rule,
            each=task.each,
            tries=task.tries,
            retry=None if declared is None else _to_retry(declared.retry),
            graph=graph if graph is None or isinstance(graph, str) else graph.name,
            owner=own.owner,
            description=own.description,
            **task.options,
        )


def _to_retry(retry: "Retry | None") -> TaskRetry | None:
    return None if retry is None else TaskRetry.of_policy(retry)


class EdgeDetails(TaskEdge, Message, frozen=True, kw_only=True, omit_defaults=False):
    """A dependency of a task."""

    target: str


def _edges_of(spec: WorkflowSpec) -> Iterator[EdgeDetails]:
    for task in spec.topological_order:
        for edge in task.edges:
            yield EdgeDetails(target=task.name, **asdict(edge))


class VersionItem(Message, frozen=True, kw_only=True):
    """A version of a workflow in a list."""

    version: str
    seen_at: datetime
    """When a node last loaded it."""
    current: bool
    """Whether new runs get it."""
    nodes: int
    """The number of nodes that have its code."""

    @classmethod
    def of_version(cls, version: "WorkflowVersion", facts: "WorkflowFacts") -> "VersionItem":
        """Return the message about a version."""
        return cls(
            version=version.key.version,
            seen_at=version.seen_at,
            current=version.key.version == facts.entry.version,
            nodes=len({one.owner for one in facts.loaded if one.key == version.key}),
        )


class WorkflowDetails(WorkflowItem, frozen=True, kw_only=True):
    """A workflow with everything that is declared."""

    tasks: list[TaskDetails]
    """In topological order."""
    edges: list[EdgeDetails]
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
    handlers: list[str] = []
    """The workflows that have its handlers, such as report.on_failure."""

    @classmethod
    def of_facts(cls, facts: "WorkflowFacts", now: datetime) -> "WorkflowDetails":
        """Return the message about a workflow."""
        entry, workflow = facts.entry, facts.entry.workflow
        spec = facts.spec or WorkflowSpec(name=entry.name, tasks=())
        schedules = [ScheduleInfo.of_watched(one, now) for one in facts.schedules]
        return cls(
            **asdict(WorkflowItem.of_entry(entry, facts.activity)),
            tasks=[TaskDetails.of_spec(task, workflow, entry.about) for task in spec.topological_order],
            edges=list(_edges_of(spec)),
            schedule=schedules[0] if schedules else None,
            schedules=schedules,
            triggers=[TriggerInfo.of_entry(one) for one in facts.triggers],
            params=None if workflow is None else object_schema(workflow.params),
            versions=[VersionItem.of_version(one, facts) for one in reversed(entry.versions)],
            max_active_runs=None if workflow is None else workflow.max_active_runs,
            unfinished=None if workflow is None else workflow.unfinished,
            handlers=spec.handler_workflows,
        )


class VersionDetails(Message, frozen=True, kw_only=True):
    """A version of a workflow: its structure and its source."""

    workflow: str
    version: str
    seen_at: datetime
    tasks: list[TaskDetails]
    """In topological order; empty if this Tidemill cannot read the version."""
    edges: list[EdgeDetails]
    spec: dict[str, Any]
    """Everything that is stored of its structure."""
    source: str | None
    """The file that declares it, as it was first loaded; null if it was not stored."""

    @classmethod
    def of_version(cls, version: "WorkflowVersion") -> "VersionDetails":
        """Return the message about a version."""
        try:
            spec = msgspec.json.decode(version.spec, type=WorkflowSpec)
        except msgspec.DecodeError:  # written by another version of Tidemill: its source can still be read
            spec = WorkflowSpec(name=version.key.workflow, tasks=())
        return cls(
            workflow=version.key.workflow,
            version=version.key.version,
            seen_at=version.seen_at,
            tasks=[TaskDetails.of_spec(task, None, version.about) for task in spec.topological_order],
            edges=list(_edges_of(spec)),
            spec=msgspec.json.decode(version.spec),
            source=version.source or None,
        )


@operation(
    GET("/workflows"),
    Permission.READ,
    command=CommandForm(
        "workflow list",
        columns=("name", "paused", "active_runs", "last_run.state", "last_run.created_at", "tags"),
        empty="no workflows",
    ),
)
async def list_workflows(
    services: Services,
    caller: Principal,
    page: PageRequest,
    text: Text = "",
    tag: Tag = None,
    paused: IsPaused = None,
    recent: Recent = 0,
    handlers: WithHandlers = False,
) -> Page[WorkflowItem]:
    """List workflows by name, with their last run."""
    catalog = services.workflows.catalog
    known = [one for one in await catalog.entries(caller) if handlers or one.handles is None]
    entries = [one for one in known if _is_listed(one, text, tag, paused)]
    found = page_of(entries, page, key=lambda one: one.name, view=lambda one: one)
    activity = await catalog.read_activity(caller, [entry.name for entry in found.items], recent=max(1, recent))
    items = [WorkflowItem.of_entry(entry, activity[entry.name], recent=recent) for entry in found.items]
    return Page(items=items, total=found.total, next=found.next)


def _is_listed(entry: "CatalogEntry", text: str, tag: str | None, paused: bool | None) -> bool:
    has_text = any(text.casefold() in word.casefold() for word in (entry.name, *entry.tags))
    return has_text and (tag is None or tag in entry.tags) and paused in (None, entry.is_paused)


@operation(
    GET("/workflows/{name}"),
    Permission.READ,
    command=CommandForm(
        "workflow show",
        columns=(
            "name",
            "owner",
            "description",
            "version",
            "tags",
            "paused",
            "loaded",
            "active_runs",
            "last_run.state",
            "last_run.created_at",
            "tasks[].name",
            "schedules[].rule",
            "triggers[].name",
            "handlers",
            "max_active_runs",
        ),
    ),
)
async def get_workflow(services: Services, caller: Principal, name: Name) -> WorkflowDetails:
    """Return a workflow: tasks, edges, schedules, triggers, the JSON Schema of its params, and its versions."""
    catalog = services.workflows.catalog
    return WorkflowDetails.of_facts(await catalog.describe(caller, name), catalog.now())


@operation(GET("/workflows/{name}/versions/{version}"), Permission.READ)
async def get_workflow_version(services: Services, caller: Principal, name: Name, version: str) -> VersionDetails:
    """Return a version of a workflow: its structure, and the source that declares it."""
    return VersionDetails.of_version(await services.workflows.catalog.get_version(caller, name, version))


@operation(
    PATCH("/workflows/{name}"),
    Permission.WRITE,
    audit="workflow.pause",
    verbs=(
        Verb(
            "pause",
            "Pause a workflow: none of its runs begins, none of its tasks starts; running tasks continue.",
            {"paused": True},
            CommandForm("workflow pause", done="workflow '{name}' is paused"),
        ),
        Verb(
            "resume",
            "Resume a paused workflow. Slots that passed in the meantime get no run; a backfill starts them.",
            {"paused": False},
            CommandForm("workflow resume", done="workflow '{name}' is resumed"),
        ),
    ),
)
async def set_workflow_paused(services: Services, caller: Principal, name: Name, paused: bool) -> WorkflowDetails:
    """Pause or resume a workflow: while it is paused, none of its runs begins, and none of its tasks starts."""
    client = services.workflows
    await (client.catalog.pause if paused else client.catalog.resume)(caller, name)
    return WorkflowDetails.of_facts(await client.catalog.describe(caller, name), client.catalog.now())
