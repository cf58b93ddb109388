"""Test nodes on one store: each has a clock of its own; they share work, and one takes over from another."""

import asyncio
import threading
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

import tidemill as tm
from tests.postgres import PostgresServer
from tests.service.workflows.faults import QUICK
from tidemill.testing import TestNode

ONE_SLOT = {"concurrency": 1}


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
async def shared(request: pytest.FixtureRequest, sqlite: str) -> AsyncIterator[str]:
    """Yield the address of an empty store that several nodes can open, once of each kind."""
    if request.param == "postgresql":
        postgres: PostgresServer = request.getfixturevalue("postgres")
        yield await postgres.fresh_store()
    else:
        yield {"memory": "memory://shared", "sqlite": sqlite}[request.param]


def is_leader(node: TestNode) -> bool:
    """Return whether a node leads."""
    return node.metrics()["scheduler_leader"] == 1


async def advance(nodes: list[TestNode], seconds: int) -> None:
    """Move the clocks of several nodes, a second at a time."""
    for _ in range(seconds):
        for node in nodes:
            await node.advance("1s")


def gated() -> tuple[tm.Workflow, asyncio.Event, list[int]]:
    """Return a workflow of two tasks that wait for an event, the event, and what has begun."""
    flow, gate, begun = tm.Workflow("flow"), asyncio.Event(), list[int]()

    @flow.task
    async def one() -> None:
        begun.append(1)
        await gate.wait()

    @flow.task
    async def two() -> None:
        begun.append(2)
        await gate.wait()

    return flow, gate, begun


async def test_nodes_on_one_store_share_work(shared: str) -> None:
    """API: the second node runs what the first has no slot for; each has its own clock."""
    flow, gate, begun = gated()
    async with (
        tm.testing.node(shared, load=[flow], **ONE_SLOT) as first,
        tm.testing.node(shared, load=[flow], **ONE_SLOT) as second,
    ):
        assert [is_leader(node) for node in (first, second)] == [True, False]
        run = await first.start("flow")
        await advance([first, second], 2)
        assert sorted(begun) == [1, 2]
        assert [len(node.probe.workflows.attempts.claimed) for node in (first, second)] == [1, 1]
        gate.set()
        await advance([second, first], 2)
        assert (await run.wait()).ok
        assert first.clock.now() == second.clock.now()


async def test_a_second_node_leads_after_the_first_has_closed(shared: str) -> None:
    """W-9: also if the first was alone when it became the leader."""
    flow, gate, _ = gated()
    gate.set()
    async with tm.testing.node(shared, load=[flow]) as first:
        await first.advance("1h")
        async with tm.testing.node(shared, load=[flow]) as second:
            await first._close()
            await second.advance("5s")
            assert is_leader(second)
            run = await second.start("flow")
            await second.advance("1s")
            assert (await run.wait()).ok


async def test_a_node_leads_while_the_clock_of_the_leader_stands_still(shared: str) -> None:
    """W-9: to the others, a node whose clock is not moved is frozen; when it goes on, it no longer leads."""
    flow, gate, _ = gated()
    gate.set()
    async with (
        tm.testing.node(shared, load=[flow]) as first,
        tm.testing.node(shared, load=[flow]) as second,
    ):
        await advance([first, second], 10)
        assert [is_leader(node) for node in (first, second)] == [True, False]
        await second.advance("5s")
        assert is_leader(second)
        await first.advance("2s")
        assert [is_leader(node) for node in (first, second)] == [False, True]
        run = await first.start("flow")
        await advance([second, first], 2)
        assert (await run.wait()).ok


async def test_the_attempts_of_a_crashed_node_are_recovered_by_another(shared: str) -> None:
    """W-11, W-12: the successor of a crashed node joins the cluster; nothing is left behind."""
    flow, gate, begun = gated()
    async with (
        tm.testing.node(shared, load=[flow], **ONE_SLOT, settings=QUICK) as first,
        tm.testing.node(shared, load=[flow], **ONE_SLOT, settings=QUICK) as second,
    ):
        run = await first.start("flow")
        await advance([first, second], 2)
        assert len(begun) == 2
        crashed = await second.crash()
        gate.set()
        for _ in range(130):
            await advance([first, crashed], 1)
        result = await first.run_handle(run.id).wait()
        assert result.ok
        assert sum(task.attempts for task in result.tasks.values()) == 3


async def test_an_unshared_test_node_needs_no_ticks_for_others(sqlite: str) -> None:
    """API: a test of hours takes milliseconds, as long as no other node has opened the store."""
    async with tm.testing.node(sqlite) as node:
        before = node.metrics()["scheduler_ticks_total"]
        await node.advance("3h")
        assert node.metrics()["scheduler_ticks_total"] - before < 60


async def test_memory_stores_of_different_names_share_nothing() -> None:
    """API: "memory://" is a store of its own for each node; a name is forgotten with its last node."""
    flow, gate, _ = gated()
    gate.set()
    for addresses in (("memory://", "memory://"), ("memory://a", "memory://b"), ("memory://a", "memory://a")):
        async with tm.testing.node(addresses[0], load=[flow]) as first:
            assert await first.runs() == []
            await (await first.start("flow")).wait()
            async with tm.testing.node(addresses[1], load=[flow]) as second:
                assert len(await second.runs()) == (addresses[0] == addresses[1] != "memory://")


async def test_closing_a_node_whose_task_blocks_does_not_move_its_clock() -> None:
    """API: time moves only by `advance`."""
    flow, over, begun = tm.Workflow("flow"), threading.Event(), threading.Event()

    @flow.task(timeout="10s")
    def blocks() -> None:
        begun.set()
        over.wait(30)

    try:
        async with tm.testing.node(load=[flow], settings={"unload_timeout": "1s"}) as node:
            await node.start("flow")
            await node.advance("1s")
            assert begun.is_set()
            before = node.clock.now()
        assert node.clock.now() - before == timedelta(0)
    finally:
        over.set()
