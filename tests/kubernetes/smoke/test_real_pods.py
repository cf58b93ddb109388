"""Tasks in pods of any cluster."""

import asyncio

import pytest

from tests.kubernetes.pods import Pods
from tests.kubernetes.smoke.observing import MINUTES, messages_of, until_logged, until_no_pods
from tidemill.node import Node
from tidemill.workflows.states import RunState

pytestmark = pytest.mark.timeout(2 * MINUTES)


async def test_a_pod_runs_a_task_of_a_package_and_is_removed(node: Node, pods: Pods) -> None:
    """W-2: its value goes on to a task of the node."""
    run = await node.start("steps")
    result = await run.wait(timeout=MINUTES)
    assert result.state is RunState.SUCCESS
    assert result.tasks["measured"].output == len(result.tasks["where"].output)
    assert await messages_of(node, run, "where") == ["begun", "printed"]
    await until_no_pods(pods)


async def test_a_failure_of_the_code_uses_the_authors_retries(node: Node) -> None:
    result = await (await node.start("flaky")).wait(timeout=MINUTES)
    assert (result.tasks["fail_once"].output, result.tasks["fail_once"].attempts) == (2, 2)


async def test_a_cancelled_run_stops_its_pod(node: Node, pods: Pods) -> None:
    """Tasks: cancel reaches the running code."""
    run = await node.start("endless")
    await until_logged(node, run, "wait", "begun")
    await run.cancel()
    assert (await run.wait(timeout=MINUTES)).state is RunState.CANCELLED
    await until_no_pods(pods)


async def test_many_pods_run_at_a_time(node: Node) -> None:
    runs = [await node.start("steps") for _ in range(10)]
    async with asyncio.timeout(MINUTES):
        results = [await run.wait() for run in runs]
    assert [result.state for result in results] == [RunState.SUCCESS] * 10
