"""Starting a run: from a workflow and its params to a run in the store.

On the node that plans, a run is made and begun in one change. On any other it is made, and the leader finds it.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import msgspec

from tidemill.engine.workflows.leader.coordinator import LeadershipLostError, RunCoordinator
from tidemill.engine.workflows.runtime import WorkflowRuntime
from tidemill.engine.workflows.versions import WorkflowVersions
from tidemill.kernel.errors import OperationError
from tidemill.kernel.ids import new_sortable_id
from tidemill.workflows.change import Applied, Refused
from tidemill.workflows.lookup import WorkflowPausedError
from tidemill.workflows.params import encode_params
from tidemill.workflows.records import FireRow, RunRow, VersionKey
from tidemill.workflows.run_draft import RunDraft
from tidemill.workflows.states import RunState
from tidemill.workflows.workflow import Workflow

ONCE_SLOT = datetime(1970, 1, 1, tzinfo=UTC)
"""The one slot of what happens once, so that when it is known to have happened does not matter."""
_LEADER_ONLY_ORIGINS = ("schedule", "trigger")
"""What only whoever is in office may start: the successor looks for itself what is due."""


class StartRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A run that somebody wants."""

    tenant: str
    workflow: Workflow
    params: Mapping[str, Any]
    origin: str = "manual"
    key: str | None = None
    """Which schedule, trigger or backfill it comes of; None if somebody asked by hand."""
    slot: datetime | None = None
    once_per_key: bool = False
    """Whether its key alone, such as the id of a firing, has one run for ever."""
    digest: str | None = None
    backfill: str | None = None


class RunStarter:
    """Makes runs."""

    def __init__(self, runtime: WorkflowRuntime, versions: WorkflowVersions) -> None:
        self._runtime = runtime
        self._versions = versions
        self.coordinator: RunCoordinator | None = None
        """Where runs are planned, if that is here."""

    async def start(self, request: StartRequest) -> str | None:
        """Make a run and return its id; None if its slot, or its payload, has one already.

        PausedError if its workflow is paused: the store knows, so that a pause holds on every node at once.
        """
        now = self._runtime.clock.now()
        version = self._requested_version(request)
        run = RunRow(
            id=new_sortable_id(now),
            tenant=request.tenant,
            workflow=request.workflow.name,
            version=version.version,
            state=RunState.QUEUED,
            params=encode_params(request.workflow.params, request.params),
            origin=request.origin,
            created_at=now,
            slot=request.slot,
            max_active=request.workflow.max_active_runs,
            backfill=request.backfill,
        )
        return run.id if await self._create(run, version, _build_fire(request, run)) else None

    def _requested_version(self, request: StartRequest) -> VersionKey:
        """Return the version of a workflow that is wanted; OperationError if its code is another than was loaded."""
        version = VersionKey(request.tenant, request.workflow.name, request.workflow.wired().spec.version)
        current = self._versions.current_version(request.tenant, request.workflow.name)
        if current is not None and current != version and self._versions.find_workflow(current) is request.workflow:
            message = (
                f"workflow '{request.workflow.name}' was changed after it was loaded: load it again, await "
                "node.load(...)"
            )
            raise OperationError(message)
        return version

    async def _create(self, run: RunRow, version: VersionKey, fire: FireRow | None) -> bool:
        spec = await self._versions.load_spec(version)
        desk = self.coordinator
        if desk is not None and not desk.is_closed:
            try:
                return await desk.create(run, spec, fire)
            except LeadershipLostError:
                if run.origin in _LEADER_ONLY_ORIGINS:
                    raise
        here = self._runtime
        draft = RunDraft.for_new_run(run, spec, executor_of=here.executor_for, actor=here.owner.id, fire=fire)
        told = await here.store.runs.apply(draft.build_change())
        if isinstance(told, Refused) and told.reason == "paused":
            raise WorkflowPausedError(run.workflow)
        return isinstance(told, Applied)


def _build_fire(request: StartRequest, run: RunRow) -> FireRow | None:
    if request.key is None:
        return None
    return FireRow(
        tenant=request.tenant,
        workflow=request.workflow.name,
        key=request.key,
        run=run.id,
        at=run.created_at,
        slot=ONCE_SLOT if request.once_per_key else request.slot,
        digest=request.digest,
    )


def params_digest(params: Mapping[str, Any]) -> str:
    """Return what is equal for equal params, however they were written."""
    encoded = msgspec.json.encode(params, order="deterministic", enc_hook=repr)
    return sha256(encoded).hexdigest()
