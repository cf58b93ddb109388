"""The PostgreSQL store when the server, the network or another session does not behave, all for real."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from itertools import count

import asyncpg
import pytest
from msgspec.structs import replace

from tests.contract.proxy import Fault, Proxy, proxy_to
from tests.postgres import PostgresServer
from tidemill.kernel.errors import StoreError
from tidemill.storage.graph_ports import JournalBlock, JournalKey
from tidemill.storage.migrations import SchemaState
from tidemill.storage.postgres.store import PostgresStore
from tidemill.storage.tables.schedules import ScheduleCursor, ScheduleKey

KEY = JournalKey("public", "prices")
PATIENCE = 20.0  # seconds until a test gives up


def entry(position: int) -> JournalBlock:
    """Return something to append."""
    return JournalBlock(key=KEY, position=position, checksum=b"sum", payload=b"payload")


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[PostgresStore]:
    """Run a store."""
    store = PostgresStore(url)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def behind_proxy(server: PostgresServer) -> AsyncIterator[tuple[PostgresStore, Proxy]]:
    """Run a store on a new database, with a proxy in between."""
    url = await server.fresh_database()
    async with proxy_to(server.port) as (proxy, port), opened(url.replace(f":{server.port}/", f":{port}/")) as store:
        yield store, proxy


@asynccontextmanager
async def session(url: str) -> AsyncIterator[asyncpg.Connection]:
    """Run another session on a database."""
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


@pytest.fixture
async def url(postgres: PostgresServer) -> str:
    """An empty database."""
    return await postgres.fresh_database()


async def stored(store: PostgresStore) -> set[int]:
    """Return the positions that are in the journal."""
    return {one.position for one in await store.checkpoints.read_all_blocks()}


async def eventually(condition: Callable[[], Awaitable[object]]) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(PATIENCE):
        while not await condition():  # noqa: ASYNC110 - no event tells what a server does
            await asyncio.sleep(0.01)


async def accepts_writes(store: PostgresStore, positions: "count[int]") -> bool:
    """Return whether the store writes again; each attempt has its own position."""
    try:
        await store.checkpoints.append([entry(next(positions))])
    except StoreError:
        return False
    return True


class Load:
    """Concurrent writers that record the outcomes of their writes."""

    def __init__(self, store: PostgresStore) -> None:
        self.acknowledged: set[int] = set()
        self.refused: set[int] = set()
        self.positions = count(1)
        self._store = store
        self._ends = False

    @asynccontextmanager
    async def running(self, writers: int = 20) -> AsyncIterator[None]:
        """Write until the block ends."""
        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            for _ in range(writers):
                tasks.create_task(self._write())
            yield
            self._ends = True

    async def more(self, acknowledged: int = 100) -> None:
        """Wait until so many more writes were acknowledged."""
        goal = len(self.acknowledged) + acknowledged

        async def reached() -> bool:
            return len(self.acknowledged) >= goal

        await eventually(reached)

    async def _write(self) -> None:
        while not self._ends:
            position = next(self.positions)
            try:
                await self._store.checkpoints.append([entry(position)])
            except StoreError:
                self.refused.add(position)
                await asyncio.sleep(0.005)  # as a refused writer would
            else:
                self.acknowledged.add(position)


@pytest.mark.parametrize("blow", ["immediate", "fast", "kill"])
async def test_what_a_stopping_server_acknowledged_is_there_and_what_it_refused_is_not(
    own_postgres: PostgresServer, blow: str
) -> None:
    """G-24: through restarts and crashes of the server, and the same store continues afterwards."""
    async with opened(await own_postgres.fresh_database()) as store:
        load = Load(store)
        async with load.running():
            for _ in range(3):
                await load.more()
                if blow == "kill":
                    await asyncio.to_thread(own_postgres.kill)
                else:
                    await asyncio.to_thread(own_postgres.stop, blow)
                await asyncio.to_thread(own_postgres.start)
            await load.more()
        found = await stored(store)
    assert load.refused, "no write met the outage"
    assert load.acknowledged <= found
    assert not load.refused & found


async def test_writes_fail_immediately_while_the_server_is_down(own_postgres: PostgresServer) -> None:
    """G-26: persisting fails, rather than waits, while the server is down; reading as well."""
    async with opened(await own_postgres.fresh_database()) as store:
        await store.checkpoints.append([entry(1)])
        own_postgres.stop("immediate")
        async with asyncio.timeout(2):
            with pytest.raises(StoreError, match=r"nothing listens there|connection was lost"):
                await store.checkpoints.append([entry(2)])
            with pytest.raises(StoreError, match=re.escape(store.title)):
                await store.checkpoints.read_all_blocks()
        own_postgres.start()
        positions = count(3)
        await eventually(lambda: accepts_writes(store, positions))
        assert {1, 3} <= await stored(store)


async def test_a_store_closes_without_error_while_its_server_is_down(own_postgres: PostgresServer) -> None:
    """The end of a node does not depend on its database."""
    async with opened(await own_postgres.fresh_database()) as store:
        await store.checkpoints.append([entry(1)])
        own_postgres.kill()


async def test_terminated_connections_are_replaced(url: str) -> None:
    """G-26: one write or none is refused, then all work."""
    async with opened(url) as store, session(url) as other:
        load = Load(store)
        async with load.running():
            for _ in range(5):
                await load.more()
                await other.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE application_name = 'tidemill' AND datname = current_database()"
                )
            await load.more()
        found = await stored(store)
    assert load.acknowledged <= found
    assert not load.refused & found


async def test_a_commit_that_did_not_reach_the_server_is_refused(postgres: PostgresServer) -> None:
    """G-24: the connection ends with the COMMIT still in it."""
    async with behind_proxy(postgres) as (store, proxy):
        proxy.at_commit = "cut before"
        with pytest.raises(StoreError, match="not committed"):
            await store.checkpoints.append([entry(1)])
        await store.checkpoints.append([entry(2)])
        assert await stored(store) == {2}


async def test_a_commit_whose_reply_is_lost_counts(postgres: PostgresServer) -> None:
    """G-24: the server committed, and its reply was lost; it is asked again."""
    async with behind_proxy(postgres) as (store, proxy):
        await store.checkpoints.append([entry(1)])
        proxy.at_commit = "cut after"
        await store.checkpoints.append([entry(2)])
        assert await stored(store) == {1, 2}


@pytest.mark.parametrize("fault", ["cut before", "cut after"])
async def test_the_very_first_commit_of_a_store_may_be_the_ambiguous_one(
    postgres: PostgresServer, fault: Fault
) -> None:
    """G-24: nothing has been written by this store before that could be found."""
    async with behind_proxy(postgres) as (store, proxy):
        proxy.at_commit = fault
        outcome = await asyncio.gather(store.checkpoints.append([entry(1)]), return_exceptions=True)
        assert await stored(store) == ({1} if outcome == [None] else set())
        assert (outcome == [None]) == (fault == "cut after")


async def test_a_commit_in_flight_is_waited_for(postgres: PostgresServer) -> None:
    """G-24: neither yes nor no is said while the server has not got the COMMIT but still may."""
    async with behind_proxy(postgres) as (store, proxy), session(postgres.url()) as other:
        proxy.at_commit = "delay"
        async with asyncio.TaskGroup() as tasks:
            write = tasks.create_task(store.checkpoints.append([entry(1)]))
            await eventually(lambda: other.fetchval("SELECT 1 FROM pg_locks WHERE NOT granted"))
            assert not write.done()
            proxy.release.set()
        assert await stored(store) == {1}


async def test_a_server_that_waits_for_a_vanished_node_gives_up_itself(postgres: PostgresServer) -> None:
    """G-24: the COMMIT is lost, and the transaction stays open until the server's own deadline."""
    async with behind_proxy(postgres) as (store, proxy):
        proxy.at_commit = "swallow"
        async with asyncio.timeout(PATIENCE):
            assert "not committed" in await _refused(store, 1)
        assert await stored(store) == set()


async def test_a_lost_transaction_is_not_mistaken_for_its_successor(own_postgres: PostgresServer) -> None:
    """G-24: after a crash the server gives the number of a lost transaction to the next one."""
    async with behind_proxy(own_postgres) as (store, proxy):
        proxy.at_commit = "swallow"
        async with asyncio.TaskGroup() as tasks:
            write = tasks.create_task(_refused(store, 1))
            await eventually(lambda: _is(proxy.at_commit is None))
            own_postgres.kill()
            own_postgres.start()
            await own_postgres.execute("CREATE TABLE successor ()")
        assert "not committed" in write.result()
        assert await stored(store) == set()


async def test_a_network_that_swallows_everything_gives_an_error(postgres: PostgresServer) -> None:
    """G-26: writing and reading end within their deadlines, and work again when the network does."""
    async with behind_proxy(postgres) as (store, proxy):
        await store.checkpoints.append([entry(1)])
        assert await stored(store) == {1}
        proxy.is_stalled = True
        async with asyncio.timeout(8), asyncio.TaskGroup() as tasks:
            write = tasks.create_task(_refused(store, 2))
            read = tasks.create_task(_unreadable(store))
        assert "did not answer in time" in write.result()
        assert "did not answer in time" in read.result()
        async with asyncio.timeout(3):
            assert "did not answer in time" in await _refused(store, 3)  # cannot even connect
        proxy.is_stalled = False
        await store.checkpoints.append([entry(4)])
        assert await stored(store) == {1, 4}


async def test_a_lock_of_another_session_gives_an_error(url: str) -> None:
    """G-26: a session that locks our tables does not stop the node."""
    async with opened(url) as store:
        async with session(url) as other, other.transaction():
            await other.execute("LOCK TABLE tidemill.journal IN ACCESS EXCLUSIVE MODE")
            async with asyncio.timeout(4):
                assert "another session held a lock" in await _refused(store, 1)
        await store.checkpoints.append([entry(2)])
        assert await stored(store) == {2}


FAULTY_TRIGGER = """
CREATE SEQUENCE tries;
CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF nextval('tries') <= {times} THEN RAISE EXCEPTION 'on purpose' USING ERRCODE = '{code}'; END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER fail BEFORE INSERT ON tidemill.journal FOR EACH ROW EXECUTE FUNCTION fail();
"""


@pytest.mark.parametrize("code", ["40001", "40P01"])
async def test_a_serialization_failure_or_a_deadlock_is_tried_again(url: str, code: str) -> None:
    """Twice refused, then written once."""
    async with opened(url) as store, session(url) as other:
        await other.execute(FAULTY_TRIGGER.format(times=2, code=code))
        await store.checkpoints.append([entry(1)])
        assert await stored(store) == {1}


async def test_a_deadlocked_transaction_is_retried(url: str) -> None:
    """A real one: the server detects it before the lock timeout."""
    async with opened(url) as store, session(url) as other:
        first, second = (ScheduleKey("public", "flow", key) for key in ("first", "second"))
        await store.schedules.insert_missing([schedule_of(first), schedule_of(second)])
        lock = "UPDATE tidemill.schedules SET dropped = 5 WHERE key = $1"
        await other.execute("SET deadlock_timeout = '30s'")  # so that it is the store that finds out
        async with asyncio.TaskGroup() as group, other.transaction():
            await other.execute(lock, "second")
            group.create_task(store.schedules.arm([first, second]), name="arm")
            async with session(url) as witness:
                await eventually(lambda: witness.fetchval("SELECT 1 FROM pg_locks WHERE NOT granted"))
            await other.execute(lock, "first")
        for key in (first, second):
            assert await store.schedules.get_cursor(*key) == replace(schedule_of(key), dropped=5, armed=True)


def schedule_of(key: ScheduleKey) -> ScheduleCursor:
    """Return the cursor of a schedule."""
    return ScheduleCursor(**key._asdict(), rule="x", last=datetime(2026, 3, 29, tzinfo=UTC), armed=False)


async def test_retries_end(url: str) -> None:
    """A transaction that always fails is refused."""
    async with opened(url) as store, session(url) as other:
        await other.execute(FAULTY_TRIGGER.format(times=1000, code="40001"))
        assert "on purpose" in await _refused(store, 1)
        assert await other.fetchval("SELECT last_value FROM tries") == 5


async def test_every_caller_gets_the_error_of_a_full_disk(url: str) -> None:
    """G-26: no unit is at fault, so none is tried alone."""
    async with opened(url) as store, session(url) as other:
        await other.execute(FAULTY_TRIGGER.format(times=1000, code="53100"))
        errors = await asyncio.gather(*(_refused(store, position) for position in range(1, 11)))
        assert all("disk is full; free some space" in one for one in errors)
        assert await other.fetchval("SELECT last_value FROM tries") == 1


async def test_a_faulty_write_fails_alone(url: str) -> None:
    """A position that is taken already refuses its own append, and none that shares the transaction."""
    async with opened(url) as store:
        await store.checkpoints.append([entry(3)])
        appends = (store.checkpoints.append([entry(position)]) for position in range(1, 6))
        outcomes = await asyncio.gather(*appends, return_exceptions=True)
        [error] = [one for one in outcomes if one is not None]
        assert isinstance(error, StoreError)
        assert "already holds an entry" in str(error)
        assert await stored(store) == {1, 2, 3, 4, 5}


async def test_nodes_that_open_an_empty_database_together_all_get_it(url: str) -> None:
    """One migrates, and the others wait for it."""
    stores = [PostgresStore(url) for _ in range(4)]
    await asyncio.gather(*(store.open() for store in stores))
    try:
        for position, store in enumerate(stores):
            await store.checkpoints.append([entry(position)])
        assert await stored(stores[0]) == {0, 1, 2, 3}
        known = (await stores[0].read_schema_state()).known
        assert await stores[1].read_schema_state() == SchemaState(known, known)
    finally:
        await asyncio.gather(*(store.close() for store in stores))


async def test_a_node_waits_while_another_one_migrates(url: str) -> None:
    """The lock is held for the whole migration."""
    async with session(url) as other, session(url) as witness, asyncio.TaskGroup() as tasks:
        await other.execute("SELECT pg_advisory_lock(hashtext('tidemill'), hashtext('schema'))")
        store = PostgresStore(url)
        opening = tasks.create_task(store.open())
        await eventually(lambda: witness.fetchval("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"))
        assert (await store.read_schema_state()).found == 0
        await other.execute("SELECT pg_advisory_unlock_all()")
        await opening
        await store.close()


async def test_a_closed_store_neither_reads_nor_writes(url: str) -> None:
    """No connection is opened that would never be closed."""
    async with opened(url) as store:
        pass
    assert "not open" in await _unreadable(store)
    assert "not open" in await _refused(store, 1)


async def test_asking_for_the_schema_changes_nothing(url: str) -> None:
    """An operator may read the version before anything is migrated."""
    assert (await PostgresStore(url).read_schema_state()).found == 0
    async with session(url) as other:
        assert await other.fetchval("SELECT to_regnamespace('tidemill') IS NULL")


async def test_a_newer_schema_is_refused_and_left_alone(url: str) -> None:
    """The message says both versions."""
    async with opened(url):
        pass
    async with session(url) as other:
        await other.execute("INSERT INTO tidemill.schema_versions (version, name) VALUES (99, 'future')")
    store = PostgresStore(url)
    with pytest.raises(StoreError, match="version 99"):
        await store.open()
    assert (await store.read_schema_state()).found == 99


async def test_an_invalid_index_is_a_problem(url: str) -> None:
    """The database itself knows that an index was not built to its end."""
    async with opened(url) as store, session(url) as other:
        assert await store.check_integrity() == []
        await store.recoveries.list_newest("public", 1)
        await other.execute(
            "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'tidemill.recoveries_by_tenant'::regclass"
        )
        [problem] = await store.check_integrity()
        assert "REINDEX INDEX tidemill.recoveries_by_tenant" in problem


async def test_a_refused_password_is_reported_and_not_repeated(own_postgres: PostgresServer) -> None:
    """The message tells an operator what to correct."""
    await own_postgres.execute("CREATE ROLE miller LOGIN PASSWORD 'right'")
    rules = own_postgres.folder / "data" / "pg_hba.conf"
    rules.write_text(f"host all miller 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")
    own_postgres.restart()
    store = PostgresStore(own_postgres.url().replace("postgres@", "miller:hunter2@"))
    with pytest.raises(StoreError, match="refuses the password; correct the user and password") as caught:
        await store.open()
    assert "hunter2" not in f"{caught.value} {store.title} {vars(store)}"


async def test_a_user_without_rights_is_reported(own_postgres: PostgresServer) -> None:
    """The message names the right that is missing."""
    await own_postgres.execute("CREATE ROLE guest LOGIN")
    with pytest.raises(StoreError, match="GRANT CREATE ON DATABASE"):
        await PostgresStore(own_postgres.url().replace("postgres@", "guest@")).open()


@pytest.mark.parametrize(
    ("replaced", "by", "said"),
    [
        (r"/test_\d+", "/nowhere", "no database of this name; create it"),
        (r"127\.0\.0\.1", "no-such-host.invalid", "name is unknown; correct the URL"),
        (r":\d+/", ":1/", "nothing listens there; start the server"),
        (r"$", "?sslmode=perhaps", "options in its URL cannot be read"),
    ],
)
async def test_a_url_that_cannot_work_says_why(url: str, replaced: str, by: str, said: str) -> None:
    """What is wrong, what to do, and no password."""
    store = PostgresStore(re.sub(replaced, by, url).replace("postgres@", "postgres:hunter2@"))
    with pytest.raises(StoreError, match=said) as caught:
        await store.open()
    assert "hunter2" not in str(caught.value)
    with pytest.raises(StoreError, match=said):
        await store.read_schema_state()


@pytest.mark.parametrize("url", ["postgresql://u:hun/ter2@host/name", "postgresql://u:hun#ter2@host/name"])
def test_a_url_torn_by_its_password_is_refused_without_repeating_it(url: str) -> None:
    """Special characters in a password are the usual mistake, and pieces of it would end up in the title."""
    with pytest.raises(StoreError, match="percent-encode") as caught:
        PostgresStore(url)
    assert "hun" not in str(caught.value)


async def _refused(store: PostgresStore, position: int) -> str:
    with pytest.raises(StoreError) as caught:
        await store.checkpoints.append([entry(position)])
    return str(caught.value)


async def _unreadable(store: PostgresStore) -> str:
    with pytest.raises(StoreError) as caught:
        await store.checkpoints.read_all_blocks()
    return str(caught.value)


async def _is(value: bool) -> bool:
    return value
