"""A process that hosts partitions of a keyed reactor, which counts the events of each key and checks their order."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from typing import Any, Literal

import msgspec

import tidemill as tm

Durability = Literal["none", "interval", "fire", "boundary"]
SETTINGS = {"lease_ttl": "1s", "rebalance_delay": "200ms"}
PARTITIONS = 8
TOPIC, TOPIC_PARTITIONS = "steps", 4  # as many as librdkafka's mock makes
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


class HostSpec(msgspec.Struct, frozen=True):
    """What a host does."""

    address: str
    length: int = 0
    """How many events it reads from a source that cannot be split; 0: the counters take pushes."""
    durability: Durability | None = None
    """Of the reactor that records events instead of counting them; None: the host counts."""
    servers: str = ""
    """The Kafka brokers of the recorded events; without any, events are pushed."""
    settings: dict[str, str] = msgspec.field(default_factory=SETTINGS.copy)


def steps(event: Step, state: Total) -> Total:
    """Count a step, and whether it came after the one before it."""
    return Total(state.count + 1, event.number, state.disorder + (event.number != state.last + 1))


def counters_of(accumulator: Any) -> tm.Reactor:
    """Return a keyed reactor over steps."""
    return tm.Reactor("counters", [accumulator], durability="boundary", key="key", partitions=PARTITIONS)


counters = counters_of(tm.passthrough(state=Total)(steps))


class Log:
    """A source that can be read from any position: its events go round the keys."""

    replays = True

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


# -- recording


class Trace(tm.Boundary, frozen=True):
    """The numbers that a key has seen, in order."""

    numbers: tuple[int, ...] = ()


def recorders(durability: Durability, servers: str = "") -> list[Any]:
    """Return a keyed reactor that records the events of each key, and a graph that fires for each."""

    def steps(event: Step, state: Trace) -> Trace:
        return Trace((*state.numbers, event.number))

    source = tm.stream(tm.Kafka(topic=TOPIC, servers=servers), state=Trace) if servers else tm.passthrough(state=Trace)
    reactor = tm.Reactor(
        "counters",
        [source(steps)],
        durability=durability,
        strategy="sequential",
        key="key",
        partitions=TOPIC_PARTITIONS if servers else PARTITIONS,
    )
    graph = tm.Graph("recorded", reactor=reactor)

    @graph.node
    def newest(steps: Trace) -> int:
        return steps.numbers[-1]

    return [reactor, graph]


def definitions(spec: HostSpec) -> list[Any]:
    """Return what a host, and a node that forwards to hosts, loads."""
    if spec.durability is not None:
        return recorders(spec.durability, spec.servers)
    return [read_counters(spec.length) if spec.length else counters]


async def main(spec: HostSpec) -> None:
    """Host partitions until the process gets SIGTERM."""
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    async with tm.Node(spec.address, load=definitions(spec), settings=spec.settings):
        print("ready", flush=True)
        await ended.wait()
    print("closed", flush=True)


if __name__ == "__main__":
    asyncio.run(main(msgspec.json.decode(sys.argv[1], type=HostSpec)))
