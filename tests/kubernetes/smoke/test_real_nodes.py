"""What only the nodes of a cluster do: they pull images, and limit memory."""

import pytest

from tests.kubernetes.smoke.observing import MINUTES, only_attempt
from tidemill.node import Node
from tidemill.workflows.states import RunState

pytestmark = pytest.mark.timeout(2 * MINUTES)


async def test_a_pod_beyond_its_memory_fails_with_a_clear_message(node: Node) -> None:
    run = await node.start("greedy")
    assert (await run.wait(timeout=MINUTES)).state is RunState.FAILED
    attempt = await only_attempt(node, run)
    assert attempt.outcome == "oom"
    assert attempt.error is not None
    assert "memory" in attempt.error.message


async def test_an_image_that_does_not_exist_fails_the_task(node: Node) -> None:
    run = await node.start("imageless")
    assert (await run.wait(timeout=MINUTES)).state is RunState.FAILED
    attempt = await only_attempt(node, run)
    assert attempt.error is not None
    assert "ImagePull" in attempt.error.message
