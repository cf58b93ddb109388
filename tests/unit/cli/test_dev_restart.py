"""What a restarted `tidemill dev` continues: restored reactors and unfinished runs."""

import io
import logging
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

import tidemill as tm
from tidemill.cli.dev_restart import RestartReport
from tidemill.cli.dev_view import DevView
from tidemill.kernel.clock import SystemClock
from tidemill.telemetry import events

flow = tm.Workflow("flow")


@flow.task
def wait(ctx: tm.Context) -> None:
    """Wait longer than any test."""
    ctx.defer(for_="1h")


def report_on(node: tm.Node) -> RestartReport:
    """Return a report on a node."""
    return RestartReport(node, DevView(node, Path.cwd(), SystemClock(), lambda: None))


def lines(report: RestartReport) -> list[str]:
    """Return what is reported, without times; then what is reported as missing."""
    with redirect_stdout(io.StringIO()) as output:
        report.report()
        report.report_missing()
    return [line[10:] for line in output.getvalue().splitlines()]


def record(event: str, **fields: Any) -> logging.LogRecord:
    """Return a log record."""
    return logging.makeLogRecord({"msg": event, **fields})


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ({"cached": 1}, "1 cached value"),
        ({"cached": 3, "queued": 2, "firings": 1}, "3 cached values, 2 in the queue, 1 unfinished firing"),
    ],
)
def test_a_restored_reactor_is_reported_with_what_it_has(counts: dict[str, int], said: str) -> None:
    report = report_on(tm.Node())
    for earlier in ({"queued": 7}, counts):  # it was loaded again, because another file adds a graph to it
        assert report.handles(record(events.CHECKPOINT_RESTORED, reactor="market", **earlier))
    assert lines(report) == [f"market  restored from the store: {said}"]
    assert lines(report) == []


def test_a_reactor_without_state_is_not_reported() -> None:
    report = report_on(tm.Node())
    assert report.handles(record(events.CHECKPOINT_RESTORED, reactor="market", cached=0, queued=0, firings=0))
    assert lines(report) == []


async def test_unfinished_runs_continue_with_their_workflow(tmp_path: Path) -> None:
    """Until it is loaded, they wait for it; of many, the number is shown."""
    async with tm.Node(f"sqlite:///{tmp_path}/x.db", load=[flow]) as node:
        runs = [(await node.start("flow")).id for _ in range(2)]
    async with tm.Node(f"sqlite:///{tmp_path}/x.db") as node:
        report = report_on(node)
        assert await report.read_unfinished_runs() == dict.fromkeys(runs, "flow")
        named = f"run {', '.join(run[-8:] for run in runs)}"
        assert lines(report) == [f"flow  {named}: unfinished since the last stop, and the workflow is not loaded"]
        await report.read_unfinished_runs()
        await node.load(flow)
        assert lines(report) == [f"flow  continues {named}, unfinished since the last stop"]


async def test_a_run_whose_code_is_gone_does_not_continue(tmp_path: Path) -> None:
    """It has a line of its own."""
    async with tm.Node(f"sqlite:///{tmp_path}/x.db", load=[flow]) as node:
        run = (await node.start("flow")).id
        report = report_on(node)
        await report.read_unfinished_runs()
        assert not report.handles(record(events.RUN_CODE_MISSING, workflow="flow", run=run))
        assert lines(report) == []


def test_what_a_load_restores_again_is_reported_once() -> None:
    """D31: a package whose load was tried twice restored its reactors twice, and a line said so each time."""
    report = report_on(tm.Node())
    restored = record(events.CHECKPOINT_RESTORED, reactor="desk", cached=1)
    assert report.handles(restored)
    assert lines(report) == ["desk  restored from the store: 1 cached value"]
    assert report.handles(restored)
    assert lines(report) == []
    assert report.handles(record(events.CHECKPOINT_RESTORED, reactor="desk", cached=2))
    assert lines(report) == ["desk  restored from the store: 2 cached values"]
