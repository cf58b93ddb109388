"""Starts runs: from a workflow and its params to a stored run.

On the leader a run is created and started in one change. On any other node it is created, and the leader finds it.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from tidemill.access.audit import AuditRow
from tidemill.engine.workflows.leader.active_runs import NewRun
from tidemill.engine.workflows.leader.failures import LeadershipLostError
from tidemill.engine.workflows.leader.state import LeaderState
from tidemill.engine.workflows.runtime import WorkflowRuntime
from tidemill.engine.workflows.versions import WorkflowVersions
from tidemill.kernel.errors import OperationError
from tidemill.kernel.ids import new_sortable_id
from tidemill.telemetry.tracing import CURRENT_TRACE, StoredTrace, TraceContext
from tidemill.workflows.change import Applied, Refused
from tidemill.workflows.lookup import StartSuppressedError, WorkflowPausedError
from tidemill.workflows.params import encode_params
from tidemill.workflows.records import FireRow, RunRow, VersionKey
from tidemill.workflows.run_draft import RunDraft, new_task_rows
from tidemill.workflows.states import RunState
from tidemill.workflows.workflow import Workflow

ONCE_SLOT = datetime(1970, 1, 1, tzinfo=UTC)
"""The slot of all fires whose key alone makes them unique, whenever they happen."""


class RunOrigin(StrEnum):
    """What starts a run, as it is stored."""

    MANUAL = "manual"
    SCHEDULE = "schedule"
    TRIGGER = "trigger"
    FIRING = "firing"
    BACKFILL = "backfill"
    TASK = "task"


_LEADER_ONLY_ORIGINS = (RunOrigin.SCHEDULE, RunOrigin.TRIGGER)
"""The origins of runs that only the leader may start: the next leader finds them due again."""


class RunCause(NamedTuple):
    """What starts a run: see `cause`, `caused_by` and `cause_key` of RunRow."""

    name: str | None = None
    id: str | None = None
    key: str | None = None


class StartRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A run to start."""

    tenant: str
    workflow: Workflow
    params: Mapping[str, Any] | msgspec.Struct
    """The params by name, or an instance of the workflow's class of params."""
    context: Mapping[str, Any] = {}
    """Values that `ctx["name"]` finds in addition to the params."""
    origin: RunOrigin = RunOrigin.MANUAL
    cause: RunCause | None = None
    """What starts the run, if it has a name or an id."""
    key: str | None = None
    """The schedule, trigger or backfill that starts the run; None for a manual start."""
    slot: datetime | None = None
    once_per_key: bool = False
    """Whether the key alone, such as the id of a firing, has at most one run."""
    digest: str | None = None
    at: datetime | None = None
    """When what starts the run happened; None: now."""
    dedup: str | None = None
    """What the run is about: see FireRow."""
    cooldown: timedelta | None = None
    backfill: str | None = None
    audit: Callable[[str], AuditRow] | None = None
    """Makes the entry of the audit log for the run with an id; it is written with the run."""
    about: str | None = None
    """See RunRow."""
    trace: TraceContext | None = None
    """The span that starts the run, if it is another one than that of the current context."""


class RunStarter:
    """Creates runs, through the coordinator while this node leads, else in the store."""

    def __init__(self, runtime: WorkflowRuntime, versions: WorkflowVersions, leader: LeaderState) -> None:
        self._runtime = runtime
        self._versions = versions
        self._leader = leader

    async def start(self, request: StartRequest) -> str | None:
        """Create a run and return its id; None if its slot or its payload already has one.

        WorkflowPausedError if its workflow is paused, StartSuppressedError if it is about something that has a run.
        The store decides, so both hold on every node immediately.
        """
        workflow, version = self._newest_version(request)
        starting = self._versions.starting
        starting[version] += 1  # a hot swap must not discard the version before the run is stored
        try:
            run = self._build_run(request, workflow, version)
            creation = NewRun(_build_fire(request, run), None if request.audit is None else request.audit(run.id))
            return run.id if await self._create(run, version, creation) else None
        finally:
            starting[version] -= 1

    def _newest_version(self, request: StartRequest) -> tuple[Workflow, VersionKey]:
        """Return the requested workflow, or the one that has replaced it since the request was made, and its version.

        OperationError if it was changed after it was loaded.
        """
        requested = request.workflow
        current = self._versions.current.get((request.tenant, requested.name))
        newest = None if current is None else self._versions.loaded.get(current)
        workflow = newest or requested
        version = VersionKey(request.tenant, workflow.name, workflow.wired().spec.version)
        if newest is requested and version != current:
            raise OperationError(
                f"workflow '{requested.name}' was changed after it was loaded: load it again, await node.load(...)"
            )
        return workflow, version

    def _build_run(self, request: StartRequest, workflow: Workflow, version: VersionKey) -> RunRow:
        now, cause = self._runtime.clock.now(), request.cause or RunCause()
        return RunRow(
            id=new_sortable_id(now),
            tenant=request.tenant,
            workflow=workflow.name,
            version=version.version,
            state=RunState.QUEUED,
            params=encode_params(workflow.params, request.params, context=request.context),
            origin=str(request.origin),
            created_at=now,
            slot=request.slot,
            max_active=workflow.max_active_runs,
            backfill=request.backfill,
            cause=cause.name,
            caused_by=cause.id,
            cause_key=cause.key,
            about=request.about,
            trace=self._new_trace(request) if self._runtime.spans.is_enabled else None,
        )

    def _new_trace(self, request: StartRequest) -> str:
        return StoredTrace.new(request.trace or CURRENT_TRACE.get()).to_text()

    async def _create(self, run: RunRow, version: VersionKey, creation: NewRun) -> bool:
        spec = self._versions.specs.get(version) or await self._versions.load_spec(version)
        coordinator = self._leader.coordinator
        if coordinator is not None and coordinator.accepts_runs and not coordinator.is_closed:
            try:
                return await coordinator.create(run, version, spec, creation)
            except LeadershipLostError:
                if run.origin in _LEADER_ONLY_ORIGINS:
                    raise
        runtime = self._runtime
        actor, fire = runtime.owner.id, creation.fire
        draft = RunDraft.for_new_run(run, new_task_rows(spec, runtime.executor_for), spec, actor=actor, fire=fire)
        outcome = await runtime.store.runs.apply(draft.build_change(), creation.audit)
        if isinstance(outcome, Refused) and outcome.reason == "paused":
            raise WorkflowPausedError(run.workflow)
        if isinstance(outcome, Refused) and outcome.reason == "suppressed":
            raise StartSuppressedError(run.workflow)
        return isinstance(outcome, Applied)


def _build_fire(request: StartRequest, run: RunRow) -> FireRow | None:
    if request.key is None:
        return None
    return FireRow(
        tenant=request.tenant,
        workflow=request.workflow.name,
        key=request.key,
        run=run.id,
        at=request.at or run.created_at,
        slot=ONCE_SLOT if request.once_per_key else request.slot,
        digest=request.digest,
        dedup=request.dedup,
        cooldown=request.cooldown,
    )


def params_digest(params: Mapping[str, Any]) -> str:
    """Return a digest that is equal for equal params, whatever the order of their names."""
    encoded = msgspec.json.encode(params, order="deterministic", enc_hook=repr)
    return sha256(encoded).hexdigest()
