"""The node: the composition root. Takes settings, builds the engines, and runs them as one."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property, partial
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Self

from tidemill.engine.access.services import AccessServices
from tidemill.engine.graphs.checkpoints.checkpointer import Checkpointer, to_recovery
from tidemill.engine.graphs.durability.ownership import ReactorOwnership
from tidemill.engine.graphs.handle import ReactorHandle
from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.engine.graphs.scheduler import GraphScheduler
from tidemill.engine.registry import Registry
from tidemill.engine.tasks import TaskScope
from tidemill.engine.workflows.client.handle import RunHandle
from tidemill.engine.workflows.client.values import BackfillPlan, Caller
from tidemill.engine.workflows.client.workflow_client import WorkflowClient
from tidemill.engine.workflows.engine import WorkflowEngine
from tidemill.engine.workflows.executors.code import LoadedWorkflows, ensure_not_importing
from tidemill.engine.workflows.executors.in_process import InProcess
from tidemill.engine.workflows.executors.interface import AttemptListener, AttemptRequest, Executor
from tidemill.engine.workflows.executors.subprocess import Subprocess
from tidemill.engine.workflows.metrics import WORKFLOW_METRICS, WorkflowMetrics
from tidemill.engine.workflows.process_identity import current_owner
from tidemill.graphs.definition import Accumulator, Reactor
from tidemill.graphs.graph import Graph
from tidemill.graphs.pushes import ProducerPosition, PushSummary
from tidemill.graphs.result import Receipt
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import DefinitionError, RequestError
from tidemill.kernel.limits import validate_tenant
from tidemill.kernel.settings import Settings
from tidemill.kernel.suggestions import did_you_mean
from tidemill.node_arguments import check_count, check_format, check_pools, definition_name, parse_run_state
from tidemill.node_parts import NodeParts, import_store_class, make_store, with_absolute_path
from tidemill.packages.loading.reader import sort_for_loading
from tidemill.packages.service import PackageService
from tidemill.packages.standby import StandbyLoads
from tidemill.packages.status import PackageStatus, StatusListener
from tidemill.storage.store import Store
from tidemill.telemetry.metrics import GRAPH_METRICS, PACKAGE_METRICS, Collector, Metrics
from tidemill.workflows.node_calls import NodeCall, PushCall
from tidemill.workflows.states import RunState
from tidemill.workflows.workflow import Workflow

if TYPE_CHECKING:
    from tidemill.packages.reconcile.reconciler import Reconciler

__all__ = ["IDLE_CHECK_INTERVAL", "Node", "make_store"]

IDLE_CHECK_INTERVAL = 0.0005  # seconds between two checks whether the node is idle
RESTORED_RECOVERIES_LIMIT = 1000  # stored recoveries that are read back per tenant


class Node:
    """One running Tidemill, as an async context manager.

    `load` takes modules, definitions, and paths of package folders and archives. `store` is the address of a database,
    "sqlite:///path" or "postgresql://user@host:port/database"; without one, state is kept in memory and ends with the
    node. Tasks of workflows run at `executor` unless they name another one, at most `concurrency` at a time. `pools`
    sets the number of slots of pools: it is kept in the store, and holds for every process on it.
    """

    def __init__(
        self,
        store: str | None = None,
        *,
        load: Iterable[Any] = (),
        settings: Settings | Mapping[str, Any] | None = None,
        executor: str = "in_process",
        concurrency: int = 8,
        pools: Mapping[str, int] | None = None,
        tenant: str = "public",
    ) -> None:
        self.settings = Settings.read(settings)
        self.tenant = validate_tenant(tenant)
        self.registry = Registry(tenant)
        self._given_loads = (
            [load] if isinstance(load, Reactor | Graph | Workflow | ModuleType | str | Path) else list(load)
        )
        self._metrics = Metrics(GRAPH_METRICS | WORKFLOW_METRICS | PACKAGE_METRICS)
        parts = self._make_parts()
        clock, tasks = parts.clock, TaskScope()
        self._liveness = parts.liveness
        self._store = self._make_store(store)
        self._is_single_node = self._store is None if parts.is_single_node is None else parts.is_single_node
        self._concurrency = check_count("concurrency", concurrency)
        self._owner = current_owner(clock.now(), kind=parts.kind, name=parts.name, concurrency=concurrency)
        self._checkpointer = self._make_checkpointer(clock, tasks)
        self._graph_runtime = runtime = GraphRuntime(
            clock=clock, settings=self.settings, tasks=tasks, durability=self._checkpointer
        )
        self._run_store = self._store or self._make_memory_store()
        self._scheduler = GraphScheduler(runtime, self.registry, self._metrics, self._store)
        self._standby = StandbyLoads(runtime, self._scheduler, self._ownership)
        self._workflows = self._make_workflow_engine(clock, executor, check_pools(pools), store, parts)
        self._metrics.register(Collector(self._workflows.metrics, WorkflowMetrics.samples))
        runtime.subscribers = self._workflows.subscriptions
        self._workflows.on_shared = None if self._ownership is None else self._ownership.start_sharing
        self._workflows.subscriptions.connect(tasks, self._scheduler.refresh_subscribers, self.run_handle)
        self._packages = self._make_packages()
        self._restored_tenants: set[str] = set()
        self._is_open = self._was_opened = False

    def _make_parts(self) -> NodeParts:
        return NodeParts()

    def _make_store(self, address: str | None) -> Store | None:
        return None if address is None else make_store(address)

    def _make_checkpointer(self, clock: Clock, tasks: TaskScope) -> Checkpointer | None:
        self._ownership: ReactorOwnership | None = None
        if self._store is None:
            return None
        self._ownership = ReactorOwnership(
            self._store.part_owners,
            self._liveness.is_dead,
            owner=self._owner,
            ttl=self.settings.lease_ttl,
            is_shared=not self._is_single_node,
            clock=clock,
            tasks=tasks,
        )
        return Checkpointer(self._store, self._ownership, clock=clock, settings=self.settings, tasks=tasks)

    def _make_memory_store(self) -> Store:
        """Return the store of runs for a node without a database: it ends with the node."""
        return import_store_class("memory", "MemoryStore")(self._graph_runtime.clock.now)

    def _make_workflow_engine(
        self, clock: Clock, executor: str, pools: Mapping[str, int], address: str | None, parts: NodeParts
    ) -> WorkflowEngine:
        service = WorkflowEngine(
            self._run_store,
            self._make_executors,
            owner=self._owner,
            clock=clock,
            settings=self.settings,
            default_executor=executor,
            pools=pools,
            liveness=self._liveness,
            find_trigger=self.registry.trigger,
            is_single_node=self._is_single_node,
            assumed_pools=parts.assumed_pools,
            substitutes_executor=parts.substitutes_executor,
            make_heartbeat_store=None
            if self._is_single_node or address is None
            else partial(make_store, with_absolute_path(address)),
        )
        if executor not in service.executors:
            known = service.executors
            hint = did_you_mean(str(executor), known) or f"; there are {', '.join(sorted(known))}"
            raise DefinitionError.single("node", f"there is no executor {executor!r}{hint}")
        return service

    def _make_packages(self) -> PackageService:
        service = PackageService(
            self._run_store,
            self._graph_runtime,
            self.registry,
            self._scheduler,
            self._workflows,
            self._liveness,
        )
        service.installer.on_held_back = self._standby.wait
        self._metrics.register(Collector(service, PackageService.samples))
        return service

    def _make_executors(self, workflows: LoadedWorkflows, listener: AttemptListener) -> dict[str, Executor]:
        clock, concurrency = self._graph_runtime.clock, self._concurrency
        executors: list[Executor] = [
            InProcess(workflows, listener, clock, concurrency=concurrency, handle_call=self._handle_call),
            Subprocess(workflows, listener, clock, concurrency=concurrency, handle_call=self._handle_call),
        ]
        return {executor.name: executor for executor in executors}

    # -- opening and closing

    async def __aenter__(self) -> Self:
        ensure_not_importing()
        if self._was_opened:
            raise RequestError("a node runs once: make a new one", code="already_used", status=409)
        self._was_opened = True
        await self._run_store.open()
        await self._graph_runtime.tasks.open()
        self._is_open = True
        try:
            await self._start()
        except BaseException:
            await self._close()
            raise
        return self

    async def _start(self) -> None:
        """Load the given definitions. Nothing fires until all are loaded, so that restored inputs find their graphs."""
        self._graph_runtime.tasks.start("graph scheduler: watch", self._scheduler.watch_progress())
        if self._checkpointer is not None:
            await self._checkpointer.open()
        await self._workflows.open()
        await self._packages.recover()
        self._graph_runtime.is_starting_up = True
        await self._load_initial()
        await self._scheduler.checkpoint_loaded()
        self._graph_runtime.is_starting_up = False
        self._scheduler.activate()
        if self.settings.packages is not None:
            await self._packages.watch_folder(Path(self.settings.packages), self.tenant)
        if self.settings.load_published:
            await self._packages.watch_registry()

    async def _load_initial(self) -> None:
        loads = list(self._initial_loads())
        for thing, tenant in loads:
            if not isinstance(thing, str | Path):
                await self._standby.load_or_wait(partial(self._load, thing, tenant))
        for tenant in dict.fromkeys(tenant for _, tenant in loads):
            paths = [Path(thing) for thing, owner in loads if owner == tenant and isinstance(thing, str | Path)]
            if paths:
                await self._standby.load_or_wait(partial(self._load_paths, paths, tenant))

    async def _load_paths(self, paths: Sequence[Path], tenant: str) -> Mapping[Path, str]:
        return await self._packages.load_all(paths, tenant)

    def _initial_loads(self) -> Iterable[tuple[Any, str]]:
        """Return the definitions and paths to load at the start, each with its tenant."""
        return [(thing, self.tenant) for thing in sort_for_loading(self._given_loads)]

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()

    async def _close(self) -> None:
        if self._is_open:
            self._is_open = False
            await self._packages.stop()
            await self._workflows.close(self.settings.unload_timeout)
            await self._packages.close()
            await self._workflows.subscriptions.drain(self.settings.unload_timeout)
            await self._graph_runtime.tasks.close(self.settings.unload_timeout)
            await self._packages.remove_copies()
            if self._ownership is not None:
                self._ownership.close()
            await self._run_store.close()

    def _resolve_tenant(self, tenant: str | None) -> str:
        if not self._is_open:
            raise RequestError("the node is not running: use `async with tm.Node(...)`", code="not_running", status=409)
        return self.tenant if tenant is None else validate_tenant(tenant)

    @cached_property
    def access(self) -> AccessServices:
        """The tenants, API keys and audit log of this node's store."""
        return AccessServices(self._run_store, self._graph_runtime.clock, self.settings)

    # -- packages

    async def load(self, thing: Any, *, tenant: str | None = None, allow_downgrade: bool | None = None) -> str:
        """Load a module, a definition, or the path of a package folder or archive; return the package's name.

        If it is loaded already, it is hot-swapped. A version lower than an earlier one needs `allow_downgrade`, here or
        in the settings.
        """
        work = self._load(thing, self._resolve_tenant(tenant), allow_downgrade=allow_downgrade)
        return await self._graph_runtime.tasks.run_shielded("node: load", work)

    async def _load(self, thing: Any, tenant: str, *, allow_downgrade: bool | None = None) -> str:
        await self._restore_recoveries(tenant)
        return await self._packages.load(thing, tenant, allow_downgrade=allow_downgrade)

    async def _restore_recoveries(self, tenant: str) -> None:
        """Read a tenant's stored recoveries, once."""
        if self._store is not None and tenant not in self._restored_tenants:
            self._restored_tenants.add(tenant)
            stored = await self._store.recoveries.list_newest(tenant, RESTORED_RECOVERIES_LIMIT)
            self._graph_runtime.supervisor.load_history(tenant, [to_recovery(row) for row in stored])

    async def unload(self, name: str, *, tenant: str | None = None) -> None:
        """Unload a package by the name that `load` returned; refused while a folder or registry wants it loaded."""
        if not isinstance(name, str):
            raise RequestError(f"name the package to unload, as `load` returned it, not {name!r}", code="invalid_name")
        work = self._unload(name, self._resolve_tenant(tenant))
        await self._graph_runtime.tasks.run_shielded("node: unload", work)

    async def _unload(self, name: str, tenant: str) -> None:
        await self._packages.unload(name, tenant)

    async def watch_folder(
        self,
        path: str | Path,
        on_status: StatusListener | None = None,
        *,
        tenant: str | None = None,
        is_developer_code: bool = False,
    ) -> "Reconciler":
        """Load the packages of a folder, and reload them as they are saved; `on_status` receives their status changes.

        Developer code is probed with the environment of this process.
        """
        owner = self._resolve_tenant(tenant)
        return await self._packages.watch_folder(Path(path), owner, on_status, is_developer_code=is_developer_code)

    # -- events

    async def push(
        self, accumulator: str | Accumulator, event: Any, *, tenant: str | None = None, format: str = "json"
    ) -> Receipt:
        """Push an event, a Python value or bytes, and return its Receipt; waits while a blocking queue is full."""
        check_format(format)
        return await self._scheduler.accumulator(self._resolve_tenant(tenant), definition_name(accumulator)).push(
            event, format
        )

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
        check_format(format)
        found = self._scheduler.accumulator(self._resolve_tenant(tenant), definition_name(accumulator))
        return await found.push_many(list(events), format, position)

    def handle(self, accumulator: str | Accumulator, *, tenant: str | None = None) -> Callable[[Any], int | None]:
        """Return `push` without await, for hot loops on the loop's own thread.

        The callable returns the sequence number of the boundary it emitted, or None when nothing was emitted; it
        raises FullError where `push` would wait.
        """
        return self._scheduler.accumulator(self._resolve_tenant(tenant), definition_name(accumulator)).handle()

    def reactor(self, name: str, *, tenant: str | None = None) -> ReactorHandle:
        """Return a handle of a loaded reactor, to inspect and control it."""
        find = partial(self._scheduler.reactor, self._resolve_tenant(tenant), name)
        find()
        return ReactorHandle(find, self._packages.reclaim)

    async def restart_accumulator(self, name: str, *, tenant: str | None = None) -> None:
        """Restart an accumulator that the supervisor gave up, or one that hangs."""
        accumulator = self._scheduler.accumulator(self._resolve_tenant(tenant), name)
        for target, _ in accumulator.targets:
            target.reactor.check_owned()
        self._graph_runtime.supervisor.restart(accumulator)

    # -- workflows

    async def start(
        self,
        workflow: str | Workflow,
        given: Mapping[str, Any] | None = None,
        /,
        *,
        tenant: str | None = None,
        **params: Any,
    ) -> RunHandle:
        """Start a run of a loaded workflow with these params.

        `given` takes params as a mapping, for a param named `tenant` for example.
        """
        if not isinstance(given, Mapping | None):
            message = f"params are keywords, or a mapping by their names, not {given!r}"
            raise RequestError(message, code="invalid_params", status=400)
        caller = self._caller(tenant)
        run = await self._workflows.client.start(caller, definition_name(workflow), {**(given or {}), **params})
        return RunHandle(self._workflows.client, caller, run)

    async def _handle_call(self, request: AttemptRequest, call: NodeCall) -> Receipt | RunHandle:
        """Make a call of a running task, for its tenant."""
        if isinstance(call, PushCall):
            return await self.push(call.accumulator, call.event, tenant=request.tenant, format=call.format)
        caller, key = self._caller(request.tenant), call.key_for(request.key)
        run = await self._workflows.client.start(caller, call.workflow, call.params, task_key=key)
        return RunHandle(self._workflows.client, caller, run)

    def _caller(self, tenant: str | None) -> Caller:
        return Caller(self._resolve_tenant(tenant), self._workflows.owner.id)

    def run_handle(self, id: str, *, tenant: str | None = None) -> RunHandle:
        """Return a handle on a run of a tenant by its id; the first call of the handle checks that it exists."""
        caller = Caller(self.tenant if tenant is None else validate_tenant(tenant), self._workflows.owner.id)
        return RunHandle(self._workflows.client, caller, id)

    async def runs(
        self,
        workflow: str | Workflow | None = None,
        state: RunState | str | None = None,
        limit: int = 1000,
        *,
        tenant: str | None = None,
    ) -> list[RunHandle]:
        """Return the newest `limit` runs, oldest first, of any origin."""
        name = None if workflow is None else definition_name(workflow)
        states = [] if state is None else [parse_run_state(state)]
        caller = self._caller(tenant)
        rows = await self._workflows.client.find_runs(caller, name, states, limit)
        return [RunHandle(self._workflows.client, caller, row.id) for row in rows]

    async def pause(self, workflow: str | Workflow, *, tenant: str | None = None) -> None:
        """Pause a workflow: no run and no task of it starts; running tasks continue."""
        await self._workflows.client.pause(self._caller(tenant), definition_name(workflow))

    async def resume(self, workflow: str | Workflow, *, tenant: str | None = None) -> None:
        """Resume a paused workflow."""
        await self._workflows.client.resume(self._caller(tenant), definition_name(workflow))

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
        return await self._workflows.client.backfill(
            self._caller(tenant),
            definition_name(workflow),
            start,
            end,
            preview=preview,
            only_missing=only_missing,
            limit=limit,
            key=key,
        )

    async def cancel_backfill(self, id: str, *, tenant: str | None = None) -> int:
        """Start no more runs of a backfill and cancel its active ones; return the number of these."""
        return await self._workflows.client.cancel_backfill(self._caller(tenant), id)

    # -- services, for the server

    @property
    def store(self) -> Store:
        """The store of the node: in memory if no address was given."""
        return self._run_store

    @property
    def workflow_client(self) -> WorkflowClient:
        """The client of the node's workflows and runs, for callers of any tenant."""
        return self._workflows.client

    @property
    def graph_scheduler(self) -> GraphScheduler:
        """The scheduler of the node's reactors and accumulators."""
        return self._scheduler

    @property
    def package_service(self) -> PackageService:
        """The packages of the node."""
        return self._packages

    # -- status

    def packages(self) -> list[PackageStatus]:
        """Return the status of every package that is loaded or wanted, of every tenant."""
        return self._packages.status()

    def metrics(self) -> dict[str, float]:
        """Return the value of every metric by name, summed over labels; 0 if it was never incremented."""
        return self._metrics.by_name()

    async def settle(self) -> None:
        """Wait until the node is idle: no event in process, no firing running or due, no unsaved change.

        Does not wait for a checkpoint whose write has failed.
        """
        await self._wait_until_idle()
        while self._checkpointer is not None and self._checkpointer.has_pending_changes:
            await self._checkpointer.write()
            await self._wait_until_idle()
            if self._checkpointer.last_write_failed:
                return

    async def _wait_until_idle(self) -> None:
        idle_checks = 0
        while idle_checks < 3:
            await asyncio.sleep(0 if self._is_idle else IDLE_CHECK_INTERVAL)  # real time: it waits for work, not time
            idle_checks = idle_checks + 1 if self._is_idle else 0

    @property
    def _is_idle(self) -> bool:
        is_idle = self._scheduler.is_idle and self._workflows.is_idle and self._packages.is_idle
        return is_idle and (self._checkpointer is None or self._checkpointer.is_idle)
