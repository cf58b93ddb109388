"""A package that leaves a node and comes back while events are pushed: each event that was acknowledged fires once."""

import asyncio
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import tidemill as tm
from tests.service.keyed_samples import keyed, order, running_partitions
from tidemill.testing.faults.deploy_steps import DeployFaults

SETTINGS = {"lease_ttl": "1s", "rebalance_delay": "50ms"}
PATIENCE = 30.0
UNLOADS = 4
PUSHERS = 8


def package(name: str, *definitions: Any) -> ModuleType:
    """Return a package of definitions."""
    module = ModuleType(name)
    module.__dict__.update({one.name: one for one in definitions})
    return module


def accept(event: int) -> int:
    """Pass an event on."""
    return event


async def test_a_node_on_standby_lets_no_reactor_fire_before_its_load_is_done(tmp_path: Path) -> None:
    """P-4, G-31: it looks at the owner it waits for, and activates what it has, while another package is loaded."""
    address, owned, sample = f"memory://{tmp_path.name}", tm.Reactor("owned", [tm.passthrough(accept)]), keyed()
    during: list[dict[str, list[int]]] = []
    async with tm.testing.node(address, load=[owned]), tm.testing.node(address, load=[owned]) as standby:

        async def push_and_wait(verb: str, step: str) -> None:
            if (verb, step) == ("apply", "reactors"):
                assert (await standby.push("placed", order("a", 1))).accepted
                await standby.advance("600ms")
                during.append(dict(sample.seen))

        DeployFaults(standby).on_effect = push_and_wait
        await standby.load(package("orders", sample.reactor, sample.graph))
        await standby.settle()
    assert (during, sample.seen) == ([{}], {"a": [1]})


async def test_a_node_that_unloads_and_loads_loses_no_firing(tmp_path: Path) -> None:
    """G-31, P-4: two nodes share partitions in a file; one unloads the package and loads it, again and again."""
    address, sample = f"sqlite:///{tmp_path}/tidemill.db", keyed(durability="boundary")
    orders, acknowledged, is_ending = package("orders", sample.reactor, sample.graph), Counter[str](), asyncio.Event()

    async def push(node: tm.Node, key: str) -> None:
        while not is_ending.is_set():
            if (await node.push("placed", order(key, acknowledged[key]))).accepted:
                acknowledged[key] += 1

    async with (
        asyncio.timeout(PATIENCE),
        tm.Node(address, load=[orders], settings=SETTINGS) as second,
        tm.Node(address, load=[orders], settings=SETTINGS) as first,
        asyncio.TaskGroup() as group,
    ):
        for number in range(PUSHERS):
            group.create_task(push(second, f"key {number}"), name=f"push {number}")
        for _ in range(UNLOADS):
            before = acknowledged.total()
            while acknowledged.total() < before + 100 or len(running_partitions(first)) < 3:  # noqa: ASYNC110 - counters
                await asyncio.sleep(0.01)
            await first.unload("orders")
            await first.load(orders)
        is_ending.set()
    assert sample.seen == {key: list(range(number)) for key, number in acknowledged.items()}
