"""Runs from outside: lists, handles, waiting, tenants."""

from typing import Any

import pytest

import tidemill as tm
from tests.postgres import PostgresServer
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


async def test_runs_are_filtered_newest_first(store: str | None) -> None:
    """api.md, node.runs: by workflow and state; the newest `limit`, newest first; also after a crash."""
    async with tm.testing.node(store, load=[simple("a"), simple("b")]) as node:
        started = []
        for name, fails in [("a", False), ("b", True), ("a", True), ("b", False)]:
            started.append((await node.start(name, fails=fails)).id)
            await node.advance("1s")
        started.reverse()
        for _ in range(2):
            assert [run.id for run in await node.runs()] == started
            assert [run.id for run in await node.runs("a")] == [started[1], started[3]]
            assert [run.id for run in await node.runs(state="failed")] == [started[1], started[2]]
            assert [run.id for run in await node.runs("a", tm.RunState.SUCCESS)] == [started[3]]
            assert [run.id for run in await node.runs(limit=2)] == started[:2]
            assert [run.listed.state for run in await node.runs(limit=2)] == ["success", "failed"]
            assert await node.runs("absent") == []
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
        run = node.run_handle("absent")
        for act in (run.state, run.wait, run.cancel, run.retry, lambda: run.why("work"), lambda: run.note("x")):
            with pytest.raises(tm.RequestError, match="there is no run 'absent'") as caught:
                await act()
            assert (caught.value.code, caught.value.status) == ("run_not_found", 404)


async def test_who_stops_waiting_harms_nothing(store: str | None) -> None:
    """api.md, wait(timeout): TimeoutError, and the run continues; several callers may wait."""
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
            await node.start("simple", tenant="absent")
        assert caught.value.code == "workflow_not_found"


UNHEARD_OF = ["absent", "a\0", "\ud800", 5, None]


@pytest.mark.parametrize("id", UNHEARD_OF)
async def test_an_id_that_no_store_could_hold_is_unknown(id: Any, store: str | None) -> None:
    """api.md, errors: before any store is asked."""
    async with tm.testing.node(store) as node:
        run = node.run_handle(id)
        acts = [run.state, run.cancel, run.retry, run.wait, lambda: run.why("x"), lambda: run.note("x")]
        acts += [lambda: anext(run.logs("x")), lambda: anext(run.watch())]
        acts += [run.notes] if id != "absent" else []
        for act in acts:
            with pytest.raises(tm.RequestError) as caught:
                await act()  # type: ignore[operator]
            assert (caught.value.code, caught.value.status) == ("run_not_found", 404)


@pytest.mark.parametrize("name", ["a\0", "\ud800"])
async def test_a_name_that_no_store_could_hold_has_no_runs(name: str, postgres: PostgresServer) -> None:
    """api.md, errors: on PostgreSQL as anywhere."""
    async with tm.testing.node(await postgres.fresh_store()) as node:
        assert await node.runs(name) == []
        for act in (node.start(name), node.pause(name), node.resume(name)):
            with pytest.raises(tm.RequestError) as caught:
                await act
            assert caught.value.code == "workflow_not_found"
        with pytest.raises(tm.RequestError) as caught:
            await node.run_handle(name).state()
        assert caught.value.code == "run_not_found"
        with pytest.raises(tm.RequestError) as caught:
            await node.cancel_backfill(name)
        assert caught.value.code == "backfill_not_found"
