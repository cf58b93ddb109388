"""Watches a run to its end: a live display on a terminal, a line per event elsewhere, JSON lines for programs."""

import sys
from collections.abc import AsyncIterator

from tidemill.cli.live_progress import LiveProgress
from tidemill.cli.output import StreamFormat, can_redraw, print_json_line, print_text, progress_console
from tidemill.cli.progress import PlainProgress, Progress
from tidemill.cli.run_view import plain_event
from tidemill.cli.workflow_service import WorkflowService
from tidemill.engine.workflows.client.values import RunSnapshot
from tidemill.kernel.clock import SystemClock
from tidemill.workflows.result import RunResult
from tidemill.workflows.spec import WorkflowSpec


async def watch_run(workflows: WorkflowService, run: str, output: StreamFormat) -> RunResult:
    """Show a run until it has ended; return its result."""
    if output.is_for_programs:
        async for snapshot in workflows.watch(run, events=True):
            for event in snapshot.events:
                print_json_line(plain_event(event))
    else:
        await _show(workflows.watch(run, events=not can_redraw(sys.stderr)))
    return await workflows.load_result(run)


async def _show(snapshots: AsyncIterator[RunSnapshot]) -> None:
    first = await anext(snapshots)
    with _make_progress(first.record.run.workflow) as progress:
        progress.show(first)
        async for snapshot in snapshots:
            progress.show(snapshot)


def _make_progress(workflow: str) -> Progress:
    clock = SystemClock()
    if can_redraw(sys.stderr):
        return LiveProgress(WorkflowSpec(name=workflow, tasks=()), progress_console(), clock, redirects_stdout=False)
    return PlainProgress(print_text, clock)
