"""Corners of what is stored: values that nothing can encode, loops that never rest, windows that shrink."""

import asyncio
from typing import Any

import pytest

import tidemill as tm
from tidemill.graphs.definition import Durability

MEMORY = "memory://"


def passing(durability: Durability | None) -> tuple[tm.Reactor, tm.Graph]:
    """Return a reactor whose accumulator takes integers, and whose graph cannot take large ones."""

    @tm.passthrough
    def a(event: Any) -> int | None:
        if not isinstance(event, int):
            raise ValueError(f"no number: {event!r}")
        return event

    reactor = tm.Reactor("r", [a], durability=durability)
    graph = tm.Graph("g", reactor=reactor)

    @graph.node
    def small(a: int) -> int:
        if a > 100:
            raise ValueError("too large")
        return a

    return reactor, graph


@pytest.mark.parametrize("durability", ["none", "interval", "fire", "boundary"])
@pytest.mark.parametrize("event", ["half a caf\udce9", {"id": 2**70}, [object()]])
async def test_a_dead_letter_of_anything_can_be_stored(durability: Durability, event: Any) -> None:
    """G-7: the accumulator lives on, and after a crash the letter is there, described if need be."""
    async with tm.testing.node(store=MEMORY, load=passing(durability)) as node:
        assert (await node.push("a", event)).outcome == "dead_lettered"
        assert (await node.push("a", 1)).outcome == "emitted"
        await node.settle()
        node = await node.crash()
        (letter,) = await node.reactor("r").dead_letters()
        assert letter.error.startswith("ValueError: no number")


@pytest.mark.parametrize("durability", ["none", "interval", "fire"])
async def test_a_dead_firing_on_something_that_cannot_be_stored_is_still_a_letter(durability: Durability) -> None:
    """G-15: the reactor lives on."""
    async with tm.testing.node(store=MEMORY, load=passing(durability)) as node:
        await node.push("a", 2**70)
        await node.advance("1s")
        assert node.reactor("r").state().health.can_fire
        (letter,) = await node.reactor("r").dead_letters()
        assert letter.inputs == {"a": 2**70}
        node = await node.crash()
        (letter,) = await node.reactor("r").dead_letters()
        assert letter.inputs == {"a": str(2**70)}


async def test_what_would_not_come_back_is_not_acknowledged() -> None:
    """G-24: with "boundary" a value that its own annotation refuses is a dead letter, not a loss at the next start."""

    class Position(tm.Boundary):
        shares: int

    @tm.passthrough
    def position(event: float) -> Position:
        return Position(event)

    reactor = tm.Reactor("r", [position], durability="boundary")
    async with tm.testing.node(store=MEMORY, load=[reactor]) as node:
        receipt = await node.push(position, 100.5)
        assert (receipt.accepted, receipt.outcome) == (False, "dead_lettered")
        assert "does not fit its own annotation" in str(receipt.reason)


async def test_with_a_journal_a_dead_letter_is_stored_before_it_is_reported() -> None:
    """G-7, G-24: nothing that a receipt tells of is lost to kill -9."""
    async with tm.testing.node(store=MEMORY, load=passing("boundary")) as node:
        await node.push("a", "text")
        node = await node.crash()
        assert [letter.event for letter in await node.reactor("r").dead_letters()] == ["text"]


@pytest.mark.parametrize("durability", ["interval", "fire"])
async def test_a_loop_of_pushes_is_written_meanwhile(durability: Durability) -> None:
    """G-23: `await node.push` gives the loop a turn now and then, so that checkpoints, and Ctrl-C, get theirs."""
    async with tm.Node(load=passing(durability)) as node:
        turns = 0

        async def watch() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        async with asyncio.TaskGroup() as tasks:
            watcher = tasks.create_task(watch())
            for number in range(2_000):
                await node.push("a", number % 100)
            watcher.cancel()
        assert turns >= 5


async def test_a_window_that_became_smaller_shows_only_what_it_holds() -> None:
    """Behaviour 16: the newest n, from the first look after the restart on."""

    def version(capacity: int) -> tm.Reactor:
        return tm.Reactor("r", [tm.window("recent", int, capacity=capacity)])

    async with tm.testing.node(store=MEMORY, load=[version(3)]) as node:
        for value in (1, 2, 3):
            await node.push("recent", value)
        await node.settle()
        node.loaded_packages = {key: version(1) for key in node.loaded_packages}
        node = await node.crash()
        assert node.reactor("r").state().cache == {"recent": [3]}
