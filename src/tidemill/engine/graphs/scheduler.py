"""The graph scheduler: loads and unloads reactors with their accumulators, binds and unbinds graphs.

It holds one ManagedGraph per loaded reactor; the registry holds the constructors. Both change together: endpoint keys
are registered last, all or none, and after an unload nothing of the reactor is left in either.
"""

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from functools import partial
from typing import Any

import msgspec

from tidemill.engine.graphs.accumulator import RunningAccumulator
from tidemill.engine.graphs.environment import Environment
from tidemill.engine.graphs.figures import accumulator_figures, reactor_figures
from tidemill.engine.graphs.kinds import spawn
from tidemill.engine.graphs.reactor import RunningReactor
from tidemill.engine.graphs.supervision import Component
from tidemill.engine.registry import Registry
from tidemill.graphs.compiler import Compiled
from tidemill.graphs.definition import Accumulator, Reactor
from tidemill.graphs.graph import Graph
from tidemill.kernel.errors import RequestError
from tidemill.kernel.suggestions import did_you_mean
from tidemill.telemetry import events
from tidemill.telemetry.metrics import Metrics

logger = logging.getLogger(__name__)

Key = tuple[str, str]


class AccumulatorDeclaration(msgspec.Struct, frozen=True):
    """An accumulator to be brought to life."""

    definition: Accumulator
    tenant: str

    def spawn(self, environment: Environment) -> RunningAccumulator:
        """Bring it to life."""
        return spawn(self.definition, self.tenant, environment)


class GraphDeclaration(msgspec.Struct, frozen=True):
    """A reactor to be loaded, with the accumulators that feed it: what packages and code hand over alike."""

    name: str
    tenant: str
    reactor: Reactor
    accumulators: tuple[AccumulatorDeclaration, ...]

    @classmethod
    def of(cls, reactor: Reactor, tenant: str) -> "GraphDeclaration":
        """Declare a reactor for a tenant."""
        accumulators = tuple(AccumulatorDeclaration(one, tenant) for one in reactor.accumulators)
        return cls(reactor.name, tenant, reactor, accumulators)


class ManagedGraph(msgspec.Struct):
    """A loaded reactor: what runs for it, and the keys under which it is found."""

    reactor: RunningReactor
    accumulators: list[RunningAccumulator]
    endpoints: list[str]
    subscribers: dict[str, Compiled] = msgspec.field(default_factory=dict)


class GraphScheduler:
    """Everything that runs for computation graphs on one node."""

    def __init__(self, environment: Environment, registry: Registry, metrics: Metrics) -> None:
        self._environment = environment
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
            message = f"reactor '{local}' of tenant '{owner}' is not shared with tenant '{tenant}'"
            raise RequestError(message, code="not_shared", status=403, reactor=name)
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

    def is_same(self, tenant: str, reactor: Reactor) -> bool:
        """Return whether this very declaration is loaded."""
        managed = self._managed.get((tenant, reactor.name))
        return managed is not None and managed.reactor.definition is reactor

    # -- reactors

    def check_names(self, reactor: Reactor, tenant: str, replacing: frozenset[str] = frozenset()) -> None:
        """Refuse a reactor whose name, or an accumulator of whose, belongs to somebody else."""
        if (tenant, reactor.name) in self._managed and reactor.name not in replacing:
            raise _taken("reactor", reactor.name, self._managed[tenant, reactor.name].reactor.definition)
        for one in reactor.accumulators:
            running = self._accumulators.get((tenant, one.name))
            if running is None or running.definition is one:
                continue
            owners = {target.name for target, _ in running.targets}
            if not owners <= replacing:
                raise _taken("accumulator", one.name, running.definition)

    def load_reactor(self, declaration: GraphDeclaration) -> None:
        """Bring a reactor and its accumulators up; endpoints come last, all or none."""
        tenant, definition = declaration.tenant, declaration.reactor
        self.check_names(definition, tenant)
        accumulators = [self._running_or_new(one) for one in declaration.accumulators]
        fresh = [one for one in accumulators if (tenant, one.name) not in self._accumulators]
        reactor = RunningReactor(definition, tenant, self._environment)
        for index, one in enumerate(accumulators):
            reactor.attach(one, index)
        keys = [f"reactors/{declaration.name}", *(f"accumulators/{one.name}" for one in accumulators)]
        self._managed[tenant, declaration.name] = ManagedGraph(reactor, accumulators, keys)
        self._registry.add_reactor(tenant, declaration.name, lambda: definition)
        for one in fresh:
            self._add_accumulator(one)
        reactor.start()
        self._metrics.register(reactor_figures(reactor))
        self._registry.add_endpoints(tenant, keys)
        logger.info(events.REACTOR_LOADED, extra={"reactor": declaration.name, "tenant": tenant})

    def _running_or_new(self, declaration: AccumulatorDeclaration) -> RunningAccumulator:
        """Return the accumulator of that name if it runs already, else a new one that nobody knows yet."""
        running = self._accumulators.get((declaration.tenant, declaration.definition.name))
        return running or declaration.spawn(self._environment)

    def _add_accumulator(self, running: RunningAccumulator) -> None:
        self._accumulators[running.tenant, running.name] = running
        self._registry.add_accumulator(running.tenant, running.name, lambda: running.definition)
        self._metrics.register(accumulator_figures(running))
        running.severed = running.name in self.severed_at_start
        running.start()

    def guard_unload(self, tenant: str, name: str, leaving: frozenset[str] = frozenset()) -> None:
        """Refuse to unload a reactor that graphs other than `leaving` are bound to."""
        others = sorted(set(self._find(tenant, name).subscribers) - leaving)
        if others:
            message = f"reactor '{name}' has {len(others)} bound subscriber(s): {others}; unbind them first"
            raise RequestError(message, code="reactor_in_use", status=409, subscribers=others)

    async def unload_reactor(self, tenant: str, name: str) -> None:
        """Take a reactor down: stop it, then accumulators that nobody else uses, endpoints, constructor."""
        self.guard_unload(tenant, name)
        managed = self._managed[tenant, name]
        leaving = [one for one in managed.accumulators if len(one.targets) == 1]
        await self._wind_up(managed, leaving)
        self._registry.drop_endpoints(tenant, self._keys_to_drop(managed, leaving))
        for one in leaving:
            self._metrics.retire(accumulator_figures(one))
            del self._accumulators[tenant, one.name]
            self._registry.drop_accumulator(tenant, one.name)
            one.bequeath(partial(self.accumulator, tenant, one.name))
        self._metrics.retire(reactor_figures(managed.reactor))
        del self._managed[tenant, name]
        self._registry.drop_reactor(tenant, name)
        logger.info(events.REACTOR_UNLOADED, extra={"reactor": name, "tenant": tenant})

    async def _wind_up(self, managed: ManagedGraph, leaving: list[RunningAccumulator]) -> None:
        """Let a reactor and its leaving accumulators end in order; what takes too long is cancelled."""
        reactor = managed.reactor
        reactor.room.end()
        for one in managed.accumulators:
            if one in leaving:
                one.close("it is being unloaded")
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

    def swap_reactor(self, tenant: str, definition: Reactor) -> None:
        """Put a new version in the place of a loaded reactor with the same contract, keeping its inputs."""
        managed = self._managed[tenant, definition.name]
        for running, one in zip(managed.accumulators, definition.accumulators, strict=True):
            running.redefine(one)
        managed.reactor.redefine(definition)
        self._registry.add_reactor(tenant, definition.name, lambda: definition)

    def has_same_contract(self, tenant: str, definition: Reactor) -> bool:
        """Return whether a new version takes the same inputs in the same way as the loaded one."""
        managed = self._managed.get((tenant, definition.name))
        return managed is not None and contract(managed.reactor.definition) == contract(definition)

    # -- graphs

    def compile(self, tenant: str, graph: Graph, reactor: Reactor | None = None) -> Compiled:
        """Compile a graph against its reactor: one about to be loaded, or the loaded one."""
        name = graph.reactor_name
        if name is None:
            return graph.compiled()
        return graph.compile_for(reactor or self._find(tenant, name).reactor.definition)

    def bind_graph(self, tenant: str, graph: Graph, compiled: Compiled) -> None:
        """Let a graph run on every firing of its reactor; a graph without one is only registered."""
        if graph.reactor_name is not None:
            managed = self._find(tenant, graph.reactor_name)
            managed.subscribers[graph.name] = compiled
            managed.reactor.bind(compiled)
        self._registry.add_graph(tenant, graph.name, lambda: graph)
        logger.info(events.GRAPH_BOUND, extra={"graph": graph.name, "reactor": graph.reactor_name})

    def unbind_graph(self, tenant: str, name: str) -> None:
        """Let a graph run no more."""
        for (owner, _), managed in self._managed.items():
            if owner == tenant and managed.subscribers.pop(name, None) is not None:
                managed.reactor.unbind(name)
        self._registry.drop_graph(tenant, name)
        logger.info(events.GRAPH_UNBOUND, extra={"graph": name})

    # -- life

    async def watch(self) -> None:
        """Look after progress until cancelled: notice accumulators that hang."""
        interval = self._environment.settings.watchdog_interval
        while True:
            await self._environment.clock.sleep(interval)
            for one in tuple(self._accumulators.values()):
                one.check_progress(interval)

    async def close(self) -> None:
        """Unload everything, guards or not."""
        for (tenant, name), managed in tuple(self._managed.items()):
            for graph in tuple(managed.subscribers):
                self._registry.drop_graph(tenant, graph)
            managed.subscribers.clear()
            await self.unload_reactor(tenant, name)
        self._is_closed = True

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


def contract(reactor: Reactor) -> tuple[Any, ...]:
    """Return what binds others to a reactor: its sources in order, their kinds, criteria and strategy."""
    sources = tuple((one.name, one.kind) for one in reactor.accumulators)
    return sources, reactor.when.mode, tuple(one.name for one in reactor.when.accumulators), reactor.strategy


def _taken(what: str, name: str, holder: Reactor | Accumulator) -> RequestError:
    message = f"{what} '{name}' is already defined at {holder.location}; another definition of that name is refused"
    return RequestError(message, code="name_taken", status=409, name=name)
