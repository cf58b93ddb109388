"""Runs a workflow on a node in this process, for `tidemill run`.

Its imports are at the top, unlike those of a command: they happen before `run_async` starts the garbage collector.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from tidemill.cli.follow_run import follow_run
from tidemill.cli.interrupts import Interrupts
from tidemill.cli.progress import Progress
from tidemill.kernel.clock import SystemClock
from tidemill.script import ScriptNode
from tidemill.workflows.result import RunResult
from tidemill.workflows.workflow import Workflow


async def run_locally(
    workflow: Workflow, params: Mapping[str, Any], progress: Progress, interrupts: Interrupts, **node_options: Any
) -> RunResult:
    """Run a workflow and show its progress; the first interrupt cancels it. The options are those of ScriptNode."""
    loop, cancel_requested = asyncio.get_running_loop(), asyncio.Event()

    def request_cancel() -> None:
        progress.set_status("cancelling; Ctrl-C again stops at once")  # not in the loop: author code may block it
        loop.call_soon_threadsafe(cancel_requested.set)

    interrupts.on_first(request_cancel)
    async with ScriptNode(workflow, **node_options) as node:
        for sentence in node.executor_warnings():
            progress.print_note(sentence)
        handle = await node.start(workflow.name, params)
        await follow_run(handle, cancel_requested, progress, node, SystemClock())
        return await handle.state()
