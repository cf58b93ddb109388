"""`run.why(task)`: a sentence for every state."""

import pytest

import tidemill as tm
from tests.service.workflows.acting import Gate, start_and_pause
from tests.service.workflows.faults import QUICK
from tidemill.access.principal import Caller


async def test_every_state(store: str | None) -> None:
    """W-17: explained in sentences, from the planner's own rules."""
    flow = tm.Workflow("states")
    gate = Gate()

    @flow.task
    async def good() -> int:
        return 1

    @flow.task
    async def bad() -> int:
        raise ValueError("no")

    @flow.task
    async def behind(bad: int) -> None: ...

    @flow.task
    async def skipped() -> None:
        raise tm.Skip("not today")

    @flow.task(retry=tm.Retry(1, delay="5m"))
    async def retried() -> None:
        raise ConnectionError("refused")

    @flow.task
    async def deferred(ctx: tm.Context) -> None:
        ctx.defer(for_="2h")

    @flow.task(pool="narrow", priority=1)
    async def running() -> int:
        await gate.pass_through()
        return 1

    @flow.task(pool="narrow")
    async def crowded() -> None: ...

    @flow.task
    async def waiting(running: int) -> None: ...

    expected = {
        "good": "it has succeeded at 2026-01-01 00:00:00+00:00",
        "bad": "it has failed: ValueError: no",
        "behind": "it cannot run because of 'bad'",
        "skipped": "it was skipped: not today",
        "retried": "it is retried at 2026-01-01 00:05:00+00:00, after: ConnectionError: refused",
        "deferred": "it is deferred until 2026-01-01 02:00:00+00:00",
        "running": "it is running at ",
        "crowded": "it is scheduled, but pool 'narrow' is full (1 of 1)",
        "waiting": "it waits for 'running', which is running",
    }
    async with tm.testing.node(store, load=[flow], pools={"narrow": 1}) as node:
        run = await node.start("states")
        await node.advance("2s")
        for task, sentence in expected.items():
            found = await run.why(task)
            assert len(found) == 1
            assert found[0].startswith(sentence), task
        gate.is_open.set()


async def test_a_run_that_has_not_begun(store: str | None) -> None:
    """W-17: because of the limit, or a pause."""
    flow = tm.Workflow("one", max_active_runs=1)
    gate = Gate()

    @flow.task
    async def work() -> None:
        await gate.pass_through()

    async with tm.testing.node(store, load=[flow]) as node:
        await node.start("one")
        queued = await node.start("one")
        await node.advance("1s")
        [sentence] = await queued.why("work")
        assert "the run is queued: 1 other run of 'one'" in sentence
        await node.pause("one")
        assert any("is paused" in sentence for sentence in await queued.why("work"))
        await node.resume("one")
        gate.is_open.set()


async def test_a_full_node_a_cancelled_run_and_elements(store: str | None) -> None:
    """W-17: no place free; cancelled; each element by its number."""
    flow = tm.Workflow("mapped")
    gate = Gate()

    @flow.task
    async def numbers() -> list[int]:
        return [0, 1]

    @flow.task(each=numbers)
    async def work(numbers: int) -> None:
        await gate.pass_through()

    async with tm.testing.node(store, load=[flow], concurrency=1) as node:
        run = await node.start("mapped")
        await node.advance("1s")
        found = await run.why("work")
        assert found[0].startswith("element 0: it is running at")
        assert found[1] == "element 1: it is scheduled, but executor 'in_process' has no free slot"
        await run.cancel("enough")
        await node.settle()
        assert await run.why("work") == ["elements 0, 1: it was cancelled: enough"]
        with pytest.raises(tm.RequestError) as caught:
            await run.why("absent")
        assert caught.value.code == "task_not_found"


async def test_a_deferral_that_polls(store: str | None) -> None:
    """W-17: for how long, and how often; never a time that has passed."""
    flow, is_there = tm.Workflow("polling"), False

    @flow.task
    def work(ctx: tm.Context) -> None:
        ctx.defer(poll=lambda: is_there, every="30s")

    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("polling")
        for wait in ("1s", "5m", "1h"):
            await node.advance(wait)
            assert await run.why("work") == [
                "it is deferred since 2026-01-01 00:00:00+00:00: its poll is called every 30s until it returns true"
            ]
        is_there = True
        await node.advance("30s")
        assert (await run.why("work"))[0].startswith("it has succeeded")


async def test_a_run_that_is_set_aside(store: str | None) -> None:
    """W-5, W-17: the reason is part of the explanation."""
    flow = tm.Workflow("poison")

    @flow.task
    async def work() -> None: ...

    async with tm.testing.node(store, load=[flow]) as node:
        (run,) = await start_and_pause(node, "poison")
        node.break_run(run.id)
        await node.resume("poison")
        await node.advance("5s")
        assert "the run is quarantined" in (await run.why("work"))[0]


async def test_no_node_has_the_version_that_a_run_is_pinned_to(sqlite: str) -> None:
    """W-17, W-19: a run of an earlier life, and the code has changed since."""
    before, after = tm.Workflow("w"), tm.Workflow("w")
    gate = Gate()

    @before.task
    async def work() -> int:
        await gate.pass_through()
        return 1

    @after.task
    async def work() -> int:  # noqa: F811, the same task in its next version
        return 2

    async with tm.testing.node(sqlite, load=[before], settings=QUICK) as node:
        run = await node.start("w")
    async with tm.testing.node(sqlite, load=[after]) as node:
        await node.advance("10m")
        first, second = await node.run_handle(run.id).why("work")
    old, new = before.wired().spec.version, after.wired().spec.version
    assert first == (
        f"run {run.id} waits for version {old} of 'w', which no node has the code of: `tidemill runs retry {run.id} "
        f"--latest` continues it with version {new}, `tidemill runs cancel {run.id}` ends it"
    )
    assert second.startswith("it is scheduled since ")
    assert second.endswith("and waits to be claimed")


async def test_the_nodes_are_counted_by_the_leader_that_knows_them(store: str | None) -> None:
    """W-12, W-17: of a node that has crashed its successor knows that it is gone, also where it does not plan."""
    flow, gate = tm.Workflow("flow"), Gate()

    @flow.task
    async def work() -> None:
        await gate.pass_through()

    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("flow")
        await node.advance("1s")
        successor = await node.crash()
        owners = await successor.probe.workflows.store.owners.list_all()
        client, caller = successor.probe.workflows.client, Caller("public", "test")
        plan = await client.changes.clear(caller, run.id, ["work"], preview=True)
        assert (len(owners), plan.live_nodes) == (2, 1)
        gate.is_open.set()
