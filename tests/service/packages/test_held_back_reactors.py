"""A package whose durable reactor another node owns: the rest of it is loaded, and the reactor waits."""

import asyncio
from pathlib import Path
from types import ModuleType

import pytest

import tidemill as tm
from tests.service.workflows.pairs import until


@pytest.fixture
def address(tmp_path: Path) -> str:
    """A store that several nodes can use."""
    return f"sqlite:///{tmp_path}/tidemill.db"


def plant(limit: int = 90) -> ModuleType:
    """Return a module with a reactor, a graph, and a workflow that follows a node of the graph by its name."""
    module = ModuleType("plant")

    @tm.passthrough
    def celsius(event: float) -> float:
        return event

    reactor = tm.Reactor("plant", [celsius])
    graph = tm.Graph("monitor", reactor=reactor)

    @graph.node
    def alert(celsius: float) -> float | None:
        return celsius if celsius > limit else None

    callout = tm.Workflow("callout", triggers=[tm.on_output("monitor", "alert")])

    @callout.task
    def call(ctx: tm.Context) -> float:
        value: float = ctx["output"]
        return value

    vars(module).update(reactor=reactor, graph=graph, callout=callout)
    return module


async def test_workflows_run_on_a_node_whose_reactor_waits(address: str) -> None:
    """G-31, W-6: only the reactor and its graphs are held back, until the owner releases them."""
    async with (
        tm.testing.node(address, load=[plant()]) as first,
        tm.testing.node(address, load=[plant()]) as second,
    ):
        assert second.registry.workflows() == ["callout"]
        assert (second.registry.reactors(), second.registry.graphs()) == ([], [])
        run = await second.start("callout", output=1.0)
        for node in (first, second) * 3:
            await node.advance("1s")
        assert (await run.state()).outputs == {"call": 1.0}
        with pytest.raises(tm.RequestError, match="is owned by node"):
            second.reactor("plant")
        await first._close()
        await second.advance("3s")
        assert (second.registry.reactors(), second.registry.graphs()) == (["plant"], ["monitor"])
        await second.push("celsius", 99.0)
        await second.settle()
        assert [(await one.state()).outputs for one in await second.runs("callout")] == [{"call": 99.0}, {"call": 1.0}]


async def test_a_package_that_waits_can_be_replaced_and_unloaded(address: str) -> None:
    """P-6, P-2: what waited with the older version is not loaded any more, and nothing is left of it."""
    async with (
        tm.testing.node(address, load=[plant()]) as first,
        tm.testing.node(address, load=[plant()]) as second,
        tm.testing.node(address, load=[plant()]) as third,
    ):
        await second.load(plant(limit=50))
        await third.unload("plant")
        await first._close()
        await second.advance("3s")
        await third.advance("3s")
        assert (third.registry.packages(), third.registry.reactors()) == ([], [])
        await second.push("celsius", 60.0)
        await second.settle()
        assert [(await one.state()).outputs for one in await second.runs("callout")] == [{"call": 60.0}]


def single(name: str) -> tm.Reactor:
    """Return a reactor with one accumulator."""

    def take(event: int) -> int:
        return event

    take.__name__ = f"events_of_{name}"
    return tm.Reactor(name, [tm.passthrough(take)])


async def test_reactors_of_several_owners_are_taken_over_one_by_one(address: str) -> None:
    """G-31: an owner that lives does not keep this node from what another one has released."""
    async with (
        tm.testing.node(address, load=[single("r")]) as first,
        tm.testing.node(address, load=[single("s")]) as second,
        tm.testing.node(address, load=[single("r"), single("s")]) as third,
    ):
        await first._close()
        for node in (second, third) * 3:
            await node.advance("1s")
        assert third.registry.reactors() == ["r"]
        with pytest.raises(tm.RequestError, match="is owned by node"):
            third.reactor("s")


async def test_a_store_that_fails_does_not_end_the_wait(address: str) -> None:
    """G-31, W-5: the take-over is tried again."""
    async with (
        tm.testing.node(address, load=[single("r")]) as first,
        tm.testing.node(address, load=[single("r")]) as second,
    ):
        await first._close()
        second.fail_store(3)
        await second.advance("10s")
        assert second.registry.reactors() == ["r"]


async def test_a_package_is_replaced_while_its_reactor_is_taken_over(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    """G-31, P-6: the newer version counts, and the node goes on taking over what others release."""
    async with (
        tm.testing.node(address, load=[plant()]) as first,
        tm.testing.node(address, load=[single("r")]) as other,
        tm.testing.node(address, load=[plant(), single("r")]) as second,
    ):
        await first._close()
        async with asyncio.TaskGroup() as group, second.probe.packages.holding_changes():
            group.create_task(second.advance("3s"))
            await until_the_wait_ends(second)
            group.create_task(second.load(plant(limit=50)))
            await asyncio.sleep(0)
        await second.push("celsius", 60.0)
        await second.settle()
        assert [(await one.state()).outputs for one in await second.runs("callout")] == [{"call": 60.0}]
        await other._close()
        await second.advance("3s")
        assert second.registry.reactors() == ["plant", "r"]
    assert "task failed" not in caplog.text


async def test_a_package_is_unloaded_before_its_reactor_is_taken_over(address: str) -> None:
    """G-31, P-2: the take-over waits for the unload, and then there is nothing to take over for."""
    async with (
        tm.testing.node(address, load=[plant()]) as first,
        tm.testing.node(address, load=[plant()]) as second,
    ):
        await first._close()
        async with asyncio.TaskGroup() as group, second.probe.packages.holding_changes():
            group.create_task(second.unload("plant"))
            await asyncio.sleep(0)
            group.create_task(second.advance("3s"))
            await until_the_wait_ends(second)
        assert (second.registry.packages(), second.registry.reactors()) == ([], [])


async def until_the_wait_ends(node: tm.testing.TestNode) -> None:
    """Wait until a node has seen that the reactor is free, and is about to load it."""
    reads = 0

    async def has_read() -> bool:
        """Count reads of the store, since it reads the owners there: reads that begin later end later."""
        nonlocal reads
        await node.probe.packages.store.schedules.list_paused_workflows()
        reads += node._parts.standby.is_retrying
        return reads > 20

    await until(has_read)
