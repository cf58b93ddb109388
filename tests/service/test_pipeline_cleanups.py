"""P-2, P-5, P-12: what is owed about one package, and what takes its time to end, and the others."""

import asyncio
from typing import Any

import pytest

import tidemill as tm
from tests.contract.executor_bench import until
from tests.service.whole_package import START, Node, flow, module, scoring, source, traces, whole
from tidemill.kernel.errors import OperationError, StoreError
from tidemill.testing.faults.deploy_steps import DeployFaults


def seller(version: int) -> Any:
    """Return a package with a graph that others call, and a workflow of its own."""
    return module("seller", scoring("scoring", version), flow("own", version, [], [tm.Every("1h", key="hourly")]))


def buyer(version: int) -> Any:
    """Return a package whose workflow calls a graph of the other one."""
    return module("buyer", flow("buys", version, [], []))


async def bought(node: Node) -> dict[str, Any]:
    """Return what a run of the other package's workflow comes to."""
    run = await node.start("buys")
    await node.settle()
    return (await run.state()).outputs


async def owe_the_way_back(node: Node, package: Any, *, step: int = 6, times: int = 1) -> DeployFaults:
    """Let a load fail at its last step, and the way back at one: what is put back then is owed."""
    faults = DeployFaults(node)
    faults.fail("apply", 6, "after")
    faults.fail("roll_back", step, *["before"] * times)
    with pytest.raises(StoreError):
        await node.load(package)
    return faults


async def test_what_is_owed_does_not_overwrite_what_others_have_done_since() -> None:
    """P-5: a reload that touched their workflow too is put back before they change it, not after that."""
    async with tm.testing.node(load=[seller(1), buyer(1)], start=START) as node:
        await owe_the_way_back(node, seller(2))
        assert node.probe.packages.pending_cleanups == [("public", "seller")]
        await node.load(buyer(5))
        assert node.probe.packages.pending_cleanups == []
        assert await bought(node) == {"work": 5, "scored": {"score": 501}}
        await node.advance("5m")
        assert await bought(node) == {"work": 5, "scored": {"score": 501}}


@pytest.mark.parametrize("act", ["load", "unload"])
async def test_who_needs_names_that_are_owed_is_told_whom_it_waits_for(act: str) -> None:
    """P-5: if it cannot be settled now, nothing has changed; later it can."""
    async with tm.testing.node(load=[seller(1), buyer(1)], start=START) as node:
        await owe_the_way_back(node, seller(2), times=2)
        with pytest.raises(OperationError, match="package 'seller' is still being rolled back"):
            await (node.load(buyer(5)) if act == "load" else node.unload("buyer"))
        assert node.registry.packages() == ["buyer", "seller"]
        await node.load(tm.Reactor("elsewhere", [source("z")]))
        await node.advance("5m")
        assert await bought(node) == {"work": 1, "scored": {"score": 101}}
        await (node.load(buyer(5)) if act == "load" else node.unload("buyer"))


async def test_who_relies_on_what_is_to_be_put_back_finds_it_put_back() -> None:
    """P-5: a workflow that comes meanwhile calls the graph that stays, not the one that did not come to be."""
    async with tm.testing.node(load=[seller(1)], start=START) as node:
        await owe_the_way_back(node, seller(2))
        await node.load(buyer(3))
        await node.advance("5m")
        assert await bought(node) == {"work": 3, "scored": {"score": 301}}


async def test_the_name_of_a_reactor_that_is_to_come_back_is_not_free() -> None:
    """P-5: it left for a newer version that did not come to be, and could not come back so far."""
    async with tm.testing.node(load=[whole(1).module], start=START) as node:
        before = await traces(node)
        scheduler, tries = node._scheduler, [1, 2]
        bring_up = scheduler.start_reactors

        async def fail(staged: Any) -> None:
            if not tries:
                await bring_up(staged)
                return
            tries.pop()
            for name in set(staged.removed_reactors).intersection(node.registry.reactors()):
                await scheduler.unload_reactor("public", name, frozenset(staged.change.previous.graphs))
            raise StoreError("away")

        scheduler.start_reactors = fail
        with pytest.raises(StoreError):
            await node.load(whole(2, sources=("a", "b", "c")).module)
        assert "market" not in node.registry.reactors()
        with pytest.raises(tm.RequestError, match="reactor 'market' is already defined"):
            await node.load(module("thief", tm.Reactor("market", [source("z")])))
        await node.advance("5m")
        assert await traces(node) == before


# -- cancellations, and the end of the node


async def test_a_load_is_seen_through_although_nobody_waits_for_it() -> None:
    """P-2: whoever stops waiting leaves nothing half done, and no way back that nobody owes."""
    async with tm.testing.node(start=START) as node:
        faults, reached, go_on = DeployFaults(node), asyncio.Event(), asyncio.Event()

        async def between(_: str, title: str) -> None:
            if title == "graphs of reactors":
                reached.set()
                await go_on.wait()

        faults.on_effect = between
        async with asyncio.TaskGroup() as group:
            load = group.create_task(node.load(whole().module))
            await reached.wait()
            load.cancel()
        go_on.set()
        await node.settle()
        assert node.registry.packages() == ["whole"]
        assert faults.take_effects()["roll_back"] == []


async def test_what_is_cut_off_on_the_way_back_is_owed() -> None:
    """P-2: whatever ends it, it is tried again."""
    async with tm.testing.node(start=START) as node:
        clean = await traces(node)
        faults, cut = DeployFaults(node), [True]

        async def between(_: str, title: str) -> None:
            if title == "reactors" and faults.take_effects()["roll_back"] and cut.pop():
                raise asyncio.CancelledError

        faults.fail("apply", 6, "before")
        faults.on_effect = between
        with pytest.raises(OperationError, match="stopped before it was done"):
            await node.load(whole().module)
        faults.on_effect = None
        assert node.probe.packages.pending_cleanups == [("public", "whole")]
        await node.advance("1m")
        assert await traces(node) == clean


async def test_nothing_is_loaded_into_a_node_that_is_closing() -> None:
    """P-2: who waits for a turn when the end begins is told so."""
    async with tm.testing.node(start=START) as node:
        packages = node.probe.packages
        async with asyncio.TaskGroup() as group, packages.holding_changes():
            load = group.create_task(refused(node.load(whole().module)))
            close = group.create_task(packages.close())
            for _ in range(5):
                await asyncio.sleep(0)
        assert (await load).code == "not_running"
        await close
        assert node.registry.packages() == []


async def refused(work: Any) -> tm.RequestError:
    """Return why something was refused."""
    with pytest.raises(tm.RequestError) as caught:
        await work
    return caught.value


# -- what takes its time to end


def slow() -> tuple[Any, asyncio.Event]:
    """Return a package whose graph does not end by itself, and what tells that it has begun."""
    begun = asyncio.Event()
    reactor = tm.Reactor("slow", [source("ticks")])
    graph = tm.Graph("endless", reactor=reactor)

    @graph.node
    async def out(ticks: int) -> None:
        begun.set()
        await asyncio.Event().wait()

    return module("slow", reactor, graph), begun


def bound_to(reactor: str) -> tm.Graph:
    """Return a graph of another package."""
    graph = tm.Graph("user", reactor=reactor)

    @graph.node
    def out(ticks: int) -> None:
        return None

    return graph


async def test_an_unload_that_takes_its_time_keeps_nobody_waiting() -> None:
    """P-12, P-4: others load meanwhile; what is going cannot be relied on, and its name is free when it is gone."""
    package, begun = slow()
    async with tm.testing.node(load=[package], start=START) as node:
        await node.push("ticks", 1)
        await asyncio.wait_for(begun.wait(), 5)
        async with asyncio.TaskGroup() as group:
            unload = group.create_task(node.unload("slow"))
            await until(lambda: node.probe.packages.pending_cleanups == [("public", "slow")])
            await node.load(whole().module)
            assert not unload.done()
            assert (await refused(node.load(bound_to("slow")))).code == "being_unloaded"
            again = group.create_task(node.load(package))
            await node.advance("1m")
        assert unload.done()
        assert again.result() == "slow"
        assert node.registry.packages() == ["slow", "whole"]
        assert node._scheduler.subscribers("public", "slow") == ["endless"]
