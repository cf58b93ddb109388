"""Several servers on one store: pushes at all of them reach the owner of the reactor, whichever server dies.

A short form runs with every test run; `TIDEMILL_TEST_SOAK_SECONDS` makes it as long as wanted.
"""

import asyncio
import os
import signal
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.postgres import PostgresServer
from tests.service.workflows.pairs import until
from tests.system.cluster import PATIENCE, LedgerProducer, Server, cluster, get, push
from tests.system.ledger_package import write_package

SECONDS = float(os.environ.get("TIDEMILL_TEST_SOAK_SECONDS", "0"))
"""Seconds under load before and after each fault, at least."""
EVENTS = 20
"""Events of each producer that are acknowledged before and after each fault, at least."""
TAKEOVER_LIMIT = 5.0
"""Seconds between a fault and the first event that another server acknowledges."""

pytestmark = pytest.mark.timeout(SECONDS * 5 + 110)


async def find_owner(postgres: PostgresServer, store: str, servers: list[Server]) -> Server:
    """Return the server that owns the reactor."""
    database = store.rpartition("/")[2].partition("?")[0]
    query = "SELECT owner::json->>'pid' FROM tidemill.part_owners WHERE kind = 'reactor'"
    pid = int(await postgres.execute(query, database))
    return next(one for one in servers if one.process.pid == pid)


async def until_ready(servers: list[Server]) -> None:
    """Wait until every server answers for the reactor, which one of them runs."""

    async def are_ready() -> bool:
        states = [await get(server, "/reactors/ledger") for server in servers]
        return all(state is not None and state["health"] == "live" for state in states)

    await until(are_ready)


async def until_acknowledged(producers: list[LedgerProducer], since: float) -> float:
    """Wait until a producer gets an acknowledgement for an event that it pushed after a fault; return the seconds."""
    before = {one.name: len(one.acknowledged) for one in producers}

    async def is_acknowledged() -> bool:
        return any(len(one.acknowledged) >= before[one.name] + 2 for one in producers)

    await until(is_acknowledged)
    return time.monotonic() - since


async def ledger(server: Server) -> Any:
    """Return the accounts of all producers, as a server answers."""
    state = await get(server, "/reactors/ledger")
    return state["cache"]["entries"]["accounts"]


async def test_every_acknowledged_event_is_applied_once_whichever_server_dies(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    """G-31, G-24: kill -9 of the owner, then SIGSTOP of its successor, under load at all servers."""
    store = await postgres.fresh_store()
    async with cluster(store, write_package(tmp_path)) as servers:
        await until_ready(servers)
        producers = [LedgerProducer(f"p{index}", servers, index) for index in range(6)]
        async with under_load(producers):
            await push_a_while(producers)
            assert sum([await forwarded_over_links(one) for one in servers]) > 0
            takeovers = {}
            for fault in (signal.SIGKILL, signal.SIGSTOP):
                owner = await find_owner(postgres, store, servers)
                owner.stop_answering(fault)
                takeovers[fault] = await until_acknowledged(producers, time.monotonic())
                await push_a_while(producers)
            owner.process.send_signal(signal.SIGCONT)
            await until_forwarded(owner)
            owner.is_usable = True
            await push_a_while(producers)
        (survivor,) = [one for one in servers if one.is_usable and one is not owner]
        assert await find_owner(postgres, store, servers) is survivor
        accounts = await ledger(survivor)
        assert await ledger(owner) == accounts
    print(", ".join(f"{fault.name}: taken over after {seconds:.2f} s" for fault, seconds in takeovers.items()))
    for one in producers:
        one.check(accounts[one.name])
    assert max(takeovers.values()) < TAKEOVER_LIMIT


async def forwarded_over_links(server: Server) -> float:
    """Return how many requests a server has sent to the owner over a link."""
    async with httpx.AsyncClient(timeout=PATIENCE) as client:
        lines = (await client.get(f"{server.url}/metrics")).text.splitlines()
    found = [line for line in lines if line.startswith('tidemill_forwarded_requests_total{way="link"}')]
    return sum(float(line.rpartition(" ")[2]) for line in found)


async def test_a_server_that_dies_while_it_forwards_takes_nothing_along(tmp_path: Path) -> None:
    """G-31, G-24: kill -9 of a server under load that does not own the reactor; its producers go to the owner."""
    path = tmp_path / "store.db"
    async with cluster(f"sqlite:///{path}", write_package(tmp_path), 2) as servers:
        await until_ready(servers)
        with closing(sqlite3.connect(path)) as connection:
            row = connection.execute("SELECT json_extract(owner, '$.pid') FROM part_owners WHERE kind = 'reactor'")
            (pid,) = row.fetchone()
        owner, forwarder = sorted(servers, key=lambda one: one.process.pid != pid)
        producers = [LedgerProducer(f"p{index}", [forwarder, owner], 0) for index in range(4)]
        async with under_load(producers):
            await push_a_while(producers)
            assert await forwarded_over_links(forwarder) > 0
            forwarder.stop_answering(signal.SIGKILL)
            await push_a_while(producers)
        accounts = await ledger(owner)
    for one in producers:
        one.check(accounts[one.name])


async def push_a_while(producers: list[LedgerProducer]) -> None:
    """Wait until every producer has got some more acknowledgements."""
    goals = [len(one.acknowledged) + EVENTS for one in producers]

    async def are_reached() -> bool:
        return all(len(one.acknowledged) >= goal for one, goal in zip(producers, goals, strict=True))

    await asyncio.sleep(SECONDS)  # real time: the load of other processes
    await until(are_reached)


@asynccontextmanager
async def under_load(producers: list[LedgerProducer]) -> AsyncIterator[None]:
    """Let producers push as fast as they can."""
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for one in producers:
            group.create_task(one.run(stop), name=one.name)
        try:
            yield
        finally:
            stop.set()


async def until_forwarded(server: Server) -> None:
    """Push at a server that was frozen and replaced, until it has learnt so."""

    async def is_forwarded() -> bool:
        return (await push(server, "entries", {"producer": "late", "number": 1})).is_success

    await until(is_forwarded)
