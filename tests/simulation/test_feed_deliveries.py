"""Feeds under random pushes, pauses, crashes of the target and reloads: each result arrives, in order."""

import asyncio
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

import tidemill as tm

ACTIONS = st.lists(
    st.sampled_from(["push", "push", "push", "pause", "resume", "break", "advance", "crash"]), min_size=1, max_size=40
)


def chained(durability: Any, capacity: int, seen: list[int]) -> list[Any]:
    """Return a source that feeds a target with a small queue, and let the target note what it sees."""

    @tm.passthrough
    def events(event: int) -> int:
        return event

    @tm.passthrough
    def results(event: int) -> int:
        return event

    source = tm.Reactor("source", [events], strategy="sequential", durability=durability)
    target = tm.Reactor("target", [results], strategy="sequential", capacity=capacity, durability=durability)
    forth, noting = tm.Graph("forth", reactor=source), tm.Graph("noting", reactor=target)

    @forth.node(feeds=results)
    def result(events: int) -> int:
        return events

    @noting.node
    def note(results: int) -> None:
        seen.append(results)

    return [source, target, forth, noting]


async def play(actions: list[str], capacity: int, store: str | None, durability: Any) -> tuple[int, list[int]]:
    """Play actions, then let everything arrive; return how many events were accepted, and what the target saw."""
    seen: list[int] = []
    pushed = 0
    async with tm.testing.node(store, load=chained(durability, capacity, seen)) as node:
        for action in actions:
            match action:
                case "push":
                    pushed += 1
                    assert (await node.push("events", pushed)).accepted
                case "pause":
                    await node.reactor("target").pause()
                case "resume":
                    await node.reactor("target").resume()
                case "break":
                    await node.break_accumulator("results")
                case "advance":
                    await node.advance("3s")
                case "crash" if store is not None:
                    node = await node.crash()
        await node.restart_accumulator("results")
        await node.reactor("target").resume()
        await node.advance("1m")
        await node.settle()
    return pushed, seen


@given(actions=ACTIONS, capacity=st.integers(1, 3))
@settings(max_examples=40, deadline=None)
def test_without_a_crash_of_the_node_each_result_arrives_once_and_in_order(actions: list[str], capacity: int) -> None:
    """G-11, G-12, G-19: pauses, full queues and crashes of the target only delay results."""
    pushed, seen = asyncio.run(play(actions, capacity, None, None))
    assert seen == list(range(1, pushed + 1))


@given(actions=ACTIONS, capacity=st.integers(1, 3))
@example(actions=["pause", "push", "push", "push", "advance", "crash"], capacity=1)
@example(actions=["break", "push", "push", "crash", "push", "pause", "advance", "crash"], capacity=1)
@settings(max_examples=40, deadline=None)
def test_with_crashes_of_the_node_each_result_arrives_at_least_once(actions: list[str], capacity: int) -> None:
    """G-24: in the order of the events, as far as first arrivals go."""
    pushed, seen = asyncio.run(play(actions, capacity, "memory://", "boundary"))
    assert list(dict.fromkeys(seen)) == list(range(1, pushed + 1))
