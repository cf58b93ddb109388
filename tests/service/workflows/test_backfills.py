"""Backfills: so many at a time, and none after they were cancelled."""

from datetime import timedelta
from typing import Any

import pytest

import tidemill as tm
from tests.service.workflows.acting import START, Gate
from tests.service.workflows.faults import replacing, store_of
from tidemill.storage.run_ports import RunFilter

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
        assert await node.cancel_backfill(plan.id) == 5
        assert await node.cancel_backfill(plan.id) == 0
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
        starter = node._workflows._starter

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


async def test_one_that_there_is_not() -> None:
    """api.md, errors."""
    async with tm.testing.node() as node:
        with pytest.raises(tm.RequestError) as caught:
            await node.cancel_backfill("none")
        assert caught.value.code == "unknown_backfill"
