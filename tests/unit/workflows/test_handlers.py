"""Handlers of a workflow: how they are declared, what they are given, and that workflows without any stay the same."""

from datetime import timedelta

import msgspec
import pytest

import tidemill as tm
from tests.contract.run_samples import ERROR, attempt_row, run_row, task_row
from tests.contract.samples import NOON
from tidemill.workflows.handlers import FAILURE_LIMIT, build_report, handler_versions
from tidemill.workflows.records import TaskError, VersionKey
from tidemill.workflows.spec import TaskSpec, WorkflowSpec
from tidemill.workflows.states import RunState, TaskState


def workflow() -> tm.Workflow:
    """Return a workflow of one task, without handlers."""
    flow = tm.Workflow("report", owner="data", tags=["daily"])

    @flow.task
    def load() -> int:
        return 1

    return flow


def alert(report: tm.RunReport) -> None:
    """Send a message."""


# -- declaration


def test_a_workflow_without_handlers_is_stored_as_ever() -> None:
    """Versions are hashes of what is stored: those of existing workflows must not change."""
    spec = WorkflowSpec(name="w", tasks=(TaskSpec(name="a"),), code="f")
    assert msgspec.json.encode(spec) == b'{"name":"w","tasks":[{"name":"a"}],"code":"f"}'
    assert spec.version == "4402da9d6733f186"


def test_handlers_are_tasks_of_a_workflow_that_belongs_to_theirs() -> None:
    flow = workflow()
    assert flow.on_failure(alert) is alert

    @flow.on_failure(retry=1, timeout="5s", queue="slow")
    async def page(report: tm.RunReport, ctx: tm.Context) -> None:
        ctx.log.info(report.run)

    @flow.on_success
    def thank() -> None:
        pass

    failed, succeeded, itself = flow.family
    assert itself is flow
    assert (failed.name, succeeded.name) == ("report.on_failure", "report.on_success")
    tasks = failed.wired().spec.by_name
    assert [one.tries for one in tasks.values()] == [4, 2], "a handler is retried three times, unless it says otherwise"
    assert (tasks["page"].timeout, tasks["page"].queue) == (5.0, "slow")
    assert (failed.tags, failed.about.owner, failed.location) == (flow.tags, "data", flow.location)
    assert failed.wired().spec.handles == "report"
    assert handler_versions("acme", flow.wired().spec) == [
        VersionKey("acme", "report.on_failure", failed.wired().spec.version),
        VersionKey("acme", "report.on_success", succeeded.wired().spec.version),
    ]


def test_a_version_names_that_of_its_handlers() -> None:
    """A run calls the handlers that its version was declared with."""
    versions = [workflow().wired().spec.version]
    for timeout in (None, "5s"):
        flow = workflow()
        flow.on_failure(timeout=timeout)(alert)
        versions.append(flow.wired().spec.version)
    assert len(set(versions)) == 3
    flow.on_success(alert)
    assert flow.wired().spec.version not in versions, "it is wired again when it gets a handler"


def test_settings_of_a_manifest_reach_handlers() -> None:
    """The workflow and the one of its handlers are changed alike, however they are reached."""
    flow = workflow()
    flow.on_failure(alert)
    changed = flow.with_overrides({"report.on_failure.alert": {"retries": 0}})
    (handlers, _) = changed.family
    assert handlers.wired().spec.by_name["alert"].tries == 1
    again = flow.family[0].with_overrides({"report.on_failure.alert": {"retries": 0}})
    assert changed.wired().spec.handlers == {"failed": again.wired().spec.version}
    assert flow.family[0].wired().spec.by_name["alert"].tries == 4


@pytest.mark.parametrize(
    ("options", "parameter", "message"),
    [
        ({"after": ["load"]}, "report: tm.RunReport", "a handler has no option 'after'; it has retry, timeout"),
        ({"retries": 3}, "report: tm.RunReport", "has no option .retries. .did you mean .retry...."),
        ({}, "load: int", "a handler takes the report, annotated `report: tm.RunReport`"),
        ({}, "report", "a handler takes the report, annotated `report: tm.RunReport`"),
    ],
)
def test_a_handler_that_cannot_be_called_is_refused(options: dict[str, object], parameter: str, message: str) -> None:
    flow, names = workflow(), {"tm": tm}
    exec(f"def handle({parameter}): pass", names)
    with pytest.raises(tm.DefinitionError, match=message):  # noqa: PT012 - options are checked at once, types later
        flow.on_failure(**options)(names["handle"])
        flow.check()


# -- the report


def test_a_report_lists_failures_in_the_order_of_time() -> None:
    tasks = [
        task_row("late", TaskState.FAILED, tries=2, ended_at=NOON + timedelta(2), reason="ValueError: no"),
        task_row("part", TaskState.FAILED, index=7, tries=1, ended_at=NOON + timedelta(1), reason="lost: no heartbeat"),
        task_row("fine", TaskState.SUCCESS, tries=1, ended_at=NOON),
        task_row("after", TaskState.UPSTREAM_FAILED, ended_at=NOON),
    ]
    attempts = [
        attempt_row("r1", "late", 1, outcome="failed", error=TaskError("OSError", "once")),
        attempt_row("r1", "late", 2, outcome="failed", error=ERROR),
    ]
    run = run_row(state=RunState.FAILED, params=msgspec.msgpack.encode({"day": 1}), cause="market", slot=NOON)
    report = build_report(run, tasks, attempts, public_url="https://jobs.example/")
    assert report.failures == [
        tm.TaskFailure(
            task="part[7]", error=TaskError("OperationError", "lost: no heartbeat"), ended_at=NOON + timedelta(1)
        ),
        tm.TaskFailure(task="late", error=ERROR, attempts=2, ended_at=NOON + timedelta(2)),
    ]
    assert (report.run, report.workflow, report.version, report.failed_tasks) == ("r1", "flow", "v1", 2)
    assert (report.params, report.cause, report.slot) == ({"day": 1}, "market", NOON)
    assert report.link == "https://jobs.example/runs/r1"


def test_a_report_on_many_failures_lists_the_first() -> None:
    tasks = [task_row("m", TaskState.FAILED, index=index, ended_at=NOON) for index in range(FAILURE_LIMIT + 5)]
    report = build_report(run_row(state=RunState.FAILED), tasks, [], public_url=None)
    assert (len(report.failures), report.failed_tasks, report.link) == (FAILURE_LIMIT, FAILURE_LIMIT + 5, None)
    assert str(report).endswith("5 more tasks failed")


def test_a_report_is_a_message_for_people() -> None:
    """A handler that sends `str(report)` says everything that is needed."""
    failures = [tm.TaskFailure(task="load", error=TaskError("ValueError", "no rows"))]
    report = tm.RunReport(
        run="r1",
        workflow="report",
        state=RunState.FAILED,
        reason="task 'load' failed: ValueError: no rows",
        failures=failures,
        failed_tasks=1,
        link="https://jobs.example/runs/r1",
    )
    assert str(report).splitlines() == [
        "run r1 of workflow 'report' failed",
        "task 'load' failed: ValueError: no rows",
        "https://jobs.example/runs/r1",
    ]
    orphan = tm.RunReport(run="r1", workflow="report", state=RunState.FAILED, reason="orphaned")
    assert str(orphan).splitlines()[1:] == ["orphaned"]
    assert str(tm.RunReport(run="r1", workflow="report", state=RunState.SUCCESS)).endswith("succeeded")


def test_a_report_can_be_made_of_damaged_params() -> None:
    """What handles its end must not keep a run from ending."""
    assert build_report(run_row(state=RunState.FAILED, params=b"\xc1"), [], [], public_url=None).params == {}
