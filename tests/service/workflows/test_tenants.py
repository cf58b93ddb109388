"""Runs and backfills belong to one tenant: to the callers of another they do not exist."""

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

import tidemill as tm
from tests.service.workflows.acting import START
from tests.service.workflows.faults import blocked_flow, plain_flow
from tidemill.access.principal import Caller

OWN, OTHER = Caller("public", "ann"), Caller("acme", "bob")


async def refusal(call: Awaitable[Any]) -> tuple[str, int]:
    """Return the code and the status with which a call is refused."""
    with pytest.raises(tm.RequestError) as caught:
        await call
    return caught.value.code, caught.value.status


async def test_a_run_of_another_tenant_is_unknown(store: str | None) -> None:
    """Whatever is done with it, and also while it is active on this node."""
    flow, blocked = blocked_flow()
    async with tm.testing.node(store, load=[flow]) as node:
        run = (await node.start("flow")).id
        await node.advance("1s")
        client = node.probe.workflows.client
        calls = [
            client.runs.load_record(OTHER, run),
            client.runs.load_result(OTHER, run),
            client.runs.load_attempts(OTHER, run),
            client.runs.load_events(OTHER, run),
            client.runs.notes(OTHER, run),
            client.changes.note(OTHER, run, "mine"),
            client.explainer.why(OTHER, run, "work"),
            client.changes.cancel(OTHER, run),
            client.changes.clear(OTHER, run, None),
            client.runs.resolve_id(OTHER, run),
            client.watcher.wait(OTHER, run, 5),
            anext(client.watcher.logs(OTHER, run, "work")),
            anext(client.watcher.watch(OTHER, run)),
        ]
        assert {await refusal(call) for call in calls} == {("run_not_found", 404)}
        assert await refusal(node.run_handle(run, tenant="acme").state()) == ("run_not_found", 404)
        assert await client.runs.find(OTHER) == []
        blocked.go.set()
        await node.settle()
        assert await refusal(client.watcher.wait(OTHER, run, 5)) == ("run_not_found", 404)
        assert (await client.watcher.wait(OWN, run, 5)).state == "success"


async def test_a_backfill_of_another_tenant_is_unknown(store: str | None) -> None:
    """It is neither cancelled nor are its runs."""
    flow = plain_flow(schedule=tm.Cron("0 * * * *"))
    async with tm.testing.node(store, load=[flow], start=START) as node:
        await node.advance("3h")
        plan = await node.backfill("flow", START, node.clock.now(), only_missing=False)
        assert plan.id is not None
        assert await refusal(node.cancel_backfill(plan.id, tenant="acme")) == ("backfill_not_found", 404)
        assert (await node.cancel_backfill(plan.id)).id == plan.id


async def test_an_action_is_recorded_with_its_caller(store: str | None) -> None:
    """The actor of a caller is in the history of the run."""
    flow, blocked = blocked_flow()
    async with tm.testing.node(store, load=[flow]) as node:
        run = (await node.start("flow")).id
        await node.advance("1s")
        client = node.probe.workflows.client
        await client.changes.cancel(OWN, run, "not needed")
        last = (await client.runs.load_events(OWN, run))[-1]
        assert (last.actor, last.after, last.reason) == ("ann", "cancelled", "not needed")
        blocked.go.set()


def numbered_flow(begun: list[str], name: str) -> tm.Workflow:
    """Return a workflow with two tasks in a row, which note that a run of a tenant goes on."""
    flow = tm.Workflow("numbered")

    @flow.task
    async def first() -> None:
        begun.append(name)

    @flow.task(after=[first])
    async def second() -> None:
        begun.append(name)

    return flow


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_a_tenant_does_not_wait_for_all_runs_of_another(store: str | None, concurrency: int) -> None:
    """W-6: tenants take turns while slots are short."""
    begun: list[str] = []
    async with tm.testing.node(store, concurrency=concurrency) as node:
        for tenant in ("acme", "public"):
            await node.load(numbered_flow(begun, tenant), tenant=tenant)
        await asyncio.gather(*(node.start("numbered", tenant="acme") for _ in range(100)))
        run = await node.start("numbered")
        await node.settle()
        assert (await run.state()).ok
    assert len(begun) == 202
    assert "public" not in begun[100:]
