"""Leases on PostgreSQL when their holder dies, freezes, or is cut off, all for real."""

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import asyncpg
import pytest

from tests.contract.pooler import pooler_to
from tests.contract.proxy import proxy_to
from tests.contract.run_samples import creation, event_row, history, make
from tests.contract.test_postgres_faults import eventually, opened, session
from tests.postgres import PostgresServer
from tidemill.kernel.errors import StoreError
from tidemill.storage.postgres.connection import PostgresUrl, connect
from tidemill.storage.postgres.store import PostgresStore
from tidemill.storage.workflow_ports import Lease
from tidemill.workflows.change import Applied, Change, LeaderFence, Refused

TTL = 3.0
SHORT_TTL = 1.5  # where a test waits until a lease expires
LOCKS = """
    SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = database
    WHERE locktype = 'advisory' AND datname = current_database()
"""


@pytest.fixture
async def url(postgres: PostgresServer) -> str:
    """An empty database."""
    return await postgres.fresh_database()


@asynccontextmanager
async def holder(url: str, ttl: float = TTL) -> AsyncIterator[tuple[Process, int]]:
    """Run a process that holds the lease, under an epoch."""
    program = [sys.executable, "-m", "tests.contract.lease_holder", url, str(ttl)]
    process = await asyncio.create_subprocess_exec(*program, stdin=PIPE, stdout=PIPE)
    try:
        yield process, int(await _line(process))
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


async def _line(process: Process) -> str:
    assert process.stdout is not None
    return (await process.stdout.readline()).decode().strip()


async def tell(process: Process) -> None:
    """Tell the holder to write."""
    assert process.stdin is not None
    process.stdin.write(b"write\n")
    await process.stdin.drain()


async def succession(store: PostgresStore, name: str = "leader", holder: str = "next") -> tuple[int, float]:
    """Try to acquire a lease until it is ours; return the epoch, and the seconds that took."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with asyncio.timeout(20):
        while True:
            epoch = await store.leases.acquire(name, holder, TTL)
            if epoch is not None:
                return epoch, loop.time() - began
            await asyncio.sleep(0.05)  # as candidates do


def change(epoch: int) -> Change:
    """Return a change that the holder of an epoch may apply."""
    return Change(run="r1", fence=LeaderFence("leader", epoch), history=history(event_row()))


async def test_the_lease_of_a_killed_process_is_acquired_soon(url: str) -> None:
    """W-9: kill -9, under 2 s, and long before the lease expires."""
    async with opened(url) as store, holder(url) as (process, epoch):
        await make(store, creation())
        await tell(process)
        assert await _line(process) == "applied"
        assert await store.leases.acquire("leader", "next", TTL) is None
        process.kill()
        new, seconds = await succession(store)
        assert new == epoch + 1
        assert seconds < 2


async def test_the_lease_of_a_frozen_process_is_acquired_and_its_late_write_refused(url: str) -> None:
    """W-8, W-9: SIGSTOP, under 2 s more than the lease lasts; after SIGCONT it changes nothing."""
    async with opened(url) as store, holder(url, SHORT_TTL) as (process, epoch):
        await make(store, creation())
        process.send_signal(signal.SIGSTOP)
        await tell(process)
        new, seconds = await succession(store)
        assert new == epoch + 1
        assert seconds < SHORT_TTL + 2
        process.send_signal(signal.SIGCONT)
        assert await _line(process) == "fenced"
        assert isinstance(await store.runs.apply(change(new)), Applied)
        assert await store.leases.renew("leader", new, TTL)


async def test_the_lease_of_a_disconnected_process_is_acquired(postgres: PostgresServer, url: str) -> None:
    """W-9: a connection that swallows everything, 2 s more than the lease; the holder gets no more confirmations."""
    async with (
        proxy_to(postgres.port) as (proxy, port),
        opened(url) as other,
        opened(url.replace(f":{postgres.port}/", f":{port}/")) as store,
    ):
        epoch = await store.leases.acquire("leader", "holder", SHORT_TTL)
        assert epoch is not None
        assert await store.leases.renew("leader", epoch, SHORT_TTL)
        proxy.is_stalled = True
        new, seconds = await succession(other)
        assert new == epoch + 1
        assert seconds < SHORT_TTL + 2
        with pytest.raises(StoreError, match="in time"):
            await store.leases.renew("leader", epoch, TTL)
        proxy.is_stalled = False
        assert not await store.leases.renew("leader", epoch, TTL)


async def test_a_holder_whose_session_was_ended_keeps_its_lease(url: str) -> None:
    """W-9: the row decides. It connects again, and holds its lock again."""
    async with opened(url) as store, opened(url) as other, session(url) as admin:
        epoch = await store.leases.acquire("leader", "holder", TTL)
        assert epoch is not None
        await admin.execute("SELECT pg_terminate_backend(backend) FROM tidemill.leases")
        assert await store.leases.renew("leader", epoch, TTL)
        assert await other.leases.acquire("leader", "next", TTL) is None
        assert await store.leases.current("leader") == Lease("holder", epoch)


async def test_a_holder_whose_session_was_ended_may_lose_its_lease(url: str) -> None:
    """W-8, W-9: another candidate was quicker; everything of the old epoch is refused from then on."""
    async with opened(url) as store, opened(url) as other, session(url) as admin:
        await make(store, creation())
        epoch = await store.leases.acquire("leader", "holder", TTL)
        assert epoch is not None
        assert await store.runs.apply(change(epoch)) == Applied(2)
        await admin.execute("SELECT pg_terminate_backend(backend) FROM tidemill.leases")
        new, seconds = await succession(other)
        assert seconds < 2
        assert await store.runs.apply(change(epoch)) == Refused("fenced")
        assert not await store.leases.renew("leader", epoch, TTL)
        assert await other.leases.renew("leader", new, TTL)
        assert await store.leases.acquire("leader", "holder", TTL) is None


async def test_a_lease_is_not_acquired_while_a_write_of_its_holder_is_in_flight(url: str) -> None:
    """W-8: transactions of the old epoch are committed before the new one begins."""
    async with opened(url) as store, session(url) as writer:
        epoch = await store.leases.acquire("leader", "holder", TTL)
        transaction = writer.transaction()
        await transaction.start()
        await writer.execute("SELECT FROM tidemill.leases FOR SHARE")
        async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
            taking = tasks.create_task(store.leases.acquire("leader", "next", TTL, dead_holders=["holder"]))
            await eventually(lambda: _waits(writer))
            assert not taking.done()
            await transaction.commit()
        assert taking.result() == (epoch or 0) + 1


async def _waits(connection: object) -> bool:
    asked = "SELECT count(*) FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid))"
    return bool(await connection.fetchval(asked))  # type: ignore[attr-defined]


async def test_the_lease_of_a_process_that_froze_in_a_write_is_acquired(url: str) -> None:
    """W-8, W-9: the server ends an abandoned transaction, under 5 s."""
    async with opened(url) as store:
        assert await store.leases.acquire("leader", "holder", TTL) == 1
        frozen = await connect(PostgresUrl.parse(url))
        await frozen.execute("BEGIN; SELECT FROM tidemill.leases FOR SHARE")
        async with asyncio.timeout(5):
            epoch = None
            while epoch is None:
                with suppress(StoreError):  # another session held a lock for too long
                    epoch = await store.leases.acquire("leader", "next", TTL, dead_holders=["holder"])
        assert epoch == 2
        with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)):
            await frozen.execute("COMMIT")


async def test_a_store_that_closes_releases_its_leases(url: str) -> None:
    """W-9: a released lease is free immediately."""
    async with opened(url) as other:
        async with opened(url) as store:
            epoch = await store.leases.acquire("leader", "holder", 60)
        assert epoch is not None
        new, seconds = await succession(other)
        assert (new, seconds < 2) == (epoch + 1, True)


async def test_leases_of_one_process_share_a_session(url: str) -> None:
    """Releasing one does not lose the other."""
    async with opened(url) as store, opened(url) as other:
        epochs = [await store.leases.acquire(name, "holder", 60) for name in ("leader", "triggers")]
        assert await other.leases.acquire("leader", "next", 60) is None
        await store.leases.release("leader", epochs[0] or 0)
        assert await other.leases.acquire("leader", "next", 60) is not None
        assert await other.leases.acquire("triggers", "next", 60) is None


async def test_an_idle_session_of_a_holder_is_ended(url: str) -> None:
    """W-9: the server frees the lock of a silent holder; a longer lease allows longer pauses."""
    async with opened(url) as store, opened(url) as other, session(url) as admin:
        assert await other.leases.acquire("long", "holder", 60) is not None
        assert await store.leases.acquire("short", "holder", SHORT_TTL) is not None

        async def is_one_left() -> bool:
            return (
                await admin.fetchval("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2") == 1
            )

        await eventually(is_one_left)
        assert await store.leases.acquire("long", "next", 60) is None
        assert await other.leases.acquire("short", "next", TTL) is not None


async def test_a_pooler_that_shares_sessions_is_refused(postgres: PostgresServer, url: str) -> None:
    """W-9: locks of a session mean nothing behind it."""
    async with pooler_to(postgres.port) as port, opened(url.replace(f":{postgres.port}/", f":{port}/")) as store:
        for _ in range(2):
            with pytest.raises(StoreError, match="a pooler in between"):
                await store.leases.acquire("leader", "holder", TTL)
        assert await store.leases.current("leader") is None
