"""The composition root: what a node is composed of, and the function that builds it."""

import importlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from tidemill.engine.access.services import AccessServices
from tidemill.engine.event_feed.feed import EventFeed
from tidemill.engine.forwarding.receiver import ServedRequests
from tidemill.engine.forwarding.router import OwnerRouter
from tidemill.engine.graphs.checkpoints.checkpointer import Checkpointer
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
from tidemill.engine.workflows.engine import NodeHooks, WorkflowEngine
from tidemill.engine.workflows.executors.code import LoadedWorkflows
from tidemill.engine.workflows.executors.interface import AttemptListener, AttemptRequest, Executor
from tidemill.engine.workflows.metrics import GAUGES_OVER_TIME, WORKFLOW_METRICS, WorkflowMetrics
from tidemill.engine.workflows.runtime import PoolSizes, StoreSharing, WorkflowRuntime
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import DefinitionError
from tidemill.kernel.settings import Settings
from tidemill.kernel.suggestions import did_you_mean
from tidemill.node_arguments import ExecutorContext, NodeArguments, NodeProfile, ServerAddress
from tidemill.packages.loading.reader import PackageScope
from tidemill.packages.service import PackageService
from tidemill.packages.standby import StandbyLoads
from tidemill.packages.status import PACKAGE_METRICS
from tidemill.storage.addresses import make_store, with_absolute_path
from tidemill.storage.store import Store
from tidemill.storage.workflow_ports import NodeRow
from tidemill.telemetry.metrics import Collector, Metrics
from tidemill.telemetry.node_events import NodeEvents
from tidemill.telemetry.otlp_spans import make_span_recorder
from tidemill.telemetry.tracing import SpanRecorder
from tidemill.workflows.node_calls import NodeCall

if TYPE_CHECKING:
    from tidemill.engine.ray.hosts import RayHosts

PACKAGE_SCOPES: Mapping[str, PackageScope] = {"worker": "tasks", "host": "partitions"}
"""What nodes load of packages, by their kind, if it is not everything."""


class NodeFoundation(msgspec.Struct, frozen=True, kw_only=True):
    """What both engines of a node stand on."""

    profile: NodeProfile
    settings: Settings
    tenant: str
    owner: NodeRow
    registry: Registry
    tasks: TaskScope
    """The tasks of graphs, which outlive those of the workflow engine."""
    metrics: Metrics
    node_events: NodeEvents
    spans: SpanRecorder
    address: ServerAddress
    store: Store | None
    """The store at the address that the node was given."""
    run_store: Store
    """The same, or the store in memory of a node without an address."""
    is_single_node: bool
    """Whether no other node can use the store."""
    ownership: ReactorOwnership | None
    checkpointer: Checkpointer | None
    access: AccessServices

    @property
    def clock(self) -> Clock:
        """The clock of the node."""
        return self.profile.clock


class NodeParts(msgspec.Struct, frozen=True, kw_only=True):
    """What a node is composed of; the node opens, uses and closes it."""

    foundation: NodeFoundation
    workflows: WorkflowEngine
    graph_runtime: GraphRuntime
    scheduler: GraphScheduler
    standby: StandbyLoads
    packages: PackageService
    operations: LocalRouter
    """The operations on the graphs of this node."""
    router: OperationRouter
    """Finds the node that runs a reactor: this one, unless it shares a store."""
    graph_client: GraphClient
    history: History
    event_feed: EventFeed
    loop_watch: LoopWatch | None
    ray_hosts: "RayHosts | None"


class NodeCalls(Protocol):
    """What the parts of a node call on the node, once it runs."""

    async def handle_call(self, request: AttemptRequest, call: NodeCall) -> Any:
        """Make a call of a running task."""

    def run_handle(self, id: str, *, tenant: str | None = None) -> Any:
        """Return a handle on a run."""


def compose_node(arguments: NodeArguments, profile: NodeProfile, calls: NodeCalls) -> NodeParts:
    """Build the parts of a node. Nothing runs before the node opens them."""
    base = _lay_foundation(arguments, profile)
    workflows = _make_workflow_engine(base, arguments, calls)
    graph_runtime = _make_graph_runtime(base, workflows)
    served = ServedRequests(base.settings.unload_timeout)
    scheduler = _make_scheduler(base, graph_runtime, served)
    standby = StandbyLoads(graph_runtime, scheduler, base.ownership)
    packages = _make_packages(base, workflows, scheduler, standby)
    history = _make_history(base, workflows, scheduler)
    router = _make_router(base, scheduler, GraphOperations(scheduler, packages.reclaim, history), served)
    return NodeParts(
        foundation=base,
        workflows=workflows,
        graph_runtime=graph_runtime,
        scheduler=scheduler,
        standby=standby,
        packages=packages,
        operations=router.local if isinstance(router, OwnerRouter) else router,
        router=router,
        graph_client=GraphClient(router, scheduler, base.registry),
        history=history,
        event_feed=_make_event_feed(base, workflows, scheduler),
        loop_watch=_make_loop_watch(base, workflows, arguments.address) if profile.watches_loop else None,
        ray_hosts=_make_ray_hosts(base, workflows, arguments.address),
    )


def _lay_foundation(arguments: NodeArguments, profile: NodeProfile) -> NodeFoundation:
    settings, clock, tasks = arguments.settings, profile.clock, TaskScope()
    spans = profile.spans or make_span_recorder(settings.otlp_endpoint)
    store = None if arguments.address is None else profile.open_store(arguments.address)
    run_store = store or profile.make_run_store(clock.now)
    is_single_node = store is None if profile.is_single_node is None else profile.is_single_node
    owner, node_events = profile.make_owner(int(arguments.concurrency)), NodeEvents(clock)
    ownership = checkpointer = None
    if store is not None:
        liveness, ttl, is_shared = profile.liveness, settings.lease_ttl, not is_single_node
        ownership = ReactorOwnership(
            store.part_owners, liveness.is_dead, owner=owner, ttl=ttl, is_shared=is_shared, clock=clock, tasks=tasks
        )
        checkpointer = Checkpointer(store, ownership, clock=clock, settings=settings, tasks=tasks)
    return NodeFoundation(
        profile=profile,
        settings=settings,
        tenant=arguments.tenant,
        owner=owner,
        registry=Registry(arguments.tenant),
        tasks=tasks,
        metrics=Metrics((*GRAPH_METRICS, *WORKFLOW_METRICS, *PACKAGE_METRICS)),
        node_events=node_events,
        spans=spans,
        address=ServerAddress(settings.server_url),
        store=store,
        run_store=run_store,
        is_single_node=is_single_node,
        ownership=ownership,
        checkpointer=checkpointer,
        access=AccessServices(
            run_store,
            clock,
            settings,
            owner=owner,
            liveness=profile.liveness,
            node_events=node_events,
            given=arguments.given,
        ),
    )


# -- workflows


def _make_workflow_engine(base: NodeFoundation, arguments: NodeArguments, calls: NodeCalls) -> WorkflowEngine:
    launchers = base.profile.make_launchers(base.settings, base.clock)

    def make_executors(workflows: LoadedWorkflows, listener: AttemptListener) -> Mapping[str, Executor]:
        context = ExecutorContext(
            workflows=workflows,
            listener=listener,
            launchers=launchers,
            clock=base.clock,
            settings=base.settings,
            store=base.run_store,
            owner=base.owner,
            concurrency=arguments.concurrency,
            handle_call=calls.handle_call,
            mask=base.access.secrets.mask,
            address=base.address,
        )
        return base.profile.make_executors(context)

    hooks = NodeHooks(
        make_executors=make_executors,
        find_trigger=base.registry.triggers.find,
        make_handle=calls.run_handle,
        delivery_tasks=base.tasks,
    )
    engine = WorkflowEngine(_make_workflow_runtime(base, arguments), hooks)
    if arguments.executor not in engine.executors and base.owner.plans:
        known = engine.executors
        hint = did_you_mean(str(arguments.executor), known) or f"; there are {', '.join(sorted(known))}"
        raise DefinitionError.single("node", f"there is no executor {arguments.executor!r}{hint}")
    base.metrics.register(Collector(engine, WorkflowEngine.samples))
    return engine


def _make_workflow_runtime(base: NodeFoundation, arguments: NodeArguments) -> WorkflowRuntime:
    ownership = base.ownership
    on_begun = None if ownership is None else ownership.start_sharing
    return WorkflowRuntime(
        metrics=WorkflowMetrics(base.settings.metric_series),
        store=base.run_store,
        owner=base.owner,
        clock=base.clock,
        settings=base.settings,
        node_events=base.node_events,
        spans=base.spans,
        liveness=base.profile.liveness,
        default_executor=arguments.executor,
        pools=PoolSizes(base.run_store.pools, arguments.pools, base.profile.assumed_pools),
        sharing=StoreSharing(is_shared=not base.is_single_node, on_begun=on_begun),
        substitutes_executor=base.profile.substitutes_executor,
    )


def _make_ray_hosts(base: NodeFoundation, workflows: WorkflowEngine, address: str | None) -> "RayHosts | None":
    """Return the hosts that a node keeps alive on a Ray cluster; None, and nothing is imported, if it keeps none."""
    settings = base.settings
    if address is None or not base.owner.plans or settings.ray_address is None or settings.ray_hosts is None:
        return None
    make: Callable[..., RayHosts] = importlib.import_module("tidemill.engine.ray.hosts").make_hosts
    return make(settings, base.clock, address, lambda: workflows.leader.is_leading)


# -- graphs and packages


def _make_graph_runtime(base: NodeFoundation, workflows: WorkflowEngine) -> GraphRuntime:
    return GraphRuntime(
        clock=base.clock,
        settings=base.settings,
        tasks=base.tasks,
        durability=base.checkpointer,
        node_events=base.node_events,
        subscribers=workflows.subscriptions,
        mask=base.access.secrets.mask,
        open_reader=base.profile.open_reader,
        health_filter=base.profile.health_filter,
    )


def _make_packages(
    base: NodeFoundation, workflows: WorkflowEngine, scheduler: GraphScheduler, standby: StandbyLoads
) -> PackageService:
    packages = PackageService(
        base.run_store,
        scheduler.runtime,
        base.registry,
        scheduler,
        workflows,
        base.profile.liveness,
        standby,
        scope=PACKAGE_SCOPES.get(base.owner.kind, "all"),
    )
    base.metrics.register(Collector(packages, PackageService.samples))
    workflows.runtime.pools.listen(packages.on_pools_found)
    return packages


def _make_scheduler(base: NodeFoundation, runtime: GraphRuntime, served: ServedRequests) -> GraphScheduler:
    """Return the scheduler; with a store, it shares partitions with other nodes."""
    store, ownership = base.store, base.ownership
    if store is None or ownership is None:
        return GraphScheduler(runtime, base.registry, base.metrics)

    def share(scheduler: GraphScheduler) -> SharedPartitions:
        listener = ReaderMetrics(base.metrics)
        return SharedPartitions(scheduler, runtime, store, ownership, finish_requests=served.finish, listener=listener)

    return GraphScheduler(runtime, base.registry, base.metrics, store, share)


def _make_router(
    base: NodeFoundation, scheduler: GraphScheduler, here: GraphOperations, served: ServedRequests
) -> LocalRouter | OwnerRouter:
    """Return what finds the node of a reactor."""
    if base.store is None or base.ownership is None:
        return LocalRouter(scheduler, here)
    router = OwnerRouter(here, scheduler, base.store, base.ownership, base.profile.open_wire, served)
    base.metrics.register(Collector(router, OwnerRouter.samples))
    return router


# -- figures and events


def _make_loop_watch(base: NodeFoundation, workflows: WorkflowEngine, address: str | None) -> LoopWatch:
    leases, ownership = workflows.held_leases(), base.ownership
    make_other = None if address is None else partial(make_store, with_absolute_path(address))
    return LoopWatch(
        base.settings,
        leases if ownership is None else [*leases, ownership.held],
        None if base.is_single_node else make_other,
        workflows.metrics.increment,
        workflows.attempts.on_loop_blocked,
    )


def _make_event_feed(base: NodeFoundation, workflows: WorkflowEngine, scheduler: GraphScheduler) -> EventFeed:
    return EventFeed(
        base.run_store,
        workflows.notifier,
        base.node_events,
        lambda: count_firings(scheduler.loaded.reactors),
        clock=base.clock,
        tasks=base.tasks,
    )


def _make_history(base: NodeFoundation, workflows: WorkflowEngine, scheduler: GraphScheduler) -> History:
    reactors, gauge = FigureReader(), workflows.metrics.gauge

    def read() -> Iterator[Reading]:
        gauges = ((name, gauge(name)) for name in GAUGES_OVER_TIME)
        yield from (Reading((), name, value, is_counter=False) for name, value in gauges if value is not None)
        yield from reactors.read(scheduler.loaded.reactors)

    return History(read, base.clock, base.tasks)
