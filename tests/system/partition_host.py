"""A process that hosts partitions of a keyed reactor, which counts the events of each key and checks their order.

With a number of events as the second argument, it reads them from a source that cannot be split.
"""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from typing import Any

import tidemill as tm

SETTINGS = {"lease_ttl": "1s", "rebalance_delay": "200ms"}
PARTITIONS = 8
KEYS = [f"key {number}" for number in range(12)]


class Step(tm.Boundary, frozen=True):
    """One event of a key; numbers count from 1."""

    key: str
    number: int


class Total(tm.Boundary, frozen=True):
    """What a key has seen."""

    count: int = 0
    last: int = 0
    disorder: int = 0


def steps(event: Step, state: Total) -> Total:
    """Count a step, and whether it came after the one before it."""
    return Total(state.count + 1, event.number, state.disorder + (event.number != state.last + 1))


def counters_of(accumulator: Any) -> tm.Reactor:
    """Return a keyed reactor over steps."""
    return tm.Reactor("counters", [accumulator], durability="boundary", key="key", partitions=PARTITIONS)


counters = counters_of(tm.passthrough(state=Total)(steps))


class Log:
    """A source that can be read from any position: its events go round the keys."""

    def __init__(self, length: int) -> None:
        self.length = length

    async def start(self, checkpoint: int | None) -> AsyncIterator[tuple[Any, int]]:
        """Yield the events after a position, with pauses, and wait at the end."""
        for position in range(checkpoint or 0, self.length):
            yield {"key": KEYS[position % len(KEYS)], "number": position // len(KEYS) + 1}, position + 1
            await asyncio.sleep(0.002)
        await asyncio.Event().wait()


def read_counters(length: int) -> tm.Reactor:
    """Return the counters of a log."""
    return counters_of(tm.stream(Log(length), state=Total)(steps))


async def main(address: str, length: str = "0") -> None:
    """Host partitions until the process is told to end."""
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    reactor = read_counters(int(length)) if int(length) else counters
    async with tm.Node(address, load=[reactor], settings=SETTINGS):
        print("ready", flush=True)
        await ended.wait()
    print("closed", flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
