"""Stops components within a time limit: what takes longer is cancelled and recorded."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from tidemill.engine.graphs.runtime import GraphRuntime
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
