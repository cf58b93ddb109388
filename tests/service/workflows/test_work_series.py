"""Metrics of runs and tasks have the names of their workflow and task, and durations."""

from collections import Counter
from typing import Any

import tidemill as tm
from tests.service.workflows.acting import START
from tests.service.workflows.faults import QUICK
from tidemill.telemetry.metrics import Labels


def make_flow(name: str = "flow") -> tm.Workflow:
    """Return a workflow with a task that fails once, one that is skipped, and one after it."""
    flow, troubles = tm.Workflow(name), ["disk full"]

    @flow.task(retry=tm.Retry(1, delay="1s"))
    def work() -> int:
        if troubles:
            raise OSError(troubles.pop())
        return 1

    @flow.task
    def maybe(work: int) -> int:
        raise tm.Skip("nothing to do")

    @flow.task
    def last(maybe: int) -> int:
        return maybe

    return flow


def samples(node: tm.testing.TestNode, name: str) -> dict[Labels, float]:
    """Return the samples of a metric that are not 0, by their labels but the tenant."""
    found = [one for one in node.metrics_registry.samples() if one.name == name and one.value]
    return {tuple(value for label, value in one.labels if label != "tenant"): one.value for one in found}  # type: ignore[misc]


async def test_runs_and_tasks_are_counted_by_name_also_retried_and_skipped_ones() -> None:
    """A task that is skipped with the one before it never starts, and counts as well."""
    async with tm.testing.node(load=[make_flow()], settings=QUICK, start=START) as node:
        await node.start("flow")
        await node.advance("5s")
        assert samples(node, "runs_total") == {("flow", "success"): 1}
        assert samples(node, "tasks_total") == {
            ("flow", "work", "up_for_retry"): 1,
            ("flow", "work", "success"): 1,
            ("flow", "maybe", "skipped"): 1,
            ("flow", "last", "skipped"): 1,
        }
        assert samples(node, "run_duration_seconds_count") == {("flow",): 1}
        assert samples(node, "task_duration_seconds_count") == {("flow", "work"): 2}
        (last,) = samples(node, "run_last_success_timestamp_seconds").values()
        assert START.timestamp() < last < START.timestamp() + 5


async def test_what_another_process_has_ended_counts() -> None:
    """The leader sees what workers and operators write to the store."""
    flow = tm.Workflow("flow")

    @flow.task(executor="worker")
    def work() -> None: ...

    @flow.task
    def after(work: None) -> None: ...

    async with tm.testing.node(load=[flow], settings=QUICK) as node:
        run = await node.start("flow")
        await node.advance("1s")
        await run.cancel()
        await node.advance("2s")
        assert samples(node, "runs_total") == {("flow", "cancelled"): 1}
        assert samples(node, "tasks_total") == {("flow", "work", "cancelled"): 1, ("flow", "after", "cancelled"): 1}


async def test_what_exceeds_the_bound_counts_as_other() -> None:
    """The number of series does not depend on that of workflows and tasks."""
    names = [f"flow{number}" for number in range(5)]
    settings: dict[str, Any] = {**QUICK, "metric_series": 2}
    async with tm.testing.node(load=[make_flow(name) for name in names], settings=settings) as node:
        for name in names:
            await node.start(name)
        await node.advance("5s")
        by_workflow = Counter[str]()
        for (workflow, _), value in samples(node, "runs_total").items():
            by_workflow[str(workflow)] += int(value)
        assert by_workflow == {"flow0": 1, "flow1": 1, "other": 3}
        assert sum(samples(node, "tasks_total").values()) == 5 * 4
        assert len({key[:2] for key in samples(node, "tasks_total")}) == 2 + 1
