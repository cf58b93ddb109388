"""Metrics: every one there from the start, counters that never fall."""

import tidemill as tm
from tests.service.samples import raising, single

EXPECTED = [
    "reactor_fires_total",
    "reactor_fire_failures_total",
    "reactor_restarts_total",
    "reactor_health",
    "accumulator_events_total",
    "accumulator_restarts_total",
    "boundaries_dropped_total",
    "dead_letters_total",
    "checkpoint_failures_total",
]


async def test_a_metric_that_never_rose_is_there_with_zero() -> None:
    """API: every metric by name as plain numbers."""
    async with tm.testing.node() as node:
        metrics = node.metrics()
    assert {name: metrics[name] for name in EXPECTED} == dict.fromkeys(EXPECTED, 0)
    assert all(isinstance(value, int | float) for value in metrics.values())


async def test_metrics_count_what_happened() -> None:
    """graphs.md, Metrics; labels are summed."""
    sample = single(raising(when=lambda value: value == 13))
    other = tm.Reactor("other", sample.reactor.accumulators)
    async with tm.testing.node(load=[*sample.load, other]) as node:
        for event in (1, 13, "x"):
            await node.push("a", event)
        await node.break_accumulator("a")
        await node.push("a", 2)
        await node.advance("1s")
        await node.break_reactor("r")
        await node.advance("1s")
        metrics = node.metrics()
    assert {name: metrics[name] for name in EXPECTED} == {
        "reactor_fires_total": 4,
        "reactor_fire_failures_total": 1,
        "reactor_restarts_total": 1,
        "reactor_health": 2,
        "accumulator_events_total": 3,
        "accumulator_restarts_total": 1,
        "boundaries_dropped_total": 1,
        "dead_letters_total": 2,
        "checkpoint_failures_total": 0,
    }


async def test_handles_are_counted_like_pushes() -> None:
    """G-1: metrics on, on the fast path too."""
    async with tm.testing.node(load=single().load) as node:
        push = node.handle("a")
        for value in range(500):
            push(value)
        metrics = node.metrics()
    assert (metrics["reactor_fires_total"], metrics["accumulator_events_total"]) == (500, 500)


async def test_counters_do_not_fall_when_their_owner_goes() -> None:
    """G-29."""
    sample = single()
    async with tm.testing.node(load=sample.load) as node:
        await node.push("a", 1)
        await node.unload("graph:g")
        await node.unload("reactor:r")
        gone = node.metrics()
        await node.load(sample.reactor)
        await node.push("a", 2)
        back = node.metrics()
    assert (gone["reactor_fires_total"], gone["reactor_health"]) == (1, 0)
    assert (back["reactor_fires_total"], back["reactor_health"]) == (2, 1)


async def test_push_and_firing_latency_are_measured() -> None:
    """graphs.md: push and firing latency."""
    async with tm.testing.node(load=single().load) as node:
        await node.push("a", 1)
        metrics = node.metrics()
    assert metrics["push_seconds_count"] == 1
    assert {"push_seconds_sum", "reactor_firing_seconds_p50", "reactor_firing_seconds_p99"} <= metrics.keys()
