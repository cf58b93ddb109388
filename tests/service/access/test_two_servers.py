"""Two servers on one PostgreSQL: a key or session that ends at one of them ends at the other at once."""

import asyncio
from collections.abc import AsyncIterator

import pytest

import tidemill as tm
from tests.postgres import PostgresServer
from tidemill.access.principal import Role
from tidemill.engine.access.services import LOCAL_PRINCIPAL, AccessServices
from tidemill.kernel.clock import VirtualClock
from tidemill.kernel.settings import Settings
from tidemill.storage.postgres.store import PostgresStore

PATIENCE = 20.0  # seconds until a test gives up


@pytest.fixture
async def servers(postgres: PostgresServer) -> AsyncIterator[list[AccessServices]]:
    """The services of two servers, whose clocks stand still: only a notification can make one read again."""
    url = await postgres.fresh_database()
    stores = [PostgresStore(url), PostgresStore(url)]
    for store in stores:
        await store.open()
    services = [AccessServices(store, VirtualClock(), Settings()) for store in stores]
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(one.run(), name="access") for one in services]
        yield services
        for task in running:
            task.cancel()
    for store in stores:
        await store.close()


async def test_a_revoked_key_is_refused_by_the_other_server(servers: list[AccessServices]) -> None:
    """S-4: at once, and its open connections end."""
    first, second = servers
    key, token = await first.keys.create(LOCAL_PRINCIPAL, Role.READ)
    await second.keys.authenticate(token)
    ended = asyncio.Event()
    second.watch.subscribe(f"key:{key.id}", ended.set)
    await first.keys.revoke(LOCAL_PRINCIPAL, key.id)
    async with asyncio.timeout(PATIENCE):
        await ended.wait()
    with pytest.raises(tm.RequestError) as caught:
        await second.keys.authenticate(token)
    assert caught.value.code == "key_revoked"


async def test_a_closed_session_is_refused_by_the_other_server(servers: list[AccessServices]) -> None:
    """S-4."""
    first, second = servers
    session, token = await first.sessions.open(LOCAL_PRINCIPAL)
    principal = await second.sessions.authenticate(token)
    ended = asyncio.Event()
    second.watch.subscribe(f"session:{session.id}", ended.set)
    await first.sessions.close(principal)
    async with asyncio.timeout(PATIENCE):
        await ended.wait()
    with pytest.raises(tm.RequestError, match="the session has ended"):
        await second.sessions.authenticate(token)


async def test_a_ticket_of_one_server_is_taken_by_the_other_once(servers: list[AccessServices]) -> None:
    """S-3."""
    ticket = await servers[0].tickets.issue(LOCAL_PRINCIPAL, "/ws/events")
    assert await servers[1].tickets.redeem(ticket.token, "/ws/events") == LOCAL_PRINCIPAL
    with pytest.raises(tm.RequestError, match="was used before"):
        await servers[0].tickets.redeem(ticket.token, "/ws/events")
