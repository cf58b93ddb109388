"""A host: a process that runs partitions of keyed reactors, and nothing else."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

import tidemill as tm
from tests.service.keyed_samples import PARTITIONS, keyed, order, running_partitions
from tests.service.samples import single
from tidemill.host import HostNode
from tidemill.node import Node

QUICK = {"lease_ttl": "1s", "rebalance_delay": "100ms", "tick_interval": "100ms"}
KEYS = [f"key {number}" for number in range(20)]


async def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds, in real time: hosts have no other."""
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - two nodes have no common event
            await asyncio.sleep(0.01)


async def test_a_host_takes_its_share_and_hands_it_over(tmp_path: Path) -> None:
    """G-31: it plans nothing, has no executor, and leaves reactors without a key alone."""
    store = f"sqlite:///{tmp_path}/store.db"
    sample, plain = keyed(durability="none"), single()
    load = [*sample.load, *plain.load]
    async with Node(store, load=load, settings=QUICK) as node:
        async with HostNode(store, load=load, settings=QUICK, name="shelf") as host:
            await until(lambda: len(running_partitions(node)) == len(running_partitions(host)) == PARTITIONS / 2)
            assert [one.name for one in host._scheduler.loaded.reactors if not one.definition.is_partition] == []
            assert host._workflows.executors == {}
            assert host._workflows.leader.coordinator is None
            for number in (1, 2, 3):
                for key in KEYS:
                    assert (await node.push("placed", order(key, number))).accepted
            await host.settle()
            await node.settle()
            assert sample.seen == {key: [1, 2, 3] for key in KEYS}
            listed = {one.owner.name: one.owner.kind for one in await node.workflow_client.nodes.list_all()}
            assert listed["shelf"] == "host"
        await until(lambda: len(running_partitions(node)) == PARTITIONS)


def test_a_host_has_a_name_that_can_be_printed(tmp_path: Path) -> None:
    with pytest.raises(tm.DefinitionError, match="a host has a name"):
        HostNode(f"sqlite:///{tmp_path}/store.db", name="\n")
