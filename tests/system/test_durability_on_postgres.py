"""A node on a real PostgreSQL and a virtual clock: what the service tests prove on memory and SQLite holds here too."""

import pytest

import tidemill as tm
from tests.postgres import PostgresServer
from tidemill.graphs.definition import Durability


class Reading(tm.Boundary):
    """What is measured."""

    value: int


class Total(tm.Boundary):
    """A running state."""

    value: int = 0


def plant(durability: Durability) -> tuple[tm.Reactor, tm.Graph, list[tuple[str, int, list[int]]]]:
    """Return a reactor with state, a batch and a window, its graph, and what that has seen."""

    @tm.passthrough(state=Total)
    def total(event: Reading, state: Total) -> Total:
        return Total(state.value + event.value)

    @tm.batch(every="1h")
    def sums(events: list[Reading]) -> Reading:
        return Reading(sum(event.value for event in events))

    recent = tm.window("recent", Total, capacity=2)
    accumulators = [total, sums, recent]
    reactor = tm.Reactor("plant", accumulators, when=tm.any_of(total), strategy="sequential", durability=durability)
    graph = tm.Graph("watch", reactor=reactor)
    seen: list[tuple[str, int, list[int]]] = []

    @graph.node(feeds=recent)
    def kept(total: Total, recent: list[Total], ctx: tm.Context) -> Total:
        seen.append((ctx.firing_id, total.value, [one.value for one in recent]))
        return total

    return reactor, graph, seen


@pytest.mark.parametrize("durability", ["interval", "fire", "boundary"])
async def test_everything_is_there_after_a_crash(postgres: PostgresServer, durability: Durability) -> None:
    """G-23, G-24, behaviours 57-60: state, queue, window and pause come back; nothing fires before it is resumed."""
    reactor, graph, seen = plant(durability)
    async with tm.testing.node(store=await postgres.fresh_store(), load=[reactor, graph]) as node:
        for value in (1, 2):
            await node.push("total", Reading(value))
        await node.settle()
        await node.reactor("plant").pause()
        receipts = [await node.push("total", Reading(value)) for value in (3, 4)]
        await node.push("sums", Reading(7))
        await node.settle()
        node = await node.crash()
        state = node.reactor("plant").state()
        assert (state.paused, state.queued, state.cache["recent"]) == (True, 2, [{"value": 1}, {"value": 3}])
        assert [value for _, value, _ in seen] == [1, 3]
        await node.reactor("plant").resume()
        assert [(value, recent) for _, value, recent in seen[2:4]] == [(6, [1, 3]), (10, [3, 6])]
        assert (await node.push("total", Reading(5))).sequence == receipts[-1].sequence + 1
        await node.settle()
        assert node.reactor("plant").state().cache["total"] == {"value": 15}
        assert node.reactor("plant").state().cache["sums"] == {"value": 7}
        assert len({name for name, *_ in seen}) == len(seen)


async def test_a_failing_store_degrades_and_recovers(postgres: PostgresServer) -> None:
    """G-26: five failures in a row, firing goes on, one success clears it."""
    reactor, graph, seen = plant("interval")
    async with tm.testing.node(store=await postgres.fresh_store(), load=[reactor, graph]) as node:
        node.fail_store(5)
        for value in range(5):
            assert node.reactor("plant").state().health is tm.ReactorHealth.LIVE
            await node.push("total", Reading(value))
            await node.settle()
        state = node.reactor("plant").state()
        assert (state.health, state.disconnected, len(seen)) == (tm.ReactorHealth.DEGRADED, ["persist"], 5)
        await node.push("total", Reading(5))
        await node.settle()
        assert node.reactor("plant").state().health is tm.ReactorHealth.LIVE
        assert node.metrics()["checkpoint_failures_total"] == 5
