"""W-19: a run is pinned to its version of a workflow."""

import asyncio
from typing import Any

import pytest

import tidemill as tm
from tests.service.workflows.acting import Gate, start_and_pause, states
from tests.service.workflows.faults import replacing
from tidemill.access.principal import Caller
from tidemill.engine.workflows.starts.starter import StartRequest


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


async def test_a_queued_run_takes_the_newest_version(store: str | None) -> None:
    """W-19: a run is pinned when it begins."""
    gate = Gate()
    gate.is_open.set()
    async with tm.testing.node(store, load=[version(gate, "old")]) as node:
        (run,) = await start_and_pause(node, "daily")
        await node.load(version(gate, "new", extra=True))
        await node.resume("daily")
        await node.settle()
        assert (await run.state()).outputs == {"first": "new", "second": "new and more"}


async def test_unloaded_while_it_runs(store: str | None) -> None:
    """W-19: an old package stays importable until its runs end; no new run begins."""
    gate = Gate()
    async with tm.testing.node(store, load=[version(gate, "old")]) as node:
        going = await node.start("daily")
        await node.advance("1s")
        await node.unload("workflow:daily")
        with pytest.raises(tm.RequestError) as caught:
            await node.start("daily")
        assert caught.value.code == "workflow_not_found"
        gate.is_open.set()
        await node.settle()
        result = await going.state()
    assert states(result) == {"first": "success", "second": "success", "third": "success"}


async def test_the_same_version_again_changes_nothing(store: str | None) -> None:
    """leoflow.md 79: same content, same version; active runs continue."""
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
    """W-19: new tasks have no stored version; the error says what to do, and that helps."""
    gate = Gate()
    flow = version(gate, "old")
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
        gate.is_open.set()


# -- another version for a run that has ended


def repaired(trouble: bool, *, more: bool = False) -> tm.Workflow:
    """Return a workflow whose second task fails, or its next version, which may also have other tasks."""
    flow = tm.Workflow("daily")

    @flow.task
    async def first() -> list[int]:
        return [1, 2]

    if trouble:

        @flow.task
        async def second(first: list[int]) -> int:
            raise OSError("disk full")

        @flow.task
        async def third(second: int) -> int:
            return second

    else:

        @flow.task
        async def second(first: list[int]) -> int:
            return sum(first)

    if more:

        @flow.task(each="first")
        async def each(first: int) -> int:
            return first * 10

    return flow


async def test_a_run_that_failed_goes_on_with_the_code_that_was_repaired(store: str | None) -> None:
    """W-19: with `latest`, and what had succeeded is not run again; without, it waits for its own version."""
    async with tm.testing.node(store, load=[repaired(True)]) as node:
        run = await node.start("daily")
        await node.settle()
        assert states(await run.state()) == {"first": "success", "second": "failed", "third": "upstream_failed"}
        await node.advance("1m")
        await node.load(repaired(False, more=True))
        await node.advance("2m")  # so that no node has the old one in memory
        assert (await run.retry(preview=True, latest=True)).reruns == ["second", "each"]
        assert (await run.state()).state == "failed"
        assert (await run.retry(latest=True)).reruns == ["second", "each"]
        await node.settle()
        result = await run.state()
        assert result.ok
        assert result.outputs == {"first": [1, 2], "second": 3, "each": [10, 20]}
        assert {name: one.attempts for name, one in result.tasks.items() if name != "each"} == {"first": 1, "second": 2}
        node = await node.crash()
        assert (await node.run_handle(run.id).state()).outputs == result.outputs


async def test_a_run_is_pinned_unless_it_is_said_otherwise(store: str | None) -> None:
    """W-19, W-17: a mere retry waits, and it is said what to do, which helps."""
    old, new = repaired(True), repaired(False)
    async with tm.testing.node(store, load=[old]) as node:
        run = await node.start("daily")
        await node.settle()
        await node.load(new)
        await node.advance("2m")
        before, after = old.wired().spec.version, new.wired().spec.version
        client, caller = node.probe.workflows.client, Caller("public", "test")
        said = f"run {run.id} is pinned to version {before} of 'daily'; {after} is newer"
        again = f"`tidemill runs retry {run.id} --latest`"
        plan = await client.changes.clear(caller, run.id, None, preview=True)
        assert plan.note == f"{said}: unless a node has {before} loaded it waits; {again} continues it with {after}"
        await run.retry()
        await node.advance("1m")
        assert states(await run.state())["second"] == "scheduled"
        gone = f"run {run.id} waits for version {before} of 'daily', which no node has the code of: {again}"
        assert (await run.why("second"))[0].startswith(gone)
        assert (await run.why("third"))[0].startswith(gone)
        assert not (await run.why("first"))[0].startswith(gone)
        await run.cancel()
        assert (await run.clear("second", latest=True)).reruns == ["second"]
        await node.settle()
        assert (await run.state()).outputs == {"first": [1, 2], "second": 3}
        assert (await client.changes.clear(caller, run.id, ["second"], preview=True)).note is None


async def test_the_version_that_was_loaded_last_is_the_newest(sqlite: str) -> None:
    """W-19: also one that was loaded before; a node that has loaded none asks the store."""
    old, new = repaired(False), repaired(True)
    async with tm.testing.node(sqlite, load=[old]) as node:
        await node.advance("1s")
        await node.load(new)
        run = await node.start("daily")
        await node.settle()
        await node.advance("1s")
        await node.load(repaired(False))
        await node.advance("2m")
    async with tm.testing.node(sqlite, load=[]) as node:
        assert (await node.run_handle(run.id).retry(latest=True)).reruns == ["second"]
        (record,) = await node.probe.workflows.store.runs.load([run.id])
        assert record.run.version == old.wired().spec.version
        assert {row.task for row in record.tasks} == {"first", "second"}
        reasons = [event.reason for event in await node.probe.workflows.store.runs.read_events(run.id)]
        assert f"cleared, to continue with version {record.run.version}" in reasons


async def test_a_leader_that_has_the_run_in_mind_takes_its_new_version(sqlite: str) -> None:
    """W-19: cancelled and pinned to another version by another process, between two refreshes."""
    gate = Gate()
    async with tm.testing.node(sqlite, load=[version(gate, "old")]) as node:
        run = await node.start("daily")
        await node.advance("1s")
        await node.load(version(gate, "new", extra=True))
        leader = node.probe.workflows.engine.leader
        with replacing(leader, "on_run_changed", lambda _: lambda _: None):  # as if it happened in another process
            await run.cancel()
            await run.retry(latest=True)
        gate.is_open.set()
        await node.advance("5s")
        assert (await run.state()).outputs == {"first": "new", "second": "new and more"}


def made_of(*names: str, fails: str = "") -> tm.Workflow:
    """Return a workflow of tasks that return their names; the last fails if that says why."""
    flow = tm.Workflow("daily")

    def task(name: str, said: str) -> None:
        async def work() -> str:
            if said:
                raise OSError(said)
            return name

        work.__name__ = name
        flow.task(work)

    for name in names:
        task(name, fails if name == names[-1] else "")
    return flow


async def test_a_task_that_was_gone_comes_back(store: str | None) -> None:
    """W-1, W-19: its attempts have numbers of their own, so that what it returns now is not taken for an old one."""
    async with tm.testing.node(store, load=[made_of("a", "b")]) as node:
        run = await node.start("daily")
        await node.settle()
        for names in (("a", "c"), ("a", "c", "b")):
            await node.advance("1s")
            await node.load(made_of(*names))
            await node.advance("1s")
            await run.retry(latest=True)
            await node.settle()
            result = await run.state()
            assert result.ok
            assert result.outputs == {name: name for name in names}
        attempts = await node.probe.workflows.store.runs.read_attempts(run.id)
        assert [(one.key.task, one.key.attempt) for one in attempts] == [("a", 1), ("b", 1), ("b", 2), ("c", 1)]
        node = await node.crash()
        assert (await node.run_handle(run.id).state()).outputs == {"a": "a", "b": "b", "c": "c"}


async def test_a_version_without_the_task_that_failed_is_enough(store: str | None) -> None:
    """W-19: then nothing is left to run, and the run has succeeded."""
    async with tm.testing.node(store, load=[made_of("a", "b", fails="no")]) as node:
        run = await node.start("daily")
        await node.settle()
        await node.load(made_of("a"))
        assert (await run.retry(latest=True)).reruns == []
        await node.settle()
        assert (await run.state()).outputs == {"a": "a"}
        assert (await run.state()).ok


async def test_a_run_that_is_being_created_keeps_its_version(store: str | None) -> None:
    """W-19: a hot swap at that instant discards nothing that the run needs, though no store knows of it yet."""
    gate = Gate()
    gate.is_open.set()
    async with tm.testing.node(store, load=[version(gate, "old")]) as node:
        probe = node.probe.workflows
        (old,) = probe.loaded_versions
        is_swapped = asyncio.Event()

        def wait_for_swap(create: Any) -> Any:
            async def late(*args: Any) -> bool:
                await is_swapped.wait()
                return bool(await create(*args))

            return late

        with replacing(probe.starter, "_create", wait_for_swap):
            async with asyncio.TaskGroup() as group:
                start = group.create_task(node.start("daily"))
                await asyncio.sleep(0)
                await node.load(version(gate, "new", extra=True))
                await probe.engine.collect_versions()
                await probe.versions.discard({old})
                is_swapped.set()
        await node.settle()
        run = start.result()
        assert (await run.state()).outputs["third"] == "old!"
        await node.advance("2s")
        assert old not in probe.loaded_versions


async def test_a_start_that_was_requested_before_a_swap_takes_the_new_version(store: str | None) -> None:
    """W-19: the old version may be gone by then; a schedule, for one, learns of a swap a moment later."""
    gate = Gate()
    gate.is_open.set()
    before = version(gate, "old")
    async with tm.testing.node(store, load=[before]) as node:
        await node.load(version(gate, "new", extra=True))
        run = await node.probe.workflows.starter.start(StartRequest(tenant="public", workflow=before, params={}))
        await node.settle()
        assert (await node.run_handle(str(run)).state()).outputs["second"] == "new and more"
