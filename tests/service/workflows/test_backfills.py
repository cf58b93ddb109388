"""Backfills: so many at a time, and none after they were cancelled."""

from datetime import timedelta
from typing import Any

import pytest

import tidemill as tm
from tests.service.workflows.acting import START, Gate
from tests.service.workflows.faults import replacing, store_of
from tidemill.storage.workflow_ports import RunFilter

LATER = START + timedelta(days=1)


def hourly(gate: Gate) -> tm.Workflow:
    """Return a workflow with a slot every hour, whose task waits at a gate."""
    flow = tm.Workflow("flow", schedule=tm.Every("1h"))

    @flow.task
    async def work(ctx: tm.Context) -> None:
        await gate.pass_through(ctx.slot)

    return flow


async def states_of(node: tm.testing.TestNode, backfill: str) -> list[str]:
    """Return the states of a backfill's runs, oldest first."""
    found = await store_of(node).runs.find(RunFilter(tenant="public", backfill=backfill))
    return [str(run.state) for run in found]


async def test_no_more_at_a_time_than_its_limit(store: str | None) -> None:
    """W-15: all of its slots get a run, and these wait for each other."""
    gate = Gate()
    async with tm.testing.node(store, load=[hourly(gate)], start=LATER) as node:
        plan = await node.backfill("flow", START, START + timedelta(hours=4), limit=2)
        await node.advance("1s")
        assert plan.id is not None
        assert await states_of(node, plan.id) == ["running", "running", "queued", "queued", "queued"]
        gate.is_open.set()
        await node.advance("1s")
        assert await states_of(node, plan.id) == ["success"] * 5
        assert gate.most == 2


async def test_cancelled_both_what_runs_and_what_waits(store: str | None) -> None:
    """W-15, api.md cancel_backfill: nothing of it begins any more; other runs of the workflow are left alone."""
    gate = Gate()
    async with tm.testing.node(store, load=[hourly(gate)], start=LATER) as node:
        other = await node.start("flow")
        plan = await node.backfill("flow", START, START + timedelta(hours=4), limit=2)
        await node.advance("1s")
        assert plan.id is not None
        for _ in range(2):
            cancelled = await node.cancel_backfill(plan.id)
            assert (cancelled.state, cancelled.runs) == ("cancelled", {"cancelled": 5})
        await node.advance("1m")
        assert await states_of(node, plan.id) == ["cancelled"] * 5
        assert len(gate.entered) == 3
        assert gate.inside == 1
        gate.is_open.set()
        await node.settle()
        assert (await other.state()).state == "success"


async def test_cancelled_while_its_runs_are_made(store: str | None) -> None:
    """W-15: it makes no more of them, and the last one is not forgotten."""
    gate = Gate()
    async with tm.testing.node(store, load=[hourly(gate)], start=LATER) as node:
        starter = node.probe.workflows.starter

        def cancelling(start: Any) -> Any:
            made: list[str] = []

            async def instead(wish: Any) -> Any:
                if len(made) == 2:  # after the check for the run before, and before there is this one
                    await node.cancel_backfill(wish.backfill)
                made.append(await start(wish))
                return made[-1]

            return instead

        with replacing(starter, "start", cancelling):
            plan = await node.backfill("flow", START, START + timedelta(hours=9))
        await node.advance("1m")
        assert plan.id is not None
        assert len(plan.runs) == 3
        assert await states_of(node, plan.id) == ["cancelled"] * 3


async def test_slots_that_are_yet_to_come_are_left_to_the_schedule(store: str | None) -> None:
    """W-15, past slots: future ones are left out and counted, and the schedule starts them when they are due."""
    gate = Gate()
    gate.is_open.set()
    async with tm.testing.node(store, load=[hourly(gate)], start=START) as node:
        range_ = START - timedelta(hours=1), START + timedelta(hours=3)
        plan = await node.backfill("flow", *range_, preview=True)
        assert (plan.slots, plan.future) == ((START - timedelta(hours=1), START), 3)
        plan = await node.backfill("flow", *range_)
        assert (len(plan.runs), plan.future) == (2, 3)
        await node.advance("3h")
        assert len(await node.runs("flow", "success")) == 5
        plan = await node.backfill("flow", START + timedelta(days=1), START + timedelta(days=2))
        assert (plan.id, plan.slots, plan.future) == (None, (), 25)


async def test_paused_while_its_runs_are_made(store: str | None) -> None:
    """cloacina.md 131: it makes no more of them, and it is said how many it made."""
    gate = Gate()
    async with tm.testing.node(store, load=[hourly(gate)], start=LATER) as node:

        def pausing(start: Any) -> Any:
            made: list[str] = []

            async def instead(wish: Any) -> Any:
                if len(made) == 2:
                    await node.pause("flow")
                made.append(await start(wish))
                return made[-1]

            return instead

        range_ = START, START + timedelta(hours=9)
        with replacing(node.probe.workflows.starter, "start", pausing), pytest.raises(tm.RequestError) as caught:
            await node.backfill("flow", *range_)
        assert caught.value.code == "workflow_paused"
        assert "when 2 of 10 runs of backfill" in str(caught.value)
        assert len(await states_of(node, caught.value.facts["backfill"])) == 2
        await node.resume("flow")
        assert len((await node.backfill("flow", *range_)).runs) == 8
        gate.is_open.set()


@pytest.mark.parametrize("id", ["none", "\0", "\ud800", 5, None])
async def test_one_that_there_is_not(id: Any) -> None:
    """api.md, errors: also by an id that no store could hold."""
    async with tm.testing.node() as node:
        with pytest.raises(tm.RequestError) as caught:
            await node.cancel_backfill(id)
        assert caught.value.code == "backfill_not_found"
        str(caught.value).encode()


@pytest.mark.parametrize("limit", [2**31, 2**80])
async def test_a_limit_that_no_store_could_hold(limit: int, store: str | None) -> None:
    """W-15: is none."""
    gate = Gate()
    async with tm.testing.node(store, load=[hourly(gate)], start=LATER) as node:
        assert len((await node.backfill("flow", START, START + timedelta(hours=2), limit=limit)).runs) == 3
        gate.is_open.set()
