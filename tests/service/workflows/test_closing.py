"""How long a node takes to close when code does not end."""

import threading
import time

import tidemill as tm


async def test_closing_takes_its_time_once() -> None:
    """W-14: a thread that cannot be stopped is waited for as long as is said, and not again by everybody."""
    flow, begun, over = tm.Workflow("flow"), threading.Event(), threading.Event()

    @flow.task
    def hangs() -> None:
        begun.set()
        over.wait(30)

    try:
        async with tm.Node(load=[flow], settings={"unload_timeout": "1s"}) as node:
            run = await node.start("flow")
            async for glance in run.watch():
                if glance.record.tasks and begun.is_set():
                    break
            await run.cancel()
            closing = time.monotonic()
        assert 0.9 < time.monotonic() - closing < 1.9
    finally:
        over.set()
