"""The operations of a running node: the calls that programs make, and the services that the server uses."""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from functools import cached_property, partial
from typing import Any

from tidemill.access.principal import Caller, Principal, Role
from tidemill.api.accumulators import restart_accumulator
from tidemill.api.backfills import BackfillInfo, cancel_backfill
from tidemill.api.handles import AsyncAccumulatorHandle, AsyncReactorHandle, AsyncRun, name_of
from tidemill.api.local import LocalApi
from tidemill.api.runs import list_runs
from tidemill.api.services import NodeServices, Services
from tidemill.api.waits import Wait, list_waits
from tidemill.api.workflows import WorkflowDetails, set_workflow_paused
from tidemill.engine.forwarding.router import OwnerRouter
from tidemill.engine.graphs.client.graph_client import GraphClient
from tidemill.engine.graphs.client.partitioned_handle import PartitionedHandle
from tidemill.engine.graphs.handle import ReactorHandle
from tidemill.engine.graphs.loaded_graphs import PushNow, check_whole, partition_named_error
from tidemill.engine.workflows.client.workflow_client import WorkflowClient
from tidemill.engine.workflows.executors.interface import AttemptRequest
from tidemill.engine.workflows.remote_reports import RemoteReports
from tidemill.engine.workflows.starts.starter import RunCause, RunOrigin
from tidemill.graphs.definition import Accumulator
from tidemill.graphs.health import ReactorHealth
from tidemill.graphs.outcomes import Receipt
from tidemill.graphs.pushes import ProducerPosition, PushHandle, PushSummary, list_events
from tidemill.graphs.views import AccumulatorDetails
from tidemill.kernel.errors import RequestError
from tidemill.kernel.limits import validate_tenant
from tidemill.node_parts import NodeParts
from tidemill.packages.service import PackageService
from tidemill.packages.status import PackageStatus
from tidemill.packages.uploads import PackageUploads
from tidemill.storage.graph_ports import PartKey
from tidemill.storage.store import Store
from tidemill.telemetry.log_context import outside_attempt
from tidemill.telemetry.metrics import Metrics
from tidemill.telemetry.tracing import TraceContext, trace_scope
from tidemill.workflows.node_calls import NodeCall, OwnCall, PushCall, SecretCall, VariableCall
from tidemill.workflows.slots import BackfillPlan
from tidemill.workflows.states import RunState
from tidemill.workflows.waits import WaitState
from tidemill.workflows.workflow import Workflow


class NodeOperations:
    """What a running node does for its callers. `Node` opens and closes the parts that are used here."""

    def __init__(self, parts: NodeParts) -> None:
        self._parts = parts
        base = parts.foundation
        self.settings, self.tenant, self.registry = base.settings, base.tenant, base.registry
        self.access, self.spans, self.event_feed = base.access, base.spans, parts.event_feed
        self.history = parts.history
        """What the figures of this node were in the last day."""
        self._clock, self._metrics, self._owner = base.clock, base.metrics, base.owner
        self._run_store, self._checkpointer = base.run_store, base.checkpointer
        self._workflows, self._packages = parts.workflows, parts.packages
        self._graph_runtime, self._scheduler, self._graph_client = (
            parts.graph_runtime,
            parts.scheduler,
            parts.graph_client,
        )
        self._is_open = self._is_serving = False

    @cached_property
    def _direct_pushes(self) -> dict[str, PushNow]:
        """Where pushes to the accumulators of this node's tenant go that need not wait; empty unless it is open."""
        return self._scheduler.loaded.direct_pushes(self.tenant)

    def _resolve_tenant(self, tenant: str | None) -> str:
        if not self._is_open:
            raise RequestError("the node is not running: use `async with tm.Node(...)`", code="not_running", status=503)
        return self.tenant if tenant is None else validate_tenant(tenant)

    # -- events

    async def push(
        self, accumulator: str | Accumulator, event: Any, *, tenant: str | None = None, format: str = "json"
    ) -> Receipt:
        """Push an event, a Python value or bytes, and return its Receipt; waits while a blocking queue is full."""
        name = accumulator if accumulator.__class__ is str else name_of(accumulator)
        push_now = self._direct_pushes.get(name) if tenant is None and format == "json" else None
        if push_now is not None and (direct := push_now(event)) is not None:
            return direct
        return await self._push_found(name, event, tenant, format)

    async def _push_found(self, name: str, event: Any, tenant: str | None, format: str) -> Receipt:
        """Push an event to its accumulator, here or at its owner, which may have to wait."""
        if format != "json":
            _check_format(format)
        owner = self._resolve_tenant(tenant)
        try:
            found = self._scheduler.loaded.accumulator(owner, name)
        except RequestError:  # raised again if no other node owns it
            return await self._graph_client.push(self._caller(tenant), name, event, format)
        if found.intake.definition.partition is not None:
            raise partition_named_error(PartKey(owner, "accumulator", name))
        if found.paths.direct_class is not None and owner == self.tenant:
            self._direct_pushes[name] = found.paths.push_now
        receipt = await found.pushes.push(event, format)
        if receipt.accepted or not found.is_fenced:
            return receipt
        return await self._graph_client.push(self._caller(tenant), name, event, format)

    async def push_many(
        self,
        accumulator: str | Accumulator,
        events: Iterable[Any],
        *,
        position: ProducerPosition | None = None,
        tenant: str | None = None,
        format: str = "json",
    ) -> PushSummary:
        """Push events in order, and return their receipts; with durability="boundary" they share commits.

        `position` numbers the push: one with a number that its client has used before, or a lower one, is not applied
        again, and gets the same answer. With durability="boundary" this holds after crashes too.
        """
        _check_format(format)
        name = name_of(accumulator)
        return await self._graph_client.push_many(self._caller(tenant), name, list_events(events), format, position)

    def handle(self, accumulator: str | Accumulator, *, tenant: str | None = None) -> PushHandle:
        """Return `push` without await, for hot loops on the loop's own thread.

        The callable returns the sequence number of the boundary it emitted, or None when nothing was emitted; its
        `many` takes many events and returns a PushSummary. Both raise FullError where `push` would wait.
        """
        owner, name = self._resolve_tenant(tenant), name_of(accumulator)
        if (owner, name) in self._scheduler.loaded.keyed_accumulators:
            return self._scheduler.loaded.front_path(owner, name).handle()
        check_whole(PartKey(owner, "accumulator", name))
        return self._scheduler.loaded.accumulator(owner, name).handle()

    def reactor(self, name: str, *, tenant: str | None = None) -> ReactorHandle:
        """Return a handle of a loaded reactor, to inspect and control it."""
        owner = self._resolve_tenant(tenant)
        if (owner, name) in self._scheduler.loaded.keyed:
            find_keyed = partial(self._scheduler.loaded.find_keyed, owner, name)
            return PartitionedHandle(find_keyed, self._scheduler, self._parts.operations.keyed, self._packages.reclaim)
        find = partial(self._scheduler.loaded.reactor, owner, name)
        if find().definition.partition is not None:
            raise partition_named_error(PartKey(owner, "reactor", name))
        return ReactorHandle(find, self._packages.reclaim)

    def reactor_anywhere(self, name: str, *, tenant: str | None = None) -> AsyncReactorHandle:
        """Return a handle of a reactor that some node on the store runs; `client.reactor(name)` returns the same."""
        return AsyncReactorHandle(self._admin_api(tenant), name)

    def accumulator(self, accumulator: str | Accumulator, *, tenant: str | None = None) -> AsyncAccumulatorHandle:
        """Return a handle of an accumulator, to inspect and control it; `client.accumulator(name)` returns the same."""
        return AsyncAccumulatorHandle(self._admin_api(tenant), name_of(accumulator))

    def _admin_api(self, tenant: str | None) -> LocalApi:
        caller = self._caller(tenant)
        return LocalApi(self.services, Principal(caller.tenant, caller.actor, role=Role.ADMIN))

    async def restart_accumulator(self, name: str, *, tenant: str | None = None) -> AccumulatorDetails:
        """Restart an accumulator that the supervisor gave up, or one that hangs."""
        return await self._api(self._caller(tenant)).call(restart_accumulator, {"name": name})

    # -- workflows

    async def start(
        self,
        workflow: str | Workflow,
        given: Mapping[str, Any] | None = None,
        /,
        *,
        tenant: str | None = None,
        **params: Any,
    ) -> AsyncRun:
        """Start a run of a loaded workflow with these params.

        `given` takes params as a mapping, for a param named `tenant` for example.
        """
        if not isinstance(given, Mapping | None):
            message = f"params are keywords, or a mapping by their names, not {given!r}"
            raise RequestError(message, code="invalid_params", status=400)
        caller = self._caller(tenant)
        run = await self._workflows.client.changes.start(caller, name_of(workflow), {**(given or {}), **params})
        return AsyncRun(self._api(caller), run)

    async def handle_call(self, request: AttemptRequest, call: NodeCall) -> Any:
        """Make a call of a running task, for its tenant; RequestError if its package lacks the capability."""
        if request.grants is not None:
            request.grants.check(call)
        with outside_attempt():
            return await self._make_call(request, call)

    async def _make_call(self, request: AttemptRequest, call: NodeCall) -> Any:
        if isinstance(call, OwnCall):
            return await self._workflows.step_records.answer(request, call)
        match call:
            case PushCall():
                return await self.push(call.accumulator, call.event, tenant=request.tenant, format=call.format)
            case SecretCall():
                return await self.access.secrets.reveal(request.tenant, call.name)
            case VariableCall():
                return await self.access.variables.read(request.tenant, call.name)
        caller, key = self._caller(request.tenant), call.key_for(request.key)
        cause = RunCause(request.workflow, request.key.run)
        with trace_scope(None if request.trace is None else TraceContext.parse(request.trace)):
            run = await self._workflows.client.changes.start(
                caller, call.workflow, call.params, once=key, origin=RunOrigin.TASK, cause=cause
            )
        return AsyncRun(self._api(caller), run)

    def _api(self, caller: Caller) -> LocalApi:
        """Return what carries operations out for a tenant; those of the program itself are not audited."""
        principal = Principal(caller.tenant, caller.actor, role=Role.ADMIN)
        return LocalApi(self.services, principal, is_audited=False)

    def _caller(self, tenant: str | None) -> Caller:
        return Caller(self._resolve_tenant(tenant), self._workflows.owner.id)

    def run_handle(self, id: str, *, tenant: str | None = None) -> AsyncRun:
        """Return a handle on a run of a tenant by its id; the first call of the handle checks that it exists."""
        caller = Caller(self.tenant if tenant is None else validate_tenant(tenant), self._workflows.owner.id)
        return AsyncRun(self._api(caller), id)

    async def runs(
        self,
        workflow: str | Workflow | None = None,
        state: RunState | str | Collection[RunState | str] | None = None,
        limit: int | None = 50,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        text: str = "",
        tag: str = "",
        cause: str = "",
        key: str = "",
        unresolved: bool = False,
        tenant: str | None = None,
    ) -> list[AsyncRun]:
        """Return the newest runs, newest first; `limit=None` for all.

        `text` is a part of an id, a workflow, a note, or a param; `tag` is one of the workflow. `cause` is what started
        the run, such as "schedule", or its name, such as that of a trigger or reactor. `key` is that of a schedule,
        what `dedup` says, or the id of a backfill. `unresolved` leaves the failed runs that need a person.
        """
        name, api = None if workflow is None else name_of(workflow), self._api(self._caller(tenant))
        fields: dict[str, object] = {"workflow": name, "state": state, "since": since, "until": until, "text": text}
        fields |= {"tag": tag, "cause": cause, "key": key, "unresolved": unresolved}
        return [AsyncRun(api, one.id, one) for one in await api.collect(list_runs, fields, limit)]

    async def waits(
        self,
        run: str | AsyncRun | None = None,
        workflow: str | Workflow | None = None,
        state: WaitState | None = "open",
        *,
        tenant: str | None = None,
    ) -> list[Wait]:
        """Return what tasks have asked, oldest first: what is open, or with another state, None for all."""
        fields = {
            "run": run.id if isinstance(run, AsyncRun) else run or "",
            "workflow": "" if workflow is None else name_of(workflow),
            "state": state or "all",
        }
        return await self._api(self._caller(tenant)).collect(list_waits, fields, None)

    async def answer(
        self,
        id: str,
        value: Any,
        *,
        variant: str | None = None,
        comment: str = "",
        by: str = "",
        tenant: str | None = None,
    ) -> Wait:
        """Answer an open wait, and return it. `by` is recorded, not checked: the program owns the store."""
        caller = self._caller(tenant)
        return Wait.of_row(
            await self._workflows.client.waits.answer(caller, id, value, variant=variant, comment=comment, by=by)
        )

    async def pause(self, workflow: str | Workflow, *, tenant: str | None = None) -> WorkflowDetails:
        """Pause a workflow: no run and no task of it starts; running tasks continue."""
        return await self._set_paused(workflow, tenant, paused=True)

    async def resume(self, workflow: str | Workflow, *, tenant: str | None = None) -> WorkflowDetails:
        """Resume a paused workflow."""
        return await self._set_paused(workflow, tenant, paused=False)

    async def _set_paused(self, workflow: str | Workflow, tenant: str | None, *, paused: bool) -> WorkflowDetails:
        fields = {"name": name_of(workflow), "paused": paused}
        return await self._api(self._caller(tenant)).call(set_workflow_paused, fields)

    async def backfill(
        self,
        workflow: str | Workflow,
        start: datetime,
        end: datetime,
        *,
        preview: bool = False,
        only_missing: bool = True,
        limit: int = 1,
        key: str | None = None,
        tenant: str | None = None,
    ) -> BackfillPlan:
        """Start a run for every slot of a workflow's schedule in [start, end], at most `limit` at a time.

        Slots that already have a run are left out unless `only_missing` is False. With `preview` nothing is started.
        """
        return await self._workflows.client.backfills.start(
            self._caller(tenant),
            name_of(workflow),
            start,
            end,
            preview=preview,
            only_missing=only_missing,
            limit=limit,
            key=key,
        )

    async def cancel_backfill(self, id: str, *, tenant: str | None = None) -> BackfillInfo:
        """Start no more runs of a backfill and cancel its active ones; return it with the states of its runs."""
        return await self._api(self._caller(tenant)).call(cancel_backfill, {"id": str(id)})

    # -- services, for the server

    def start_serving(self) -> None:
        """Follow changes of keys and sessions, and keep the history of rates, as a server does; once for a node."""
        if not self._is_serving:
            self._is_serving = True
            self._graph_runtime.tasks.start("server: access", self.access.run())
            self.history.start()

    @property
    def server_url(self) -> str | None:
        """The address of a server that units of a cluster can reach; None if none is known."""
        return self._parts.foundation.address.url

    def suggest_server_url(self, url: str | None) -> None:
        """Let units of a cluster reach a server of this node at an address, unless the settings name one."""
        self._parts.foundation.address.suggest(url)

    @property
    def is_running(self) -> bool:
        """Whether the node was started and is not closing."""
        return self._is_open

    @property
    def store(self) -> Store:
        """The store of the node: in memory if no address was given."""
        return self._run_store

    @property
    def remote_reports(self) -> RemoteReports:
        """Takes the reports of remote attempts."""
        return self._workflows.remote_reports

    @cached_property
    def services(self) -> Services:
        """What operations call on this node."""
        return Services(
            access=self.access,
            workflows=self.workflow_client,
            package_registry=PackageUploads(self._packages, self._clock, self.settings),
            store=self.store,
            settings=self.settings,
            node=NodeServices(self._graph_client, self._packages, self._metrics, self.history),
        )

    @property
    def forwarding(self) -> OwnerRouter | None:
        """Reaches other nodes, and serves what they ask; None for a node without a store."""
        router = self._parts.router
        return router if isinstance(router, OwnerRouter) else None

    @property
    def workflow_client(self) -> WorkflowClient:
        """The client of the node's workflows and runs, for callers of any tenant."""
        return self._workflows.client

    @property
    def graph_client(self) -> GraphClient:
        """The client of the node's graphs, reactors and accumulators, for callers of any tenant."""
        return self._graph_client

    @property
    def package_service(self) -> PackageService:
        """The packages of the node."""
        return self._packages

    @property
    def metrics_registry(self) -> Metrics:
        """The metrics of the node with their labels."""
        return self._metrics

    def count_reactors(self, health: ReactorHealth) -> int:
        """Return how many loaded reactors of all tenants have a health."""
        return sum(one.health is health for one in self._scheduler.loaded.reactors)

    def packages(self) -> list[PackageStatus]:
        """Return the status of every package that is loaded or wanted, of every tenant."""
        return self._packages.status()

    def find_unsettled_packages(self) -> str:
        """Return what is left to do before every package that was wanted at the start has been tried; "" if nothing."""
        return self._packages.find_unsettled()

    def count_unreadable_package_sources(self) -> int:
        """Return the number of package sources that cannot be read at present."""
        return self._packages.count_unreadable_sources()

    def metrics(self) -> dict[str, float]:
        """Return the value of every metric by name, summed over labels; 0 if it was never incremented."""
        return self._metrics.by_name()


def _check_format(format: str) -> None:
    if format not in ("json", "msgpack"):
        raise RequestError(f"format is 'json' or 'msgpack', not {format!r}", code="invalid_format")
