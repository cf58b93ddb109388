"""A node whose database fails for a while: it says so in time, fires on, loses nothing it promised, and recovers."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Literal

import pytest

import tidemill as tm
from tests.contract.disks import without_root
from tests.contract.proxy import proxy_to
from tests.postgres import PostgresServer, _running
from tests.system.brokers import free_port
from tests.system.store_faults import (
    POSTGRES_FAULTS,
    SQLITE_FAULTS,
    Place,
    PostgresPlace,
    sqlite_place,
)
from tidemill.telemetry import events

Durability = Literal["interval", "fire", "boundary"]

DURABILITIES = ["interval", "fire", "boundary"]
NOTICED = 1.0 + 1.0  # seconds from the beginning of a fault until the node says so; the rest is for a busy machine
SLACK = 3.0  # seconds for a write on its way, and for a busy machine
RECOVERED = 5.0  # seconds from the repair until the node is well again
OUTAGE = 3.0  # seconds after which a push that still waits may go on waiting
GRACE = 1.0  # seconds, the setting unload_timeout of these nodes
HASTE = 0.3  # the same, of those whose end is watched
GRACES = {"interval": 1, "fire": 1, "boundary": 5}
"""How many graces the end of a node takes at most whose database is silent: one for the last checkpoint, under
"boundary" also one for each of three accumulators whose events wait for a commit, and for the batch a second one."""
PATIENCE = 20.0  # seconds until a test gives up
MOMENT = 0.002  # seconds between two looks, and between two events


class Count(tm.Boundary):
    """The newest event, and how many there were."""

    number: int = -1
    count: int = 0


@tm.passthrough(state=Count)
def a(event: int, state: Count) -> Count:
    """Count."""
    return Count(event, state.count + 1)


@tm.passthrough(state=Count)
def b(event: int, state: Count) -> Count:
    """Count."""
    return Count(event, state.count + 1)


@tm.batch(every="50ms", max_size=100)
def c(events: list[int]) -> list[int]:
    """Gather."""
    return events


class Load:
    """A node under a steady load that notes its receipts and what fired; a reopened one fires on."""

    def __init__(self, store: str, durability: Durability, grace: float = GRACE) -> None:
        self.acknowledged: list[tuple[str, int]] = []
        self.refused: dict[tuple[str, int], str | None] = {}
        self.fired: list[tuple[str, int]] = []
        self.unknown: str | None = None
        self.reactor = tm.Reactor("r", [a, b, c], strategy="sequential", durability=durability)
        self._store = store
        self._grace = grace
        self._graph = tm.Graph("g", reactor=self.reactor)
        self._graph.node(self._effect())
        self._number = 0
        self._ends = False

    def _effect(self) -> Callable[..., int]:
        def effect(a: Count | None, b: Count | None, c: list[int] | None, ctx: tm.Context) -> int:
            for source, value in ctx.consumed:
                numbers = value if source == "c" else [value.number]
                self.fired += [(source, number) for number in numbers]
            return len(self.fired)

        return effect

    def node(self) -> tm.Node:
        """Return a node with the reactor, not opened yet."""
        return tm.Node(store=self._store, load=[self.reactor, self._graph], settings={"unload_timeout": self._grace})

    @asynccontextmanager
    async def running(self) -> AsyncIterator[tm.Node]:
        """Run a node under load; the load ends before the node does."""
        async with self.node() as node, asyncio.timeout(60), asyncio.TaskGroup() as pushers:
            for source in "abc":
                pushers.create_task(self._push(node, source), name=f"pusher {source}")
            try:
                yield node
            finally:
                self.end()

    def end(self) -> None:
        """Push no more."""
        self._ends = True

    async def _push(self, node: tm.Node, source: str) -> None:
        while not self._ends:
            self._number += 1
            event = source, self._number
            try:
                receipt = await node.push(*event)
            except tm.OperationError as error:  # the node ended: the outcome is unknown, and the error says so
                self.unknown = str(error)
                return
            if receipt.accepted:
                self.acknowledged.append(event)
            else:
                self.refused[event] = receipt.reason
            await asyncio.sleep(MOMENT)

    async def more(self, acknowledged: int = 50) -> None:
        """Wait until more events were acknowledged."""
        goal = len(self.acknowledged) + acknowledged
        await until(lambda: len(self.acknowledged) >= goal)

    def count(self, source: str) -> int:
        """Return how many events of an accumulator were acknowledged."""
        return sum(which == source for which, _ in self.acknowledged)


async def until(condition: Callable[[], bool]) -> float:
    """Wait until something is so; return the moment."""
    async with asyncio.timeout(PATIENCE):
        while True:
            if condition():
                return time.monotonic()
            await asyncio.sleep(MOMENT)


def is_degraded(node: tm.Node) -> bool:
    """Return whether the node says that it cannot write."""
    state = node.reactor("r").state()
    assert (state.health is tm.ReactorHealth.DEGRADED) == ("persist" in state.disconnected)
    return "persist" in state.disconnected


@pytest.fixture(scope="module")
def stoppable() -> Iterator[PostgresServer]:
    """A server for this module, that each test may stop if it starts it again."""
    yield from _running(fsync=True)


@pytest.fixture
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    """An empty database of the kind that the test asks for."""
    if request.param == "sqlite":
        async with sqlite_place(tmp_path) as place:
            yield place
    else:
        server: PostgresServer = request.getfixturevalue("stoppable")
        yield PostgresPlace(server, await server.fresh_database())


@pytest.mark.parametrize("durability", DURABILITIES)
@pytest.mark.parametrize(
    ("place", "fault"),
    [*(("sqlite", fault) for fault in SQLITE_FAULTS), *(("postgres", fault) for fault in POSTGRES_FAULTS)],
    indirect=["place"],
)
async def test_a_fault_is_noticed_outlived_and_forgotten(
    place: Place, fault: str, durability: Durability, caplog: pytest.LogCaptureFixture
) -> None:
    """G-24, G-26, F10, F67: Degraded with "persist" within a second, Live again without a restart, nothing lost."""
    load = Load(place.store, durability)
    async with load.running() as node:
        await load.more()
        assert not is_degraded(node)
        began = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            noticing = tasks.create_task(until(lambda: is_degraded(node)), name="noticing")
            async with place.faults[fault]():
                noticed = await noticing - began
                await check_it_goes_on(node, load, durability)
        repairing = time.monotonic()
        recovered = await until(lambda: not is_degraded(node)) - repairing
        failures = node.metrics()["checkpoint_failures_total"]
        print(
            f"{fault}, {durability}: noticed after {noticed * 1000:.0f} ms, recovered after {recovered * 1000:.0f} ms"
        )
        await load.more()
    assert noticed <= NOTICED
    assert recovered <= RECOVERED
    was_on_its_way = events.COMMIT_AMBIGUOUS in {record.message for record in caplog.records}
    assert failures > 0 or was_on_its_way  # a commit that the fault met is neither done nor failed until the repair
    assert all(reason is not None and "not stored: " in reason for reason in load.refused.values())
    await check_what_is_kept(load)


async def check_it_goes_on(node: tm.Node, load: Load, durability: Durability) -> None:
    """During a fault graphs fire on; what must be committed first is refused, with the reason, or waits."""
    ends = time.monotonic() + OUTAGE
    if durability == "boundary":
        before = len(load.acknowledged)
        await until(lambda: len(load.refused) >= 3 or time.monotonic() > ends)
        assert len(load.acknowledged) == before
    else:
        fires = node.reactor("r").state().fires
        await until(lambda: node.reactor("r").state().fires > fires + 50)
        await until(lambda: node.metrics()["checkpoint_failures_total"] > 0 or time.monotonic() > ends)
    assert is_degraded(node)


async def check_what_is_kept(load: Load) -> None:
    """Everything acknowledged has fired, nothing refused has, and the next life knows it all and does nothing twice."""
    assert sorted(load.fired) == sorted(load.acknowledged)
    fired = len(load.fired)
    async with load.node() as node:
        cache = node.reactor("r").state().cache
        assert [cache[source]["count"] for source in "ab"] == [load.count(source) for source in "ab"]
        assert (await node.push("a", 0)).sequence == load.count("a") + 1
    assert len(load.fired) == fired + 1


async def test_ended_connections_are_replaced_before_anybody_notices(stoppable: PostgresServer) -> None:
    """G-24, F6: all backends are terminated again and again; it costs at most what was on its way."""
    place = PostgresPlace(stoppable, await stoppable.fresh_database())
    load = Load(place.store, "boundary")
    async with load.running():
        for _ in range(10):
            await load.more(20)
            await place.end_connections()
        await load.more()
    await check_what_is_kept(load)


# -- starting and ending


def missing_folder(folder: Path, server: PostgresServer) -> str:
    return f"sqlite:///{folder}/missing/tidemill.db"


def no_database(folder: Path, server: PostgresServer) -> str:
    path = folder / "tea.db"
    path.write_bytes(b"tea for two\n" * 1000)
    return f"sqlite:///{path}"


def nothing_listens(folder: Path, server: PostgresServer) -> str:
    return f"postgresql://postgres@127.0.0.1:{free_port()}/postgres"


def unknown_database(folder: Path, server: PostgresServer) -> str:
    return server.url("no_such_database")


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        (missing_folder, "missing does not exist; create it"),
        (no_database, "not a SQLite database"),
        (nothing_listens, "nothing listens there; start the server"),
        (unknown_database, "no database of this name; create it"),
    ],
)
async def test_a_store_that_cannot_be_reached_gives_one_sentence_and_leaves_nothing(
    tmp_path: Path, stoppable: PostgresServer, address: Callable[[Path, PostgresServer], str], sentence: str
) -> None:
    """G-26: the error says what the operator has to do; no task and no thread is left."""
    async with nothing_left():
        with pytest.raises(tm.OperationError, match=sentence):
            async with Load(address(tmp_path, stoppable), "fire").node():
                raise AssertionError("it has started")


async def test_a_file_that_may_not_be_written_to_gives_one_sentence_and_leaves_nothing() -> None:
    """G-26, as an ordinary user; given the right, the next start finds everything."""
    with without_root() as folder:
        load = Load(f"sqlite:///{folder}/tidemill.db", "interval")
        async with load.node() as node:
            await node.push("a", 1)
        (folder / "tidemill.db").chmod(0o400)
        async with nothing_left():
            with pytest.raises(tm.OperationError, match="it may not be written to; give this user the right"):
                async with load.node():
                    raise AssertionError("it has started")
        (folder / "tidemill.db").chmod(0o600)
        async with load.node() as node:
            assert node.reactor("r").state().cache["a"] == {"number": 1, "count": 1}


async def test_tables_that_are_locked_when_a_node_starts_give_one_sentence_and_leave_nothing(
    stoppable: PostgresServer,
) -> None:
    """G-26: the fault comes between opening the database and reading from it."""
    place = PostgresPlace(stoppable, await stoppable.fresh_database())
    load = Load(place.store, "fire")
    async with load.node() as node:
        await node.push("a", 1)
    async with nothing_left(), place.faults["tables locked"]():
        with pytest.raises(tm.OperationError, match="held a lock for too long; find it in pg_locks"):
            async with asyncio.timeout(PATIENCE), load.node():
                raise AssertionError("it has started")
    async with load.node() as node:
        assert node.reactor("r").state().cache["a"] == {"number": 1, "count": 1}


@asynccontextmanager
async def nothing_left() -> AsyncIterator[None]:
    """Check that no task and no thread of ours outlives something."""
    tasks, threads = asyncio.all_tasks(), set(threading.enumerate())
    yield
    assert asyncio.all_tasks() <= tasks
    left = {thread for thread in threading.enumerate() if thread.name.startswith("tidemill")} - threads
    await until(lambda: not any(thread.is_alive() for thread in left))


@pytest.mark.parametrize("durability", DURABILITIES)
@pytest.mark.parametrize(
    ("place", "fault"),
    [("sqlite", fault) for fault in SQLITE_FAULTS] + [("postgres", fault) for fault in ("killed", "tables locked")],
    indirect=["place"],
)
async def test_a_node_ends_in_time_while_its_store_is_away(
    place: Place, fault: str, durability: Durability, caplog: pytest.LogCaptureFixture
) -> None:
    """G-24, G-29: it says that the last checkpoint failed; what "boundary" acknowledged is there next time."""
    load = Load(place.store, durability, HASTE)
    async with nothing_left(), AsyncExitStack() as stack:
        node = await stack.enter_async_context(load.running())
        await load.more()
        await stack.enter_async_context(place.faults[fault]())
        await until(lambda: is_degraded(node))
        load.end()
        ending = time.monotonic()
        await node.__aexit__(None, None, None)
        ended = time.monotonic() - ending
    print(f"{fault}, {durability}: ended within {ended * 1000:.0f} ms")
    assert ended <= GRACES[durability] * HASTE + SLACK
    assert events.LAST_CHECKPOINT_FAILED in {record.message for record in caplog.records}
    if durability == "boundary":
        async with load.node() as node:
            cache = node.reactor("r").state().cache
        assert [cache[source]["count"] for source in "ab"] == [load.count(source) for source in "ab"]
        assert set(load.acknowledged) <= set(load.fired)


@pytest.mark.parametrize("durability", DURABILITIES)
async def test_a_node_ends_although_the_outcome_of_a_commit_is_unknown(
    stoppable: PostgresServer, durability: Durability
) -> None:
    """G-24, G-29: the server dies with a COMMIT on its way, and does not come back before the node ends."""
    store = await stoppable.fresh_database()
    async with proxy_to(stoppable.port) as (proxy, port), nothing_left(), AsyncExitStack() as stack:
        load = Load(store.replace(f":{stoppable.port}/", f":{port}/"), durability, HASTE)
        node = await stack.enter_async_context(load.running())
        await load.more()
        proxy.at_commit = "swallow"
        await until(lambda: proxy.at_commit is None)
        await stack.enter_async_context(PostgresPlace(stoppable, store).faults["killed"]())
        load.end()
        ending = time.monotonic()
        async with asyncio.timeout(PATIENCE * 2):
            await node.__aexit__(None, None, None)
        ended = time.monotonic() - ending
    assert load.unknown in (None, "the node ended before it was known whether this event was stored")
    print(f"ambiguous commit, {durability}: ended within {1000 * ended:.0f} ms")
    assert ended <= GRACES[durability] * HASTE + SLACK
