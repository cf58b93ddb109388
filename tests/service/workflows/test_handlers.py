"""Handlers: called once for each end, after it is written, and without an effect on it."""

import asyncio
import logging
from typing import Any

import pytest

import tidemill as tm
from tests.postgres import PostgresServer
from tests.service.workflows.acting import Gate, see_through
from tests.sqlite import create_database
from tidemill.access.principal import Caller
from tidemill.testing.faults.stores import intercept_transactions


class Flow:
    """A workflow that fails while `fails` is set, and the reports to its handlers."""

    def __init__(self, *, handler_failures: int = 0, name: str = "report") -> None:
        self.fails = True
        self.reports: list[tuple[str, tm.RunReport]] = []
        self.left = handler_failures
        self.workflow = flow = tm.Workflow(name)

        @flow.task
        def load(ctx: tm.Context) -> int:
            if self.fails:
                raise ValueError("no rows")
            return 1

        @flow.on_failure(retry=tm.Retry(2, delay="1s"))
        async def alert(report: tm.RunReport, ctx: tm.Context) -> str:
            if self.left:
                self.left -= 1
                raise ConnectionError("no network")
            self.reports.append(("alert", report))
            return ctx.run_id

        @flow.on_failure
        def page(report: tm.RunReport) -> None:
            self.reports.append(("page", report))

        @flow.on_success
        def thank(report: tm.RunReport) -> None:
            self.reports.append(("thank", report))

    @property
    def called(self) -> list[str]:
        """The handlers that have been called."""
        return sorted(name for name, _ in self.reports)


async def handler_runs(node: tm.testing.TestNode) -> list[tm.RunResult]:
    """Return the runs of handlers, oldest first."""
    runs = [await run.state() for run in await node.runs(limit=1000)]
    return sorted((run for run in runs if ".on_" in run.workflow), key=lambda run: run.id)


# -- which ends


async def test_the_handlers_of_a_failure_are_told_what_failed(store: str | None) -> None:
    flow = Flow()
    settings = tm.Settings(public_url="https://jobs.example")
    async with tm.testing.node(store, load=[flow.workflow], settings=settings) as node:
        failed = await see_through(node, "report", day="monday")
        (handled,) = await handler_runs(node)
        assert (str(failed.state), str(handled.state)) == ("failed", "success")
        assert flow.called == ["alert", "page"]
        report = flow.reports[0][1]
        assert handled.output("alert") == handled.id
    assert (report.run, report.workflow, report.params) == (failed.id, "report", {"day": "monday"})
    assert (report.state, report.reason) == (tm.RunState.FAILED, "task 'load' failed: ValueError: no rows")
    (failure,) = report.failures
    assert (failure.task, failure.error.type, failure.error.message, failure.attempts) == (
        "load",
        "ValueError",
        "no rows",
        1,
    )
    assert report.link == f"https://jobs.example/runs/{failed.id}"
    assert (report.started_at, report.ended_at) == (failed.started_at, failed.ended_at)


async def test_a_success_calls_its_handlers_only(store: str | None) -> None:
    flow = Flow()
    flow.fails = False
    async with tm.testing.node(store, load=[flow.workflow]) as node:
        assert (await see_through(node, "report")).ok
    assert flow.called == ["thank"]
    assert flow.reports[0][1].failures == []


async def test_a_cancelled_run_calls_no_handler(store: str | None) -> None:
    """A person or a program has just decided that."""
    gate = Gate()
    flow = Flow()

    @flow.workflow.task
    async def wait() -> None:
        await gate.pass_through()

    flow.fails = False
    async with tm.testing.node(store, load=[flow.workflow]) as node:
        run = await node.start("report")
        await node.advance("1s")
        await run.cancel()
        await node.settle()
        assert str((await run.state()).state) == "cancelled"
        assert await handler_runs(node) == []


async def test_each_end_of_a_run_calls_its_handlers(store: str | None) -> None:
    """A retry that fails again is another end; one that succeeds calls the others."""
    flow = Flow()
    async with tm.testing.node(store, load=[flow.workflow]) as node:
        run = await node.start("report")
        await node.settle()
        await run.retry()
        await node.settle()
        flow.fails = False
        await run.retry()
        await node.settle()
        assert (await run.state()).ok
    assert flow.called == ["alert", "alert", "page", "page", "thank"]


async def test_errors_of_earlier_attempts_are_read_from_the_store(store: str | None) -> None:
    """A run ends with its last task, long after others have failed."""
    flow, reports = tm.Workflow("report"), list[tm.RunReport]()

    @flow.task(retry=tm.Retry(1, delay="1s"))
    def early() -> None:
        raise OSError("disk")

    @flow.task
    def late(ctx: tm.Context) -> None:
        ctx.defer(for_="1h")
        raise KeyError("gone")

    flow.on_failure(lambda_named(reports))
    async with tm.testing.node(store, load=[flow]) as node:
        await node.start("report")
        await node.advance("10s")
        node = await node.crash() if store is not None else node
        await node.advance("2h")
    (report,) = reports
    told = [(one.task, one.error.type, one.attempts) for one in report.failures]
    assert told == [("early", "OSError", 2), ("late", "KeyError", 1)]


def lambda_named(reports: list[tm.RunReport]) -> Any:
    """Return a handler that keeps its reports."""

    def keep(report: tm.RunReport) -> None:
        reports.append(report)

    return keep


# -- what becomes of a handler


async def test_a_handler_is_retried_and_never_changes_its_run(store: str | None) -> None:
    flow = Flow(handler_failures=3)
    async with tm.testing.node(store, load=[flow.workflow]) as node:
        failed = await see_through(node, "report")
        await node.advance("1h")
        (handled,) = await handler_runs(node)
        assert {name: str(task.state) for name, task in handled.tasks.items()} == {"alert": "failed", "page": "success"}
        assert str((await node.run_handle(failed.id).state()).state) == "failed"
        assert handled.tasks["alert"].attempts == 3
        await node.run_handle(handled.id).retry()
        await node.settle()
    assert flow.called == ["alert", "page"], "a failed handler can be retried"


async def test_a_paused_workflow_of_handlers_mutes_them(store: str | None) -> None:
    flow = Flow()
    async with tm.testing.node(store, load=[flow.workflow]) as node:
        await node.pause("report.on_failure")
        assert str((await see_through(node, "report")).state) == "failed"
        assert await handler_runs(node) == []
        await node.resume("report.on_failure")
        await see_through(node, "report")
    assert flow.called == ["alert", "page"]


async def test_handlers_are_of_the_version_of_their_run(store: str | None) -> None:
    """Code that is replaced stays until the handlers of its last run have been called."""
    gate, told = Gate(), list[str]()

    def version(word: str) -> tm.Workflow:
        flow = tm.Workflow("report")

        @flow.task
        async def load() -> None:
            await gate.pass_through()
            raise ValueError("old" if word == "old" else "new")

        def alert(report: tm.RunReport) -> None:
            told.append(f"{word}: {report.failures[0].error.message}")

        flow.on_failure(alert)
        return flow

    async with tm.testing.node(store, load=[version("old")]) as node:
        await node.start("report")
        await node.advance("1s")
        await node.unload("workflow:report")
        await node.advance("10s")
        gate.is_open.set()
        await node.settle()
    assert told == ["old: old"]


async def test_the_store_fails_while_a_run_ends(store: str | None) -> None:
    flow = Flow()
    async with tm.testing.node(store, load=[flow.workflow]) as node:
        flow.fails = True
        run = await node.start("report")
        node.fail_store(3)
        await node.advance("1m")
        assert str((await run.state()).state) == "failed"
    assert flow.called == ["alert", "page"]


async def test_a_follower_runs_handlers_too(tmp_path: Any) -> None:
    """They are tasks like all others: any node may claim them."""
    create_database(tmp_path / "tidemill.db")
    flow, store = Flow(), f"sqlite:///{tmp_path}/tidemill.db"
    async with tm.testing.node(store, load=[flow.workflow]) as one, tm.testing.node(store, load=[flow.workflow]) as two:
        run = await two.start("report")
        for _ in range(20):
            await asyncio.gather(one.advance("1s"), two.advance("1s"))
        assert str((await run.state()).state) == "failed"
    assert flow.called == ["alert", "page"]


# -- in scripts


def test_a_script_waits_for_the_handlers() -> None:
    flow = Flow()
    assert not flow.workflow.run().ok
    assert flow.called == ["alert", "page"]


def test_a_script_warns_of_a_handler_that_failed(caplog: pytest.LogCaptureFixture) -> None:
    flow = tm.Workflow("report")

    @flow.task
    def load() -> None: ...

    @flow.on_success(retry=0)
    def thank(report: tm.RunReport) -> None:
        raise ConnectionError("no network")

    with caplog.at_level(logging.WARNING, "tidemill"):
        assert flow.run().ok
    (record,) = (one for one in caplog.records if one.name == "tidemill.workflow")
    assert "'report.on_success' failed: task 'thank' failed: ConnectionError: no network" in record.getMessage()


# -- without handlers


async def test_an_end_without_handlers_costs_what_it_did() -> None:
    """A workflow without handlers, or with those of the other end, is written in as many transactions and changes."""
    costs = []
    for has_handler in (False, True):
        flow = tm.Workflow(f"flow_{has_handler}")

        @flow.task
        def work() -> int:
            return 1

        if has_handler:
            flow.on_failure(lambda_named([]))
        async with tm.testing.node(load=[flow]) as node:
            sizes: list[int] = []

            async def count(transact: Any, units: Any, sizes: list[int] = sizes) -> Any:
                sizes.append(len(units))
                return await transact(units)

            undo = intercept_transactions(node.database, count)
            assert (await see_through(node, flow.name)).ok
            undo()
            costs.append(sizes)
    assert costs[0] == costs[1]
    assert len(costs[0]) > 1


async def test_lists_of_workflows_and_runs_name_handlers(store: str | None) -> None:
    """What handled an end is found from its run, and its run from what handled it."""
    flow = Flow()
    async with tm.testing.node(store, load=[flow.workflow]) as node:
        failed = await see_through(node, "report")
        (called,) = await node.run_handle(failed.id).handlers()
        assert (called.handles, called.workflow, str(called.state)) == ("on_failure", "report.on_failure", "success")
        assert called.tasks == {"alert": "success", "page": "success"}
        assert (await node.run_handle(called.run).info()).parent == failed.id
        assert await node.run_handle(called.run).handlers() == []
        assert [run.id for run in await node.runs(cause="handler")] == [called.run]
        with pytest.raises(tm.RequestError, match="there is no run 'r0'"):
            await node.run_handle("r0").handlers()


async def test_home_lists_a_failure_once_and_a_handler_that_failed(store: str | None) -> None:
    """A message that was not sent needs a person, too; it is no second failure of the workflow."""
    flow = Flow(handler_failures=9)
    async with tm.testing.node(store, load=[flow.workflow]) as node:
        await see_through(node, "report")
        await node.advance("1m")
        overview = await node.services.workflows.overview(Caller("public", "local"))
        assert sorted((one.runs.workflow, one.runs.number) for one in overview.failing) == [
            ("report", 1),
            ("report.on_failure", 1),
        ]


async def test_on_postgresql_too(postgres: PostgresServer) -> None:
    """What a run has called is known as soon as its end is."""
    flow = Flow()
    async with tm.Node(await postgres.fresh_database(), load=[flow.workflow]) as node:
        run = await node.start("report")
        assert not (await run.wait("30s")).ok
        (called,) = await run.handlers()
        assert (await node.run_handle(called.run).result("30s")).output("alert") == called.run
    assert flow.called == ["alert", "page"]
