"""Stops components within a time limit: what takes longer is cancelled and recorded."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from tidemill.engine.graphs.accumulators.accumulator import RunningAccumulator
from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.engine.graphs.staging import ManagedGraph
from tidemill.engine.graphs.supervisor import Supervised


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
