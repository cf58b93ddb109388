"""Partitions of a keyed reactor on Ray: hosts share them, and a host that is killed loses nothing but time."""

import asyncio
import os
import signal
from collections import defaultdict
from pathlib import Path

import tidemill as tm
from tests.postgres import PostgresServer
from tests.ray.cluster import RayCluster
from tests.ray.gateways import is_alive, until
from tidemill.access.principal import Caller
from tidemill.kernel.clock import SystemClock
from tidemill.node import Node
from tidemill.packages.format.archive import parse_archive
from tidemill.packages.format.signature import TrustPolicy
from tidemill.packages.format.zip_format import build_zip
from tidemill.packages.publishing import Publisher
from tidemill.storage.store import Store

CALLER = Caller("public", "test")
KEYS = [f"key-{number}" for number in range(12)]
QUICK = {
    "lease_ttl": "2s",
    "rebalance_delay": "200ms",
    "tick_interval": "200ms",
    "package_poll_interval": "200ms",
    "load_published": True,
    "partition_weight": 0,  # all partitions are on the cluster
}
MANIFEST = '[package]\nname = "market"\nversion = "1.0.0"\nmodules = ["market"]\n'
MARKET = """\
import os
import tidemill as tm


class Order(tm.Boundary):
    key: str
    number: int
    file: str


@tm.passthrough
def placed(event: Order) -> Order:
    return event


orders = tm.Reactor("orders", [placed], key="key", partitions=8, strategy="sequential", durability="boundary")
ledger = tm.Graph("ledger", reactor=orders)


@ledger.node
def enter(placed: Order) -> int:
    with open(placed.file, "a") as file:
        file.write(f"{placed.key} {placed.number} {os.getpid()}\\n")
    return placed.number
"""


async def publish(store: Store) -> None:
    """Publish the package with the keyed reactor, which hosts load."""
    files = {"package.toml": MANIFEST.encode(), "market/__init__.py": MARKET.encode()}
    contents = parse_archive(build_zip(files), "market.tidemill")
    await Publisher(store.packages, TrustPolicy(), SystemClock()).publish(contents, "public")


def entered(file: Path) -> dict[str, list[int]]:
    """Return the numbers that were entered, by key, each at its first appearance: a firing may be repeated."""
    found: dict[str, dict[int, None]] = defaultdict(dict)
    for line in file.read_text().splitlines() if file.exists() else ():
        key, number, _ = line.split()
        found[key].setdefault(int(number))
    return {key: list(numbers) for key, numbers in found.items()}


def hosts_in(file: Path) -> set[int]:
    """Return the processes that have entered something, and are alive."""
    lines = file.read_text().splitlines() if file.exists() else []
    return {pid for pid in {int(line.split()[2]) for line in lines} if is_alive(pid)}


class Pusher:
    """Pushes numbers to all keys, in order, and remembers the last acknowledged one of each."""

    def __init__(self, node: Node, file: Path) -> None:
        self._node = node
        self._file = str(file)
        self.acknowledged = dict.fromkeys(KEYS, 0)
        self.is_stopped = False

    async def run(self, key: str) -> None:
        """Push to one key until stopped; a push without an answer is repeated."""
        while not self.is_stopped:
            number = self.acknowledged[key] + 1
            try:
                await self._node.push("placed", {"key": key, "number": number, "file": self._file})
            except tm.TidemillError:
                await asyncio.sleep(0.05)
                continue
            self.acknowledged[key] = number
            await asyncio.sleep(0.02)


async def test_a_killed_host_loses_no_acknowledged_event(
    cluster: RayCluster, postgres: PostgresServer, tmp_path: Path
) -> None:
    """G-31, G-5: with durability="boundary" all acknowledged events are processed, in order for each key."""
    file, store = tmp_path / "ledger", await postgres.fresh_database()
    async with Node(store, settings=QUICK | {"ray_address": cluster.address, "ray_hosts": 2}) as node:
        await publish(node.store)
        await until_all_owned(node, 2)
        pusher = Pusher(node, file)
        async with asyncio.TaskGroup() as group:
            for key in KEYS:
                group.create_task(pusher.run(key), name=f"push {key}")
            await until(lambda: len(hosts_in(file)) == 2 and min(pusher.acknowledged.values()) >= 5)
            killed = min(hosts_in(file))
            os.kill(killed, signal.SIGKILL)
            at_kill = dict(pusher.acknowledged)
            await until(lambda: all(pusher.acknowledged[key] >= at_kill[key] + 5 for key in KEYS))
            await until(lambda: len(hosts_in(file)) == 2)  # the leader has started another host, which has its share
            pusher.is_stopped = True
        expected = {key: list(range(1, last + 1)) for key, last in pusher.acknowledged.items()}
        await until(lambda: all(entered(file).get(key, [])[: len(expected[key])] == expected[key] for key in KEYS))
    left = hosts_in(file)
    assert len(left) == 2  # they outlive the server
    async with Node(store, settings=QUICK | {"ray_address": cluster.address, "ray_hosts": 0}):
        await until(lambda: not any(map(is_alive, left)))


async def until_all_owned(node: Node, count: int) -> None:
    """Wait until a number of hosts own all partitions."""
    async with asyncio.timeout(60):
        while True:
            try:
                state = await node.graph_client.reactor_state(CALLER, "orders")
            except tm.TidemillError:
                state = None
            owners = {one.owner for one in state.partitions} if state is not None else {None}
            if None not in owners and len(owners) == count:
                return
            await asyncio.sleep(0.1)
