"""P-2: a failure at any step of a load, and another at any step of the way back, leave everything as it was."""

import itertools

import pytest

import tidemill as tm
from tests.service.whole_package import START, Moment, Walks, check_it_works, traces, whole
from tidemill.kernel.errors import StoreError

STEPS = range(1, 7)
PAIRS = list(itertools.product(STEPS, STEPS))
UNDO: list[Moment] = ["before", "after", "before"]
"""How a step fails on the way back, one try after the other."""

pytestmark = pytest.mark.parametrize("moment", ["before", "after"])


@pytest.mark.parametrize(("load", "undo"), PAIRS)
async def test_a_first_load_that_fails_leaves_nothing(store: str, moment: Moment, load: int, undo: int) -> None:
    """P-2, all 36 pairs: what could not be put back is owed and tried again, and then the same package loads."""
    package = whole()
    async with tm.testing.node(store, start=START) as node:
        walks = Walks(node)
        clean = await traces(node)
        walks.fail("put", load, moment)
        if undo <= load:
            walks.fail("take_back", undo, *UNDO)
        with walks.over():
            with pytest.raises(StoreError, match="put of .* fails on purpose"):
                await node.load(package.module)
            await node.advance("1m")
        assert await traces(node) == clean
        await node.load(package.module)
        await check_it_works(node, package, 1)
        await node.unload("whole")
        await node.settle()
        assert await traces(node) == clean


@pytest.mark.parametrize(("load", "undo"), PAIRS)
async def test_a_reload_that_fails_leaves_the_older_version(store: str, moment: Moment, load: int, undo: int) -> None:
    """P-2, P-3, P-6: cache, cursor and pause are kept, and everything works as before."""
    older, newer = whole(1), whole(2)
    async with tm.testing.node(store, load=[older.module], start=START) as node:
        walks = Walks(node)
        await node.push("a", 3)
        await node.pause("older")
        await node.advance("90m")
        before = await traces(node)
        walks.fail("put", load, moment)
        if undo <= load:
            walks.fail("take_back", undo, *UNDO)
        with walks.over():
            with pytest.raises(StoreError, match="put of .* fails on purpose"):
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
