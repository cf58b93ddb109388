"""W-19: a run is pinned to its version of a workflow."""

import pytest

import tidemill as tm
from tests.service.workflows.acting import Gate, states


def version(gate: Gate, word: str, extra: bool = False) -> tm.Workflow:
    """Return a version of a workflow: it says its word, and may have a task more."""
    flow = tm.Workflow("daily")

    @flow.task
    async def first() -> str:
        await gate.pass_through()
        return "old" if word == "old" else "new"

    if extra:

        @flow.task
        async def second(first: str) -> str:
            return f"{first} and more"

    else:

        @flow.task
        async def second(first: str) -> str:
            return first

        @flow.task
        async def third(second: str) -> str:
            return f"{second}!"

    return flow


async def test_a_run_ends_with_the_version_it_began_with(store: str | None) -> None:
    """W-19, leoflow.md 79: new runs take the new one."""
    gate = Gate()
    async with tm.testing.node(store, load=[version(gate, "old")]) as node:
        going = await node.start("daily")
        await node.advance("1s")
        await node.load(version(gate, "new", extra=True))
        fresh = await node.start("daily")
        gate.is_open.set()
        await node.settle()
        old, new = await going.state(), await fresh.state()
    assert old.outputs == {"first": "old", "second": "old", "third": "old!"}
    assert new.outputs == {"first": "new", "second": "new and more"}


async def test_a_queued_run_keeps_its_version_too(store: str | None) -> None:
    """W-19: pinned when it is made."""
    gate = Gate()
    gate.is_open.set()
    async with tm.testing.node(store, load=[version(gate, "old")]) as node:
        await node.pause("daily")
        run = await node.start("daily")
        await node.load(version(gate, "new", extra=True))
        await node.resume("daily")
        await node.settle()
        assert (await run.state()).outputs["third"] == "old!"


async def test_unloaded_while_it_runs(store: str | None) -> None:
    """W-19: an old package stays importable until its runs end; no new run begins."""
    gate = Gate()
    async with tm.testing.node(store, load=[version(gate, "old")]) as node:
        going = await node.start("daily")
        await node.advance("1s")
        await node.unload("workflow:daily")
        with pytest.raises(tm.RequestError) as caught:
            await node.start("daily")
        assert caught.value.code == "unknown_workflow"
        gate.is_open.set()
        await node.settle()
        result = await going.state()
    assert states(result) == {"first": "success", "second": "success", "third": "success"}


async def test_the_same_version_again_changes_nothing(store: str | None) -> None:
    """leoflow.md 79: same content, same version; what runs goes on."""
    gate = Gate()
    async with tm.testing.node(store, load=[version(gate, "old")]) as node:
        going = await node.start("daily")
        await node.advance("1s")
        await node.load(version(gate, "old"))
        gate.is_open.set()
        await node.settle()
        assert (await going.state()).outputs["third"] == "old!"
    assert len(gate.entered) == 1


async def test_a_workflow_that_was_changed_after_it_was_loaded(store: str | None) -> None:
    """W-19: what is new has no version that is stored; it is told what to do, and that helps."""
    flow = version(Gate(), "old")
    async with tm.testing.node(store, load=[flow]) as node:

        @flow.task
        async def late() -> int:
            return 4

        with pytest.raises(tm.OperationError, match="'daily' was changed after it was loaded: load it again"):
            await node.start("daily")
        await node.load(flow)
        run = await node.start("daily")
        await node.advance("1s")
        assert (await run.state()).tasks["late"].output == 4
