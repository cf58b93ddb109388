"""Watches a run to its end: a live display on a terminal, a line per event elsewhere, JSON lines for programs."""

import sys
from collections.abc import AsyncIterator

import msgspec

from tidemill.api.handles import AsyncRun
from tidemill.api.runs import RunSnapshot
from tidemill.cli.live_progress import LiveProgress
from tidemill.cli.output import StreamFormat, can_redraw, print_json_line, print_text, progress_console
from tidemill.cli.progress import PlainProgress, Progress
from tidemill.kernel.clock import SystemClock
from tidemill.workflows.result import RunResult
from tidemill.workflows.spec import WorkflowSpec


async def watch_run(run: AsyncRun, output: StreamFormat) -> RunResult:
    """Show a run until it has ended; return its result."""
    if output.is_for_programs:
        async for event in run.events(follow=True):
            print_json_line(msgspec.to_builtins(event))
    else:
        await _show(run.watch(events=not can_redraw(sys.stderr)))
    return await run.state()


async def _show(snapshots: AsyncIterator[RunSnapshot]) -> None:
    first = await anext(snapshots)
    with _make_progress(first.run.workflow) as progress:
        progress.show(first)
        async for snapshot in snapshots:
            progress.show(snapshot)


def _make_progress(workflow: str) -> Progress:
    clock = SystemClock()
    if can_redraw(sys.stderr):
        return LiveProgress(WorkflowSpec(name=workflow, tasks=()), progress_console(), clock, redirects_stdout=False)
    return PlainProgress(print_text, clock)
