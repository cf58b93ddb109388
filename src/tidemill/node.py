"""The node: the composition root. Takes settings, builds the engines, and runs them as one."""

import asyncio
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from tidemill.access.secret_source import SecretSource
from tidemill.engine.access.given_values import read_given_values
from tidemill.engine.event_feed.feed import EventFeed
from tidemill.engine.forwarding.router import OwnerRouter
from tidemill.engine.graphs.checkpoints.checkpointer import Checkpointer, to_recovery
from tidemill.engine.graphs.client.graph_client import GraphClient
from tidemill.engine.graphs.client.operations import GraphOperations
from tidemill.engine.graphs.client.routing import LocalRouter, OperationRouter
from tidemill.engine.graphs.durability.ownership import ReactorOwnership
from tidemill.engine.graphs.metrics import GRAPH_METRICS, FigureReader, ReaderMetrics, count_firings
from tidemill.engine.graphs.partitions.shared import SharedPartitions
from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.engine.graphs.scheduler import GraphScheduler
from tidemill.engine.history import History, Reading
from tidemill.engine.loop_watch import LoopWatch
from tidemill.engine.registry import Registry
from tidemill.engine.tasks import TaskScope
from tidemill.engine.workflows.engine import WorkflowEngine
from tidemill.engine.workflows.executors.code import LoadedWorkflows, ensure_not_importing
from tidemill.engine.workflows.executors.in_process import InProcess
from tidemill.engine.workflows.executors.interface import AttemptListener, Executor
from tidemill.engine.workflows.executors.remote.executor import RemoteExecutor
from tidemill.engine.workflows.executors.remote.interface import AttemptLauncher
from tidemill.engine.workflows.executors.subprocess import Subprocess
from tidemill.engine.workflows.metrics import GAUGES_OVER_TIME, WORKFLOW_METRICS, WorkflowMetrics
from tidemill.engine.workflows.runtime import PoolSizes, StoreSharing, WorkflowRuntime
from tidemill.kernel.concurrency import call_in_new_thread
from tidemill.kernel.errors import DefinitionError, RequestError
from tidemill.kernel.ids import new_instance_id
from tidemill.kernel.limits import DEFAULT_CONCURRENCY, validate_tenant
from tidemill.kernel.settings import Settings
from tidemill.kernel.suggestions import did_you_mean
from tidemill.node_arguments import check_count, check_pools, list_loads
from tidemill.node_operations import NodeOperations
from tidemill.node_parts import NodeParts, make_memory_store, make_ray_hosts, make_store, with_absolute_path
from tidemill.packages.loading.reader import PackageScope, sort_for_loading
from tidemill.packages.service import PackageService
from tidemill.packages.standby import StandbyLoads
from tidemill.packages.status import PACKAGE_METRICS, StatusListener
from tidemill.storage.store import Store
from tidemill.telemetry import events
from tidemill.telemetry.author_output import AUTHOR_OUTPUT
from tidemill.telemetry.metrics import Collector, Metrics
from tidemill.telemetry.node_events import NodeEvents
from tidemill.telemetry.otlp_spans import make_span_recorder

if TYPE_CHECKING:
    from tidemill.engine.ray.hosts import RayHosts
    from tidemill.packages.reconcile.reconciler import Reconciler

logger = logging.getLogger(__name__)

__all__ = ["IDLE_CHECK_INTERVAL", "Node", "make_store"]

IDLE_CHECK_INTERVAL = 0.0005  # seconds between two checks whether the node is idle
PACKAGE_SCOPES: Mapping[str, PackageScope] = {"worker": "tasks", "host": "partitions"}
"""What nodes load of packages, by their kind, if it is not everything."""
RESTORED_RECOVERIES_LIMIT = 1000  # stored recoveries that are read back per tenant


class Node(NodeOperations):
    """One running Tidemill, as an async context manager.

    `load` takes modules, definitions, and paths of package folders and archives. `store` is the address of a database,
    "sqlite:///path" or "postgresql://user@host:port/database"; without one, state is kept in memory and ends with the
    node. Tasks of workflows run at `executor` unless they name another one, at most `concurrency` at a time; by default
    8, and 16 coroutines. `pools` sets the number of slots of pools: it is kept in the store, and holds for every
    process on it. Tasks of this node read `variables` and `secrets` before those of the store, with `ctx.variable` and
    `ctx.secret`; `secrets` may be a SecretSource.
    """

    def __init__(
        self,
        store: str | None = None,
        *,
        load: Iterable[Any] = (),
        settings: Settings | Mapping[str, Any] | None = None,
        executor: str = "in_process",
        concurrency: int = DEFAULT_CONCURRENCY,
        pools: Mapping[str, int] | None = None,
        tenant: str = "public",
        variables: Mapping[str, Any] | None = None,
        secrets: Mapping[str, str] | SecretSource | None = None,
    ) -> None:
        self.settings = Settings.read(settings)
        self.tenant = validate_tenant(tenant)
        self._given_values = read_given_values(variables, secrets, self.tenant, os.environ, self.settings)
        self.registry = Registry(tenant)
        self._given_loads = list_loads(load)
        self._metrics = Metrics((*GRAPH_METRICS, *WORKFLOW_METRICS, *PACKAGE_METRICS))
        parts = self._make_parts()
        self._clock, tasks = parts.clock, TaskScope()
        self._node_events = NodeEvents(parts.clock)
        self._liveness, self.server_url = parts.liveness, self.settings.server_url
        self.spans = parts.spans or make_span_recorder(self.settings.otlp_endpoint)
        self._store = self._make_store(store)
        self._is_single_node = self._store is None if parts.is_single_node is None else parts.is_single_node
        self._concurrency = check_count("concurrency", concurrency)
        self._owner = parts.make_owner(int(concurrency))
        self._checkpointer = self._make_checkpointer(tasks)
        self._run_store = self._store or self._make_memory_store()
        self._workflows = self._make_workflow_engine(executor, check_pools(pools), store, parts, tasks)
        self._graph_runtime = runtime = self._make_graph_runtime(tasks)
        self._scheduler = GraphScheduler(runtime, self.registry, self._metrics, self._store)
        self._standby = StandbyLoads(runtime, self._scheduler, self._ownership)
        self._packages = self._make_packages()
        self._graph_client = self._make_graph_client(tasks)
        self._loop_watch = self._make_loop_watch(store) if parts.watches_loop else None
        self.event_feed = self._make_event_feed(tasks)
        self._restored_tenants: set[str] = set()
        self._is_open = self._was_opened = False

    def _make_parts(self) -> NodeParts:
        return NodeParts()

    def _make_store(self, address: str | None) -> Store | None:
        return None if address is None else make_store(address)

    def _make_checkpointer(self, tasks: TaskScope) -> Checkpointer | None:
        self._ownership: ReactorOwnership | None = None
        if self._store is None:
            return None
        self._ownership = ReactorOwnership(
            self._store.part_owners,
            self._liveness.is_dead,
            owner=self._owner,
            ttl=self.settings.lease_ttl,
            is_shared=not self._is_single_node,
            clock=self._clock,
            tasks=tasks,
        )
        return Checkpointer(self._store, self._ownership, clock=self._clock, settings=self.settings, tasks=tasks)

    def _make_memory_store(self) -> Store:
        """Return the store of runs for a node without a database: it ends with the node."""
        return make_memory_store(self._clock.now)

    def _make_workflow_engine(
        self, executor: str, pools: Mapping[str, int], address: str | None, parts: NodeParts, tasks: TaskScope
    ) -> WorkflowEngine:
        self._launchers = parts.make_launchers(self.settings, self._clock)
        self._ray_hosts = self._make_ray_hosts(address)
        is_shared, ownership = not self._is_single_node, self._ownership
        runtime = WorkflowRuntime(
            metrics=WorkflowMetrics(self.settings.metric_series),
            store=self._run_store,
            owner=self._owner,
            clock=self._clock,
            settings=self.settings,
            node_events=self._node_events,
            spans=self.spans,
            liveness=self._liveness,
            default_executor=executor,
            pools=PoolSizes(self._run_store.pools, pools, parts.assumed_pools),
            sharing=StoreSharing(is_shared=is_shared, on_begun=None if ownership is None else ownership.start_sharing),
            substitutes_executor=parts.substitutes_executor,
        )
        service = WorkflowEngine(
            runtime,
            self._make_executors,
            self.registry.triggers.find,
            delivery_tasks=tasks,
            make_handle=self.run_handle,
        )
        if executor not in service.executors and self._owner.plans:
            known = service.executors
            hint = did_you_mean(str(executor), known) or f"; there are {', '.join(sorted(known))}"
            raise DefinitionError.single("node", f"there is no executor {executor!r}{hint}")
        self._metrics.register(Collector(service, WorkflowEngine.samples))
        return service

    def _make_graph_runtime(self, tasks: TaskScope) -> GraphRuntime:
        return GraphRuntime(
            clock=self._clock,
            settings=self.settings,
            tasks=tasks,
            durability=self._checkpointer,
            node_events=self._node_events,
            subscribers=self._workflows.subscriptions,
            mask=self.access.secrets.mask,
        )

    def _make_ray_hosts(self, address: str | None) -> "RayHosts | None":
        if address is None or not self._owner.plans:
            return None
        return make_ray_hosts(self.settings, self._clock, address, self._is_leader)

    def _is_leader(self) -> bool:
        return self._workflows.leader.coordinator is not None

    def _make_packages(self) -> PackageService:
        service = PackageService(
            self._run_store,
            self._graph_runtime,
            self.registry,
            self._scheduler,
            self._workflows,
            self._liveness,
            self._standby,
            scope=PACKAGE_SCOPES.get(self._owner.kind, "all"),
        )
        self._metrics.register(Collector(service, PackageService.samples))
        self._workflows.runtime.pools.listen(service.on_pools_found)
        return service

    def _make_loop_watch(self, address: str | None) -> LoopWatch:
        leases, ownership = self._workflows.held_leases(), self._ownership
        make_other = None if address is None else partial(make_store, with_absolute_path(address))
        return LoopWatch(
            self.settings,
            leases if ownership is None else [*leases, ownership.held],
            None if self._is_single_node else make_other,
            self._workflows.metrics.increment,
            self._workflows.attempts.on_loop_blocked,
        )

    def _make_event_feed(self, tasks: TaskScope) -> EventFeed:
        return EventFeed(
            self._run_store,
            self._workflows.notifier,
            self._node_events,
            lambda: count_firings(self._scheduler.loaded.reactors),
            clock=self._clock,
            tasks=tasks,
        )

    def _make_history(self, tasks: TaskScope) -> History:
        reactors, gauge = FigureReader(), self._workflows.metrics.gauge

        def read() -> Iterator[Reading]:
            gauges = ((name, gauge(name)) for name in GAUGES_OVER_TIME)
            yield from (Reading((), name, value, is_counter=False) for name, value in gauges if value is not None)
            yield from reactors.read(self._scheduler.loaded.reactors)

        return History(read, self._clock, tasks)

    def _make_graph_client(self, tasks: TaskScope) -> GraphClient:
        self.history = self._make_history(tasks)
        here = GraphOperations(self._scheduler, self._packages.reclaim, self.history)
        operations = LocalRouter(self._scheduler, here)
        self._router: OperationRouter = operations
        if self._store is not None and self._ownership is not None:
            self._router = router = OwnerRouter(operations, self._scheduler, self._store, self._ownership)
            self._scheduler.sharing = SharedPartitions(
                self._scheduler,
                self._graph_runtime,
                self._store,
                self._ownership,
                exclude_changes=self._packages.installer.exclude_changes,
                finish_requests=router.finish_requests,
                listener=ReaderMetrics(self._metrics),
            )
        operations.connect(self._router)
        self._operations = operations
        return GraphClient(self._router, self._scheduler, self.registry)

    def _make_executors(self, workflows: LoadedWorkflows, listener: AttemptListener) -> dict[str, Executor]:
        clock, options = self._clock, self._executor_options()
        executors: list[Executor] = [kind(workflows, listener, clock, **options) for kind in (InProcess, Subprocess)]
        executors += [self._make_remote_executor(one, workflows, listener) for one in self._launchers]
        return {executor.name: executor for executor in executors}

    def _make_remote_executor(
        self, launcher: AttemptLauncher, workflows: LoadedWorkflows, listener: AttemptListener
    ) -> RemoteExecutor:
        return RemoteExecutor(
            launcher,
            self._run_store,
            workflows,
            listener,
            self._clock,
            self.settings,
            owner=self._owner.id,
            server_url=lambda: self.server_url,
            mask=self.access.secrets.mask,
        )

    def _executor_options(self) -> dict[str, Any]:
        """Return the options that every executor takes."""
        mask = self.access.secrets.mask
        return {"concurrency": self._concurrency, "handle_call": self.handle_call, "mask": mask}

    # -- opening and closing

    async def __aenter__(self) -> Self:
        ensure_not_importing()
        if self._was_opened:
            raise RequestError("a node runs once: make a new one", code="already_used", status=409)
        self._was_opened = True
        await self._run_store.open()
        await self._graph_runtime.tasks.open()
        if self._loop_watch is not None:
            self._loop_watch.start()
        self._is_open = True
        if self.settings.capture_output:
            AUTHOR_OUTPUT.open()
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
        await self._router.open()
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
        if self._ray_hosts is not None:
            await self._ray_hosts.open(await self._run_store.attempt_orders.instance(new_instance_id()))

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
            self._direct_pushes.clear()
            self.event_feed.close()
            if self._ray_hosts is not None:
                await self._ray_hosts.close()
            await self._packages.stop()
            await self._workflows.close(self.settings.unload_timeout)
            await self._packages.close()
            await self._workflows.subscriptions.drain(self.settings.unload_timeout)
            await self._graph_runtime.tasks.close(self.settings.unload_timeout)
            await self._packages.remove_copies()
            if self._loop_watch is not None:
                await self._loop_watch.close(self.settings.unload_timeout)
            if self._ownership is not None:
                self._ownership.close()
            await self._run_store.close()
            if self.settings.capture_output:
                AUTHOR_OUTPUT.close()
            if self.spans.is_enabled:
                await self._send_spans()

    async def _send_spans(self) -> None:
        """Send the last spans; a collector that does not answer does not delay the end for long."""
        try:
            async with asyncio.timeout(self.settings.unload_timeout):  # real time: that of the collector
                await call_in_new_thread("node: send spans", self.spans.close)
        except TimeoutError:
            logger.warning(events.SPANS_NOT_SENT, extra={"collector": self.settings.otlp_endpoint})

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

    # -- status

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
        return is_idle and self._router.is_idle and (self._checkpointer is None or self._checkpointer.is_idle)
