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

from tidemill.engine.graphs.accumulator import RunningAccumulator
from tidemill.engine.graphs.checkpoints.recall import Memory, recall
from tidemill.engine.graphs.checkpoints.restore import Restoration
from tidemill.engine.graphs.environment import Environment
from tidemill.engine.graphs.figures import accumulator_figures, reactor_figures
from tidemill.engine.graphs.reactor import RunningReactor
from tidemill.engine.graphs.staging import (
    ManagedGraph,
    Offer,
    Stage,
    Staged,
    contract_changes,
    in_use,
    not_shared,
    subscriber,
    taken,
)
from tidemill.engine.graphs.supervision import Component
from tidemill.engine.registry import Key, Registry
from tidemill.graphs.definition import Reactor
from tidemill.kernel.errors import RequestError
from tidemill.kernel.suggestions import did_you_mean
from tidemill.storage.ports import Store
from tidemill.telemetry import events
from tidemill.telemetry.metrics import Metrics

logger = logging.getLogger(__name__)


class GraphScheduler:
    """Everything that runs for computation graphs on one node."""

    def __init__(
        self, environment: Environment, registry: Registry, metrics: Metrics, store: Store | None = None
    ) -> None:
        self._environment = environment
        self._store = store
        self._registry = registry
        self._metrics = metrics
        self._is_closed = False
        self._managed: dict[Key, ManagedGraph] = {}
        self._accumulators: dict[Key, RunningAccumulator] = {}
        self.severed_at_start: frozenset[str] = frozenset()

    # -- finding

    def reactor(self, tenant: str, name: str) -> RunningReactor:
        """Return a loaded reactor, or raise RequestError."""
        return self._find(tenant, name).reactor

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

    def _find(self, tenant: str, name: str) -> ManagedGraph:
        self._check_open()
        owner, _, local = name.rpartition("/")
        if owner and owner != tenant:
            raise not_shared(owner, local, tenant)
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

    def names(self) -> tuple[set[Key], set[Key]]:
        """Return the keys of what runs here, to be compared with the registry."""
        return set(self._managed), set(self._accumulators)

    def subscribers(self, tenant: str, name: str) -> list[str]:
        """Return the graphs that are bound to a reactor; those of other tenants as "tenant/name"."""
        managed = self._managed.get((tenant, name))
        return [] if managed is None else sorted(managed.subscribers)

    def need_for(self, tenant: str, name: str) -> Callable[[], bool]:
        """Return how to ask later whether what a reactor's graphs and accumulators do just now has not ended yet.

        What begins from now on is of no concern.
        """
        managed = self._managed.get((tenant, name))
        if managed is None:
            return lambda: False
        wheel, firing = managed.reactor.wheel, managed.reactor.wheel.awaited
        calls = [(one, one.in_flight) for one in managed.accumulators if one.in_flight is not None]

        def is_needed() -> bool:
            is_firing = firing is not None and wheel.awaited is firing
            return is_firing or any(one.in_flight is call for one, call in calls)

        return is_needed

    def is_same(self, tenant: str, reactor: Reactor) -> bool:
        """Return whether this very declaration is loaded."""
        managed = self._managed.get((tenant, reactor.name))
        return managed is not None and managed.reactor.definition is reactor

    # -- loading

    def check_names(self, reactor: Reactor, tenant: str, replacing: frozenset[str] = frozenset()) -> None:
        """Refuse a reactor whose name, or an accumulator of whose, belongs to somebody else."""
        if (tenant, reactor.name) in self._managed and reactor.name not in replacing:
            raise taken("reactor", reactor.name, self._managed[tenant, reactor.name].reactor.definition)
        for one in reactor.accumulators:
            running = self._accumulators.get((tenant, one.name))
            if running is None or running.definition is one:
                continue
            owners = {target.name for target, _ in running.targets}
            if not owners <= replacing:
                raise taken("accumulator", one.name, running.definition)

    def stage(self, offer: Offer) -> Staged:
        """Make a package ready beside what runs: whatever may fail fails here, and nothing has changed."""
        replacing, mine = frozenset(offer.before.reactors), frozenset(offer.before.graphs)
        arriving = {one.name: one for one in offer.reactors}
        for reactor in offer.reactors:
            self.check_names(reactor, offer.tenant, replacing)
        for name in offer.before.reactors:
            if changes := contract_changes(self._find(offer.tenant, name).reactor.definition, arriving.get(name)):
                self.guard_unload(offer.tenant, name, mine, changes)
        return Stage(offer, self._managed, self._registry, self._environment).build()

    @asynccontextmanager
    async def _standing_still(self, tenant: str, names: Iterable[str]) -> AsyncIterator[None]:
        """Let nothing be on its way to the journal for accumulators that a package touches while it takes its place."""
        async with AsyncExitStack() as all_of_them:
            for name in sorted(set(names)):
                running = self._accumulators.get((tenant, name))
                if running is not None and running.commits:
                    await all_of_them.enter_async_context(running.standing_still())
            yield

    async def recall(self, staged: Staged) -> Memory | None:
        """Read what the store holds of the reactors that are about to come up; what they replace must have left."""
        if self._store is None or not staged.fresh:
            return None
        return await recall(self._store, list(staged.fresh.values()), self._starting(staged))

    async def bring_up(self, staged: Staged) -> None:
        """Let reactors leave that nothing takes over, and new ones come up with what the store holds of them.

        They hold still until `open_up`: their graphs may be yet to come.
        """
        if staged.leaving:
            await self.recall(staged)  # a store that fails is better met before anything is unloaded
            for name in staged.leaving:
                await self.unload_reactor(staged.offer.tenant, name, frozenset(staged.offer.before.graphs))
        touched = [name for managed in staged.fresh.values() for name in managed.reactor.definition.names]
        async with self._standing_still(staged.offer.tenant, touched):
            memory = await self.recall(staged)
            while memory is not None and memory.is_behind:  # a dead batch, say, is let go of even now
                memory = await self.recall(staged)
            adopted = self._adopted(staged)
            self._start(staged, memory)
        await self._save_new(staged, adopted)

    async def rebind(self, staged: Staged) -> None:
        """Bind and unbind a package's graphs, and let newer versions go on in place, in one step that cannot fail."""
        touched = [*staged.newer, *(name for one in staged.swapped.values() for name in one.names)]
        async with self._standing_still(staged.offer.tenant, touched):
            self._exchange(staged)

    def end_exchange(self) -> None:
        """Keep no more of the journals for reactors that left: they are back by now, or do not come back."""
        for one in self._accumulators.values():
            one.departed.clear()

    def _starting(self, staged: Staged) -> list[RunningAccumulator]:
        """Return the accumulators that come up with a package."""
        found = dict.fromkeys(one for managed in staged.fresh.values() for one in managed.accumulators)
        coming = {managed.reactor for managed in staged.fresh.values()}
        return [one for one in found if self._comes_up(one, coming)]

    def _comes_up(self, one: RunningAccumulator, coming: set[RunningReactor]) -> bool:
        """Return whether nothing has happened to an accumulator yet, and nobody has asked the store about it."""
        if (one.tenant, one.name) not in self._accumulators:
            return True
        is_kept = any(target.is_kept for target, _ in one.targets if target not in coming)
        return self._environment.is_opening and not is_kept

    def _start(self, staged: Staged, memory: Memory | None) -> None:
        for managed in staged.fresh.values():
            self._attach(managed)
        if memory is not None:
            self._restore(staged, memory)
        for name, managed in staged.fresh.items():
            self._bring_up(staged.offer.tenant, name, managed)

    def _exchange(self, staged: Staged) -> None:
        tenant, mine = staged.offer.tenant, {one.name for one in staged.offer.reactors}
        for name, newer in staged.newer.items():
            self._accumulators[tenant, name].redefine(newer)
        for graph in staged.offer.graphs:
            self._registry.add_graph(tenant, graph)
            logger.info(events.GRAPH_BOUND, extra={"graph": graph.name, "reactor": graph.reactor_name})
        for key, managed in self._managed.items():
            self._rebind(key, managed, staged)
        for name in mine:
            self._registry.share(tenant, name, shared=name in staged.offer.shared)

    def _adopted(self, staged: Staged) -> set[RunningAccumulator]:
        """Return the accumulators that run already, and that nobody has kept before."""
        found = {one for managed in staged.fresh.values() if managed.reactor.is_kept for one in managed.accumulators}
        running = found.intersection(self._accumulators.values())
        return {one for one in running if not any(target.is_kept for target, _ in one.targets)}

    async def _save_new(self, staged: Staged, adopted: set[RunningAccumulator]) -> None:
        """Write the first checkpoint of reactors with a journal: it names the series that their firings belong to.

        So with accumulators that begin to be kept: what the store holds of them is of an earlier life, and is over.
        """
        fresh = [managed.reactor for managed in staged.fresh.values()]
        new = [one for one in fresh if one.commits and not one.generation]
        new += [one for one in fresh if one.is_kept and not adopted.isdisjoint(one.accumulators)]
        for reactor in new:
            reactor.note()
        if new and not self._environment.is_opening:  # else nothing fires yet, and all are written together
            await self._environment.keeper.write()

    async def save_opened(self) -> None:
        """Write the first checkpoint of everything that was loaded at the start, before anything fires."""
        if any(reactor.commits and not reactor.generation for reactor in self.reactors):
            await self._environment.keeper.write()

    def _rebind(self, key: Key, managed: ManagedGraph, staged: Staged) -> None:
        """Let a reactor go on as staged, version and graphs in one step, so that no firing sees half of it."""
        tenant = staged.offer.tenant
        leaving = {subscriber(key, tenant, name) for name in staged.offer.before.graphs}
        staying = {graph: compiled for graph, compiled in managed.subscribers.items() if graph not in leaving}
        subscribers = staying | staged.subscribers.get(key, {})
        definition = staged.swapped.get(key[1]) if key[0] == tenant else None
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
        managed.reactor.follow()

    def _restore(self, staged: Staged, memory: Memory) -> None:
        """Fill what is about to start with what the store holds of it, and say what could not be restored."""
        is_opening = self._environment.is_opening
        restoration = Restoration(memory, list(staged.fresh.values()), self._starting(staged), is_opening=is_opening)
        restoration.run()
        self._environment.keeper.go_on_from(restoration.position)
        for reactor in restoration.changed:
            reactor.note()
            self._environment.keeper.hurry()
        for thing, reason in restoration.complaints:
            self._environment.supervisor.restored(thing, reason)

    def _bring_up(self, tenant: str, name: str, managed: ManagedGraph) -> None:
        """Start a reactor and those of its accumulators that do not run yet; endpoints come last, all or none."""
        reactor = managed.reactor
        self._managed[tenant, name] = managed
        self._registry.add_reactor(tenant, reactor.definition)
        for one in managed.accumulators:
            if (tenant, one.name) not in self._accumulators:
                self._add_accumulator(one)
        reactor.start()
        self._metrics.register(reactor_figures(reactor))
        self._registry.add_endpoints(tenant, managed.endpoints)
        logger.info(events.REACTOR_LOADED, extra={"reactor": name, "tenant": tenant})

    def _add_accumulator(self, running: RunningAccumulator) -> None:
        self._accumulators[running.tenant, running.name] = running
        self._registry.add_accumulator(running.tenant, running.name)
        self._metrics.register(accumulator_figures(running))
        running.severed = running.name in self.severed_at_start
        running.is_held = True
        running.start()

    def follow(self, tenant: str, name: str) -> None:
        """Take note that other workflows than before are started by the firings of a reactor, loaded or not."""
        managed = self._managed.get((tenant, name))
        if managed is not None:
            managed.reactor.follow()

    # -- unloading

    def guard_unload(
        self, tenant: str, name: str, leaving: frozenset[str] = frozenset(), changes: Sequence[str] = ()
    ) -> None:
        """Refuse to unload a reactor that graphs other than `leaving` are bound to, for good or for some `changes`."""
        others = set(self._find(tenant, name).subscribers) - leaving
        if others:
            raise in_use(name, others, changes=changes)

    async def unload_reactor(self, tenant: str, name: str, graphs: frozenset[str] = frozenset()) -> None:
        """Take a reactor down with its `graphs`: stop it, then accumulators that nobody else uses, then the names."""
        self.guard_unload(tenant, name, graphs)
        managed = self._managed[tenant, name]
        others = [one for one in self._managed.values() if one is not managed]
        leaving = [one for one in managed.accumulators if not any(one in other.accumulators for other in others)]
        await self._wind_up(managed, leaving)
        await self._environment.keeper.part_with(managed.reactor)
        self._registry.drop_endpoints(tenant, self._keys_to_drop(managed, leaving))
        for one in leaving:
            self._metrics.retire(accumulator_figures(one))
            del self._accumulators[tenant, one.name]
            self._registry.drop_accumulator(tenant, one.name)
            one.departed.clear()
            one.bequeath(partial(self.accumulator, tenant, one.name))
        self._metrics.retire(reactor_figures(managed.reactor))
        for graph in managed.subscribers:
            self._forget_graph(tenant, graph)
        del self._managed[tenant, name]
        self._registry.drop_reactor(tenant, name)
        logger.info(events.REACTOR_UNLOADED, extra={"reactor": name, "tenant": tenant})

    async def _wind_up(self, managed: ManagedGraph, leaving: list[RunningAccumulator]) -> None:
        """Let a reactor and its leaving accumulators end in order; what takes too long is cancelled."""
        reactor = managed.reactor
        reactor.room.end()
        for one in managed.accumulators:
            if one in leaving:
                one.close("is being unloaded")
            else:
                one.leave(reactor)
        for one in leaving:
            await self._within(one.drain(), one)
        await self._within(reactor.wheel.wind_down(), reactor)
        await self._within(reactor.stop(), reactor)
        for one in leaving:
            one.leave(reactor)
            await self._within(one.stop(), one)

    def _keys_to_drop(self, managed: ManagedGraph, leaving: list[RunningAccumulator]) -> list[str]:
        kept = {f"accumulators/{one.name}" for one in managed.accumulators if one not in leaving}
        return [key for key in managed.endpoints if key not in kept]

    async def _within(self, work: Coroutine[Any, Any, None], component: Component) -> None:
        """Wait for the end of something, but not for ever; then cancel it, say so, and go on."""
        grace = self._environment.settings.unload_timeout
        title = f"end of {component.component} {component.name}"
        task = self._environment.tasks.start(title, work)
        timer = self._environment.tasks.start(f"{title}: grace", self._environment.clock.sleep(grace))
        await asyncio.wait({task, timer}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            self._environment.supervisor.overran(component, f"did not end within {grace:g} s")
            task.cancel()
        timer.cancel()
        await asyncio.wait({task, timer})

    async def _all_within(self, endings: Sequence[tuple[Coroutine[Any, Any, None], Component]]) -> None:
        """Wait for many ends in one grace."""
        title = "end of the node"
        waits = [self._environment.tasks.start(title, self._within(*ending)) for ending in endings]
        if waits:
            await asyncio.wait(waits)

    def unbind_graph(self, tenant: str, name: str) -> None:
        """Let a graph run no more."""
        for key, managed in self._managed.items():
            if managed.subscribers.pop(subscriber(key, tenant, name), None) is not None:
                managed.reactor.set_graphs(managed.subscribers)
        self._forget_graph(tenant, name)

    def _forget_graph(self, tenant: str, name: str) -> None:
        if self._registry.drop_graph(tenant, name):
            logger.info(events.GRAPH_UNBOUND, extra={"graph": name})

    # -- life

    async def watch(self) -> None:
        """Look after progress until cancelled: notice accumulators that hang."""
        interval = self._environment.settings.watchdog_interval
        while True:
            await self._environment.activity.begun.wait()  # an idle node has nothing that could hang
            await self._environment.clock.sleep(interval)
            for one in tuple(self._accumulators.values()):
                one.check_progress(interval)

    async def close(self) -> None:
        """Unload everything, guards or not; reactors that share accumulators are kept as of one moment."""
        for reactor in self.reactors:
            reactor.room.end()
        for one in self.accumulators:
            one.close("is being unloaded")
        await self._all_within([(one.drain(), one) for one in self.accumulators])
        await self._all_within([(reactor.wheel.wind_down(), reactor) for reactor in self.reactors])
        await self._environment.keeper.close()
        for (tenant, name), managed in tuple(self._managed.items()):
            await self.unload_reactor(tenant, name, frozenset(managed.subscribers))
        self._is_closed = True

    def open_up(self) -> None:
        """Let reactors fire, and sources be read, that were held back until everything was loaded.

        While a node comes up that is still to be, and this does nothing.
        """
        if self._environment.is_opening:
            return
        for reactor in self.reactors:
            reactor.open_up()
        for one in self.accumulators:
            one.open_up()

    def abandon(self) -> None:
        """Leave everything as the death of the process would: nothing runs, nothing is handed on."""
        self._is_closed = True
        for reactor in self.reactors:
            reactor.abandon()
        for one in self.accumulators:
            one.bequeath(partial(self.accumulator, one.tenant, one.name))

    @property
    def is_idle(self) -> bool:
        """Whether no firing runs and none is due."""
        return self._environment.activity.count == 0 and all(reactor.wheel.is_idle for reactor in self.reactors)
