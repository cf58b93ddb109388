"""Nodes that join, leave and die while events are pushed: whatever the order, each key counts every event once.

The nodes share a memory store, and each has a virtual clock of its own: a node that does not advance is frozen.
"""

import asyncio
from contextlib import suppress
from itertools import count
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

import tidemill as tm
from tests.system.partition_host import Step, Total
from tidemill.graphs.pushes import ProducerPosition

PARTITIONS = 4
KEYS = [f"key {number}" for number in range(6)]
MAX_NODES = 3
SETTINGS = {"lease_ttl": "1s", "rebalance_delay": "200ms"}
PATIENCE = 20.0  # seconds of real time for one step

indexes = st.integers(0, MAX_NODES - 1)
keys = st.sets(st.sampled_from(KEYS), min_size=1)
_numbers = count()


def counters() -> tm.Reactor:
    """Return a keyed reactor that counts the events of each key, and those out of order."""

    @tm.passthrough(state=Total)
    def steps(event: Step, state: Total) -> Total:
        return Total(state.count + 1, event.number, state.disorder + (event.number != state.last + 1))

    return tm.Reactor("counters", [steps], durability="boundary", key="key", partitions=PARTITIONS)


async def counted(node: tm.Node, key: str) -> tuple[int, int]:
    """Return how many events of a key a node has counted, and how many of them out of order."""
    try:
        total = (await node.reactor("counters").state_of(key)).cache["steps"]
    except tm.RequestError:  # it knows nothing of the key
        return 0, 0
    return total["count"], total["disorder"]


class Cluster(RuleBasedStateMachine):
    """Nodes of one store, and the number of the newest acknowledged event of each key."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.address = f"memory://cluster-{next(_numbers)}"
        self.nodes: list[tm.testing.TestNode] = []
        self.ended: list[tm.testing.TestNode] = []
        self.acknowledged = dict.fromkeys(KEYS, 0)

    def run(self, coroutine: Any) -> Any:
        """Run one step of the story."""

        async def bounded() -> Any:
            async with asyncio.timeout(PATIENCE):
                return await coroutine

        return self.runner.run(bounded())

    # -- nodes

    @initialize()
    def begin(self) -> None:
        """There is always one node."""
        self.run(self.open_node())

    async def open_node(self) -> None:
        """Start a node on the store."""
        node = tm.testing.node(self.address, load=[counters()], settings=SETTINGS)
        self.nodes.append(await node.__aenter__())

    @precondition(lambda self: len(self.nodes) < MAX_NODES)
    @rule()
    def join(self) -> None:
        """A node comes."""
        self.run(self.open_node())

    @precondition(lambda self: len(self.nodes) > 1)
    @rule(index=indexes)
    def leave(self, index: int) -> None:
        """A node closes, and hands its partitions over."""
        self.run(self.nodes.pop(index % len(self.nodes)).__aexit__(None, None, None))

    @precondition(lambda self: len(self.nodes) > 1)
    @rule(index=indexes, keys=keys, turns=st.integers(0, 20))
    def die(self, index: int, keys: set[str], turns: int) -> None:
        """A node is killed, while another one pushes."""
        self.run(self.kill_under_load(index, keys, turns))

    async def kill_under_load(self, index: int, keys: set[str], turns: int) -> None:
        """Kill a node some turns of the event loop after another one began to push."""
        node = self.nodes.pop(index % len(self.nodes))
        self.ended.append(node)
        async with asyncio.TaskGroup() as group:
            group.create_task(self.push_all(index, keys), name="pushes")
            for _ in range(turns):
                await asyncio.sleep(0)
            await node.kill()

    @rule(index=indexes, duration=st.sampled_from(["50ms", "300ms", "2s"]))
    def advance(self, index: int, duration: str) -> None:
        """Time passes on one node, as if the others were frozen."""
        self.run(self.nodes[index % len(self.nodes)].advance(duration))

    @rule()
    def pass_time(self) -> None:
        """Time passes on all nodes."""
        self.run(self.advance_all())

    async def advance_all(self) -> None:
        """Let a little time pass on every node."""
        for node in self.nodes:
            await node.advance("100ms")

    # -- events

    @rule(index=indexes, keys=keys)
    def push(self, index: int, keys: set[str]) -> None:
        """Producers push events at one node, each until it is acknowledged."""
        self.run(self.push_all(index, keys))

    async def push_all(self, index: int, keys: set[str]) -> None:
        """Push the next event of some keys, while time passes: their partitions may have no owner yet."""
        node = self.nodes[index % len(self.nodes)]
        async with asyncio.TaskGroup() as group:
            pushes = [group.create_task(self.push_next(node, key), name=f"push {key}") for key in sorted(keys)]
            while not all(push.done() for push in pushes):
                await self.advance_all()

    async def push_next(self, node: tm.testing.TestNode, key: str) -> None:
        """Push the next event of a key until it is acknowledged, as a producer that numbers its pushes does."""
        number, is_acknowledged = self.acknowledged[key] + 1, False
        position = ProducerPosition(f"producer of {key}", number)
        while not is_acknowledged:
            with suppress(tm.RequestError):  # no answer: the same push again
                summary = await node.push_many("steps", [{"key": key, "number": number}], position=position)
                is_acknowledged = not summary.is_rejected
            await asyncio.sleep(0)
        self.acknowledged[key] = number

    # -- the end

    def teardown(self) -> None:
        """Check the counts, and close everything."""
        try:
            if self.nodes:
                self.run(self.check())
        finally:
            for node in [*self.ended, *self.nodes]:
                self.run(node.__aexit__(None, None, None))
            self.runner.close()

    async def check(self) -> None:
        """Leave one node with all partitions: it has counted every acknowledged event once, in order."""
        *others, last = self.nodes
        for node in others:
            await node.kill()
        self.ended, self.nodes = [*self.ended, *others], [last]
        while len(last.reactor("counters").state().partitions) < PARTITIONS:
            await last.advance("200ms")
        await last.settle()
        for key, number in self.acknowledged.items():
            assert await counted(last, key) == (number, 0), key


TestCluster = Cluster.TestCase
TestCluster.settings = settings(max_examples=max(1, settings().max_examples // 3), stateful_step_count=15)
