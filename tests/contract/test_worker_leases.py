"""Leases of attempts on a worker: the code of an attempt ends before another worker may run its task."""

import asyncio
from pathlib import Path

from tests.contract.executor_harness import open_harness
from tidemill.engine.workflows.executors.forkserver.client import LEASE_EXPIRED
from tidemill.workflows.attempt_results import Lost

LEASE = 0.4  # seconds; long enough for a busy machine to start a process


async def test_an_attempt_that_is_not_renewed_ends_as_lost(tmp_path: Path) -> None:
    """W-11: its worker cannot reach the store; that is no failure of the task."""
    async with open_harness("worker", tmp_path, lease=LEASE) as harness:
        request = await harness.start("blocks")
        assert await harness.listener.wait_for_ending(request.key) == Lost(LEASE_EXPIRED)
        assert await harness.value("noop") is None  # the executor goes on


async def test_an_attempt_that_is_renewed_goes_on(tmp_path: Path) -> None:
    """W-11: for as long as it is; the renewal is for all attempts."""
    async with open_harness("worker", tmp_path, lease=LEASE) as harness:
        requests = [await harness.start("blocks", name) for name in ("it", "other")]
        for _ in range(12):
            await asyncio.sleep(LEASE / 4)  # real time: the lease of a process is
            harness.executor.on_leases_renewed()
        assert harness.listener.endings == []
        harness.release("it")
        await harness.listener.wait_for_ending(requests[0].key)
        assert await harness.listener.wait_for_ending(requests[1].key) == Lost(LEASE_EXPIRED)
