"""The graph scheduler: loads and unloads reactors with their accumulators, binds and unbinds graphs.

It holds one ManagedGraph per loaded reactor; the registry holds the declarations. Both change together: endpoint keys
are registered last, all or none, and after an unload neither holds anything of the reactor.
"""

import logging
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from tidemill.engine.graphs.accumulators.accumulator import RunningAccumulator
from tidemill.engine.graphs.activation import Activation, run_all_with_timeout
from tidemill.engine.graphs.checkpoints.restore import StateRestorer
from tidemill.engine.graphs.checkpoints.state_reader import (
    StoredState,
    check_partition_counts,
    read_fresh_state,
    read_state,
)
from tidemill.engine.graphs.firing.firing_loop import FiringLoop
from tidemill.engine.graphs.loaded_graphs import GraphChanges, LoadedGraphs
from tidemill.engine.graphs.metrics import ReaderMetrics, accumulator_collector, reactor_collector
from tidemill.engine.graphs.partitions.partitioned import PartitionedReactor
from tidemill.engine.graphs.partitions.sharing import OwnPartitions, PartitionSharing
from tidemill.engine.graphs.reactors.reactor import RunningReactor
from tidemill.engine.graphs.runtime import FindAccumulator, GraphRuntime
from tidemill.engine.graphs.staging import (
    GraphChange,
    GraphStager,
    ManagedGraph,
    StagedGraphs,
    build_partitions,
    contract_changes,
    current_feeds,
    subscriber_name,
)
from tidemill.engine.graphs.unloading import GraphUnloader, publish_loading
from tidemill.engine.registry import Key, Registry
from tidemill.graphs.compiler import CompiledGraph
from tidemill.graphs.definition import Reactor
from tidemill.storage.graph_ports import PartKey
from tidemill.storage.store import Store
from tidemill.telemetry import events
from tidemill.telemetry.metrics import Metrics

logger = logging.getLogger(__name__)


class GraphScheduler:
    """Runs the computation graphs of one node."""

    def __init__(
        self,
        runtime: GraphRuntime,
        registry: Registry,
        metrics: Metrics,
        store: Store | None = None,
        share: "Callable[[GraphScheduler], PartitionSharing] | None" = None,
    ) -> None:
        """`share` makes what shares partitions with other nodes; None if there are none."""
        self.runtime = runtime
        self.loaded = LoadedGraphs()
        self.changes = GraphChanges(self.loaded)
        self._store = store
        self._registry = registry
        self.metrics = metrics
        self.activation = Activation(self.loaded, runtime)
        self._unloader = GraphUnloader(self.loaded, self.activation, registry, metrics, runtime)
        self.sharing = OwnPartitions(self, runtime, ReaderMetrics(metrics)) if share is None else share(self)
        """Decides which partitions of keyed reactors run here."""
        self.find_front: FindAccumulator = lambda tenant, name: None  # noqa: ARG005 - until the operations are built
        """Returns what takes the events of a keyed reactor's accumulator."""
        runtime.subscribers.listen(self.loaded.refresh_subscribers)
        runtime.find_accumulator = lambda *key: self.loaded.running.get(key) or self.find_front(*key)

    # -- loading

    def stage(self, change: GraphChange) -> StagedGraphs:
        """Prepare a package change while the graphs run: everything that may fail does so here."""
        replacing, own_graphs = frozenset(change.previous.reactors), frozenset(change.previous.graphs)
        incoming = {one.name: one for one in change.reactors}
        for reactor in change.reactors:
            self.loaded.check_names(reactor, change.tenant, replacing)
        for name in change.previous.reactors:
            if changes := contract_changes(self.loaded.definition(change.tenant, name), incoming.get(name)):
                self.loaded.check_unloadable(change.tenant, name, own_graphs, changes)
        return GraphStager(change, self.loaded.managed, self.loaded.keyed, self._registry, self.runtime).build()

    @asynccontextmanager
    async def _quiesced(self, tenant: str, names: Iterable[str]) -> AsyncIterator[None]:
        """Keep the journal steps of accumulators that a package change touches from overlapping with it."""
        async with AsyncExitStack() as stack:
            for name in sorted(set(names)):
                running = self.loaded.running.get((tenant, name))
                if running is not None and running.emitter.is_journaled:
                    await stack.enter_async_context(running.intake.quiesced())
            yield

    async def _read_state(
        self, staged: StagedGraphs, read: Callable[..., Coroutine[Any, Any, StoredState]]
    ) -> StoredState | None:
        """Read the stored state of the reactors to start."""
        if self._store is None or not staged.added_reactors:
            return None
        return await read(self._store, list(staged.added_reactors.values()), self._starting_accumulators(staged))

    async def start_reactors(self, staged: StagedGraphs) -> None:
        """Unload the reactors that are not continued, and start the new ones with their stored state.

        New reactors have their graphs, and do not fire before `activate`. RequestError if another node owns one; then
        nothing has changed.
        """
        await check_partition_counts(self._store, staged.added_keyed.values(), self.runtime.durability)
        parts = staged.durable_parts(self.runtime.durability)
        await self.runtime.durability.acquire(parts)
        if staged.removed_reactors or staged.removed_keyed:
            await self._read_state(staged, read_state)  # a failing store must fail the load before anything is unloaded
            removed = (*staged.removed_reactors, *staged.removed_keyed)
            await self.unload_reactors(staged.change.tenant, removed, frozenset(staged.change.previous.graphs), parts)
        for keyed in staged.added_keyed.values():
            self._add_keyed(keyed)
            numbers = await self.sharing.join(keyed)
            staged.added_reactors.update(build_partitions(keyed, numbers, self.runtime))
        touched = [one.name for managed in staged.added_reactors.values() for one in managed.accumulators]
        async with self._quiesced(staged.change.tenant, touched):
            stored_state = await self._read_state(staged, read_fresh_state)
            newly_durable = self._newly_durable(staged)
            self._start_added(staged, stored_state)
        await self._checkpoint_added(staged, newly_durable)

    def on_ownership_lost(self, keys: Collection[PartKey]) -> list[RunningReactor]:
        """Stop the reactors that another node has acquired, which continues from their stored state; return them."""
        lost = []
        for managed in self.loaded.managed.values():
            is_owned = managed.reactor.durability.is_durable or managed.reactor.definition.is_partition
            if is_owned and not managed.part_keys.isdisjoint(keys):
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
            *(one.name for reactor in staged.redefined_reactors.values() for one in reactor.accumulators),
        ]
        async with self._quiesced(staged.change.tenant, touched):
            self._apply_change(staged)

    def _starting_accumulators(self, staged: StagedGraphs) -> list[RunningAccumulator]:
        """Return the accumulators that start with a package."""
        accumulators = dict.fromkeys(one for managed in staged.added_reactors.values() for one in managed.accumulators)
        added = {managed.reactor.firing_loop for managed in staged.added_reactors.values()}
        return [one for one in accumulators if self._is_starting(one, added)]

    def _is_starting(self, accumulator: RunningAccumulator, added: set[FiringLoop]) -> bool:
        """Return whether an accumulator has processed nothing yet, and its state was not read from the store."""
        if (accumulator.tenant, accumulator.name) not in self.loaded.running:
            return True
        others = (target.reactor for target, _ in accumulator.emitter.targets if target not in added)
        return self.runtime.is_starting_up and not any(one.durability.is_durable for one in others)

    def _start_added(self, staged: StagedGraphs, stored_state: StoredState | None) -> None:
        for managed in staged.added_reactors.values():
            key = managed.reactor.tenant, managed.reactor.definition.declared_name
            managed.connect(staged.subscribers.get(key, {}))
        if stored_state is not None:
            self._restore(staged, stored_state)
        for name, managed in staged.added_reactors.items():
            self._start_reactor(staged.change.tenant, name, managed)

    def _apply_change(self, staged: StagedGraphs) -> None:
        tenant, own_reactors = staged.change.tenant, {one.name for one in staged.change.reactors}
        for name, newer in staged.redefined_accumulators.items():
            running = self.loaded.running[tenant, name]
            running.redefine(newer)
            self.runtime.supervisor.on_unread_state(running, running.unread.describe())
        for graph in staged.change.graphs:
            self._registry.graphs.add(tenant, graph.name, graph)
            logger.info(events.GRAPH_BOUND, extra={"graph": graph.name, "reactor": graph.reactor_name})
        for key in tuple(self.loaded.keyed):
            self._rebind_keyed(key, staged)
        for key, managed in self.loaded.managed.items():
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
        running = durable.intersection(self.loaded.running.values())
        return {one for one in running if not one.emitter.feeds_durable}

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
        if any(reactor.durability.is_journaled and not reactor.generation for reactor in self.loaded.reactors):
            await self.runtime.durability.write()

    def _rebind_reactor(self, key: Key, managed: ManagedGraph, staged: StagedGraphs) -> None:
        """Switch a reactor to its staged version and graphs in one step, so that no firing sees half of it."""
        tenant, declared = staged.change.tenant, managed.reactor.definition.declared_name
        subscribers = self._staged_subscribers((key[0], declared), managed.subscribers, staged)
        definition = staged.redefined_reactors.get(key[1]) if key[0] == tenant else None
        if definition is not None:
            if not definition.is_partition:
                self._registry.reactors.add(tenant, definition.name, definition)
            managed.reactor.redefine(definition, subscribers)
        elif subscribers != managed.subscribers:
            managed.reactor.set_graphs(subscribers)
        managed.subscribers = subscribers

    def _rebind_keyed(self, key: Key, staged: StagedGraphs) -> None:
        """Switch a keyed reactor to its staged version and graphs, which partitions get that start later."""
        newer = staged.redefined_keyed.get(key[1]) if key[0] == staged.change.tenant else None
        subscribers = self._staged_subscribers(key, self.loaded.keyed[key].subscribers, staged)
        if newer is not None:
            self._add_keyed(newer)
            self.sharing.replace(newer)
        self.loaded.keyed[key].subscribers = subscribers

    def _staged_subscribers(
        self, key: Key, bound: Mapping[str, CompiledGraph], staged: StagedGraphs
    ) -> dict[str, CompiledGraph]:
        """Return the graphs of a reactor after a change."""
        removed = {subscriber_name(key, staged.change.tenant, name) for name in staged.change.previous.graphs}
        remaining = {graph: compiled for graph, compiled in bound.items() if graph not in removed}
        return remaining | staged.subscribers.get(key, {})

    def _restore(self, staged: StagedGraphs, stored_state: StoredState) -> None:
        """Restore the reactors to start from their stored state, and report what could not be restored."""
        added = [managed.reactor for managed in staged.added_reactors.values()]
        replaced = {*staged.reset_reactors, *staged.removed_keyed}
        reset = {one for one in added if one.definition.declared_name in replaced}
        restorer = StateRestorer(
            stored_state,
            list(staged.added_reactors.values()),
            self._starting_accumulators(staged),
            reset=reset,
            is_starting_up=self.runtime.is_starting_up,
        )
        restorer.run()
        for reactor in reset:
            reactor.is_unsaved_reset = True
        durability = self.runtime.durability
        durability.advance_moment(stored_state.newest_moment)
        if durability.journal is not None:
            durability.journal.advance_position(restorer.position)
        for reactor in restorer.changed_reactors:
            reactor.firing_loop.mark_changed()
            durability.flush_soon()
        for component, reason in restorer.problems:
            self.runtime.supervisor.on_partial_restore(component, reason)
        for component, unread in restorer.unread.items():
            self.runtime.supervisor.on_unread_state(component, unread.describe_fields())

    def _start_reactor(self, tenant: str, name: str, managed: ManagedGraph) -> None:
        """Start a reactor and those of its accumulators that do not run yet; endpoints come last, all or none."""
        reactor = managed.reactor
        self.loaded.managed[tenant, name] = managed
        self.activation.unfinished.add(reactor)
        for one in managed.accumulators:
            if (tenant, one.name) not in self.loaded.running:
                self._add_accumulator(one)
        reactor.start()
        self.metrics.register(reactor_collector(reactor))
        if not reactor.definition.is_partition:
            self._register(tenant, reactor.definition, managed.endpoints)
        publish_loading(self.runtime, events.REACTOR_LOADED, tenant, name)

    def _register(self, tenant: str, definition: Reactor, endpoints: Iterable[str]) -> None:
        self._registry.reactors.add(tenant, definition.name, definition)
        for name in definition.accumulator_names:
            self._registry.accumulators.add(tenant, name, None)
        self._registry.add_endpoints(tenant, endpoints)

    def _add_accumulator(self, running: RunningAccumulator) -> None:
        self.loaded.running[running.tenant, running.name] = running
        self.metrics.register(accumulator_collector(running))
        running.is_inactive = True
        running.start()

    # -- unloading

    async def unload_reactors(
        self, tenant: str, names: Iterable[str], graphs: frozenset[str], kept: Collection[PartKey] = ()
    ) -> None:
        """Unload reactors with their `graphs`: first those that feed others, so that their results arrive."""
        for name in current_feeds(self.loaded.managed, self.loaded.keyed).feeders_first(tenant, names):
            await self.unload_reactor(tenant, name, graphs, kept)

    async def unload_reactor(
        self, tenant: str, name: str, graphs: frozenset[str] = frozenset(), kept: Collection[PartKey] = ()
    ) -> None:
        """Unload a reactor with its `graphs`: stop it, then accumulators that no other reactor uses, then the names.

        This node stays the owner of `kept` parts.
        """
        self.loaded.check_unloadable(tenant, name, graphs)
        if (keyed := self.loaded.keyed.get((tenant, name))) is not None:
            await self._unload_keyed(keyed)
            return
        managed = self.loaded.managed[tenant, name]
        await self._unloader.unload(managed)
        await self.release_unused(managed.part_keys.difference(kept))
        publish_loading(self.runtime, events.REACTOR_UNLOADED, tenant, name)

    async def _unload_keyed(self, keyed: PartitionedReactor) -> None:
        await self.sharing.leave(keyed)
        self._unloader.forget_keyed(keyed)
        publish_loading(self.runtime, events.REACTOR_UNLOADED, keyed.tenant, keyed.name)

    # -- keyed reactors

    def _add_keyed(self, keyed: PartitionedReactor) -> None:
        self.loaded.add_keyed(keyed)
        self._register(keyed.tenant, keyed.definition, keyed.endpoints)

    async def start_partitions(self, keyed: PartitionedReactor, numbers: Iterable[int]) -> None:
        """Start partitions that this node has acquired, with their stored state and the graphs of the reactor."""
        staged = StagedGraphs(
            change=GraphChange(tenant=keyed.tenant, package="", reactors=(), graphs=()),
            removed_reactors=(),
            added_reactors=build_partitions(keyed, numbers, self.runtime),
            reset_reactors=(),
            redefined_reactors={},
            redefined_accumulators={},
            subscribers={keyed.key: keyed.subscribers},
        )
        await self.start_reactors(staged)
        await self.rebind(staged)
        await self.sharing.confirm_pause(keyed)
        self.activate(staged)

    async def stop_partition(self, keyed: PartitionedReactor, number: int) -> None:
        """Stop a partition that runs here, write its state, and release it."""
        name = keyed.partition(number).name
        await self.unload_reactor(keyed.tenant, name, frozenset(self.loaded.subscribers(keyed.tenant, name)))

    async def release_unused(self, keys: set[PartKey]) -> None:
        """Release those of some parts that no durable reactor has, so that other nodes can acquire them."""
        durable = [one.part_keys for one in self.loaded.managed.values() if one.reactor.durability.is_durable]
        await self.runtime.durability.release(keys.difference(*durable))

    def unbind_graph(self, tenant: str, name: str) -> None:
        """Unbind a graph from its reactors."""
        for key, keyed in self.loaded.keyed.items():
            keyed.subscribers.pop(subscriber_name(key, tenant, name), None)
        for key, managed in self.loaded.managed.items():
            if managed.subscribers.pop(subscriber_name(key, tenant, name), None) is not None:
                managed.reactor.set_graphs(managed.subscribers)
        self._unloader.forget_graph(tenant, name)

    # -- lifecycle

    async def watch_progress(self) -> None:
        """Mark accumulators whose author code hangs, until cancelled."""
        interval = self.runtime.settings.watchdog_interval
        while True:
            await self.runtime.in_flight.busy.wait()  # nothing can hang on an idle node
            await self.runtime.clock.sleep(interval)
            for one in tuple(self.loaded.running.values()):
                one.check_progress(interval)

    async def close(self) -> None:
        """Unload everything; reactors that share accumulators are checkpointed at one moment."""
        for keyed in tuple(self.loaded.keyed.values()):
            await self._unload_keyed(keyed)
        runtime, reactors, accumulators = self.runtime, self.loaded.reactors, self.loaded.accumulators
        await run_all_with_timeout(runtime, [(one.feed_outbox.drain(), one) for one in reactors])
        for reactor in reactors:
            reactor.firing_loop.queue_gate.close()
        for one in accumulators:
            one.close("is being unloaded")
        await run_all_with_timeout(runtime, [(one.drain(), one) for one in accumulators])
        await run_all_with_timeout(runtime, [(one.firing_loop.drain(), one) for one in reactors])
        await self.runtime.durability.close()
        names = {name for managed in self.loaded.managed.values() for name in managed.subscribers}
        graphs = frozenset(names | {name.rpartition("/")[2] for name in names})  # nothing blocks the end of the node
        for tenant, name in tuple(self.loaded.managed):
            await self.unload_reactor(tenant, name, graphs)
        self.loaded.is_closed = True

    def activate(self, staged: StagedGraphs | None = None) -> None:
        """Let reactors fire and sources be read, after everything of a load is there: `staged` is in place now.

        Does nothing while the node is starting or taking over: it activates everything at the end.
        """
        if self.activation.finish([] if staged is None else [one.reactor for one in staged.added_reactors.values()]):
            self.sharing.activate()

    @property
    def is_idle(self) -> bool:
        """Whether no firing runs and none is due."""
        is_firing = any(not (one.firing_loop.is_idle and one.feed_outbox.is_idle) for one in self.loaded.reactors)
        return self.runtime.in_flight.count == 0 and not is_firing
