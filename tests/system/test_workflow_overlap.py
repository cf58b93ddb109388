"""Nodes that fight for the office, and nodes that are killed at random: nothing is lost, nothing is done twice at once.

A short form runs with every test run; `TIDEMILL_TEST_SOAK_SECONDS` makes it as long as wanted. A failure names its
seed, which decides the moments of the kills; `TIDEMILL_TEST_KILL_SEED` sets it, and a soak takes another one each time.
"""

import asyncio
import os
import random
from collections.abc import AsyncIterator, Callable
from itertools import count, cycle
from pathlib import Path

import pytest

from tests.postgres import PostgresServer
from tests.system.killing import seed
from tests.system.workflow_node import Ask
from tests.system.workflow_nodes import (
    PATIENCE,
    Execution,
    Fleet,
    NodeProcess,
    all_ended,
    check_everything,
    check_executions,
    fleet_on,
    opened,
)
from tidemill.telemetry.events import LEADERSHIP_WON

SECONDS = float(os.environ.get("TIDEMILL_TEST_SOAK_SECONDS", "0"))  # that the trouble lasts at least
SEED = seed()
TERMS = 4  # in office, at least, of two nodes that fight for it
KILLS = 6  # of nodes, at least
RUNS = 12  # at least
TERM = "1s"  # a third of the usual: so the office changes hands several times as often
NODES = 3
LOST = 1000  # times that an attempt may die with its node
EVERY = 0.15  # seconds between two helpings of load
BEHIND = 40  # runs that may be under way at most

pytestmark = pytest.mark.timeout(SECONDS * 3 + 110)


@pytest.fixture(params=["sqlite", "postgres"])
async def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Fleet]:
    """Nodes on an empty database of each kind."""
    address = f"sqlite:///{tmp_path / 'tidemill.db'}"
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        address = await server.fresh_store()
    async with fleet_on(address, tmp_path) as fleet:
        yield fleet


class Load:
    """Starts runs at one node after the other, and remembers those that it got a handle of."""

    def __init__(self, fleet: Fleet) -> None:
        self.started: set[str] = set()
        self._fleet = fleet
        self._has_ended = asyncio.Event()

    def end(self) -> None:
        """Start no more."""
        self._has_ended.set()

    async def run(self) -> None:
        """Go on until told to end; a node that is killed meanwhile may not answer."""
        for turn in cycle(range(NODES)):
            if self._has_ended.is_set():
                return
            node = self._fleet.nodes[turn % len(self._fleet.nodes)]
            if self._behind() < BEHIND:
                await self._start(node)
            try:
                async with asyncio.timeout(EVERY):
                    await self._has_ended.wait()
            except TimeoutError:
                continue

    async def _start(self, node: NodeProcess) -> None:
        try:
            said = await node.ask(Ask("start", "load", 3), "started")
        except (AssertionError, ConnectionError):
            assert node.ended_at is not None, "a node has ended that the test did not kill"
            return
        self.started |= set(said["runs"])
        assert not said["errors"], said["errors"]

    def _behind(self) -> int:
        """Return how many runs have begun and not ended, by the journal."""
        notes = self._fleet.notes()
        ended = {note.token.partition("/")[0] for note in notes if note.what == "end" and "/total" in note.token}
        return len(self.started - ended)


async def under_load(fleet: Fleet, trouble: Callable[[], AsyncIterator[bool]]) -> set[str]:
    """Make trouble under load until it says that it was enough, let everything end, and return the started runs."""
    load = Load(fleet)
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(load.run(), name="load")
        ends = loop.time() + SECONDS
        async for is_enough in trouble():
            if is_enough and len(load.started) >= RUNS and loop.time() > ends:
                break
        load.end()
    async with opened(fleet.address) as store:
        await all_ended(store, PATIENCE + SECONDS)
    return load.started


async def finish(fleet: Fleet, started: set[str]) -> int:
    """Stop all nodes, and check what they left behind; return how many runs there were."""
    await fleet.stop()
    records = await check_everything(fleet)
    states = {record.run.id: record.run.state for record in records}
    assert len(started) >= RUNS
    assert started <= states.keys(), "a run that was started is lost"
    assert set(states.values()) == {"success"}, {run: state for run, state in states.items() if state != "success"}
    return len(states)


def test_the_check_of_executions_sees_what_it_is_for() -> None:
    """Two at a time, one attempt twice, an older attempt after a younger one: each is found; one by one is fine."""
    first = Execution("run/work", 1, node=1, begin=0.0, end=2.0, has_ended=True)
    check_executions([first, first._replace(number=2, begin=2.0, end=3.0)])
    for wrong in (
        first._replace(number=2, node=2, begin=1.9, end=3.0),
        first._replace(node=2, begin=2.1, end=3.0),
        first._replace(number=0, begin=2.1, end=3.0),
    ):
        with pytest.raises(AssertionError):
            check_executions([first, wrong])


async def test_two_nodes_that_both_plan(fleet: Fleet) -> None:
    """W-8, F9, I-1: each takes the office from the other as if it were dead; only one of them can ever write."""
    for number in range(2):
        await fleet.add(workflows=["load"], usurps=SEED + number, settings={"lease_ttl": TERM})

    async def fight() -> AsyncIterator[bool]:
        while True:
            await asyncio.sleep(0.1)
            yield terms(fleet) >= TERMS and await fenced_writes(fleet) > 0

    async with asyncio.timeout(PATIENCE + SECONDS):
        started = await under_load(fleet, fight)
    fenced = await fenced_writes(fleet)
    runs = await finish(fleet, started)
    store = fleet.address.partition(":")[0]
    print(f"two leaders on {store}: {terms(fleet)} terms, {fenced:.0f} writes refused, {runs} runs")


def terms(fleet: Fleet) -> int:
    """Return how often a node came into office."""
    return sum(line["what"] == LEADERSHIP_WON for node in fleet.nodes for line in node.said)


async def fenced_writes(fleet: Fleet) -> float:
    """Return how many writes were refused, since they came from a node that was no longer in office."""
    return sum([(await node.metrics())["fenced_writes_total"] for node in fleet.nodes])


async def test_kill_9_of_any_node(fleet: Fleet) -> None:
    """W-12, F1, F33: whichever process dies, nothing is lost, and no two attempts of a task run overlap."""
    settings = {"task_max_recoveries": LOST}
    chance = random.Random(SEED)
    for _ in range(NODES):
        await fleet.add(workflows=["load"], settings=settings)

    async def killing() -> AsyncIterator[bool]:
        for kills in count(1):
            await asyncio.sleep(chance.uniform(0, 0.8))
            await fleet.kill(chance.choice(fleet.nodes))
            await fleet.add(workflows=["load"], settings=settings)
            yield kills >= KILLS

    try:
        started = await under_load(fleet, killing)
        runs = await finish(fleet, started)
    except AssertionError as error:
        raise AssertionError(f"TIDEMILL_TEST_KILL_SEED={SEED}: {error}") from error
    killed = sum(node.process.returncode != 0 for node in fleet.all)
    print(f"kill -9 on {fleet.address.partition(':')[0]}: {killed} kills, {runs} runs, {len(fleet.notes())} notes")
    assert killed >= KILLS
