"""Activation and stopping: a reactor fires when all that loads with it is there, and ends within limits.

Until then it takes events and holds them. Each package change waits for its own end: what another change activates in
the meantime has none of its reactors, whose graphs may not be bound yet. What takes too long to stop is cancelled and
recorded.
"""

import asyncio
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tidemill.engine.graphs.accumulators.accumulator import RunningAccumulator
from tidemill.engine.graphs.loaded_graphs import LoadedGraphs
from tidemill.engine.graphs.reactors.reactor import RunningReactor
from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.engine.graphs.staging import ManagedGraph
from tidemill.engine.graphs.supervisor import Supervised


class Activation:
    """The reactors of a node that do not fire yet."""

    def __init__(self, graphs: LoadedGraphs, runtime: GraphRuntime) -> None:
        self._graphs = graphs
        self._runtime = runtime
        self.is_held = False
        """Whether all wait, because the node is taking over: it activates everything at the end."""
        self.unfinished: set[RunningReactor] = set()
        """Reactors of changes that are not in place yet."""

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Let all reactors wait meanwhile."""
        self.is_held = True
        try:
            yield
        finally:
            self.is_held = False

    def ends_unsaved(self, reactor: RunningReactor) -> bool:
        """Return whether a reactor that does not fire yet would leave nothing of its inputs if it ended now."""
        is_saved = reactor.durability.is_durable and not reactor.is_unsaved_reset
        return reactor.is_inactive and not is_saved and not reactor.durability.is_journaled

    def finish(self, reactors: Iterable[RunningReactor]) -> bool:
        """Activate reactors whose change is in place, and all others that wait for none; return False if all wait."""
        self.unfinished.difference_update(reactors)
        if self._runtime.is_starting_up or self.is_held:
            return False
        for reactor in self._graphs.reactors:
            if reactor not in self.unfinished:
                self._activate(reactor)
        for one in self._graphs.accumulators:
            if not any(target.reactor in self.unfinished for target, _ in one.emitter.targets):
                one.activate()
        return True

    def _activate(self, reactor: RunningReactor) -> None:
        reactor.activate()
        if reactor.is_unsaved_reset:
            reactor.is_unsaved_reset = False
            reactor.firing_loop.request_checkpoint()


async def run_with_timeout(runtime: GraphRuntime, work: Coroutine[Any, Any, None], component: Supervised) -> None:
    """Wait for a component to drain or stop; after the timeout cancel the wait and record it."""
    timeout = runtime.settings.unload_timeout
    title = f"stop of {component.component} {component.name}"
    task = runtime.tasks.start(title, work)
    timer = runtime.tasks.start(f"{title}: timeout", runtime.clock.sleep(timeout))
    await asyncio.wait({task, timer}, return_when=asyncio.FIRST_COMPLETED)
    if not task.done():
        runtime.supervisor.on_stop_timeout(component, f"did not end within {timeout:g} s")
        task.cancel()
    timer.cancel()
    await asyncio.wait({task, timer})


async def run_all_with_timeout(
    runtime: GraphRuntime, works: Sequence[tuple[Coroutine[Any, Any, None], Supervised]]
) -> None:
    """Wait for many components concurrently, within one timeout."""
    waits = [runtime.tasks.start("stop of the node", run_with_timeout(runtime, *work)) for work in works]
    if waits:
        await asyncio.wait(waits)


async def drain_and_stop(runtime: GraphRuntime, managed: ManagedGraph, leaving: Sequence[RunningAccumulator]) -> None:
    """Stop a reactor and its leaving accumulators in order; what takes too long is cancelled."""
    reactor = managed.reactor
    reactor.firing_loop.queue_gate.close()
    for one in managed.accumulators:
        if one in leaving:
            one.close("is being unloaded")
        else:
            one.remove_target(reactor.firing_loop)
    for one in leaving:
        await run_with_timeout(runtime, one.drain(), one)
    await run_with_timeout(runtime, reactor.firing_loop.drain(), reactor)
    await run_with_timeout(runtime, reactor.feed_outbox.drain(), reactor)
    await run_with_timeout(runtime, reactor.stop(), reactor)
    for one in leaving:
        one.remove_target(reactor.firing_loop)
        await run_with_timeout(runtime, one.stop(), one)
