"""Several nodes in processes of their own on one store: one plans, all work, and any of them may go at any time."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from tests.contract.proxy import proxy_to
from tests.postgres import PostgresServer
from tests.system.workflow_nodes import (
    Execution,
    Fleet,
    NodeProcess,
    all_ended,
    all_runs,
    check_everything,
    executions,
    fleet_on,
    opened,
    until,
)
from tidemill.storage.store import Store
from tidemill.telemetry.events import LEADERSHIP_LOST

DEATH = 2.0  # seconds until another one plans, after the process of the leader has died
SILENCE = 5.0  # the same, after the leader froze, or was cut off
FROZEN = 6.0  # seconds for which the leader is frozen
AT_ONCE = 5.0  # seconds until the attempts of the dead go on; without knowing of the death it would be 90
HOLDS = 12
WAVES = 10  # of work, until everybody must have had some of it


@pytest.fixture
async def fleet(postgres: PostgresServer, tmp_path: Path) -> AsyncIterator[Fleet]:
    """Nodes on a database of their own."""
    async with fleet_on(await postgres.fresh_store(), tmp_path) as fleet:
        yield fleet


@pytest.fixture
async def on_file(tmp_path: Path) -> AsyncIterator[Fleet]:
    """Nodes on a SQLite file."""
    async with fleet_on(f"sqlite:///{tmp_path / 'tidemill.db'}", tmp_path) as fleet:
        yield fleet


async def finish(fleet: Fleet, store: Store, but: str = "") -> None:
    """Let everything come to its end, stop all nodes, and check what they left behind."""
    fleet.let_go()
    await all_ended(store, but=but)
    await fleet.stop()
    for record in await check_everything(fleet):
        assert record.run.state.is_terminal or record.run.workflow == but, record.run


def holds(fleet: Fleet, node: NodeProcess | None = None) -> list[Execution]:
    """Return the executions of tasks that hold on, on one node if need be."""
    found = [one for one in executions(fleet.notes(), {}) if one.who.endswith("/hold")]
    return [one for one in found if node is None or one.node == node.pid]


async def hold_on_each(fleet: Fleet, node: NodeProcess) -> None:
    """Start tasks that hold on until they are let go, and wait until every node has some."""
    await node.start("patient", HOLDS)
    await until(lambda: len(holds(fleet)) == HOLDS, "every task that holds on has begun")


async def check_resumption(fleet: Fleet, node: NodeProcess, since: float) -> float:
    """Wait until the attempts that died with a node were begun again, and return how long that took."""
    died = {one.who for one in holds(fleet, node)}
    assert died, "nothing was running there"

    def resumed() -> list[Execution]:
        return [one for one in holds(fleet) if one.who in died and one.number == 2]

    await until(lambda: len(resumed()) == len(died), "the attempts of the dead go on", AT_ONCE)
    return max(one.begin for one in resumed()) - since


async def test_one_node_plans_and_all_of_them_work(fleet: Fleet) -> None:
    """W-8, W-1: of three nodes one is in office, and each claims."""
    for _ in range(3):
        await fleet.add()
    await fleet.leader()
    async with opened(fleet.address) as store:
        await hold_on_each(fleet, fleet.nodes[0])
        for node in fleet.nodes:
            await node.start("load", 8)
        await all_ended(store, but="patient")
        workers = {note.node for note in fleet.notes()}
        assert workers == {node.pid for node in fleet.nodes}
        await fleet.leader()
        await finish(fleet, store)


async def test_kill_9_of_the_leader(fleet: Fleet) -> None:
    """W-9, W-12, W-13, F1: another plans in under 2 s, no slot is missed or doubled, what the dead ran goes on."""
    for _ in range(3):
        await fleet.add(workflows=["load", "patient", "clockwork"], concurrency=5)
    leader = await fleet.leader()
    async with opened(fleet.address) as store:
        await hold_on_each(fleet, leader)
        await fleet.add(workflows=["load", "patient", "clockwork"], concurrency=5)  # room for what the dead ran
        await fleet.nodes[-1].start("load", 10)
        killed = await fleet.kill(leader)
        successor, said = await fleet.next_leader(killed, DEATH)
        resumed = await check_resumption(fleet, leader, killed)
        print(f"kill -9: in office after {said['at'] - killed:.3f} s, attempts go on after {resumed:.3f} s")
        await until(lambda: slots_after(fleet, killed) >= 3, "slots after the kill have their runs")
        assert successor.is_in_office
        await finish(fleet, store, but="clockwork")
        slots = sorted(run.slot for run in await all_runs(store) if run.slot is not None)
    assert all(after - before == timedelta(seconds=1) for before, after in pairwise(slots)), slots


def slots_after(fleet: Fleet, moment: float) -> int:
    """Return of how many slots the code ran after a moment."""
    return len({note.slot for note in fleet.notes() if note.slot and note.at > moment})


async def test_kill_9_of_a_follower(fleet: Fleet) -> None:
    """W-12: what a dead node ran goes on at once, and the leader stays in office."""
    for _ in range(3):
        await fleet.add(concurrency=5)
    leader = await fleet.leader()
    follower = next(node for node in fleet.nodes if node is not leader)
    async with opened(fleet.address) as store:
        await hold_on_each(fleet, leader)
        await fleet.add(concurrency=5)  # room for what the dead ran
        killed = await fleet.kill(follower)
        print(f"kill -9 of a follower: attempts go on after {await check_resumption(fleet, follower, killed):.3f} s")
        assert (await leader.metrics())["agent_lost_tasks_total"] > 0
        assert await fleet.leader() is leader
        await finish(fleet, store)


async def test_a_frozen_leader_is_replaced_and_its_late_writes_are_refused(fleet: Fleet) -> None:
    """W-8, W-9, F2: another plans in under 5 s; what the old one writes when it wakes is refused and counted."""
    for _ in range(3):
        await fleet.add(concurrency=4)
    leader = await fleet.leader()
    async with opened(fleet.address) as store:
        await leader.start("short", 9)
        await until(lambda: any(note.node == leader.pid for note in fleet.notes()), "something runs at the leader")
        frozen = leader.signal(signal.SIGSTOP)
        try:
            successor, said = await fleet.next_leader(frozen, SILENCE, but=leader)
            print(f"SIGSTOP: another in office after {said['at'] - frozen:.3f} s")
            await asyncio.sleep(max(0.0, frozen + FROZEN - said["at"]))
        finally:
            woken = leader.signal(signal.SIGCONT)
        await leader.hear(LEADERSHIP_LOST, after=woken)
        await check_refusals(leader)
        assert await fleet.leader() is successor
        await goes_on_working(fleet, leader, woken)
        await finish(fleet, store)
        assert all(run.state == "success" for run in await all_runs(store))


async def check_refusals(node: NodeProcess) -> None:
    """Wait until a node has counted writes that were refused."""

    async def has_counted() -> bool:
        metrics = await node.metrics()
        return metrics["fenced_writes_total"] + metrics["late_reports_total"] > 0

    await until(has_counted, "a late write was refused and counted")


async def goes_on_working(fleet: Fleet, node: NodeProcess, since: float) -> None:
    """Give everybody as much work as all of them can do at a time, until a node has begun some of it."""
    leader = await fleet.leader()
    enough = sum(one.recipe.concurrency for one in fleet.nodes)

    def has_begun() -> bool:
        return any(note.node == node.pid and note.what == "begin" and note.at > since for note in fleet.notes())

    for _ in range(WAVES):
        await leader.start("short", enough)
        with suppress(AssertionError):
            return await until(has_begun, "it has begun some of it", 1.0)
    raise AssertionError(f"node {node.pid} does not go on working")


async def test_a_leader_that_is_cut_off_is_replaced(postgres: PostgresServer, tmp_path: Path) -> None:
    """W-9, F4, F5: its packets vanish, without an error; another plans in under 5 s, and it steps down by itself."""
    address = await postgres.fresh_store()
    async with proxy_to(postgres.port) as (proxy, port), fleet_on(address, tmp_path) as fleet:
        leader = await fleet.add(store=address.replace(f":{postgres.port}/", f":{port}/"), concurrency=16)
        for _ in range(2):
            await fleet.add(concurrency=16)
        assert await fleet.leader() is leader
        async with opened(address) as store:
            await leader.start("load", 5)
            await hold_on_each(fleet, leader)
            loop = asyncio.get_running_loop()
            proxy.is_stalled, cut = True, loop.time()  # the clock of the journal
            _, said = await fleet.next_leader(cut, SILENCE, but=leader)
            lost = await leader.hear(LEADERSHIP_LOST, after=cut, within=SILENCE)
            print(f"half-open: another in office after {said['at'] - cut:.3f} s, left after {lost['at'] - cut:.3f} s")
            proxy.is_stalled = False
            await proxy.end()
            await goes_on_working(fleet, leader, said["at"])
            await finish(fleet, store)


@pytest.mark.parametrize("executor", ["in_process", "subprocess"])
async def test_a_leader_that_is_closed_hands_over(executor: str, fleet: Fleet) -> None:
    """W-6, W-9: it leaves the office, and what it runs is handed back and begun elsewhere, never before it ended."""
    for _ in range(2):
        await fleet.add(executor=executor, settings={"unload_timeout": "300ms"}, concurrency=16)
    leader = await fleet.leader()
    async with opened(fleet.address) as store:
        await hold_on_each(fleet, leader)
        assert holds(fleet, leader)
        closed = leader.signal(signal.SIGTERM)
        await leader.await_end()
        fleet.nodes.remove(leader)
        _, said = await fleet.next_leader(closed, SILENCE)
        resumed = await check_resumption(fleet, leader, closed)
        print(f"SIGTERM, {executor}: in office after {said['at'] - closed:.3f} s, attempts after {resumed:.3f} s")
        outcomes = {row.outcome for run in await all_runs(store) for row in await store.runs.read_attempts(run.id)}
        assert "returned" in outcomes or executor == "in_process", outcomes
        await finish(fleet, store)


async def test_all_nodes_go_on_after_the_database_was_away(own_postgres: PostgresServer, tmp_path: Path) -> None:
    """F10, R16: stopped, killed and started again under load; every node goes on by itself, and nothing is lost."""
    async with fleet_on(await own_postgres.fresh_database(), tmp_path) as fleet:
        for _ in range(3):
            await fleet.add()
        leader = await fleet.leader()
        started = []
        for bring_down in (own_postgres.kill, own_postgres.stop):
            started += await leader.start("load", 15)
            await asyncio.to_thread(bring_down)
            await asyncio.sleep(1.0)  # an outage, not a moment of it
            await asyncio.to_thread(own_postgres.start)
            leader = await fleet.leader()
        back = asyncio.get_running_loop().time()
        async with opened(fleet.address) as store:
            await all_ended(store)
            print(f"database away: all runs ended {asyncio.get_running_loop().time() - back:.3f} s after it came back")
            for node in fleet.nodes:
                await goes_on_working(fleet, node, back)
            await finish(fleet, store)
            runs = {run.id: run.state for run in await all_runs(store)}
        assert all(runs[run] == "success" for run in started)


async def test_two_nodes_on_one_file(on_file: Fleet) -> None:
    """W-9, W-12: on SQLite the office goes to the other at once when the process of its holder is dead."""
    fleet = on_file
    for _ in range(2):
        await fleet.add(workflows=["load", "patient", "clockwork"], concurrency=16)
    leader = await fleet.leader()
    async with opened(fleet.address) as store:
        await hold_on_each(fleet, leader)
        await leader.start("load", 5)
        killed = await fleet.kill(leader)
        _, said = await fleet.next_leader(killed, DEATH)
        resumed = await check_resumption(fleet, leader, killed)
        print(f"SQLite, kill -9: in office after {said['at'] - killed:.3f} s, attempts go on after {resumed:.3f} s")
        await until(lambda: slots_after(fleet, killed) >= 2, "slots after the kill have their runs")
        await finish(fleet, store, but="clockwork")
        slots = sorted(run.slot for run in await all_runs(store) if run.slot is not None)
    assert all(after - before == timedelta(seconds=1) for before, after in pairwise(slots)), slots
