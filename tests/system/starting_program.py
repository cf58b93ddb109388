"""A node that is killed: it pushes numbers, whose firings start runs, and prints each acknowledged number."""

import asyncio
import sys
from typing import Any

import tidemill as tm


def definitions() -> list[Any]:
    """Return a reactor that loses nothing, a workflow that its firings start, and one that values of its graph do."""

    @tm.passthrough
    def a(event: int) -> int:
        return event

    flow = tm.Workflow("w", triggers=[tm.on_firing("r", when="payload.a > 0")])

    @flow.task
    async def note() -> None:
        return None

    reactor = tm.Reactor("r", [a], strategy="sequential", durability="boundary")
    graph = tm.Graph("g", reactor=reactor)

    @graph.node
    def decide(a: int) -> int | None:
        return a if a % 2 else None

    work = tm.Workflow("work", triggers=[tm.on_output(graph.decide)])

    @work.task
    async def act() -> None:
        return None

    return [reactor, graph, flow, work]


async def main(store: str, first: int) -> None:
    """Push until killed."""
    async with tm.Node(store, load=definitions()) as node:
        number = first
        while True:
            await node.push("a", number)
            print(number, flush=True)
            number += 1


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
