"""A slow API server does not slow down the node."""

import asyncio
from pathlib import Path

import pytest

from tests.kubernetes.api_server import ApiServer, Request
from tests.kubernetes.cluster import create_namespace
from tests.kubernetes.fake.slow_flow import crowd
from tests.kubernetes.pod_node import write_config
from tidemill.node import Node

TICKS = 4
CONCURRENT_REQUESTS = 8


async def test_ticks_are_on_time_while_fifty_pods_are_created_slowly(api_server: ApiServer, tmp_path: Path) -> None:
    """W-7: 50 tasks become ready at once, 500 ms per create: the period of ticks stays within 10 % of 1 s."""
    waiting = most = 0

    def slow(request: Request) -> float | None:
        nonlocal waiting, most
        if request.verb != "create":
            return None
        waiting += 1
        most = max(most, waiting)
        asyncio.get_running_loop().call_later(0.5, leave)
        return 0.5

    def leave() -> None:
        nonlocal waiting
        waiting -= 1

    async with api_server.cluster.client() as client:
        namespace = await create_namespace(client)
    config = write_config(api_server.cluster, namespace, tmp_path, concurrent_requests=CONCURRENT_REQUESTS)
    settings = {"kubernetes_config": config, "edition": "pro", "server_url": "http://127.0.0.1:1"}
    async with Node(f"sqlite:///{tmp_path}/store.db", load=[crowd], settings=settings) as node:
        api_server.fault = slow
        await node.start("crowd")
        await next_tick(node)
        began = asyncio.get_running_loop().time()
        for _ in range(TICKS):
            await next_tick(node)
        period = (asyncio.get_running_loop().time() - began) / TICKS
        assert period == pytest.approx(1.0, rel=0.1)
        assert most == CONCURRENT_REQUESTS
        assert api_server.count("create", "pods") > CONCURRENT_REQUESTS


async def next_tick(node: Node) -> None:
    """Wait for the next tick of the scheduler."""
    count = node.metrics()["scheduler_ticks_total"]
    async with asyncio.timeout(20):
        while node.metrics()["scheduler_ticks_total"] == count:  # noqa: ASYNC110 - the clock is the real one
            await asyncio.sleep(0.005)
