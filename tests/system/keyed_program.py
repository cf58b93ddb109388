"""A program that pushes events of many keys until it is killed: it writes down what it tries and what is acknowledged.

Its arguments are a store, a file of lines, and the number of this life; with the word "last" it prints the state of
every key instead.
"""

import asyncio
import os
import sys

import msgspec

import tidemill as tm

KEYS = 20
ACTIVE_KEYS = 5
NUMBERS = 1_000_000  # in one life


class Event(tm.Boundary):
    """The numbers of a key only grow, over all lives."""

    key: int
    number: int


class Applied(tm.Boundary):
    """The numbers of a key that were applied, in their order."""

    numbers: list[int] = msgspec.field(default_factory=list)


@tm.passthrough(state=Applied)
def events(event: Event, state: Applied) -> Applied:
    """Add the number."""
    return Applied([*state.numbers, event.number])


reactor = tm.Reactor("r", [events], key="key", durability="boundary", strategy="sequential")
graph = tm.Graph("g", reactor=reactor)


@graph.node
def newest(events: Applied, ctx: tm.Context) -> tuple[int, int]:
    """Return the key and its newest number."""
    return ctx.key, events.numbers[-1]


async def push(node: tm.Node, key: int, life: int, lines: int) -> None:
    """Push the events of one key, each after the one before is acknowledged."""
    for number in range(life * NUMBERS, (life + 1) * NUMBERS):
        os.write(lines, b"try %d %d\n" % (key, number))
        receipt = await node.push("events", Event(key, number))
        assert receipt.outcome == "emitted", receipt
        os.write(lines, b"ack %d %d\n" % (key, number))
        await asyncio.sleep(0.002)


async def show(node: tm.Node) -> None:
    """Print the numbers that each key has applied."""
    await node.settle()
    for key in range(KEYS):
        state = await node.reactor("r").state_of(key)
        print(key, *state.cache.get("events", {"numbers": []})["numbers"])


async def main(store: str, path: str, life: str) -> None:
    """Run until killed."""
    lines = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    async with tm.Node(store, load=[reactor, graph], settings={"active_keys": ACTIVE_KEYS}) as node:
        if life == "last":
            return await show(node)
        async with asyncio.TaskGroup() as pushers:
            for key in range(KEYS):
                pushers.create_task(push(node, key, int(life), lines), name=f"key {key}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
