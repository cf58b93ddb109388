"""A node with workflows in a process of its own: `python -m tests.system.workflow_node RECIPE`.

It says one JSON line per thing worth knowing: that it is ready, that it came into office or left it, what it was asked.
It is asked by JSON lines, and ends in good order when told so, at SIGTERM, or when its input ends.
"""

import asyncio
import logging
import os
import random
import signal
import sys
import time
from typing import Any

import msgspec

import tidemill as tm
from tests.system import workflow_flows
from tidemill.telemetry import events

SHORT, LONG = 0.05, 0.5  # seconds before a usurper takes over


class Recipe(msgspec.Struct, frozen=True):
    """The options of the node."""

    store: str
    workflows: list[str]
    executor: str = "in_process"
    concurrency: int = 8
    settings: dict[str, Any] = {}
    usurps: int | None = None
    """The seed of a node that takes the leadership from its holder, as if that were dead; None for a normal node."""


class Ask(msgspec.Struct, frozen=True):
    """A request to the node: "start" runs of a workflow, print its "metrics", or "stop"."""

    do: str
    workflow: str = ""
    count: int = 1


def say(what: str, **facts: Any) -> None:
    """Print one line."""
    os.write(1, msgspec.json.encode({"what": what, "at": time.monotonic(), **facts}) + b"\n")


class Teller(logging.Handler):
    """Prints the leader."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.msg in (events.LEADERSHIP_WON, events.LEADERSHIP_LOST):
            say(record.msg, epoch=vars(record)["epoch"])


def usurp(node: tm.Node, seed: int) -> None:
    """Make a node believe, whenever it campaigns, that the leader is dead."""
    service = node._workflows
    chance = random.Random(seed)

    async def is_dead_in_any_case(holder: str) -> bool:
        await asyncio.sleep(chance.uniform(SHORT, LONG))
        return bool(holder)

    service.election._is_dead = is_dead_in_any_case


async def serve(recipe: Recipe) -> None:
    """Run the node until a stop request."""
    load = [getattr(workflow_flows, name) for name in recipe.workflows]
    node = tm.Node(
        recipe.store,
        load=load,
        executor=recipe.executor,
        concurrency=recipe.concurrency,
        settings=recipe.settings,
    )
    if recipe.usurps is not None:
        usurp(node, recipe.usurps)
    asks = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(asks), sys.stdin)
    loop.add_signal_handler(signal.SIGTERM, asks.feed_eof)
    async with node:
        say("ready", owner=node._workflows.owner.id)
        while line := await asks.readline():
            ask = msgspec.json.decode(line, type=Ask)
            if ask.do == "stop":
                break
            await answer(node, ask)
        say("closing")
    say("closed")


async def answer(node: tm.Node, ask: Ask) -> None:
    """Execute a request, and print the result."""
    if ask.do == "metrics":
        say("metrics", metrics=node.metrics())
        return
    runs, errors = [], []
    for _ in range(ask.count):
        try:
            runs.append((await node.start(ask.workflow)).id)
        except tm.OperationError as error:
            errors.append(str(error))
    say("started", runs=runs, errors=errors)


def main() -> None:
    """Run a node as its recipe says."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    leadership = logging.getLogger("tidemill.engine.workflows.leader.election")
    leadership.setLevel(logging.INFO)
    leadership.addHandler(Teller())
    os.environ["NODE"] = str(os.getpid())
    asyncio.run(serve(msgspec.json.decode(sys.argv[1], type=Recipe)))


if __name__ == "__main__":
    main()
