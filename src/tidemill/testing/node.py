"""The node for tests: virtual time, no brokers, and ways to break things."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from tidemill.engine.workflows.executors.code import WorkflowLookup
from tidemill.engine.workflows.executors.interface import AttemptListener, Executor
from tidemill.engine.workflows.process_identity import HostLiveness, ProcessLiveness
from tidemill.kernel.clock import Clock, VirtualClock
from tidemill.kernel.durations import Duration, parse_duration
from tidemill.kernel.settings import Settings
from tidemill.node import IDLE_CHECK_INTERVAL, Node, make_store
from tidemill.storage.graph_ports import Store
from tidemill.storage.memory.store import MemoryStore
from tidemill.storage.workflow_ports import Owner
from tidemill.testing.faults.runs import RunFaults, kill_engine
from tidemill.testing.probes import GraphProbe, PackageProbe, WorkflowProbe
from tidemill.testing.slow_executor import SlowExecutor
from tidemill.workflows.records import AttemptKey

IDLE_TURN_LIMIT = 50  # turns of the loop, or glances, that are given to work that may be blocked


class Probe(NamedTuple):
    """Read-only views of a node's engine parts."""

    graphs: GraphProbe
    workflows: WorkflowProbe
    packages: PackageProbe


class TestNode(Node):
    """A node whose time moves only when told to, and whose parts break when asked."""

    __test__ = False  # pytest: this is no test class

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
        start: datetime | None = None,
        disconnected: Iterable[str] = (),
        clock: VirtualClock | None = None,
        predecessor: "TestNode | None" = None,
    ) -> None:
        self.clock = clock or VirtualClock(start)
        self._arguments: dict[str, Any] = {
            "store": store,
            "settings": settings,
            "executor": executor,
            "concurrency": concurrency,
            "pools": pools,
            "tenant": tenant,
        }
        self._predecessor = predecessor
        self._successor: TestNode | None = None
        self._attempts_waited_for: set[AttemptKey] = set()
        self._loaded_packages: dict[tuple[str, str], Any] = {}
        """What a successor loads again, by tenant and package."""
        super().__init__(load=load, **self._arguments)
        self._run_faults = RunFaults(self._workflows)
        self._graph_runtime.connects_sources = False
        self._scheduler.disconnected_at_start = frozenset(disconnected)

    def _make_clock(self) -> Clock:
        return self.clock

    def _make_store(self, address: str | None) -> Store | None:
        """Keep "memory://" in this process: as long as the node and its successors after crashes."""
        if address != "memory://":
            return None if address is None else make_store(address, self.clock.now)
        return MemoryStore(self.clock.now) if self._predecessor is None else self._predecessor._store

    def _make_memory_store(self) -> Store:
        if self._predecessor is not None and self._predecessor._store is None:
            return self._predecessor._run_store  # a crash ends a process, not what stands for a database in a test
        return super()._make_memory_store()

    @property
    def _is_single_node(self) -> bool:
        return True  # time is virtual: nobody else could keep step

    def _make_liveness(self) -> ProcessLiveness:
        return _CrashedNodes(self)

    def _make_executors(self, lookup: WorkflowLookup, reports: AttemptListener) -> dict[str, Executor]:
        made = super()._make_executors(lookup, reports)
        return {name: SlowExecutor(executor, self.clock) for name, executor in made.items()}

    def _initial_loads(self) -> Iterable[tuple[Any, str]]:
        if self._predecessor is None:
            return super()._initial_loads()
        return [(thing, tenant) for (tenant, _), thing in self._predecessor._loaded_packages.items()]

    async def _load(self, thing: Any, tenant: str, *, allow_downgrade: bool | None = None) -> str:
        name = await super()._load(thing, tenant, allow_downgrade=allow_downgrade)
        self._loaded_packages[tenant, name] = thing
        return name

    async def _load_paths(self, paths: Sequence[Path], tenant: str) -> Mapping[Path, str]:
        names = await super()._load_paths(paths, tenant)
        self._loaded_packages |= {(tenant, name): path for path, name in names.items()}
        return names

    async def _unload(self, name: str, tenant: str) -> None:
        await super()._unload(name, tenant)
        self._loaded_packages.pop((tenant, name), None)  # what a source wanted was never loaded here

    async def _close(self) -> None:
        if self._successor is not None:
            await self._successor._close()
        if self._is_open:
            self._graph_runtime.tasks.start("test node: end of grace", self._advance_while_closing())
        await super()._close()

    async def _advance_while_closing(self) -> None:
        """Let time pass for what does not end while the node closes: nobody else moves the clock then."""
        while True:
            for _ in range(IDLE_TURN_LIMIT):
                await asyncio.sleep(IDLE_CHECK_INTERVAL)  # real time: threads and stores take it
            self.clock.advance_to(self.clock.monotonic() + self.settings.unload_timeout)

    @property
    def probe(self) -> Probe:
        """Return views of engine parts that the public API does not show."""
        return Probe(
            GraphProbe(self._scheduler), WorkflowProbe(self._workflows, self._run_store), PackageProbe(self._packages)
        )

    # -- time

    async def advance(self, duration: Duration) -> None:
        """Move time forward step by step, running what becomes due; work that blocks is not waited for."""
        target = self.clock.monotonic() + parse_duration(duration)
        await self._run_until_idle()
        while (due := self.clock.next_wakeup()) is not None and due <= target:
            self.clock.advance_to(due)
            await self._run_until_idle()
        self.clock.advance_to(target)
        await self._run_until_idle()

    async def _run_until_idle(self) -> None:
        """Give work its turns: until nothing is due, or what runs does not get on. The store is always waited for.

        Tasks on threads and in processes need real time: each attempt is given some, once. So do questions on threads.
        """
        calm = turns = 0
        while turns < IDLE_TURN_LIMIT and calm < 3:
            is_saved = self._checkpointer is None or self._checkpointer.is_idle
            is_writing = self._workflows.is_using_store or self._packages.is_using_store or not is_saved
            living = self._workflows.attempts.running()
            is_new = not living <= self._attempts_waited_for
            scheduler = self._workflows.leader.scheduler
            is_asking = scheduler is not None and scheduler.is_polling
            is_loading = self._packages.is_busy
            is_elsewhere = is_writing or is_new or is_asking or is_loading
            await asyncio.sleep(IDLE_CHECK_INTERVAL if is_elsewhere else 0)  # real time: threads and stores take it
            turns += not is_writing
            calm = calm + 1 if self._is_idle_or_blocked and not self._packages.is_busy else 0
        self._attempts_waited_for = self._workflows.attempts.running()

    @property
    def _is_idle(self) -> bool:
        return super()._is_idle and not self.clock.has_pending_wakeups

    @property
    def _is_idle_or_blocked(self) -> bool:
        """Whether nothing happens but in tasks that have been waited for already, and that seem to block."""
        if self._is_idle or self.clock.has_pending_wakeups or not self._scheduler.is_idle:
            return self._is_idle
        is_saved = self._checkpointer is None or self._checkpointer.is_idle
        is_resting = is_saved and self._workflows.is_quiescent and not self._packages.is_using_store
        return is_resting and self._workflows.attempts.running() <= self._attempts_waited_for

    # -- faults

    async def break_accumulator(
        self, name: str, error: BaseException | None = None, *, tenant: str | None = None
    ) -> None:
        """Crash an accumulator once."""
        accumulator = self._scheduler.accumulator(self._resolve_tenant(tenant), name)
        accumulator.crash(error or RuntimeError("broken on purpose"))
        await self._run_until_idle()

    async def break_reactor(self, name: str, error: BaseException | None = None, *, tenant: str | None = None) -> None:
        """Crash a reactor once."""
        self._scheduler.reactor(self._resolve_tenant(tenant), name).crash(error or RuntimeError("broken on purpose"))
        await self._run_until_idle()

    async def disconnect(self, name: str, *, tenant: str | None = None) -> None:
        """Cut an accumulator's connection to its source."""
        self._scheduler.accumulator(self._resolve_tenant(tenant), name).disconnect()
        await self._run_until_idle()

    async def reconnect(self, name: str, *, tenant: str | None = None) -> None:
        """Give an accumulator its connection back."""
        self._scheduler.accumulator(self._resolve_tenant(tenant), name).reconnect()
        await self._run_until_idle()

    def fail_store(self, times: int) -> None:
        """Let the next `times` transactions of the store fail."""
        if type(times) is not int or times < 0:
            raise ValueError(f"times is a number of transactions, not {times!r}")
        self._run_store.fail_next(times)

    async def kill_worker(self) -> None:
        """Let everything that runs vanish without a report."""
        for executor in self._slow_executors:
            executor.abandon()
        await self._run_until_idle()

    def slow_executor(self, duration: Duration) -> None:
        """Let every executor take this long to accept an attempt."""
        for executor in self._slow_executors:
            executor.set_delay(parse_duration(duration))

    def break_run(self, run_id: str) -> None:
        """Make every change of a run raise, until `repair_runs`."""
        self._run_faults.break_run(run_id)

    def repair_runs(self) -> None:
        """End the faults of all broken runs."""
        self._run_faults.repair()

    @property
    def _slow_executors(self) -> list[SlowExecutor]:
        return [executor for executor in self._workflows.executors.values() if isinstance(executor, SlowExecutor)]

    async def crash(self) -> "TestNode":
        """End this node as kill -9 would, and return a started successor on the same store, clock and definitions.

        The `async with` block that opened the first node closes its successors too.
        """
        self._is_open = False
        self._packages.abandon()
        self._scheduler.abandon()
        await self._graph_runtime.tasks.close(self.settings.unload_timeout)  # first: no firing gets another turn
        await kill_engine(self._workflows, self.settings.unload_timeout)
        self._run_store.fail_next(0)
        await self._run_store.close()
        self._successor = TestNode(clock=self.clock, predecessor=self, **self._arguments)
        await self._successor.__aenter__()
        return self._successor


class _CrashedNodes(HostLiveness):
    """Knows that the nodes before this one are gone, although their process is the same."""

    def __init__(self, node: TestNode) -> None:
        self._node = node

    def is_dead(self, owner: Owner) -> bool:
        before = self._node._predecessor
        while before is not None:
            if before._workflows.owner.id == owner.id:
                return True
            before = before._predecessor
        return super().is_dead(owner)


node = TestNode
"""A node on a virtual clock that begins at `start`; `disconnected` accumulators begin without connection."""
