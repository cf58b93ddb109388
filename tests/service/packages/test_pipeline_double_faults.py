"""P-2: a failure at any load step, and another at any rollback step, leave everything as it was."""

import itertools

import pytest

import tidemill as tm
from tests.service.whole_package import (
    PUT_ORDER,
    START,
    check_it_works,
    spread,
    traces,
    whole,
)
from tidemill.kernel.errors import OperationError, StoreError
from tidemill.testing.faults.deploy_steps import DeployFaults, Moment

STEPS = range(1, 7)
PAIRS = list(itertools.product(STEPS, STEPS))
MOMENTS: tuple[Moment, ...] = ("before", "after")
UNDO: tuple[Moment, ...] = ("before", "after", "before")
"""How a step fails in successive attempts of a rollback or removal."""


@pytest.mark.parametrize(("load", "undo"), PAIRS)
async def test_a_first_load_that_fails_leaves_nothing(store: str, load: int, undo: int) -> None:
    """P-2, all 36 pairs: a failed rollback is retried, and then the same package loads."""
    package = whole()
    async with tm.testing.node(store, start=START) as node:
        faults = DeployFaults(node)
        clean = await traces(node)
        for moment in MOMENTS:
            faults.fail("apply", load, moment)
            with faults.failing(roll_back=undo if undo <= load else None, moments=UNDO):
                with pytest.raises(StoreError, match=f"apply of {PUT_ORDER[load - 1]} fails on purpose"):
                    await node.load(package.module)
                await node.advance("1m")
            assert await traces(node) == clean
        await node.load(package.module)
        await check_it_works(node, package, 1)
        await node.unload("whole")
        await node.settle()
        assert await traces(node) == clean


@pytest.mark.parametrize(("load", "undo"), PAIRS)
async def test_a_reload_that_fails_leaves_the_older_version(store: str, load: int, undo: int) -> None:
    """P-2, P-3, P-6: cache, cursor and pause are kept, and everything works as before; then the newer one loads."""
    older, newer = whole(1), whole(2)
    async with tm.testing.node(store, load=[older.module], start=START) as node:
        faults = DeployFaults(node)
        await node.push("a", 3)
        await node.pause("older")
        await node.advance("90m")
        before = await traces(node)
        for moment in MOMENTS:
            faults.fail("apply", load, moment)
            with faults.failing(roll_back=undo if undo <= load else None, moments=UNDO):
                with pytest.raises(StoreError, match=f"apply of {PUT_ORDER[load - 1]} fails on purpose"):
                    await node.load(newer.module)
                await node.advance("10s")
            assert await traces(node) == before
        await node.push("b", 4)
        await node.settle()
        assert older.seen[-1] == (1, 3, 4)
        await check_it_works(node, older, 1)
        await node.load(newer.module)
        assert node.registry.workflows() == ["daily", "newer"]
        await check_it_works(node, newer, 2)


@pytest.mark.parametrize("load", STEPS)
async def test_a_failed_change_of_contract_leaves_the_older_one(store: str, load: int) -> None:
    """P-2: the older reactor had to leave before the newer one came; it is back with what the store has of it."""
    older, newer = whole(1), whole(2, sources=("a", "b", "c"))
    async with tm.testing.node(store, load=[older.module], start=START) as node:
        faults = DeployFaults(node)
        await node.push("a", 3)
        await node.settle()
        before = await traces(node)
        faults.fail("apply", load, "after")
        with faults.failing(roll_back=min(load, 3), moments=UNDO):
            with pytest.raises(StoreError):
                await node.load(newer.module)
            await node.advance("10s")
        assert await traces(node) == before
        await node.push("b", 4)
        await node.settle()
        assert older.seen[-1] == (1, 3, 4)
        await node.load(newer.module)
        await check_it_works(node, newer, 2)


@pytest.mark.parametrize("step", STEPS)
async def test_a_failed_removal_is_retried_and_the_newer_version_works(store: str, step: int) -> None:
    """P-2, P-6: the newer version is in place; what only the older one had is removed as soon as possible."""
    older, newer = whole(1), whole(2)
    async with tm.testing.node(store, load=[newer.module], start=START) as node:
        wanted = {key: list(found) for key, found in (await traces(node)).items()}
        await node.load(older.module)
        faults = DeployFaults(node)
        with faults.failing(remove=step, moments=UNDO):
            await node.load(newer.module)
            await node.advance("1m")
        assert {key: list(found) for key, found in (await traces(node)).items()} == wanted
        await check_it_works(node, newer, 2)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("then", ["wait", "unload", "load"])
async def test_a_failed_unload_is_retried(store: str, step: int, then: str) -> None:
    """P-2: it is retried until nothing is left, in the background or by the next change of the package."""
    package = whole()
    async with tm.testing.node(store, start=START) as node:
        clean = await traces(node)
        await node.load(package.module)
        faults = DeployFaults(node)
        with faults.failing(remove=step, moments=UNDO):
            with pytest.raises(OperationError, match=r"is not unloaded yet: .* it is retried"):
                await node.unload("whole")
            for act in (node.unload, node.load) if then != "wait" else ():
                with pytest.raises(OperationError, match=r"'whole' is still being unloaded: .* it is retried"):
                    await act("whole" if act == node.unload else package.module)
            if then == "wait":
                await node.advance("1m")
        if then == "unload":
            await node.unload("whole")
        if then == "load":
            await node.load(package.module)
            await check_it_works(node, package, 1)
            await node.unload("whole")
        await node.settle()
        assert await traces(node) == clean


async def test_packages_cannot_rely_on_one_that_is_being_unloaded() -> None:
    """P-1, P-4: what a package whose unload is owed still has is not there for others any more."""
    called, polled = tm.Workflow("called"), tm.Workflow("polled", triggers=["new_files"])
    called.call("scoring")
    async with tm.testing.node(load=[whole().module], start=START) as node:
        faults = DeployFaults(node)
        with (
            faults.failing(remove=6, moments=["before"]),
            pytest.raises(OperationError, match="not unloaded yet"),
        ):
            await node.unload("whole")
        for what, user in (
            ("reactor 'market'", spread("market", 1, [], "user")),
            ("graph 'scoring'", called),
            ("trigger 'new_files'", polled),
        ):
            with pytest.raises(tm.RequestError, match=f"{what} is being unloaded with its package") as caught:
                await node.load(user)
            assert (caught.value.code, caught.value.status) == ("being_unloaded", 409)
        await node.advance("1m")
        assert node.registry.packages() == []
