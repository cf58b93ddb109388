"""P-2, P-5, P-12: pending cleanups and slow unloads of one package, and their effect on other packages."""

import asyncio
from typing import Any

import pytest

import tidemill as tm
from tests.contract.executor_harness import until
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
    """Return the outputs of a run of the other package's workflow."""
    run = await node.start("buys")
    await node.settle()
    return (await run.state()).outputs


async def leave_pending_rollback(node: Node, package: Any, *, step: int = 6, times: int = 1) -> DeployFaults:
    """Fail a load at its last step, and its rollback at another one, so that a cleanup is pending."""
    faults = DeployFaults(node)
    faults.fail("apply", 6, "after")
    faults.fail("roll_back", step, *["before"] * times)
    with pytest.raises(StoreError):
        await node.load(package)
    return faults


async def test_a_pending_rollback_does_not_overwrite_later_changes_of_others() -> None:
    """P-5: the rollback of a reload that rebound their workflow happens before they change it, not after."""
    async with tm.testing.node(load=[seller(1), buyer(1)], start=START) as node:
        await leave_pending_rollback(node, seller(2))
        assert node.probe.packages.pending_cleanups == [("public", "seller")]
        await node.load(buyer(5))
        assert node.probe.packages.pending_cleanups == []
        assert await bought(node) == {"work": 5, "scored": {"score": 501}}
        await node.advance("5m")
        assert await bought(node) == {"work": 5, "scored": {"score": 501}}


@pytest.mark.parametrize("act", ["load", "unload"])
async def test_a_change_of_names_with_a_pending_cleanup_names_the_package(act: str) -> None:
    """P-5: if the cleanup fails again, nothing has changed; it succeeds later."""
    async with tm.testing.node(load=[seller(1), buyer(1)], start=START) as node:
        await leave_pending_rollback(node, seller(2), times=2)
        with pytest.raises(OperationError, match="package 'seller' is still being rolled back"):
            await (node.load(buyer(5)) if act == "load" else node.unload("buyer"))
        assert node.registry.packages() == ["buyer", "seller"]
        await node.load(tm.Reactor("elsewhere", [source("z")]))
        await node.advance("5m")
        assert await bought(node) == {"work": 1, "scored": {"score": 101}}
        await (node.load(buyer(5)) if act == "load" else node.unload("buyer"))


async def test_a_load_finishes_the_rollback_of_what_it_relies_on() -> None:
    """P-5: a workflow that is loaded meanwhile calls the restored graph, not the one of the failed load."""
    async with tm.testing.node(load=[seller(1)], start=START) as node:
        await leave_pending_rollback(node, seller(2))
        await node.load(buyer(3))
        await node.advance("5m")
        assert await bought(node) == {"work": 3, "scored": {"score": 301}}


async def test_the_name_of_a_reactor_with_a_pending_rollback_is_taken() -> None:
    """P-5: a failed newer version replaced it, and it could not be restored so far."""
    async with tm.testing.node(load=[whole(1).module], start=START) as node:
        before = await traces(node)
        scheduler, tries = node.probe.graphs.scheduler, [1, 2]
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


async def test_a_load_completes_although_its_caller_was_cancelled() -> None:
    """P-2: a cancelled caller leaves nothing half done, and no rollback."""
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


async def test_a_cancelled_rollback_is_retried() -> None:
    """P-2: any interruption is retried."""
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
    """P-2: a load that waits for the change lock when the node closes is rejected."""
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
    """Return the error of a rejected request."""
    with pytest.raises(tm.RequestError) as caught:
        await work
    return caught.value


# -- slow unloads


def slow() -> tuple[Any, asyncio.Event]:
    """Return a package whose graph never ends, and an event that is set when it has started."""
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


async def test_a_slow_unload_delays_no_other_package() -> None:
    """P-12, P-4: others load meanwhile; they cannot rely on it, and its name is free once it is gone."""
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
        assert node.probe.packages.subscribers("slow") == ["endless"]
