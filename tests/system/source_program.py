"""A node that reads a source, for tests that kill it: it counts numbered events in a running state.

Its argument is an order (`Order`). It prints the count after its first event, and, when it has counted as many events
as the order says, its tally as JSON; then it ends.
"""

import asyncio
import importlib
import sys
from typing import Any

import msgspec

import tidemill as tm
from tidemill.graphs.definition import Durability

CHECKPOINT_INTERVAL = "20ms"  # as many moments to be killed at as a short life has room for


class Order(msgspec.Struct, frozen=True):
    """The options of one process."""

    store: str
    make: str  # "module:function" of the function that makes the source
    argument: Any
    durability: Durability = "boundary"
    until: int | None = None


class Numbered(tm.Boundary):
    """An event."""

    number: int


class Counted(tm.Boundary):
    """How many events there were, and how many were missing or repeated."""

    count: int = 0
    total: int = 0
    last: int = -1
    missing: int = 0
    repeated: int = 0


async def main(order: Order) -> None:
    """Run the node."""
    module, _, function = order.make.partition(":")
    source = getattr(importlib.import_module(module), function)(order.argument)

    @tm.stream(source, state=Counted)
    def counted(event: Numbered, state: Counted) -> Counted:
        return Counted(
            state.count + 1,
            state.total + event.number,
            max(event.number, state.last),
            state.missing + max(0, event.number - state.last - 1),
            state.repeated + (event.number <= state.last),
        )

    reactor = tm.Reactor("r", [counted], strategy="sequential", durability=order.durability)
    settings = {"backoff_base": "20ms", "backoff_max": "100ms", "component_max_failures": 1000}
    settings["checkpoint_interval"] = CHECKPOINT_INTERVAL
    async with tm.Node(store=order.store, load=[reactor], settings=settings) as node:
        reached = 0
        while order.until is None or reached < order.until:
            await asyncio.sleep(0.01)
            state = node.reactor("r").state().cache.get("counted")
            if state is not None and state["count"] > reached:
                if not reached:
                    print(state["count"], flush=True)
                reached = state["count"]
        print(msgspec.json.encode(state).decode(), flush=True)


if __name__ == "__main__":
    asyncio.run(main(msgspec.json.decode(sys.argv[1], type=Order)))
