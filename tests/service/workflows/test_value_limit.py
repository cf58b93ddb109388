"""A task returns values up to a limit, on every executor."""

import tidemill as tm


async def test_a_value_that_is_too_long_fails_its_task_in_process_too() -> None:
    """D28: `TooLong`, without a retry; one large value would hold up the planning of all runs."""
    flow = tm.Workflow("flow")

    @flow.task(retry=3)
    def large() -> bytes:
        return bytes(2000)

    @flow.task
    async def small() -> bytes:
        return bytes(900)

    async with tm.testing.node(load=[flow], settings={"result_limit": 1000}) as node:
        result = await (await node.start(flow)).wait()
    large_one, small_one = result.tasks["large"], result.tasks["small"]
    assert (large_one.state, large_one.attempts, small_one.state) == ("failed", 1, "success")
    assert large_one.error is not None
    assert large_one.error.type == "TooLong"
    assert "and 1,000 are allowed: store it elsewhere and return its location" in large_one.error.message
