"""The graph scheduler: loads and unloads reactors with their accumulators, binds and unbinds graphs.

It holds one ManagedGraph per loaded reactor; the registry holds the declarations. Both change together: endpoint keys
are registered last, all or none, and after an unload neither holds anything of the reactor.
"""

import logging
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

from tidemill.engine.graphs.accumulators.accumulator import RunningAccumulator
from tidemill.engine.graphs.checkpoints.key_restore import attach_key_loaders
from tidemill.engine.graphs.checkpoints.restore import StateRestorer
from tidemill.engine.graphs.checkpoints.state_reader import StoredState, read_fresh_state, read_state
from tidemill.engine.graphs.firing.firing_loop import FiringLoop
from tidemill.engine.graphs.metrics import accumulator_collector, reactor_collector
from tidemill.engine.graphs.reactors.reactor import RunningReactor
from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.engine.graphs.staging import (
    GraphChange,
    GraphStager,
    ManagedGraph,
    StagedGraphs,
    contract_changes,
    current_feeds,
    name_taken_error,
    not_shared_error,
    reactor_in_use_error,
    subscriber_name,
)
from tidemill.engine.graphs.stopping import run_all_with_timeout, run_with_timeout
from tidemill.engine.registry import Key, Registry
from tidemill.graphs.definition import Reactor
from tidemill.kernel.errors import NotFoundError, RequestError
from tidemill.kernel.suggestions import did_you_mean
from tidemill.storage.graph_ports import PartKey
from tidemill.storage.store import Store
from tidemill.telemetry import events
from tidemill.telemetry.metrics import Metrics

logger = logging.getLogger(__name__)


class GraphScheduler:
    """Runs the computation graphs of one node."""

    def __init__(self, runtime: GraphRuntime, registry: Registry, metrics: Metrics, store: Store | None = None) -> None:
        self.runtime = runtime
        self._store = store
        self._registry = registry
        self._metrics = metrics
        self.is_closed = self.holds_activation = False
        self._managed: dict[Key, ManagedGraph] = {}
        self._accumulators: dict[Key, RunningAccumulator] = {}
        self.standby: dict[PartKey, RequestError] = {}  # what this node waits for, with the error that callers get
        self._unsaved_resets: set[RunningReactor] = set()
        """Reactors that started empty over older stored state, which a rollback would need, until they are active."""
        runtime.find_accumulator = lambda tenant, name: self._accumulators.get((tenant, name))

    # -- lookup

    def reactor(self, tenant: str, name: str) -> RunningReactor:
        """Return a loaded reactor, or raise RequestError."""
        return self._find_managed(tenant, name).reactor

    def accumulator(self, tenant: str, name: str) -> RunningAccumulator:
        """Return a running accumulator, or raise RequestError."""
        self._check_open()
        accumulator = self._accumulators.get((tenant, name))
        if accumulator is None:
            if (standby := self.standby.get(PartKey(tenant, "accumulator", name))) is not None:
                raise standby
            known = [other for owner, other in self._accumulators if owner == tenant]
            message = f"unknown accumulator '{name}'{did_you_mean(name, known)}"
            raise NotFoundError("accumulator", name, message, known)
        return accumulator

    def runs(self, part: PartKey) -> bool:
        """Return whether this node runs a reactor or an accumulator, and no other node has acquired it."""
        if part.kind == "reactor":
            managed = self._managed.get((part.tenant, part.name))
            return managed is not None and not managed.reactor.is_fenced
        accumulator = self._accumulators.get((part.tenant, part.name))
        return accumulator is not None and not accumulator.is_fenced

    def _check_open(self) -> None:
        if self.is_closed:
            raise RequestError("the node is not running any more", code="not_running", status=503)

    def _find_managed(self, tenant: str, name: str) -> ManagedGraph:
        self._check_open()
        owner, _, local = name.rpartition("/")
        if owner and owner != tenant:
            raise not_shared_error(owner, local, tenant)
        managed = self._managed.get((tenant, local))
        if managed is None:
            if (standby := self.standby.get(PartKey(tenant, "reactor", local))) is not None:
                raise standby
            known = [other for owned_by, other in self._managed if owned_by == tenant]
            message = f"reactor '{local}' not loaded{did_you_mean(local, known)}"
            raise NotFoundError("reactor", local, message, known)
        return managed

    @property
    def reactors(self) -> Iterable[RunningReactor]:
        """All loaded reactors."""
        return [managed.reactor for managed in self._managed.values()]

    @property
    def accumulators(self) -> Iterable[RunningAccumulator]:
        """All running accumulators."""
        return list(self._accumulators.values())

    def running_keys(self) -> tuple[set[Key], set[Key]]:
        """Return the keys of the running reactors and accumulators."""
        return set(self._managed), set(self._accumulators)

    def subscribers(self, tenant: str, name: str) -> list[str]:
        """Return the graphs that are bound to a reactor; those of other tenants as "tenant/name"."""
        managed = self._managed.get((tenant, name))
        return [] if managed is None else sorted(managed.subscribers)

    def make_in_use_check(self, tenant: str, name: str) -> Callable[[], bool]:
        """Return a function that reports whether the calls of a reactor's author code in progress now still run."""
        managed = self._managed.get((tenant, name))
        return (lambda: False) if managed is None else managed.make_in_use_check()

    def is_loaded(self, tenant: str, reactor: Reactor) -> bool:
        """Return whether this very declaration is loaded."""
        managed = self._managed.get((tenant, reactor.name))
        return managed is not None and managed.reactor.definition is reactor

    # -- loading

    def check_names(self, reactor: Reactor, tenant: str, replacing: frozenset[str] = frozenset()) -> None:
        """Reject a reactor if its name, or one of its accumulators' names, is taken."""
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
        """Prepare a package change beside the running graphs: everything that may fail does so here."""
        replacing, own_graphs = frozenset(change.previous.reactors), frozenset(change.previous.graphs)
        incoming = {one.name: one for one in change.reactors}
        for reactor in change.reactors:
            self.check_names(reactor, change.tenant, replacing)
        for name in change.previous.reactors:
            if changes := contract_changes(
                self._find_managed(change.tenant, name).reactor.definition, incoming.get(name)
            ):
                self.check_unloadable(change.tenant, name, own_graphs, changes)
        return GraphStager(change, self._managed, self._registry, self.runtime).build()

    @asynccontextmanager
    async def _quiesced(self, tenant: str, names: Iterable[str]) -> AsyncIterator[None]:
        """Keep the journal steps of accumulators that a package change touches from overlapping with it."""
        async with AsyncExitStack() as stack:
            for name in sorted(set(names)):
                running = self._accumulators.get((tenant, name))
                if running is not None and running.is_journaled:
                    await stack.enter_async_context(running.quiesced())
            yield

    async def read_state(self, staged: StagedGraphs) -> StoredState | None:
        """Read the stored state of the reactors to start; those that they replace must be unloaded."""
        return await self._read_with(read_state, staged)

    async def _read_with(
        self, read: Callable[..., Coroutine[Any, Any, StoredState]], staged: StagedGraphs
    ) -> StoredState | None:
        if self._store is None or not staged.added_reactors:
            return None
        return await read(self._store, list(staged.added_reactors.values()), self._starting_accumulators(staged))

    async def start_reactors(self, staged: StagedGraphs) -> None:
        """Unload the reactors that are not continued, and start the new ones with their stored state.

        New reactors do not fire before `activate`: their graphs may not be bound yet. RequestError if another node
        owns one of them; then nothing has changed.
        """
        parts = staged.durable_parts(self.runtime.durability)
        await self.runtime.durability.acquire(parts)
        if staged.removed_reactors:
            await self.read_state(staged)  # a failing store must fail the load before anything is unloaded
            for name in staged.removed_reactors:
                await self.unload_reactor(staged.change.tenant, name, frozenset(staged.change.previous.graphs), parts)
        added = (managed.reactor.definition for managed in staged.added_reactors.values())
        touched = [name for definition in added for name in definition.accumulator_names]
        async with self._quiesced(staged.change.tenant, touched):
            stored_state = await self._read_with(read_fresh_state, staged)
            newly_durable = self._newly_durable(staged)
            self._start_added(staged, stored_state)
        await self._checkpoint_added(staged, newly_durable)

    def on_ownership_lost(self, keys: Collection[PartKey]) -> list[RunningReactor]:
        """Stop the reactors that another node has acquired, which continues from their stored state; return them."""
        lost = []
        for managed in self._managed.values():
            if managed.reactor.durability.is_durable and not managed.part_keys.isdisjoint(keys):
                lost.append(managed.reactor)
                self.runtime.durability.forget(managed.reactor)
                for one in managed.accumulators:
                    one.close("is owned by another node now")
                managed.reactor.is_fenced = True
                self.runtime.supervisor.on_ownership_lost(managed.reactor)
        return lost

    async def rebind(self, staged: StagedGraphs) -> None:
        """Bind and unbind graphs, and switch running parts to newer versions, in one step that cannot fail."""
        touched = [
            *staged.redefined_accumulators,
            *(name for one in staged.redefined_reactors.values() for name in one.accumulator_names),
        ]
        async with self._quiesced(staged.change.tenant, touched):
            self._apply_change(staged)

    def end_change(self) -> None:
        """Stop retaining journal entries for reactors that were being replaced."""
        for one in self._accumulators.values():
            one.departed_reactors.clear()

    def _starting_accumulators(self, staged: StagedGraphs) -> list[RunningAccumulator]:
        """Return the accumulators that start with a package."""
        accumulators = dict.fromkeys(one for managed in staged.added_reactors.values() for one in managed.accumulators)
        added = {managed.reactor.firing_loop for managed in staged.added_reactors.values()}
        return [one for one in accumulators if self._is_starting(one, added)]

    def _is_starting(self, accumulator: RunningAccumulator, added: set[FiringLoop]) -> bool:
        """Return whether an accumulator has processed nothing yet, and its state was not read from the store."""
        if (accumulator.tenant, accumulator.name) not in self._accumulators:
            return True
        others = (target.reactor for target, _ in accumulator.targets if target not in added)
        return self.runtime.is_starting_up and not any(one.durability.is_durable for one in others)

    def _start_added(self, staged: StagedGraphs, stored_state: StoredState | None) -> None:
        for managed in staged.added_reactors.values():
            self._attach(managed)
        if stored_state is not None:
            self._restore(staged, stored_state)
        for name, managed in staged.added_reactors.items():
            self._start_reactor(staged.change.tenant, name, managed)

    def _apply_change(self, staged: StagedGraphs) -> None:
        tenant, own_reactors = staged.change.tenant, {one.name for one in staged.change.reactors}
        for name, newer in staged.redefined_accumulators.items():
            self._accumulators[tenant, name].redefine(newer)
        for graph in staged.change.graphs:
            self._registry.add_graph(tenant, graph)
            logger.info(events.GRAPH_BOUND, extra={"graph": graph.name, "reactor": graph.reactor_name})
        for key, managed in self._managed.items():
            self._rebind_reactor(key, managed, staged)
        for name in own_reactors:
            self._registry.set_shared(tenant, name, shared=name in staged.change.shared)

    def _newly_durable(self, staged: StagedGraphs) -> set[RunningAccumulator]:
        """Return the accumulators that already run, and that become durable with this package."""
        durable = {
            one
            for managed in staged.added_reactors.values()
            if managed.reactor.durability.is_durable
            for one in managed.accumulators
        }
        running = durable.intersection(self._accumulators.values())
        return {one for one in running if not any(target.reactor.durability.is_durable for target, _ in one.targets)}

    async def _checkpoint_added(self, staged: StagedGraphs, newly_durable: set[RunningAccumulator]) -> None:
        """Write the first checkpoint of journaled reactors, which names the series of their firings.

        Also of accumulators that become durable: their stored state is outdated.
        """
        added = [managed.reactor for managed in staged.added_reactors.values()]
        unwritten = [one for one in added if one.durability.is_journaled and not one.generation]
        unwritten += [
            one for one in added if one.durability.is_durable and not newly_durable.isdisjoint(one.accumulators)
        ]
        for reactor in unwritten:
            reactor.firing_loop.mark_changed()
        if unwritten and not self.runtime.is_starting_up:  # at a start all are written together, before any firing
            await self.runtime.durability.write()

    async def checkpoint_loaded(self) -> None:
        """Write the first checkpoint of everything that was loaded at the start, before anything fires."""
        if any(reactor.durability.is_journaled and not reactor.generation for reactor in self.reactors):
            await self.runtime.durability.write()

    def _rebind_reactor(self, key: Key, managed: ManagedGraph, staged: StagedGraphs) -> None:
        """Switch a reactor to its staged version and graphs in one step, so that no firing sees half of it."""
        tenant = staged.change.tenant
        removed = {subscriber_name(key, tenant, name) for name in staged.change.previous.graphs}
        remaining = {graph: compiled for graph, compiled in managed.subscribers.items() if graph not in removed}
        subscribers = remaining | staged.subscribers.get(key, {})
        definition = staged.redefined_reactors.get(key[1]) if key[0] == tenant else None
        if definition is not None:
            self._registry.add_reactor(tenant, definition)
            managed.reactor.redefine(definition, subscribers)
        elif subscribers != managed.subscribers:
            managed.reactor.set_graphs(subscribers)
        managed.subscribers = subscribers

    def _attach(self, managed: ManagedGraph) -> None:
        """Connect a reactor with its accumulators."""
        for index, one in enumerate(managed.accumulators):
            managed.reactor.attach(one, index)
        managed.reactor.refresh_subscribers()

    def _restore(self, staged: StagedGraphs, stored_state: StoredState) -> None:
        """Restore the reactors to start from their stored state, and report what could not be restored."""
        reset = {staged.added_reactors[name].reactor for name in staged.reset_reactors}
        restorer = StateRestorer(
            stored_state,
            list(staged.added_reactors.values()),
            self._starting_accumulators(staged),
            reset=reset,
            is_starting_up=self.runtime.is_starting_up,
        )
        restorer.run()
        attach_key_loaders(staged.added_reactors.values(), self._store, self.runtime.supervisor)
        self._unsaved_resets |= reset
        durability = self.runtime.durability
        if durability.journal is not None:
            durability.journal.advance_position(restorer.position)
        for reactor in restorer.changed_reactors:
            reactor.firing_loop.mark_changed()
            durability.flush_soon()
        for component, reason in restorer.problems:
            self.runtime.supervisor.on_partial_restore(component, reason)

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
        self.runtime.node_events.publish(events.REACTOR_LOADED, tenant, reactor=name)

    def _add_accumulator(self, running: RunningAccumulator) -> None:
        self._accumulators[running.tenant, running.name] = running
        self._registry.add_accumulator(running.tenant, running.name)
        self._metrics.register(accumulator_collector(running))
        running.is_inactive = True
        running.start()

    def refresh_subscribers(self, tenant: str, name: str) -> None:
        """Update the workflows that a reactor's firings start, if it is loaded."""
        managed = self._managed.get((tenant, name))
        if managed is not None:
            managed.reactor.refresh_subscribers()

    # -- unloading

    def check_unloadable(
        self, tenant: str, name: str, leaving: frozenset[str] = frozenset(), changes: Sequence[str] = ()
    ) -> None:
        """Refuse to unload a reactor, or to apply `changes`, while graphs other than `leaving` are bound to it."""
        feeding = current_feeds(self._managed).graphs_feeding((tenant, name))
        others = (set(self._find_managed(tenant, name).subscribers) | feeding) - leaving
        if others:
            raise reactor_in_use_error(name, others, changes=changes)

    async def unload_reactor(
        self, tenant: str, name: str, graphs: frozenset[str] = frozenset(), kept: Collection[PartKey] = ()
    ) -> None:
        """Unload a reactor with its `graphs`: stop it, then accumulators that no other reactor uses, then the names.

        This node stays the owner of `kept` parts.
        """
        self.check_unloadable(tenant, name, graphs)
        managed = self._managed[tenant, name]
        others = [one for one in self._managed.values() if one is not managed]
        leaving = [one for one in managed.accumulators if not any(one in other.accumulators for other in others)]
        await self._drain_and_stop(managed, leaving)
        await self._save_and_forget(managed.reactor)
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
        await self.release_unused(managed.part_keys.difference(kept))
        logger.info(events.REACTOR_UNLOADED, extra={"reactor": name, "tenant": tenant})
        self.runtime.node_events.publish(events.REACTOR_UNLOADED, tenant, reactor=name)

    async def release_unused(self, keys: set[PartKey]) -> None:
        """Release those of some parts that no durable reactor has, so that other nodes can acquire them."""
        durable = [one.part_keys for one in self._managed.values() if one.reactor.durability.is_durable]
        await self.runtime.durability.release(keys.difference(*durable))

    async def _save_and_forget(self, reactor: RunningReactor) -> None:
        if reactor in self._unsaved_resets:
            self._unsaved_resets.discard(reactor)
            self.runtime.durability.forget(reactor)
        else:
            await self.runtime.durability.save_and_forget(reactor)

    async def _drain_and_stop(self, managed: ManagedGraph, leaving: list[RunningAccumulator]) -> None:
        """Stop a reactor and its leaving accumulators in order; what takes too long is cancelled."""
        reactor = managed.reactor
        reactor.firing_loop.queue_gate.close()
        for one in managed.accumulators:
            if one in leaving:
                one.close("is being unloaded")
            else:
                one.remove_target(reactor.firing_loop)
        for one in leaving:
            await run_with_timeout(self.runtime, one.drain(), one)
        await run_with_timeout(self.runtime, reactor.firing_loop.drain(), reactor)
        await run_with_timeout(self.runtime, reactor.feed_outbox.drain(), reactor)
        await run_with_timeout(self.runtime, reactor.stop(), reactor)
        for one in leaving:
            one.remove_target(reactor.firing_loop)
            await run_with_timeout(self.runtime, one.stop(), one)

    def _endpoints_to_drop(self, managed: ManagedGraph, leaving: list[RunningAccumulator]) -> list[str]:
        kept = {f"accumulators/{one.name}" for one in managed.accumulators if one not in leaving}
        return [key for key in managed.endpoints if key not in kept]

    def unbind_graph(self, tenant: str, name: str) -> None:
        """Unbind a graph from its reactors."""
        for key, managed in self._managed.items():
            if managed.subscribers.pop(subscriber_name(key, tenant, name), None) is not None:
                managed.reactor.set_graphs(managed.subscribers)
        self._forget_graph(tenant, name)

    def _forget_graph(self, tenant: str, name: str) -> None:
        if self._registry.drop_graph(tenant, name):
            logger.info(events.GRAPH_UNBOUND, extra={"graph": name})

    # -- lifecycle

    async def watch_progress(self) -> None:
        """Mark accumulators whose author code hangs, until cancelled."""
        interval = self.runtime.settings.watchdog_interval
        while True:
            await self.runtime.in_flight.busy.wait()  # nothing can hang on an idle node
            await self.runtime.clock.sleep(interval)
            for one in tuple(self._accumulators.values()):
                one.check_progress(interval)

    async def close(self) -> None:
        """Unload everything; reactors that share accumulators are checkpointed at one moment."""
        await run_all_with_timeout(self.runtime, [(reactor.feed_outbox.drain(), reactor) for reactor in self.reactors])
        for reactor in self.reactors:
            reactor.firing_loop.queue_gate.close()
        for one in self.accumulators:
            one.close("is being unloaded")
        await run_all_with_timeout(self.runtime, [(one.drain(), one) for one in self.accumulators])
        await run_all_with_timeout(self.runtime, [(reactor.firing_loop.drain(), reactor) for reactor in self.reactors])
        await self.runtime.durability.close()
        names = {name for managed in self._managed.values() for name in managed.subscribers}
        graphs = frozenset(names | {name.rpartition("/")[2] for name in names})  # nothing blocks the end of the node
        for tenant, name in tuple(self._managed):
            await self.unload_reactor(tenant, name, graphs)
        self.is_closed = True

    def activate(self) -> None:
        """Let reactors fire and sources be read, after everything of a load is there.

        Does nothing while the node is starting or taking over: it activates everything at the end.
        """
        if self.runtime.is_starting_up or self.holds_activation:
            return
        for reactor in self.reactors:
            reactor.activate()
        for one in self.accumulators:
            one.activate()
        for reactor in self._unsaved_resets:
            reactor.firing_loop.mark_changed()
        self._unsaved_resets.clear()

    @property
    def is_on_thread(self) -> bool:
        """Whether some author function is running on a thread."""
        return any(one.is_on_thread for one in self._accumulators.values())

    @property
    def is_idle(self) -> bool:
        """Whether no firing runs and none is due."""
        is_firing = any(not (one.firing_loop.is_idle and one.feed_outbox.is_idle) for one in self.reactors)
        return self.runtime.in_flight.count == 0 and not is_firing
