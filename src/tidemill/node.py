"""Node: Settings in, one running node out. The only module that names implementations."""

import asyncio
import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Self

from tidemill.engine.graphs.durability.checkpointer import Checkpointer, to_recovery
from tidemill.engine.graphs.handle import ReactorHandle
from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.engine.graphs.scheduler import GraphScheduler
from tidemill.engine.graphs.supervisor import Supervisor
from tidemill.engine.registry import Registry
from tidemill.engine.tasks import TaskScope
from tidemill.engine.workflows.client.handle import RunHandle
from tidemill.engine.workflows.client.values import BackfillPlan, Caller
from tidemill.engine.workflows.engine import WorkflowEngine
from tidemill.engine.workflows.executors.code import WorkflowLookup, ensure_not_importing
from tidemill.engine.workflows.executors.in_process import InProcess
from tidemill.engine.workflows.executors.interface import AttemptListener, Executor
from tidemill.engine.workflows.executors.subprocess import Subprocess
from tidemill.engine.workflows.metrics import WORKFLOW_METRICS, WorkflowMetrics
from tidemill.engine.workflows.process_identity import HostLiveness, ProcessLiveness
from tidemill.graphs.definition import Accumulator, Reactor
from tidemill.graphs.graph import Graph
from tidemill.graphs.result import Receipt
from tidemill.kernel.clock import Clock, SystemClock
from tidemill.kernel.errors import DefinitionError, OperationError, RequestError
from tidemill.kernel.limits import MAX_INTEGER, WORD_RULE, is_word, validate_tenant
from tidemill.kernel.settings import Settings
from tidemill.kernel.suggestions import did_you_mean
from tidemill.kernel.urls import mask_password
from tidemill.packages.loading.reader import sort_for_loading
from tidemill.packages.service import PackageService
from tidemill.packages.status import PackageStatus
from tidemill.storage.graph_ports import Store
from tidemill.telemetry.metrics import GRAPH_METRICS, PACKAGE_METRICS, Collector, Metrics
from tidemill.workflows.states import RunState
from tidemill.workflows.workflow import Workflow

if TYPE_CHECKING:
    from tidemill.packages.service import Depot

IDLE_CHECK_INTERVAL = 0.0005  # seconds between looks at whether work is done
RESTORED_RECOVERIES_LIMIT = 1000  # recoveries of earlier lives that are read at the start


class Node:
    """One running Tidemill, as an async context manager.

    `load` takes modules, definitions, and paths of package folders and archives. `store` is the address of a database,
    "sqlite:///path" or "postgresql://user@host:port/database"; without one everything works, and nothing outlives the
    node. Tasks of workflows run at `executor` unless they name another one, `concurrency` of them at a time, and no
    more of a pool than `pools` says.
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
        self._graph_runtime = environment = GraphRuntime(
            clock=self._make_clock(), settings=self.settings, tasks=TaskScope()
        )
        self._supervisor = environment.supervisor = Supervisor(environment)
        self._store = self._make_store(store)
        self._run_store = self._store or self._make_memory_store()
        self._checkpointer: Checkpointer | None = None
        if self._store is not None:
            self._checkpointer = environment.durability = Checkpointer(self._store, environment)
        self._scheduler = GraphScheduler(environment, self.registry, self._metrics, self._store)
        self._concurrency = _check_count("concurrency", concurrency)
        self._liveness = self._make_liveness()
        self._workflows = self._make_workflow_engine(environment.clock, executor, _check_pools(pools), store)
        self._metrics.register(Collector(self._workflows.metrics, WorkflowMetrics.samples))
        environment.subscribers = self._workflows.subscriptions
        self._workflows.subscriptions.connect(environment.tasks, self._scheduler.refresh_subscribers)
        self._packages = self._make_packages()
        self._depot: Depot | None = None
        self._restored_tenants: set[str] = set()
        self._is_open = self._was_opened = False

    def _make_clock(self) -> Clock:
        return SystemClock()

    def _make_store(self, address: str | None) -> Store | None:
        return None if address is None else make_store(address)

    def _make_memory_store(self) -> Store:
        """Return where runs are kept if there is no store: they end with the node."""
        return _import_store_class("memory", "MemoryStore")(self._graph_runtime.clock.now)

    def _make_workflow_engine(
        self, clock: Clock, executor: str, pools: Mapping[str, int], address: str | None
    ) -> WorkflowEngine:
        service = WorkflowEngine(
            self._run_store,
            self._make_executors,
            clock=clock,
            settings=self.settings,
            default_executor=executor,
            pools=pools,
            liveness=self._liveness,
            find_trigger=self.registry.trigger,
            is_single_node=self._is_single_node,
            substitutes_executor=self._substitutes_executor,
            make_heartbeat_store=None
            if self._is_single_node or address is None
            else partial(make_store, _with_absolute_path(address)),
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
            owner=self._workflows.owner,
            liveness=self._liveness,
        )
        self._metrics.register(Collector(service, PackageService.samples))
        return service

    @property
    def _is_single_node(self) -> bool:
        """Whether nobody else can change what is stored."""
        return self._store is None

    @property
    def _substitutes_executor(self) -> bool:
        """Whether tasks run here although the executor that they name is elsewhere."""
        return False

    def _make_liveness(self) -> ProcessLiveness:
        return HostLiveness()

    def _make_executors(self, lookup: WorkflowLookup, reports: AttemptListener) -> dict[str, Executor]:
        clock, concurrency = self._graph_runtime.clock, self._concurrency
        found: list[Executor] = [
            InProcess(lookup, reports, clock, concurrency=concurrency, push=self.push),
            Subprocess(lookup, reports, clock, concurrency=concurrency),
        ]
        return {executor.name: executor for executor in found}

    # -- life

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
        """Load what was given; nothing fires before all of it is there, so that restored inputs find their graphs."""
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
            await self.depot.watch_folder(Path(self.settings.packages), self.tenant)
        if self.settings.load_published:
            await self.depot.watch_registry()

    async def _load_initial(self) -> None:
        loads = list(self._initial_loads())
        for thing, tenant in loads:
            if not isinstance(thing, str | Path):
                await self._load(thing, tenant)
        for tenant in dict.fromkeys(tenant for _, tenant in loads):
            paths = [Path(thing) for thing, owner in loads if owner == tenant and isinstance(thing, str | Path)]
            if paths:
                await self._load_paths(paths, tenant)

    async def _load_paths(self, paths: Sequence[Path], tenant: str) -> Mapping[Path, str]:
        return await self.depot.load_all(paths, tenant, allow_downgrade=self.settings.allow_downgrade)

    def _initial_loads(self) -> Iterable[tuple[Any, str]]:
        """Return what to load at the start, and for which tenant."""
        return [(thing, self.tenant) for thing in sort_for_loading(self._given_loads)]

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()

    async def _close(self) -> None:
        if self._is_open:
            self._is_open = False
            if self._depot is not None:
                await self._depot.stop()
            await self._workflows.close(self.settings.unload_timeout)
            await self._packages.close()
            await self._workflows.subscriptions.drain(self.settings.unload_timeout)
            await self._graph_runtime.tasks.close(self.settings.unload_timeout)
            if self._depot is not None:
                await self._depot.close()
            await self._run_store.close()

    def _resolve_tenant(self, tenant: str | None) -> str:
        if not self._is_open:
            raise RequestError("the node is not running: use `async with tm.Node(...)`", code="not_running", status=409)
        return self.tenant if tenant is None else validate_tenant(tenant)

    # -- packages

    @property
    def depot(self) -> "Depot":
        """Where packages come from that lie in folders, archives and registries; imported when it is first needed."""
        if self._depot is None:
            kind: type[Depot] = importlib.import_module("tidemill.packages.service").Depot
            self._depot = kind(
                self._packages,
                self._run_store,
                self.registry,
                settings=self.settings,
                tasks=self._graph_runtime.tasks,
                clock=self._graph_runtime.clock,
            )
            self._metrics.register(Collector(self._depot, kind.samples))
        return self._depot

    async def load(self, thing: Any, *, tenant: str | None = None, allow_downgrade: bool | None = None) -> str:
        """Load a module, a definition, or the path of a package folder or archive; return the package's name.

        Loaded again, it is swapped hot. A version below one that was there before needs `allow_downgrade`, here or in
        the settings.
        """
        work = self._load(thing, self._resolve_tenant(tenant), allow_downgrade=allow_downgrade)
        return await self._graph_runtime.tasks.run_shielded("node: load", work)

    async def _load(self, thing: Any, tenant: str, *, allow_downgrade: bool | None = None) -> str:
        await self._restore_recoveries(tenant)
        if not isinstance(thing, str | Path):
            return await self._packages.load(thing, tenant)
        is_allowed = self.settings.allow_downgrade if allow_downgrade is None else allow_downgrade
        return await self.depot.load(Path(thing), tenant, allow_downgrade=is_allowed)

    async def _restore_recoveries(self, tenant: str) -> None:
        """Read once what earlier lives recorded of a tenant's recoveries."""
        if self._store is not None and tenant not in self._restored_tenants:
            self._restored_tenants.add(tenant)
            stored = await self._store.recoveries.list_newest(tenant, RESTORED_RECOVERIES_LIMIT)
            self._supervisor.load_history(tenant, [to_recovery(row) for row in stored])

    async def unload(self, name: str, *, tenant: str | None = None) -> None:
        """Unload a package by the name that `load` returned; refused if a source has loaded it, and still wants it."""
        if not isinstance(name, str):
            raise RequestError(f"name the package to unload, as `load` returned it, not {name!r}", code="invalid_name")
        work = self._unload(name, self._resolve_tenant(tenant))
        await self._graph_runtime.tasks.run_shielded("node: unload", work)

    async def _unload(self, name: str, tenant: str) -> None:
        if self._depot is not None:
            self._depot.check_not_desired(name, tenant)
        await self._packages.unload(name, tenant)

    # -- events

    async def push(
        self, accumulator: str | Accumulator, event: Any, *, tenant: str | None = None, format: str = "json"
    ) -> Receipt:
        """Push an event, a Python value or bytes, and learn what became of it; waits while a blocking queue is full."""
        if format not in ("json", "msgpack"):
            raise RequestError(f"format is 'json' or 'msgpack', not {format!r}", code="invalid_format")
        return await self._scheduler.accumulator(self._resolve_tenant(tenant), _definition_name(accumulator)).push(
            event, format
        )

    def handle(self, accumulator: str | Accumulator, *, tenant: str | None = None) -> Callable[[Any], int | None]:
        """Return `push` without await, for hot loops on the loop's own thread.

        The callable returns the sequence number of the boundary it emitted, or None when nothing was emitted; it
        raises FullError where `push` would wait.
        """
        return self._scheduler.accumulator(self._resolve_tenant(tenant), _definition_name(accumulator)).handle()

    def reactor(self, name: str, *, tenant: str | None = None) -> ReactorHandle:
        """Return a loaded reactor to look at and to command."""
        find = partial(self._scheduler.reactor, self._resolve_tenant(tenant), name)
        find()
        return ReactorHandle(find)

    async def restart_accumulator(self, name: str, *, tenant: str | None = None) -> None:
        """Revive an accumulator that was given up, or one that hangs."""
        self._graph_runtime.supervisor.restart(self._scheduler.accumulator(self._resolve_tenant(tenant), name))

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

        They may also be `given` as a mapping, which is the way for one that is called `tenant`.
        """
        if not isinstance(given, Mapping | None):
            message = f"params are keywords, or a mapping by their names, not {given!r}"
            raise RequestError(message, code="invalid_params", status=422)
        caller = self._caller(tenant)
        run = await self._workflows.client.start(caller, _definition_name(workflow), {**(given or {}), **params})
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
        """Return runs, oldest first, whatever started them; the newest `limit` of them."""
        name = None if workflow is None else _definition_name(workflow)
        states = [] if state is None else [_parse_run_state(state)]
        caller = self._caller(tenant)
        rows = await self._workflows.client.find_runs(caller, name, states, limit)
        return [RunHandle(self._workflows.client, caller, row.id) for row in rows]

    async def pause(self, workflow: str | Workflow, *, tenant: str | None = None) -> None:
        """Pause a workflow: no run of it begins, none of its tasks is started; what runs goes on."""
        await self._workflows.client.pause(self._caller(tenant), _definition_name(workflow))

    async def resume(self, workflow: str | Workflow, *, tenant: str | None = None) -> None:
        """Let a paused workflow go on."""
        await self._workflows.client.resume(self._caller(tenant), _definition_name(workflow))

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
        """Make a run for every slot of a workflow's schedule in [start, end], at most `limit` at a time.

        Slots that have had a run are left out unless `only_missing` is False. With `preview` nothing is done.
        """
        return await self._workflows.client.backfill(
            self._caller(tenant),
            _definition_name(workflow),
            start,
            end,
            preview=preview,
            only_missing=only_missing,
            limit=limit,
            key=key,
        )

    async def cancel_backfill(self, id: str, *, tenant: str | None = None) -> int:
        """Start no more runs of a backfill, and cancel its active runs; return how many these were."""
        return await self._workflows.client.cancel_backfill(self._caller(tenant), id)

    # -- looking

    def packages(self) -> list[PackageStatus]:
        """Return how things stand with every package that is loaded or that a source wants, of every tenant."""
        return self._packages.status([] if self._depot is None else self._depot.status())

    def metrics(self) -> dict[str, float]:
        """Return every metric by name as a plain number, labels summed; 0 for one that never rose."""
        return self._metrics.by_name()

    async def settle(self) -> None:
        """Return when nothing is left to do now: no event in process, no firing running or due, nothing unsaved.

        A checkpoint that could not be written counts as done for now.
        """
        await self._wait_until_idle()
        while self._checkpointer is not None and self._checkpointer.has_pending_changes:
            await self._checkpointer.write()
            await self._wait_until_idle()
            if self._checkpointer.last_write_failed:
                return

    async def _wait_until_idle(self) -> None:
        calm = 0
        while calm < 3:
            await asyncio.sleep(0 if self._is_idle else IDLE_CHECK_INTERVAL)  # real time: it is work that is waited for
            calm = calm + 1 if self._is_idle else 0

    @property
    def _is_idle(self) -> bool:
        is_idle = self._scheduler.is_idle and self._workflows.is_idle and not self._packages.is_using_store
        is_idle = is_idle and (self._depot is None or self._depot.is_idle)
        return is_idle and (self._checkpointer is None or self._checkpointer.is_idle)


def make_store(address: str, now: Callable[[], datetime] | None = None) -> Store:
    """Return the store at an address, not opened yet; its driver is imported only if it is asked for.

    Leases run out by `now` if it is given, and else by the store's own clock.
    """
    scheme, _, rest = str(address).partition("://")
    if scheme == "sqlite" and rest.removeprefix("/"):
        return _import_store_class("sqlite", "SqliteStore")(rest.removeprefix("/"), now=now)
    if scheme in ("postgresql", "postgres") and rest:
        return _import_store_class("postgres", "PostgresStore")(f"postgresql://{rest}", now=now)
    raise OperationError(
        f"store {mask_password(str(address))!r}: an address looks like 'sqlite:///tidemill.db' or "
        "'postgresql://user@host:5432/database'; leave it out to keep everything in memory"
    )


def _with_absolute_path(address: str) -> str:
    """Return an address that means the same file wherever author code moves this process to."""
    scheme, _, rest = str(address).partition("://")
    return f"sqlite:///{Path(rest.removeprefix('/')).absolute()}" if scheme == "sqlite" else address


def _import_store_class(folder: str, name: str) -> Callable[..., Store]:
    try:
        kind: Callable[..., Store] = getattr(importlib.import_module(f"tidemill.storage.{folder}.store"), name)
    except ImportError as error:
        raise OperationError(f"{folder} needs its driver: pip install 'tidemill[{folder}]' ({error})") from error
    return kind


def _definition_name(thing: str | Accumulator | Workflow) -> str:
    return thing.name if isinstance(thing, Accumulator | Workflow) else str(thing)


def _parse_run_state(state: RunState | str) -> RunState:
    try:
        return RunState(state)
    except ValueError:
        known = [str(one) for one in RunState]
        message = f"a run is {', '.join(known)}, not {state!r}{did_you_mean(str(state), known)}"
        raise RequestError(message, code="invalid_state") from None


def _check_count(what: str, value: int) -> int:
    if type(value) is not int or not 1 <= value <= MAX_INTEGER:
        raise DefinitionError.single("node", f"{what} is a whole number from 1 to {MAX_INTEGER}, not {value!r}")
    return value


def _check_pools(pools: Mapping[str, int] | None) -> dict[str, int]:
    if not isinstance(pools, Mapping | None):
        raise DefinitionError.single("node", f"pools= takes places by name, such as {{'warehouse': 2}}, not {pools!r}")
    for name in pools or ():
        if not is_word(name):
            raise DefinitionError.single("node", f"a pool has a name, {WORD_RULE}, not {name!r}")
    return {name: _check_count(f"pool '{name}'", slots) for name, slots in (pools or {}).items()}
