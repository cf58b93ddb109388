"""Reclaims reactors from another node that has acquired them, once it has released them or is gone.

What this node has of them in memory is outdated. They are unloaded, and started again with their stored state.
"""

from collections.abc import Iterable

from tidemill.engine.graphs.feed_checks import FeedLayout
from tidemill.engine.graphs.reactors.reactor import RunningReactor
from tidemill.engine.graphs.scheduler import GraphScheduler
from tidemill.engine.graphs.staging import GraphChange, StagedGraphs, subscriber_name
from tidemill.engine.registry import PackageState, Registry


async def reclaim_reactor(scheduler: GraphScheduler, registry: Registry, tenant: str, name: str) -> None:
    """Acquire a reactor again, with those that share accumulators with it, and start them with their stored state.

    RequestError names the node that owns one of them; then nothing has changed.
    """
    reactors = [one for one in scheduler.loaded.reactors if one.tenant == tenant]
    reclaimed = _connected_with(scheduler.loaded.reactor(tenant, name), reactors)
    staged = scheduler.stage(_plan_restart(reclaimed, scheduler, registry))
    _keep_bindings(staged, scheduler.loaded.reactors)
    try:
        await scheduler.start_reactors(staged)
    except BaseException:
        await scheduler.release_unused(staged.durable_parts(scheduler.runtime.durability))
        raise
    await scheduler.rebind(staged)
    scheduler.activate(staged)
    for managed in staged.added_reactors.values():
        scheduler.runtime.supervisor.on_reclaimed(managed.reactor)


def _connected_with(reactor: RunningReactor, reactors: Iterable[RunningReactor]) -> list[RunningReactor]:
    """Return a reactor, and those that share accumulators with it, directly or through others."""
    connected, remaining = [reactor], [one for one in reactors if one is not reactor]
    for member in connected:
        found = [one for one in remaining if not set(one.accumulators).isdisjoint(member.accumulators)]
        connected += found
        remaining = [one for one in remaining if one not in found]
    return connected


def _plan_restart(reclaimed: list[RunningReactor], scheduler: GraphScheduler, registry: Registry) -> GraphChange:
    """Return the change that replaces reactors by themselves, with the graphs that are bound to them or feed them."""
    tenant, names = reclaimed[0].tenant, [one.name for one in reclaimed]
    bound = dict.fromkeys(graph for one in reclaimed for graph in one.firing_loop.graphs)
    feeding = {graph for one in reclaimed for graph in _graphs_feeding(one, reclaimed, scheduler.loaded.reactors)}
    # a graph of another tenant is not found, and stays
    declared = [registry.graphs.find(tenant, graph) for graph in bound]
    return GraphChange(
        tenant=tenant,
        package="",
        reactors=tuple(one.definition for one in reclaimed),
        graphs=tuple(graph for graph in declared if graph is not None),
        previous=PackageState(reactors=tuple(names), graphs=(*bound, *sorted(feeding.difference(bound)))),
        shared=frozenset(name for name in names if registry.is_shared(tenant, name)),
    )


def _graphs_feeding(
    reactor: RunningReactor, reclaimed: list[RunningReactor], reactors: Iterable[RunningReactor]
) -> set[str]:
    """Return the graphs that feed a reactor once the others that are reclaimed with it are unloaded."""
    remaining = [one for one in reactors if one is reactor or one not in reclaimed]
    definitions = {(one.tenant, one.name): one.definition for one in remaining}
    graphs = {(one.tenant, one.name): one.firing_loop.graphs for one in remaining}
    return FeedLayout(definitions, graphs).graphs_feeding((reactor.tenant, reactor.name))


def _keep_bindings(staged: StagedGraphs, reactors: Iterable[RunningReactor]) -> None:
    """Bind every graph that the change unbinds again: also those of other tenants, and those of other reactors."""
    tenant, unbound = staged.change.tenant, staged.change.previous.graphs
    for one in reactors:
        key = (one.tenant, one.name)
        names = {subscriber_name(key, tenant, graph) for graph in unbound}
        kept = {graph: compiled for graph, compiled in one.firing_loop.graphs.items() if graph in names}
        if kept:
            staged.subscribers[key] = staged.subscribers.get(key, {}) | kept
