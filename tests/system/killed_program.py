"""A program that is killed again and again: a node under load that writes down what it promised and what it did.

Its arguments are files, for acknowledgements and for effects. Every line in them is one write to a file opened for
appending, so a kill never tears one. It imports everything once; each line of its input (`Life`) is a life, lived in a
process forked for it, so that a life takes over from one that was killed a moment ago. It answers with two lines: the
life's process id, which is also that of its process group, and how it ended.
"""

import asyncio
import os
import sys
import time
from typing import Literal

import msgspec

import tidemill as tm

PUSHERS = 4
NUMBERS = 1_000_000  # of one pusher in one process
RETRY = 0.01  # seconds until a database that cannot be opened is tried again
LONGEST = 30.0  # seconds until a process ends by itself, if its parent is gone


class Life(msgspec.Struct, frozen=True):
    """The options of one process."""

    number: int
    store: str
    durability: Literal["interval", "fire", "boundary"]
    pause: float  # seconds between two events of a pusher
    is_async: bool  # whether the graph is async, so that a kill interrupts running firings
    is_last: bool  # whether to push nothing, and shut down cleanly
    is_hard: bool = False  # whether the database may fail in the meantime


class Event(tm.Boundary):
    """The numbers of a pusher only grow, over all processes."""

    pusher: int
    number: int


class Seen(tm.Boundary):
    """The newest event of one accumulator, how many it has seen, and the newest ones of each pusher before this."""

    count: int = 0
    pusher: int = -1
    number: int = -1
    before: list[int] = msgspec.field(default_factory=lambda: [-1] * PUSHERS)


class Gathered(tm.Boundary):
    """The events of one batch, and how many batches there were."""

    count: int = 0
    events: list[Event] = msgspec.field(default_factory=list)


class Ack(msgspec.Struct, frozen=True):
    """The outcome of an event: acknowledged, or "rejected"."""

    life: int
    at: float  # on the clock that all processes of the machine share
    source: str
    pusher: int
    number: int
    outcome: str
    sequence: int


class Effect(msgspec.Struct, frozen=True):
    """The effect of one firing: the consumed events, and the counts in the cache, by source."""

    life: int
    at: float
    firing: str
    source: str
    count: int
    events: list[Event]
    before: list[int]
    cache: dict[str, int]


class Lines:
    """A file of lines that survives its writer."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def add(self, line: Ack | Effect) -> None:
        """Write one complete line."""
        os.write(self._file, msgspec.json.encode(line) + b"\n")


def _next(event: Event, state: Seen) -> Seen:
    before = state.before.copy()
    if state.pusher >= 0:
        before[state.pusher] = state.number
    return Seen(state.count + 1, event.pusher, event.number, before)


@tm.passthrough(state=Seen)
def a(event: Event, state: Seen) -> Seen:
    """Count."""
    return _next(event, state)


@tm.passthrough(state=Seen)
def b(event: Event, state: Seen) -> Seen:
    """Count."""
    return _next(event, state)


@tm.batch(every="20ms", max_size=25, state=Gathered)
def c(events: list[Event], state: Gathered) -> Gathered:
    """Gather."""
    return Gathered(state.count + 1, events)


def definitions(life: Life, effects: Lines) -> list[tm.Reactor | tm.Graph]:
    """Return the reactor and its graph."""
    reactor = tm.Reactor("r", [a, b, c], strategy="sequential", durability=life.durability)
    graph = tm.Graph("g", reactor=reactor)

    @graph.node
    def effect(a: Seen | None, b: Seen | None, c: Gathered | None, ctx: tm.Context) -> int:
        ((source, value),) = ctx.consumed
        events = value.events if isinstance(value, Gathered) else [Event(value.pusher, value.number)]
        before = value.before if isinstance(value, Seen) else []
        cache = {name: one.count for name, one in (("a", a), ("b", b), ("c", c)) if one is not None}
        effects.add(Effect(life.number, time.monotonic(), ctx.firing_id, source, value.count, events, before, cache))
        return value.count

    if life.is_async:

        @graph.node
        async def afterwards(effect: int) -> int:
            await asyncio.sleep(0.001 * (effect % 3))
            return effect

    return [reactor, graph]


async def push(node: tm.Node, pusher: int, life: Life, acks: Lines) -> None:
    """Push event after event; record each as soon as it is acknowledged."""
    for number in range(life.number * NUMBERS, (life.number + 1) * NUMBERS):
        source = "abc"[(number + pusher) % 3]
        receipt = await node.push(source, Event(pusher, number))
        assert receipt.accepted or life.is_hard, receipt
        acks.add(Ack(life.number, time.monotonic(), source, pusher, number, receipt.outcome, receipt.sequence))
        await asyncio.sleep(life.pause)


async def live(life: Life, acks: Lines, effects: Lines) -> None:
    """Run until killed; the last process runs until everything is done."""
    async with asyncio.timeout(LONGEST):
        while True:
            node = tm.Node(store=life.store, load=definitions(life, effects))
            try:
                await node.__aenter__()
            except tm.OperationError:
                if not life.is_hard:
                    raise
                await asyncio.sleep(RETRY)  # as a service manager does
                continue
            break
        try:
            await work(node, life, acks)
        finally:
            await node.__aexit__(None, None, None)


async def work(node: tm.Node, life: Life, acks: Lines) -> None:
    """Do the work of this process."""
    if life.is_last:
        return await node.settle()
    async with asyncio.TaskGroup() as pushers:
        for pusher in range(PUSHERS):
            pushers.create_task(push(node, pusher, life, acks), name=f"pusher {pusher}")


def born(line: str) -> None:
    """Run once, in a process of its own."""
    os.setsid()
    print(os.getpid(), flush=True)
    asyncio.run(live(msgspec.json.decode(line, type=Life), *map(Lines, sys.argv[1:])))


def main() -> None:
    """Start each process, and wait for its end."""
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            return born(line)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
