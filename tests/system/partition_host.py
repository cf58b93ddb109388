"""A process that hosts partitions of a keyed reactor, which counts the events of each key and checks their order."""

import asyncio
import signal
import sys

import tidemill as tm

SETTINGS = {"lease_ttl": "1s", "rebalance_delay": "200ms"}
PARTITIONS = 8


class Step(tm.Boundary, frozen=True):
    """One event of a key; numbers count from 1."""

    key: str
    number: int


class Total(tm.Boundary, frozen=True):
    """What a key has seen."""

    count: int = 0
    last: int = 0
    disorder: int = 0


@tm.passthrough(state=Total)
def steps(event: Step, state: Total) -> Total:
    """Count a step, and whether it came after the one before it."""
    return Total(state.count + 1, event.number, state.disorder + (event.number != state.last + 1))


counters = tm.Reactor("counters", [steps], durability="boundary", key="key", partitions=PARTITIONS)


async def main(address: str) -> None:
    """Host partitions until the process is told to end."""
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    async with tm.Node(address, load=[counters], settings=SETTINGS):
        print("ready", flush=True)
        await ended.wait()
    print("closed", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
