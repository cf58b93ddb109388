"""W-18: runs that ended long ago are deleted, also where nothing else happens any more."""

from collections.abc import Mapping
from typing import Any

import pytest

import tidemill as tm
from tests.service.workflows.acting import START

DAY = {"retention": "1d"}


def plain_flow() -> tm.Workflow:
    """Return a workflow that ends immediately."""
    flow = tm.Workflow("plain")

    @flow.task
    async def work() -> None: ...

    return flow


@pytest.mark.parametrize(("settings", "kept", "over"), [({}, "90d", "1d"), (DAY, "1d", "70m")])
async def test_an_idle_node_deletes_what_is_too_old(
    settings: Mapping[str, Any], kept: str, over: str, store: str | None
) -> None:
    """W-18: at most one part in a hundred of the time late, or an hour; not before."""
    async with tm.testing.node(store, load=[plain_flow()], settings=settings, start=START) as node:
        await node.start("plain")
        await node.advance(kept)
        assert len(await node.runs()) == 1
        await node.advance(over)
        assert await node.runs() == []


async def test_a_tenant_may_keep_its_runs_longer_or_shorter(store: str | None) -> None:
    """W-18: per tenant."""
    settings = {"retention": "10d", "tenant_retention": {"acme": "2d", "beta": "20d"}}
    async with tm.testing.node(store, load=[plain_flow()], settings=settings, start=START) as node:
        for tenant in ("acme", "beta"):
            await node.load(plain_flow(), tenant=tenant)
            await node.start("plain", tenant=tenant)
        await node.start("plain")
        for passes, left in (("1d", [1, 1, 1]), ("2d", [1, 0, 1]), ("8d", [0, 0, 1]), ("10d", [0, 0, 0])):
            await node.advance(passes)
            assert [len(await node.runs(tenant=tenant)) for tenant in ("public", "acme", "beta")] == left


async def test_an_idle_node_hardly_wakes_up_for_it(store: str | None) -> None:
    """W-18: some four hundred times a year."""
    async with tm.testing.node(store, load=[plain_flow()], start=START) as node:
        await node.start("plain")
        await node.advance("1d")
        before = node.metrics()["scheduler_ticks_total"]
        await node.advance("365d")
        assert node.metrics()["scheduler_ticks_total"] - before < 500


async def test_an_idle_node_goes_on_until_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """W-18: small batches, one with each tick, not one each time it wakes up."""
    monkeypatch.setattr("tidemill.engine.workflows.leader.retention.PRUNE_BATCH_SIZE", 1)
    async with tm.testing.node(load=[plain_flow()], settings=DAY, start=START) as node:
        for _ in range(50):
            await node.start("plain")
        await node.advance("1d")
        assert len(await node.runs()) == 50
        await node.advance("70m")
        assert node.metrics()["runs_pruned_total"] == 50


async def test_a_store_that_fails_is_asked_again(store: str | None) -> None:
    """W-5, W-18: soon, although nothing else happens."""
    async with tm.testing.node(store, load=[plain_flow()], settings=DAY, start=START) as node:
        await node.start("plain")
        await node.advance("1d")
        node.fail_store(3)
        await node.advance("70m")
        assert await node.runs() == []
