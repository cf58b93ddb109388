"""Runs from outside: lists, handles, waiting, tenants."""

import pytest

import tidemill as tm
from tests.service.workflows.acting import Gate


def simple(name: str = "simple") -> tm.Workflow:
    """Return a workflow with one task, which fails if its param says so."""
    flow = tm.Workflow(name)

    @flow.task
    async def work(ctx: tm.Context) -> int:
        if ctx["fails"]:
            raise ValueError("no")
        return 1

    return flow


async def test_runs_are_filtered_oldest_first(store: str | None) -> None:
    """api.md, node.runs: by workflow and state; the newest `limit`, oldest first; also after a crash."""
    async with tm.testing.node(store, load=[simple("a"), simple("b")]) as node:
        started = []
        for name, fails in [("a", False), ("b", True), ("a", True), ("b", False)]:
            started.append((await node.start(name, fails=fails)).id)
            await node.advance("1s")
        for _ in range(2):
            assert [run.id for run in await node.runs()] == started
            assert [run.id for run in await node.runs("a")] == [started[0], started[2]]
            assert [run.id for run in await node.runs(state="failed")] == [started[1], started[2]]
            assert [run.id for run in await node.runs("a", tm.RunState.SUCCESS)] == [started[0]]
            assert [run.id for run in await node.runs(limit=2)] == started[2:]
            assert await node.runs("nobody") == []
            node = await node.crash()


@pytest.mark.parametrize("wrong", [{"state": "sideways"}, {"limit": 0}, {"limit": "all"}])
async def test_wrong_filters_are_refused(wrong: dict[str, object]) -> None:
    """api.md, errors."""
    async with tm.testing.node(load=[simple()]) as node:
        with pytest.raises(tm.RequestError):
            await node.runs(**wrong)


async def test_an_unknown_run_is_said_to_be_unknown(store: str | None) -> None:
    """api.md, run_handle(id): when it is asked."""
    async with tm.testing.node(store, load=[simple()]) as node:
        run = node.run_handle("nobody")
        for act in (run.state, run.wait, run.cancel, run.retry, lambda: run.why("work"), lambda: run.note("x")):
            with pytest.raises(tm.RequestError, match="there is no run 'nobody'") as caught:
                await act()
            assert (caught.value.code, caught.value.status) == ("unknown_run", 404)


async def test_who_stops_waiting_harms_nothing(store: str | None) -> None:
    """api.md, wait(timeout): TimeoutError, and the run goes on; several may wait."""
    flow = tm.Workflow("waits")
    gate = Gate()

    @flow.task
    async def work() -> int:
        await gate.pass_through()
        return 1

    async with tm.testing.node(store, load=[flow]) as node:
        run = await node.start("waits")
        for _ in range(2):
            with pytest.raises(TimeoutError):
                await run.wait(0.01)
        assert (await run.state()).state is tm.RunState.RUNNING
        gate.is_open.set()
        assert (await run.wait(5)).outputs == {"work": 1}
        assert (await node.run_handle(run.id).wait(5)).ok
    assert len(gate.entered) == 1


async def test_two_tenants_do_not_see_each_other(store: str | None) -> None:
    """api.md, tenant=: one name, two workflows, apart."""
    async with tm.testing.node(store, load=[simple()]) as node:
        other = tm.Workflow("simple")

        @other.task
        async def elsewhere() -> int:
            return 2

        await node.load(other, tenant="acme")
        mine, theirs = await node.start("simple", fails=False), await node.start("simple", tenant="acme")
        await node.settle()
        assert [run.id for run in await node.runs()] == [mine.id]
        assert [run.id for run in await node.runs(tenant="acme")] == [theirs.id]
        assert ((await mine.state()).outputs, (await theirs.state()).outputs) == ({"work": 1}, {"elsewhere": 2})
        await node.pause("simple", tenant="acme")
        assert (await (await node.start("simple", fails=False)).wait(5)).ok
        with pytest.raises(tm.RequestError) as caught:
            await node.start("simple", tenant="nobody")
        assert caught.value.code == "unknown_workflow"
