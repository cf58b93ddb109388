"""A keyed reactor whose nodes run different versions of it for a while, as in a rolling deploy."""

import asyncio
from pathlib import Path

import tidemill as tm
from tests.service.keyed_samples import Order
from tidemill.access.principal import Caller

PUBLIC = Caller("public", "test")


def orders(*, cancels: bool) -> tm.Reactor:
    """Return reactor `orders`; its older version also takes cancelled orders."""

    @tm.passthrough
    def placed(event: Order) -> Order:
        return event

    @tm.passthrough
    def cancelled(event: Order) -> Order:
        return event

    return tm.Reactor("orders", [placed, cancelled] if cancels else [placed], key="key", partitions=4)


async def test_a_host_with_an_accumulator_that_was_removed_costs_no_state(tmp_path: Path) -> None:
    """G-21: a node with the newer version shows the accumulators that it knows; the others are not its own."""
    store = f"memory://{tmp_path.name}"
    async with (
        asyncio.timeout(30),
        tm.testing.node(store, load=[orders(cancels=True)]) as older,
        tm.testing.node(store, load=[orders(cancels=False)]) as newer,
    ):
        await older.push("placed", Order("a", 1))
        state = await newer.graph_client.reactor_state(PUBLIC, "orders")
        assert set(state.accumulators) == {"placed"}
        assert state.accumulators["placed"].events == 1
