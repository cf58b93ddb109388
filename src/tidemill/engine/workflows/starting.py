"""Starting a run: from a workflow and its params to a run in the store.

On the node that plans, a run is made and begun in one change. On any other it is made, and the leader finds it.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import msgspec

from tidemill.engine.workflows.desk import DeposedError, Desk
from tidemill.engine.workflows.environment import Environment
from tidemill.engine.workflows.library import Library
from tidemill.kernel.errors import OperationError
from tidemill.kernel.ids import sortable
from tidemill.workflows.change import Applied, Refused
from tidemill.workflows.draft import Draft
from tidemill.workflows.naming import PausedError
from tidemill.workflows.params import read_params
from tidemill.workflows.records import FireRow, RunRow, VersionKey
from tidemill.workflows.states import RunState
from tidemill.workflows.workflow import Workflow

ONCE = datetime(1970, 1, 1, tzinfo=UTC)
"""The one slot of what happens once, so that when it is known to have happened does not matter."""
_OF_THE_OFFICE = ("schedule", "trigger")
"""What only whoever is in office may start: the successor looks for itself what is due."""


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """A run that somebody wants."""

    tenant: str
    workflow: Workflow
    params: Mapping[str, Any]
    origin: str = "manual"
    key: str | None = None
    """Which schedule, trigger or backfill it comes of; None if somebody asked by hand."""
    slot: datetime | None = None
    once: bool = False
    """Whether its key alone, such as the id of a firing, has one run for ever."""
    digest: str | None = None
    backfill: str | None = None


class Starter:
    """Makes runs."""

    def __init__(self, environment: Environment, library: Library) -> None:
        self._environment = environment
        self._library = library
        self.desk: Desk | None = None
        """Where runs are planned, if that is here."""

    async def start(self, wish: Wish) -> str | None:
        """Make a run and return its id; None if its slot, or its payload, has one already.

        PausedError if its workflow is paused: the store knows, so that a pause holds on every node at once.
        """
        now = self._environment.clock.now()
        version = self._version_of(wish)
        run = RunRow(
            id=sortable(now),
            tenant=wish.tenant,
            workflow=wish.workflow.name,
            version=version.version,
            state=RunState.QUEUED,
            params=read_params(wish.workflow.params, wish.params),
            origin=wish.origin,
            created_at=now,
            slot=wish.slot,
            max_active=wish.workflow.max_active_runs,
            backfill=wish.backfill,
        )
        return run.id if await self._make(run, version, _fire(wish, run)) else None

    def _version_of(self, wish: Wish) -> VersionKey:
        """Return the version of a workflow that is wanted; OperationError if its code is another than was loaded."""
        version = VersionKey(wish.tenant, wish.workflow.name, wish.workflow.wired().spec.version)
        current = self._library.current(wish.tenant, wish.workflow.name)
        if current is not None and current != version and self._library.workflow(current) is wish.workflow:
            message = (
                f"workflow '{wish.workflow.name}' was changed after it was loaded: load it again, await node.load(...)"
            )
            raise OperationError(message)
        return version

    async def _make(self, run: RunRow, version: VersionKey, fire: FireRow | None) -> bool:
        spec = await self._library.spec(version)
        desk = self.desk
        if desk is not None and not desk.is_closed:
            try:
                return await desk.create(run, spec, fire)
            except DeposedError:
                if run.origin in _OF_THE_OFFICE:
                    raise
        here = self._environment
        draft = Draft.of_new(run, spec, executor_of=here.executor_of, actor=here.owner.id, fire=fire)
        told = await here.store.runs.apply(draft.change())
        if isinstance(told, Refused) and told.why == "paused":
            raise PausedError(run.workflow)
        return isinstance(told, Applied)


def _fire(wish: Wish, run: RunRow) -> FireRow | None:
    if wish.key is None:
        return None
    return FireRow(
        tenant=wish.tenant,
        workflow=wish.workflow.name,
        key=wish.key,
        run=run.id,
        at=run.created_at,
        slot=ONCE if wish.once else wish.slot,
        digest=wish.digest,
    )


def digest_of(params: Mapping[str, Any]) -> str:
    """Return what is equal for equal params, however they were written."""
    encoded = msgspec.json.encode(params, order="deterministic", enc_hook=repr)
    return sha256(encoded).hexdigest()
