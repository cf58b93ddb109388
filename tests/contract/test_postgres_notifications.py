"""Notifications on PostgreSQL: a store is notified of the changes of others, and not of its own."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from tests.contract.package_samples import package, trusted
from tests.contract.proxy import proxy_to
from tests.contract.run_samples import LEASE, claim, creation, event_row, history, make, run_row
from tests.contract.test_postgres_faults import opened, session
from tests.postgres import PostgresServer
from tidemill.storage.postgres.store import PostgresStore
from tidemill.storage.tables.logs import LogChunk
from tidemill.workflows.change import Change
from tidemill.workflows.records import AttemptKey

PATIENCE = 20.0  # seconds until a test gives up
LISTENERS = "pg_stat_activity WHERE query LIKE 'LISTEN%' AND datname = current_database()"


class Subscriber:
    """Counts notifications."""

    def __init__(self) -> None:
        self.count = 0
        self._news = asyncio.Event()

    def __call__(self) -> None:
        self.count += 1
        self._news.set()

    async def is_called(self) -> None:
        """Wait for something new."""
        async with asyncio.timeout(PATIENCE):
            await self._news.wait()
        self._news.clear()


@pytest.fixture
async def stores(postgres: PostgresServer) -> AsyncIterator[list[PostgresStore]]:
    """Two stores on one database."""
    url = await postgres.fresh_database()
    async with opened(url) as one, opened(url) as other:
        yield [one, other]


KEY = AttemptKey("r1", "a", -1, 1)

LOUD: dict[str, Callable[[PostgresStore], Awaitable[Any]]] = {
    "creation": lambda store: make(store, creation(run_row("r2"))),
    "change": lambda store: make(store, Change(run="r1", history=history(event_row()))),
    "claim": lambda store: store.runs.claim(claim()),
    "publication": lambda store: store.packages.publish(package(), b"archive", 0),
    "withdrawal": lambda store: store.packages.withdraw("public", "here"),
}
QUIET: dict[str, Callable[[PostgresStore], Awaitable[Any]]] = {
    "refusal": lambda store: store.runs.apply(Change(run="never", history=history(event_row()))),
    "empty claim": lambda store: store.runs.claim(claim({})),
    "beat": lambda store: store.runs.renew_leases("node-1", [KEY], LEASE),
    "log": lambda store: store.logs.append([LogChunk(key=KEY, number=0, payload=b"")]),
    "pause": lambda store: store.schedules.pause("public", "flow"),
    "late publication": lambda store: store.packages.publish(package(), b"archive", 7),
    "empty withdrawal": lambda store: store.packages.withdraw("public", "never"),
    "recorded version": lambda store: store.packages.record_version("public", "market", "1.0.0"),
    "trusted key": lambda store: store.trusted_keys.add(trusted()),
}


@pytest.mark.parametrize("what", LOUD)
async def test_a_store_is_notified_of_the_changes_of_another(stores: list[PostgresStore], what: str) -> None:
    await make(stores[0], creation())
    await stores[0].packages.publish(package("here"), b"", 0)
    subscriber, own = Subscriber(), Subscriber()
    await stores[1].listen(subscriber)
    await stores[0].listen(own)
    await LOUD[what](stores[0])
    await subscriber.is_called()
    await LOUD["change"](stores[1])
    await own.is_called()
    assert (subscriber.count, own.count) == (1, 1)


@pytest.mark.parametrize("what", QUIET)
async def test_heartbeats_and_logs_send_no_notification(stores: list[PostgresStore], what: str) -> None:
    """They come by the thousand."""
    await make(stores[0], creation())
    subscriber = Subscriber()
    await stores[1].listen(subscriber)
    await QUIET[what](stores[0])
    await LOUD["change"](stores[0])
    await subscriber.is_called()
    assert subscriber.count == 1


async def test_many_changes_of_one_transaction_send_one_notification(stores: list[PostgresStore]) -> None:
    await make(stores[0], creation())
    subscriber = Subscriber()
    await stores[1].listen(subscriber)
    await asyncio.gather(*(LOUD["change"](stores[0]) for _ in range(50)))
    await subscriber.is_called()
    await LOUD["change"](stores[0])
    await subscriber.is_called()
    assert subscriber.count <= 3  # the first of a group may go alone


async def test_several_subscribers_are_called(stores: list[PostgresStore]) -> None:
    await make(stores[0], creation())
    ears = [Subscriber(), Subscriber()]
    for subscriber in ears:
        await stores[1].listen(subscriber)
    await LOUD["change"](stores[0])
    for subscriber in ears:
        await subscriber.is_called()


async def test_a_subscriber_of_one_topic_is_not_called_for_the_other(stores: list[PostgresStore]) -> None:
    """Runs change by the thousand, and packages once in a while."""
    await make(stores[0], creation())
    runs, packages, both = Subscriber(), Subscriber(), Subscriber()
    await stores[1].listen(runs, "runs")
    await stores[1].listen(packages, topic="packages")
    await stores[1].listen(both)
    await LOUD["publication"](stores[0])
    await LOUD["change"](stores[0])
    for subscriber in (packages, runs, both):
        await subscriber.is_called()
    while both.count < 2:
        await both.is_called()
    assert (runs.count, packages.count, both.count) == (1, 1, 2)


async def test_a_subscriber_is_called_after_a_lost_connection_whatever_its_topic(postgres: PostgresServer) -> None:
    url = await postgres.fresh_database()
    async with opened(url) as store, opened(url) as other, session(url) as admin:
        subscriber = Subscriber()
        await other.listen(subscriber, "packages")
        await admin.execute(f"SELECT pg_terminate_backend(pid) FROM {LISTENERS}")
        await subscriber.is_called()
        await LOUD["publication"](store)
        await subscriber.is_called()
        assert subscriber.count == 2


async def test_a_notified_change_can_be_read(stores: list[PostgresStore]) -> None:
    """A notification comes after its commit: a subscriber that reads then finds the change."""
    subscriber = Subscriber()
    await stores[1].listen(subscriber, "packages")
    await LOUD["publication"](stores[0])
    await subscriber.is_called()
    assert await stores[1].packages.list_published() == [package(revision=1)]


async def test_a_listener_reconnects_after_a_lost_connection(postgres: PostgresServer) -> None:
    """Changes may have been missed meanwhile: subscribers are called once."""
    url = await postgres.fresh_database()
    async with opened(url) as store, opened(url) as other, session(url) as admin:
        await make(store, creation())
        subscriber = Subscriber()
        await other.listen(subscriber)
        await admin.execute(f"SELECT pg_terminate_backend(pid) FROM {LISTENERS}")
        await subscriber.is_called()
        await LOUD["change"](store)
        await subscriber.is_called()
        assert subscriber.count == 2


async def test_a_listener_without_a_connection_listens_as_soon_as_it_has_one(postgres: PostgresServer) -> None:
    url = await postgres.fresh_database()
    async with (
        proxy_to(postgres.port) as (proxy, port),
        opened(url) as store,
        opened(url.replace(f":{postgres.port}/", f":{port}/")) as other,
    ):
        proxy.is_stalled = True
        subscriber = Subscriber()
        await other.listen(subscriber)
        proxy.is_stalled = False
        await subscriber.is_called()
        await make(store, creation())
        await subscriber.is_called()


async def test_no_subscriber_is_called_after_the_store_is_closed(postgres: PostgresServer) -> None:
    """Also if it is closed while the server does not answer."""
    url = await postgres.fresh_database()
    subscriber = Subscriber()
    async with opened(url) as store:
        async with opened(url) as other:
            await other.listen(subscriber)
        await make(store, creation())
        async with session(url) as admin:
            assert await admin.fetchval(f"SELECT count(*) FROM {LISTENERS}") == 0
    assert subscriber.count == 0
