"""kill -9 of hosts, also while partitions move: how much each durability loses, and that a topic loses nothing.

The seed decides which host dies when; `TIDEMILL_TEST_KILL_SEED` sets it. A soak kills more hosts.
"""

import asyncio
import json
import math
import os
import random
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from time import monotonic

import pytest

import tidemill as tm
from tests.postgres import PostgresServer
from tests.system.brokers import KafkaCluster
from tests.system.host_processes import PUBLIC, host, until_shared
from tests.system.killing import seed
from tests.system.partition_host import KEYS, SETTINGS, TOPIC, TOPIC_PARTITIONS, Durability, HostSpec, definitions
from tidemill.graphs.keys import partition_of

PATIENCE = 60.0
KILLS = 3 if "TIDEMILL_TEST_SOAK_SECONDS" in os.environ else 1
LONGEST_LIFE = 0.3  # seconds until a kill, after the hosts share the partitions
PAUSE = 0.01  # seconds between two events of a key
ANSWER = 0.2  # seconds for an answer that was given before the kill
IN_FLIGHT = 0.5
"""Seconds that a firing and the write of its changes take on a busy machine."""
LOSS = {"interval": tm.Settings().checkpoint_interval + IN_FLIGHT, "fire": IN_FLIGHT, "boundary": -math.inf}
"""Seconds before a kill whose acknowledged pushes may be lost, as the documentation says; with "boundary", none."""
LONGEST_MOVE = 1.5  # seconds after a host has joined, within which the partitions move
SEED = seed()


class Pushes:
    """Pushes events of every key, each once, and notes when they are acknowledged."""

    def __init__(self, node: tm.Node) -> None:
        self._node = node
        self.acknowledged: dict[str, dict[int, float]] = {key: {} for key in KEYS}
        self.is_ending = False

    async def push(self, key: str) -> None:
        """Push events of one key until the end. A push without an answer is not repeated."""
        number = 0
        while not self.is_ending:
            number += 1
            try:
                receipt = await self._node.push("steps", {"key": key, "number": number})
            except tm.RequestError:
                continue
            if receipt.accepted:
                self.acknowledged[key][number] = monotonic()
            await asyncio.sleep(PAUSE)


@asynccontextmanager
async def front_and_hosts(spec: HostSpec) -> AsyncIterator[tuple[tm.Node, AsyncExitStack, list[Process]]]:
    """Run a node that forwards, and two hosts that share the partitions."""
    settings = {**SETTINGS, "partition_weight": 0}
    async with asyncio.timeout(PATIENCE), AsyncExitStack() as stack:
        front = await stack.enter_async_context(tm.Node(spec.address, load=definitions(spec), settings=settings))
        hosts = [await stack.enter_async_context(host(spec)) for _ in range(2)]
        await until_shared(front, 2)
        yield front, stack, hosts


async def recorded(node: tm.Node, key: str) -> list[int]:
    """Return the numbers that the state of a key has seen."""
    state = await node.graph_client.reactor_state(PUBLIC, "counters", key)
    numbers: list[int] = state.cache.get("steps", {"numbers": []})["numbers"]
    return numbers


@pytest.mark.parametrize("durability", ["interval", "fire"])
async def test_a_killed_host_loses_only_the_newest_pushes(postgres: PostgresServer, durability: Durability) -> None:
    """G-23, G-24, G-31: what is lost was acknowledged shortly before a kill; nothing is out of order or twice."""
    spec, chance = HostSpec(await postgres.fresh_store(), durability=durability), random.Random(SEED)
    kills: list[float] = []
    async with front_and_hosts(spec) as (front, stack, hosts):
        pushes = Pushes(front)
        async with asyncio.TaskGroup() as group:
            for key in KEYS:
                group.create_task(pushes.push(key), name=f"push {key}")
            for _ in range(KILLS):
                await asyncio.sleep(chance.uniform(0.1, LONGEST_LIFE))  # a random moment under load
                kills.append(monotonic())
                hosts.pop(chance.randrange(len(hosts))).kill()
                hosts.append(await stack.enter_async_context(host(spec)))
                await until_shared(front, 2)
            pushes.is_ending = True
        for key, lost in (await find_lost(front, pushes)).items():
            unexplained = [at for at in lost if not any(-ANSWER <= kill - at <= LOSS[durability] for kill in kills)]
            assert not unexplained, f"seed {SEED}: {key} lost pushes long before the kills, or after them"
        assert sum(map(len, pushes.acknowledged.values())) > len(KEYS) * KILLS, "hardly anything was acknowledged"


@pytest.mark.parametrize("durability", ["none", "interval", "fire", "boundary"])
async def test_a_host_that_dies_while_partitions_move_loses_no_more(
    postgres: PostgresServer, durability: Durability
) -> None:
    """G-23, G-24, G-31: the host that joins, or one that hands over to it, dies at a random moment of the move.

    A move in order loses nothing, except with "none": then only what was acknowledged after the last move is kept.
    """
    spec, chance = HostSpec(await postgres.fresh_store(), durability=durability), random.Random(SEED)
    async with front_and_hosts(spec) as (front, stack, hosts):
        pushes = Pushes(front)
        async with asyncio.TaskGroup() as group:
            for key in KEYS:
                group.create_task(pushes.push(key), name=f"push {key}")
            hosts.append(await stack.enter_async_context(host(spec)))  # the join has begun
            await asyncio.sleep(chance.uniform(0, LONGEST_MOVE))  # a random moment of the move
            killed = monotonic()
            hosts.pop(chance.randrange(len(hosts))).kill()
            await until_live(front)
            settled = monotonic()
            await asyncio.sleep(20 * PAUSE)  # pushes to the hosts that are left
            pushes.is_ending = True
        for key, lost in (await find_lost(front, pushes)).items():
            if durability == "none":
                unexplained = [at for at in lost if at > settled + ANSWER]
            else:
                unexplained = [at for at in lost if not -ANSWER <= killed - at <= LOSS[durability]]
            assert not unexplained, f"seed {SEED}: {key} lost pushes that the kill does not explain"
        assert all(max(one.values()) > settled for one in pushes.acknowledged.values()), "a key was not pushed again"


async def until_live(node: tm.Node) -> None:
    """Wait until two living hosts run all partitions: those of a dead one show as starting."""
    while True:
        await until_shared(node, 2)
        state = await node.graph_client.reactor_state(PUBLIC, "counters")
        if all(one.health == "live" for one in state.partitions):
            return


async def find_lost(node: tm.Node, pushes: Pushes) -> dict[str, list[float]]:
    """Return when the pushes were acknowledged that the states of their keys have not seen; check the others."""
    found = {}
    for key, acknowledged in pushes.acknowledged.items():
        numbers = await recorded(node, key)
        assert numbers == sorted(set(numbers)), f"seed {SEED}: {key} is out of order, or has something twice"
        found[key] = [acknowledged[number] for number in acknowledged.keys() - set(numbers)]
    return found


async def test_a_killed_host_loses_nothing_of_a_topic(postgres: PostgresServer) -> None:
    """G-6, G-24: under "interval" the offsets are of the same moment as the state, so each event counts once."""
    cluster, chance = await asyncio.to_thread(KafkaCluster), random.Random(SEED)
    spec = HostSpec(await postgres.fresh_store(), durability="interval", servers=cluster.servers)
    produced = dict.fromkeys(KEYS, 0)

    def produce(events: int) -> None:
        for key in KEYS:
            numbers = range(produced[key] + 1, produced[key] + events + 1)
            payloads = [json.dumps({"key": key, "number": number}).encode() for number in numbers]
            cluster.produce(TOPIC, *payloads, partition=partition_of(key, TOPIC_PARTITIONS))
            produced[key] += events

    await asyncio.to_thread(produce, 1)  # makes the topic
    async with front_and_hosts(spec) as (front, stack, hosts):
        for _ in range(KILLS):
            ends = monotonic() + chance.uniform(0.1, LONGEST_LIFE)
            while monotonic() < ends:
                await asyncio.to_thread(produce, 5)
            hosts.pop(chance.randrange(len(hosts))).kill()
            await asyncio.to_thread(produce, 5)
            hosts.append(await stack.enter_async_context(host(spec)))
            await until_shared(front, 2)
        for key in KEYS:
            while len(numbers := await recorded(front, key)) < produced[key]:  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.05)
            assert numbers == list(range(1, produced[key] + 1)), f"seed {SEED}: {key}"
