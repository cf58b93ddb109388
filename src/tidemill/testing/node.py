"""The node for tests: virtual time, no brokers, and fault injection.

A test node has its store to itself until another one opens the same store. Then both behave as nodes of a cluster do:
their leases are short, and they tick and claim. Until then a test of three hours needs no ticks for the sake of others.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self
from weakref import WeakKeyDictionary, WeakValueDictionary

from msgspec.structs import replace

from tidemill.access.secret_source import SecretSource
from tidemill.engine.tasks import wait_until
from tidemill.engine.workflows.engine import WorkflowEngine
from tidemill.engine.workflows.executors.code import LoadedWorkflows
from tidemill.engine.workflows.executors.in_process import InProcess
from tidemill.engine.workflows.executors.interface import AttemptListener, Executor
from tidemill.engine.workflows.executors.remote.registry import LAUNCHER_KINDS
from tidemill.engine.workflows.process_identity import HostLiveness
from tidemill.graphs.definition import Source
from tidemill.kernel.clock import Clock, VirtualClock
from tidemill.kernel.durations import Duration, parse_duration
from tidemill.kernel.limits import DEFAULT_CONCURRENCY
from tidemill.kernel.settings import Settings
from tidemill.node import IDLE_CHECK_INTERVAL, Node
from tidemill.node_arguments import ExecutorContext, NodeProfile, make_executors
from tidemill.storage.addresses import make_memory_store, make_store, with_absolute_path
from tidemill.storage.sqlite.memory import MemoryDatabase
from tidemill.storage.store import Store
from tidemill.storage.workflow_ports import NodeRow
from tidemill.testing.faults.deploy_steps import abandon_deploys
from tidemill.testing.faults.engines import Disconnector, RunFaults, crash_graphs, kill_engine
from tidemill.testing.faults.executors import FaultyExecutor
from tidemill.testing.faults.stores import fail_next, install_faults
from tidemill.testing.probes import GraphProbe, PackageProbe, WorkflowProbe
from tidemill.testing.sources.given import GivenSources
from tidemill.workflows.records import AttemptKey

CLOSING_SLEEP_LIMIT = 0.025  # seconds of real time that grace periods last while a node closes
IDLE_TURN_LIMIT = 50  # turns of the loop, or idle checks, for work that may be blocked


class ClusterStandIn(InProcess):
    """The executor `in_process`, under the name of a cluster's."""

    def __init__(
        self, name: str, workflows: LoadedWorkflows, listener: AttemptListener, clock: Clock, **options: Any
    ) -> None:
        super().__init__(workflows, listener, clock, **options)
        self.name = name


MEMORY_SCHEME = "memory://"

# Process-wide, as a database is: two nodes that know nothing of each other name the same store.
_databases_by_address: WeakValueDictionary[str, MemoryDatabase] = WeakValueDictionary()
_engines_by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, list[WorkflowEngine]]] = WeakKeyDictionary()


def memory_database(address: str) -> MemoryDatabase:
    """Return the database of a memory store: for "memory://" a new one, for "memory://name" the one with this name."""
    if address == MEMORY_SCHEME:
        return MemoryDatabase()
    return _databases_by_address.setdefault(address, MemoryDatabase())


@contextmanager
def using_store(address: str, engine: WorkflowEngine) -> Iterator[list[WorkflowEngine]]:
    """Register an engine as a user of a store; yield those that use it on this event loop, and have not crashed."""
    users = _engines_by_loop.setdefault(asyncio.get_running_loop(), {}).setdefault(address, [])
    others = [other for other in users if not other.runtime.tasks.is_closed]
    users.append(engine)
    try:
        yield others
    finally:
        users.remove(engine)
        if not users:
            _databases_by_address.pop(address, None)  # the next test that uses the name begins with an empty store


class Probe(NamedTuple):
    """Read-only views of a node's engine parts."""

    graphs: GraphProbe
    workflows: WorkflowProbe
    packages: PackageProbe


class TestNode(Node):
    """A node whose time moves only by `advance`, and whose parts fail on request."""

    __test__ = False  # pytest: this is not a test class

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
        start: datetime | None = None,
        disconnected: Iterable[str] = (),
        sources: Mapping[str, Source | Iterable[Any]] | None = None,
        clock: VirtualClock | None = None,
        predecessor: "TestNode | None" = None,
        _profile: Mapping[str, Any] | None = None,
    ) -> None:
        self.clock = clock or VirtualClock(start)
        of_runs = {"executor": executor, "concurrency": concurrency, "pools": pools}
        of_tenant = {"tenant": tenant, "variables": variables, "secrets": secrets}
        arguments: dict[str, Any] = {"store": store, "settings": settings, **of_runs, **of_tenant}
        self._arguments = arguments | ({} if _profile is None else {"_profile": _profile})
        self._predecessor = predecessor
        self._given_sources: GivenSources = (
            GivenSources(sources or {}) if predecessor is None else predecessor._given_sources
        )
        self._successor: TestNode | None = None
        self._address = None if store is None else with_absolute_path(store)
        self._store_use = ExitStack()
        self._attempts_waited_for: set[AttemptKey] = set()
        self.loaded_packages: dict[tuple[str, str], Any] = {}
        """The definitions that a successor loads again, by tenant and package."""
        self._disconnector = Disconnector(disconnected)
        choices = self._choices() | dict(_profile or {})
        super().__init__(load=load, **arguments, _profile=NodeProfile(**choices))
        self._run_faults = RunFaults(self._workflows)

    def _choices(self) -> dict[str, Any]:
        """Return what a test node chooses about its parts; a test may choose otherwise."""
        return {
            "clock": self.clock,
            "liveness": _CrashedNodes(self._predecessor),
            "is_single_node": True,
            "watches_loop": False,
            "open_store": self._open_store,
            "make_run_store": self._make_run_store,
            "make_launchers": lambda _settings, _clock: (),
            "make_executors": _make_faulty_executors,
            "open_reader": self._given_sources.open_reader,
            "health_filter": self._disconnector.filter_health,
        }

    def _open_store(self, address: str) -> Store:
        """Return the store; "memory://" lives in this process, and a crashed node's successor takes it over.

        "memory://name" is one store for all test nodes that use this name at the same time.
        """
        if not address.startswith(MEMORY_SCHEME):
            return _with_faults(make_store(address, self.clock.now))
        if self._predecessor is not None:
            return self._predecessor._run_store
        return _with_faults(make_memory_store(self.clock.now, memory_database(address)))

    def _make_run_store(self, now: Callable[[], datetime]) -> Store:
        if self._predecessor is not None:
            return self._predecessor._run_store  # a crash ends the process, not its database
        return _with_faults(make_memory_store(now))

    def _initial_loads(self) -> Iterable[tuple[Any, str]]:
        if self._predecessor is None:
            return super()._initial_loads()
        return [(thing, tenant) for (tenant, _), thing in self._predecessor.loaded_packages.items()]

    async def _start(self) -> None:
        await super()._start()
        loaded = (one.definition for one in self._scheduler.loaded.accumulators)
        self._given_sources.check(one for one in loaded if one.source is not None)

    async def _load(self, thing: Any, tenant: str, *, allow_downgrade: bool | None = None) -> str:
        name = await super()._load(thing, tenant, allow_downgrade=allow_downgrade)
        self.loaded_packages[tenant, name] = thing
        return name

    async def _load_paths(self, paths: Sequence[Path], tenant: str) -> Mapping[Path, str]:
        names = await super()._load_paths(paths, tenant)
        self.loaded_packages |= {(tenant, name): path for path, name in names.items()}
        return names

    async def _unload(self, name: str, tenant: str) -> None:
        await super()._unload(name, tenant)
        self.loaded_packages.pop((tenant, name), None)  # packages from a folder or registry are not recorded

    async def __aenter__(self) -> Self:
        if self._address is not None:
            others = self._store_use.enter_context(using_store(self._address, self._workflows))
            for engine in others:
                await self._join(engine)
        try:
            return await super().__aenter__()
        except BaseException:
            self._store_use.close()
            raise

    async def _join(self, engine: WorkflowEngine) -> None:
        """Share the store with the engine of another node, and wait until that node expects it."""
        self._workflows.runtime.sharing.begin()
        engine.share_store()
        await wait_until(lambda: not engine.is_using_store, self.settings.lease_ttl)

    async def _close(self) -> None:
        if self._successor is not None:
            await self._successor._close()
        with self.clock.sleeping_in_real_time(CLOSING_SLEEP_LIMIT):  # grace periods must end: no test ends them now
            await super()._close()
        self._store_use.close()

    @property
    def database(self) -> Store:
        """The node's store, for tests that read rows or delay writes."""
        return self._run_store

    @property
    def probe(self) -> Probe:
        """Return views of engine parts that the public API does not show."""
        return Probe(
            GraphProbe(self._scheduler), WorkflowProbe(self._workflows, self._run_store), PackageProbe(self._packages)
        )

    # -- time

    async def advance(self, duration: Duration) -> None:
        """Move time forward step by step and run everything that becomes due; do not wait for blocked work."""
        target = self.clock.monotonic() + parse_duration(duration)
        await self._run_until_idle()
        while (due := self.clock.next_wakeup()) is not None and due <= target:
            self.clock.advance_to(due)
            await self._run_until_idle()
        self.clock.advance_to(target)
        await self._run_until_idle()

    async def _run_until_idle(self) -> None:
        """Run until nothing is due, or the remaining work makes no progress. Always waits for the store.

        Tasks on threads and in processes need real time: each attempt gets some, once. So do polls on threads.
        """
        idle_checks = turns = 0
        while turns < IDLE_TURN_LIMIT and idle_checks < 3:
            is_saved = self._checkpointer is None or self._checkpointer.is_idle
            is_writing = self._workflows.is_using_store or self._packages.is_using_store or not is_saved
            running = self._workflows.attempts.running()
            is_new = not running <= self._attempts_waited_for
            scheduler = self._workflows.leader.scheduler
            is_asking = (scheduler is not None and scheduler.is_polling) or self._scheduler.loaded.is_on_thread
            is_elsewhere = is_writing or is_new or is_asking or self._is_loading
            await asyncio.sleep(IDLE_CHECK_INTERVAL if is_elsewhere else 0)  # real time: threads and stores need it
            turns += not is_writing
            idle_checks = idle_checks + 1 if self._is_idle_or_blocked and not self._is_loading else 0
        self._attempts_waited_for = self._workflows.attempts.running()

    @property
    def _is_loading(self) -> bool:
        return self._packages.is_busy or self._parts.standby.is_retrying

    @property
    def _is_idle(self) -> bool:
        return super()._is_idle and not self.clock.has_pending_wakeups

    @property
    def _is_idle_or_blocked(self) -> bool:
        """Whether the only work left is in tasks that already got their time, and seem to be blocked."""
        if self._is_idle or self.clock.has_pending_wakeups or not self._scheduler.is_idle:
            return self._is_idle
        is_saved = self._checkpointer is None or self._checkpointer.is_idle
        is_resting = is_saved and self._workflows.is_quiescent and not self._packages.is_using_store
        return is_resting and self._workflows.attempts.running() <= self._attempts_waited_for

    # -- faults

    async def break_accumulator(
        self, name: str, error: BaseException | None = None, *, tenant: str | None = None
    ) -> None:
        """Crash an accumulator once; of a keyed reactor, in every partition."""
        for one in self._scheduler.loaded.accumulators_of(self._resolve_tenant(tenant), name):
            one.crash(error or RuntimeError("broken on purpose"))
        await self._run_until_idle()

    async def break_reactor(self, name: str, error: BaseException | None = None, *, tenant: str | None = None) -> None:
        """Crash a reactor once; one with keys, in every partition."""
        for one in self._scheduler.loaded.reactors_of(self._resolve_tenant(tenant), name):
            one.crash(error or RuntimeError("broken on purpose"))
        await self._run_until_idle()

    async def disconnect(self, name: str, *, tenant: str | None = None) -> None:
        """Cut an accumulator's connection to its source."""
        self._disconnector.disconnect(self._scheduler.loaded.accumulators_of(self._resolve_tenant(tenant), name))
        await self._run_until_idle()

    async def reconnect(self, name: str, *, tenant: str | None = None) -> None:
        """Give an accumulator its connection back."""
        self._disconnector.reconnect(self._scheduler.loaded.accumulators_of(self._resolve_tenant(tenant), name))
        await self._run_until_idle()

    def fail_store(self, times: int) -> None:
        """Fail the next `times` transactions of the store; 0 lets them succeed again."""
        if type(times) is not int or times < 0:
            raise ValueError(f"times is a number of transactions, not {times!r}")
        fail_next(self._run_store, times)

    async def kill_worker(self) -> None:
        """Kill every executor: everything that runs ends without a report."""
        for executor in self._faulty_executors:
            await executor.kill()
        await self._run_until_idle()

    def slow_executor(self, duration: Duration) -> None:
        """Let every executor take this long to accept an attempt."""
        for executor in self._faulty_executors:
            executor.set_delay(parse_duration(duration))

    def break_run(self, run_id: str) -> None:
        """Make every change of a run raise, until `repair_runs`."""
        self._run_faults.break_run(run_id)

    def repair_runs(self) -> None:
        """End the faults of all broken runs."""
        self._run_faults.repair()

    @property
    def _faulty_executors(self) -> list[FaultyExecutor]:
        return [executor for executor in self._workflows.executors.values() if isinstance(executor, FaultyExecutor)]

    async def kill(self) -> None:
        """End this node as kill -9 would."""
        self._is_open = False
        abandon_deploys(self._packages.installer.pipeline)
        crash_graphs(self._scheduler)
        await self._graph_runtime.tasks.close(self.settings.unload_timeout)  # first: no firing gets another turn
        await kill_engine(self._workflows, self.settings.unload_timeout)
        fail_next(self._run_store, 0)
        await self._run_store.close()
        self._leave_output()

    async def crash(self) -> "TestNode":
        """Kill this node, and return a started successor on the same store, clock and definitions.

        The `async with` block that opened the first node closes its successors too.
        """
        await self.kill()
        self._successor = type(self)(clock=self.clock, predecessor=self, **self._arguments)
        await self._successor.__aenter__()
        return self._successor


def _make_faulty_executors(context: ExecutorContext) -> dict[str, Executor]:
    """Return executors that fail on demand; those of clusters run attempts in this process."""

    def build(name: str, muted_listener: AttemptListener) -> Executor:
        if name in LAUNCHER_KINDS:
            return ClusterStandIn(name, context.workflows, muted_listener, context.clock, **context.options)
        return make_executors(replace(context, listener=muted_listener))[name]

    names = (*make_executors(context), *LAUNCHER_KINDS)
    return {name: FaultyExecutor(partial(build, name), context.listener, context.clock) for name in names}


def _with_faults(store: Store) -> Store:
    install_faults(store)
    return store


class _CrashedNodes(HostLiveness):
    """Reports the crashed predecessors of a node as dead, although they share its process."""

    def __init__(self, predecessor: TestNode | None) -> None:
        self._predecessor = predecessor

    def is_dead(self, owner: NodeRow) -> bool:
        predecessor = self._predecessor
        while predecessor is not None:
            if predecessor._workflows.owner.id == owner.id:
                return True
            predecessor = predecessor._predecessor
        return super().is_dead(owner)


node = TestNode
"""A node on a virtual clock that begins at `start`; `disconnected` accumulators start without a connection.

Streams read no source, and are live, but for those that `sources` names: with a source, or a list of events.
"""
