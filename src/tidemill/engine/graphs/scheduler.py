"""The graph scheduler: loads and unloads reactors with their accumulators, binds and unbinds graphs.

It holds one ManagedGraph per loaded reactor; the registry holds the constructors. Both change together: endpoint keys
are registered last, all or none, and after an unload nothing of the reactor is left in either.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

from tidemill.engine.graphs.accumulators.accumulator import RunningAccumulator
from tidemill.engine.graphs.durability.restore import StateRestorer
from tidemill.engine.graphs.durability.state_reader import StoredState, read_state
from tidemill.engine.graphs.metrics import accumulator_collector, reactor_collector
from tidemill.engine.graphs.reactors.reactor import RunningReactor
from tidemill.engine.graphs.restart_state import Supervised
from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.engine.graphs.staging import (
    GraphChange,
    GraphStager,
    ManagedGraph,
    StagedGraphs,
    contract_changes,
    name_taken_error,
    not_shared_error,
    reactor_in_use_error,
    subscriber_name,
)
from tidemill.engine.registry import Key, Registry
from tidemill.graphs.definition import Reactor
from tidemill.kernel.errors import RequestError
from tidemill.kernel.suggestions import did_you_mean
from tidemill.storage.store import Store
from tidemill.telemetry import events
from tidemill.telemetry.metrics import Metrics

logger = logging.getLogger(__name__)


class GraphScheduler:
    """Everything that runs for computation graphs on one node."""

    def __init__(self, runtime: GraphRuntime, registry: Registry, metrics: Metrics, store: Store | None = None) -> None:
        self._runtime = runtime
        self._store = store
        self._registry = registry
        self._metrics = metrics
        self._is_closed = False
        self._managed: dict[Key, ManagedGraph] = {}
        self._accumulators: dict[Key, RunningAccumulator] = {}
        self.disconnected_at_start: frozenset[str] = frozenset()

    # -- finding

    def reactor(self, tenant: str, name: str) -> RunningReactor:
        """Return a loaded reactor, or raise RequestError."""
        return self._find_managed(tenant, name).reactor

    def accumulator(self, tenant: str, name: str) -> RunningAccumulator:
        """Return a running accumulator, or raise RequestError."""
        self._check_open()
        found = self._accumulators.get((tenant, name))
        if found is None:
            known = [other for owner, other in self._accumulators if owner == tenant]
            message = f"unknown accumulator '{name}'{did_you_mean(name, known)}"
            raise RequestError(message, code="unknown_accumulator", status=404, accumulator=name)
        return found

    def _check_open(self) -> None:
        if self._is_closed:
            raise RequestError("the node is not running any more", code="not_running", status=409)

    def _find_managed(self, tenant: str, name: str) -> ManagedGraph:
        self._check_open()
        owner, _, local = name.rpartition("/")
        if owner and owner != tenant:
            raise not_shared_error(owner, local, tenant)
        found = self._managed.get((tenant, local))
        if found is None:
            known = [other for owned_by, other in self._managed if owned_by == tenant]
            message = f"reactor '{local}' not loaded{did_you_mean(local, known)}"
            raise RequestError(message, code="reactor_not_loaded", status=404, reactor=local)
        return found

    @property
    def reactors(self) -> Iterable[RunningReactor]:
        """All loaded reactors."""
        return [managed.reactor for managed in self._managed.values()]

    @property
    def accumulators(self) -> Iterable[RunningAccumulator]:
        """All running accumulators."""
        return list(self._accumulators.values())

    def running_keys(self) -> tuple[set[Key], set[Key]]:
        """Return the keys of what runs here, to be compared with the registry."""
        return set(self._managed), set(self._accumulators)

    def subscribers(self, tenant: str, name: str) -> list[str]:
        """Return the graphs that are bound to a reactor; those of other tenants as "tenant/name"."""
        managed = self._managed.get((tenant, name))
        return [] if managed is None else sorted(managed.subscribers)

    def make_in_use_check(self, tenant: str, name: str) -> Callable[[], bool]:
        """Return how to ask later whether what a reactor's graphs and accumulators do just now has not ended yet.

        What begins from now on is of no concern.
        """
        managed = self._managed.get((tenant, name))
        if managed is None:
            return lambda: False
        wheel, firing = managed.reactor.firing_loop, managed.reactor.firing_loop.firing_token
        calls = [(one, one.in_flight_call) for one in managed.accumulators if one.in_flight_call is not None]

        def is_needed() -> bool:
            is_firing = firing is not None and wheel.firing_token is firing
            return is_firing or any(one.in_flight_call is call for one, call in calls)

        return is_needed

    def is_loaded(self, tenant: str, reactor: Reactor) -> bool:
        """Return whether this very declaration is loaded."""
        managed = self._managed.get((tenant, reactor.name))
        return managed is not None and managed.reactor.definition is reactor

    # -- loading

    def check_names(self, reactor: Reactor, tenant: str, replacing: frozenset[str] = frozenset()) -> None:
        """Refuse a reactor whose name, or an accumulator of whose, belongs to somebody else."""
        if (tenant, reactor.name) in self._managed and reactor.name not in replacing:
            raise name_taken_error("reactor", reactor.name, self._managed[tenant, reactor.name].reactor.definition)
        for one in reactor.accumulators:
            running = self._accumulators.get((tenant, one.name))
            if running is None or running.definition is one:
                continue
            owners = {target.name for target, _ in running.targets}
            if not owners <= replacing:
                raise name_taken_error("accumulator", one.name, running.definition)

    def stage(self, change: GraphChange) -> StagedGraphs:
        """Make a package ready beside what runs: whatever may fail fails here, and nothing has changed."""
        replacing, mine = frozenset(change.previous.reactors), frozenset(change.previous.graphs)
        arriving = {one.name: one for one in change.reactors}
        for reactor in change.reactors:
            self.check_names(reactor, change.tenant, replacing)
        for name in change.previous.reactors:
            if changes := contract_changes(
                self._find_managed(change.tenant, name).reactor.definition, arriving.get(name)
            ):
                self.check_unloadable(change.tenant, name, mine, changes)
        return GraphStager(change, self._managed, self._registry, self._runtime).build()

    @asynccontextmanager
    async def _quiesced(self, tenant: str, names: Iterable[str]) -> AsyncIterator[None]:
        """Let nothing be on its way to the journal for accumulators that a package touches while it takes its place."""
        async with AsyncExitStack() as all_of_them:
            for name in sorted(set(names)):
                running = self._accumulators.get((tenant, name))
                if running is not None and running.is_journaled:
                    await all_of_them.enter_async_context(running.quiesced())
            yield

    async def read_state(self, staged: StagedGraphs) -> StoredState | None:
        """Read what the store holds of the reactors that are about to come up; what they replace must have left."""
        if self._store is None or not staged.added_reactors:
            return None
        return await read_state(self._store, list(staged.added_reactors.values()), self._starting_accumulators(staged))

    async def start_reactors(self, staged: StagedGraphs) -> None:
        """Let reactors leave that nothing takes over, and new ones come up with what the store holds of them.

        They hold still until `open_up`: their graphs may be yet to come.
        """
        if staged.removed_reactors:
            await self.read_state(staged)  # a store that fails is better met before anything is unloaded
            for name in staged.removed_reactors:
                await self.unload_reactor(staged.change.tenant, name, frozenset(staged.change.previous.graphs))
        touched = [
            name for managed in staged.added_reactors.values() for name in managed.reactor.definition.accumulator_names
        ]
        async with self._quiesced(staged.change.tenant, touched):
            memory = await self.read_state(staged)
            while memory is not None and memory.is_stale:  # a dead batch, say, is let go of even now
                memory = await self.read_state(staged)
            adopted = self._newly_durable(staged)
            self._start_added(staged, memory)
        await self._checkpoint_added(staged, adopted)

    async def rebind(self, staged: StagedGraphs) -> None:
        """Bind and unbind a package's graphs, and let newer versions go on in place, in one step that cannot fail."""
        touched = [
            *staged.redefined_accumulators,
            *(name for one in staged.redefined_reactors.values() for name in one.accumulator_names),
        ]
        async with self._quiesced(staged.change.tenant, touched):
            self._apply_change(staged)

    def end_change(self) -> None:
        """Keep no more of the journals for reactors that left: they are back by now, or do not come back."""
        for one in self._accumulators.values():
            one.departed_reactors.clear()

    def _starting_accumulators(self, staged: StagedGraphs) -> list[RunningAccumulator]:
        """Return the accumulators that come up with a package."""
        found = dict.fromkeys(one for managed in staged.added_reactors.values() for one in managed.accumulators)
        coming = {managed.reactor for managed in staged.added_reactors.values()}
        return [one for one in found if self._is_starting(one, coming)]

    def _is_starting(self, accumulator: RunningAccumulator, starting: set[RunningReactor]) -> bool:
        """Return whether nothing has happened to an accumulator yet, and nobody has asked the store about it."""
        if (accumulator.tenant, accumulator.name) not in self._accumulators:
            return True
        is_kept = any(target.is_durable for target, _ in accumulator.targets if target not in starting)
        return self._runtime.is_starting_up and not is_kept

    def _start_added(self, staged: StagedGraphs, stored_state: StoredState | None) -> None:
        for managed in staged.added_reactors.values():
            self._attach(managed)
        if stored_state is not None:
            self._restore(staged, stored_state)
        for name, managed in staged.added_reactors.items():
            self._start_reactor(staged.change.tenant, name, managed)

    def _apply_change(self, staged: StagedGraphs) -> None:
        tenant, mine = staged.change.tenant, {one.name for one in staged.change.reactors}
        for name, newer in staged.redefined_accumulators.items():
            self._accumulators[tenant, name].redefine(newer)
        for graph in staged.change.graphs:
            self._registry.add_graph(tenant, graph)
            logger.info(events.GRAPH_BOUND, extra={"graph": graph.name, "reactor": graph.reactor_name})
        for key, managed in self._managed.items():
            self._rebind_reactor(key, managed, staged)
        for name in mine:
            self._registry.set_shared(tenant, name, shared=name in staged.change.shared)

    def _newly_durable(self, staged: StagedGraphs) -> set[RunningAccumulator]:
        """Return the accumulators that run already, and that nobody has kept before."""
        found = {
            one
            for managed in staged.added_reactors.values()
            if managed.reactor.is_durable
            for one in managed.accumulators
        }
        running = found.intersection(self._accumulators.values())
        return {one for one in running if not any(target.is_durable for target, _ in one.targets)}

    async def _checkpoint_added(self, staged: StagedGraphs, newly_durable: set[RunningAccumulator]) -> None:
        """Write the first checkpoint of reactors with a journal: it names the series that their firings belong to.

        So with accumulators that begin to be kept: what the store holds of them is of an earlier life, and is over.
        """
        fresh = [managed.reactor for managed in staged.added_reactors.values()]
        new = [one for one in fresh if one.is_journaled and not one.generation]
        new += [one for one in fresh if one.is_durable and not newly_durable.isdisjoint(one.accumulators)]
        for reactor in new:
            reactor.mark_changed()
        if new and not self._runtime.is_starting_up:  # else nothing fires yet, and all are written together
            await self._runtime.durability.write()

    async def checkpoint_loaded(self) -> None:
        """Write the first checkpoint of everything that was loaded at the start, before anything fires."""
        if any(reactor.is_journaled and not reactor.generation for reactor in self.reactors):
            await self._runtime.durability.write()

    def _rebind_reactor(self, key: Key, managed: ManagedGraph, staged: StagedGraphs) -> None:
        """Let a reactor go on as staged, version and graphs in one step, so that no firing sees half of it."""
        tenant = staged.change.tenant
        leaving = {subscriber_name(key, tenant, name) for name in staged.change.previous.graphs}
        staying = {graph: compiled for graph, compiled in managed.subscribers.items() if graph not in leaving}
        subscribers = staying | staged.subscribers.get(key, {})
        definition = staged.redefined_reactors.get(key[1]) if key[0] == tenant else None
        if definition is not None:
            self._registry.add_reactor(tenant, definition)
            managed.reactor.redefine(definition, subscribers)
        elif subscribers != managed.subscribers:
            managed.reactor.set_graphs(subscribers)
        managed.subscribers = subscribers

    def _attach(self, managed: ManagedGraph) -> None:
        """Put a reactor together with its accumulators."""
        for index, one in enumerate(managed.accumulators):
            managed.reactor.attach(one, index)
        managed.reactor.refresh_subscribers()

    def _restore(self, staged: StagedGraphs, stored_state: StoredState) -> None:
        """Fill what is about to start with what the store holds of it, and say what could not be restored."""
        is_opening = self._runtime.is_starting_up
        restoration = StateRestorer(
            stored_state,
            list(staged.added_reactors.values()),
            self._starting_accumulators(staged),
            is_starting_up=is_opening,
        )
        restoration.run()
        self._runtime.durability.advance_position(restoration.position)
        for reactor in restoration.changed_reactors:
            reactor.mark_changed()
            self._runtime.durability.flush_soon()
        for thing, reason in restoration.problems:
            self._runtime.supervisor.on_partial_restore(thing, reason)

    def _start_reactor(self, tenant: str, name: str, managed: ManagedGraph) -> None:
        """Start a reactor and those of its accumulators that do not run yet; endpoints come last, all or none."""
        reactor = managed.reactor
        self._managed[tenant, name] = managed
        self._registry.add_reactor(tenant, reactor.definition)
        for one in managed.accumulators:
            if (tenant, one.name) not in self._accumulators:
                self._add_accumulator(one)
        reactor.start()
        self._metrics.register(reactor_collector(reactor))
        self._registry.add_endpoints(tenant, managed.endpoints)
        logger.info(events.REACTOR_LOADED, extra={"reactor": name, "tenant": tenant})

    def _add_accumulator(self, running: RunningAccumulator) -> None:
        self._accumulators[running.tenant, running.name] = running
        self._registry.add_accumulator(running.tenant, running.name)
        self._metrics.register(accumulator_collector(running))
        running.disconnected = running.name in self.disconnected_at_start
        running.is_inactive = True
        running.start()

    def refresh_subscribers(self, tenant: str, name: str) -> None:
        """Take note that other workflows than before are started by the firings of a reactor, loaded or not."""
        managed = self._managed.get((tenant, name))
        if managed is not None:
            managed.reactor.refresh_subscribers()

    # -- unloading

    def check_unloadable(
        self, tenant: str, name: str, leaving: frozenset[str] = frozenset(), changes: Sequence[str] = ()
    ) -> None:
        """Refuse to unload a reactor that graphs other than `leaving` are bound to, for good or for some `changes`."""
        others = set(self._find_managed(tenant, name).subscribers) - leaving
        if others:
            raise reactor_in_use_error(name, others, changes=changes)

    async def unload_reactor(self, tenant: str, name: str, graphs: frozenset[str] = frozenset()) -> None:
        """Take a reactor down with its `graphs`: stop it, then accumulators that nobody else uses, then the names."""
        self.check_unloadable(tenant, name, graphs)
        managed = self._managed[tenant, name]
        others = [one for one in self._managed.values() if one is not managed]
        leaving = [one for one in managed.accumulators if not any(one in other.accumulators for other in others)]
        await self._drain_and_stop(managed, leaving)
        await self._runtime.durability.save_and_forget(managed.reactor)
        self._registry.drop_endpoints(tenant, self._endpoints_to_drop(managed, leaving))
        for one in leaving:
            self._metrics.retire(accumulator_collector(one))
            del self._accumulators[tenant, one.name]
            self._registry.drop_accumulator(tenant, one.name)
            one.departed_reactors.clear()
            one.redirect_handles(partial(self.accumulator, tenant, one.name))
        self._metrics.retire(reactor_collector(managed.reactor))
        for graph in managed.subscribers:
            self._forget_graph(tenant, graph)
        del self._managed[tenant, name]
        self._registry.drop_reactor(tenant, name)
        logger.info(events.REACTOR_UNLOADED, extra={"reactor": name, "tenant": tenant})

    async def _drain_and_stop(self, managed: ManagedGraph, leaving: list[RunningAccumulator]) -> None:
        """Let a reactor and its leaving accumulators end in order; what takes too long is cancelled."""
        reactor = managed.reactor
        reactor.queue_gate.close()
        for one in managed.accumulators:
            if one in leaving:
                one.close("is being unloaded")
            else:
                one.remove_target(reactor)
        for one in leaving:
            await self._run_with_grace(one.drain(), one)
        await self._run_with_grace(reactor.firing_loop.drain(), reactor)
        await self._run_with_grace(reactor.stop(), reactor)
        for one in leaving:
            one.remove_target(reactor)
            await self._run_with_grace(one.stop(), one)

    def _endpoints_to_drop(self, managed: ManagedGraph, leaving: list[RunningAccumulator]) -> list[str]:
        kept = {f"accumulators/{one.name}" for one in managed.accumulators if one not in leaving}
        return [key for key in managed.endpoints if key not in kept]

    async def _run_with_grace(self, work: Coroutine[Any, Any, None], component: Supervised) -> None:
        """Wait for the end of something, but not for ever; then cancel it, say so, and go on."""
        grace = self._runtime.settings.unload_timeout
        title = f"end of {component.component} {component.name}"
        task = self._runtime.tasks.start(title, work)
        timer = self._runtime.tasks.start(f"{title}: grace", self._runtime.clock.sleep(grace))
        await asyncio.wait({task, timer}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            self._runtime.supervisor.on_stop_timeout(component, f"did not end within {grace:g} s")
            task.cancel()
        timer.cancel()
        await asyncio.wait({task, timer})

    async def _run_all_with_grace(self, endings: Sequence[tuple[Coroutine[Any, Any, None], Supervised]]) -> None:
        """Wait for many ends in one grace."""
        title = "end of the node"
        waits = [self._runtime.tasks.start(title, self._run_with_grace(*ending)) for ending in endings]
        if waits:
            await asyncio.wait(waits)

    def unbind_graph(self, tenant: str, name: str) -> None:
        """Let a graph run no more."""
        for key, managed in self._managed.items():
            if managed.subscribers.pop(subscriber_name(key, tenant, name), None) is not None:
                managed.reactor.set_graphs(managed.subscribers)
        self._forget_graph(tenant, name)

    def _forget_graph(self, tenant: str, name: str) -> None:
        if self._registry.drop_graph(tenant, name):
            logger.info(events.GRAPH_UNBOUND, extra={"graph": name})

    # -- life

    async def watch_progress(self) -> None:
        """Look after progress until cancelled: notice accumulators that hang."""
        interval = self._runtime.settings.watchdog_interval
        while True:
            await self._runtime.in_flight.busy.wait()  # an idle node has nothing that could hang
            await self._runtime.clock.sleep(interval)
            for one in tuple(self._accumulators.values()):
                one.check_progress(interval)

    async def close(self) -> None:
        """Unload everything, guards or not; reactors that share accumulators are kept as of one moment."""
        for reactor in self.reactors:
            reactor.queue_gate.close()
        for one in self.accumulators:
            one.close("is being unloaded")
        await self._run_all_with_grace([(one.drain(), one) for one in self.accumulators])
        await self._run_all_with_grace([(reactor.firing_loop.drain(), reactor) for reactor in self.reactors])
        await self._runtime.durability.close()
        for (tenant, name), managed in tuple(self._managed.items()):
            await self.unload_reactor(tenant, name, frozenset(managed.subscribers))
        self._is_closed = True

    def activate(self) -> None:
        """Let reactors fire, and sources be read, that were held back until everything was loaded.

        While a node comes up that is still to be, and this does nothing.
        """
        if self._runtime.is_starting_up:
            return
        for reactor in self.reactors:
            reactor.activate()
        for one in self.accumulators:
            one.activate()

    def abandon(self) -> None:
        """Leave everything as the death of the process would: nothing runs, nothing is handed on."""
        self._is_closed = True
        for reactor in self.reactors:
            reactor.stop_firing()
        for one in self.accumulators:
            one.redirect_handles(partial(self.accumulator, one.tenant, one.name))

    @property
    def is_idle(self) -> bool:
        """Whether no firing runs and none is due."""
        return self._runtime.in_flight.count == 0 and all(reactor.firing_loop.is_idle for reactor in self.reactors)
