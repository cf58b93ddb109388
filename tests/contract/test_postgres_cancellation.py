"""Calls of the PostgreSQL store that are cancelled at any moment: they leave no error behind that reaches the log."""

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from tests.contract.test_postgres_faults import entry
from tests.postgres import PostgresServer
from tidemill.storage.postgres.connection import PostgresUrl, connect
from tidemill.storage.postgres.store import PostgresStore

TURNS = 16  # of the loop, in which a connection is opened and used
AFTERWARDS = 5  # turns in which the transport of a lost connection calls back

Call = Callable[[PostgresStore], Awaitable[Any]]
CALLS: dict[str, Call] = {
    "read": lambda store: store.checkpoints.read_all_blocks(),
    "write": lambda store: store.checkpoints.append([entry(1)]),
    "lease": lambda store: store.leases.acquire("leader", "owner", 60.0),
    "listen": lambda store: store.listen(lambda: None),
}


@pytest.fixture
async def reports() -> AsyncIterator[list[str]]:
    """The reports of asyncio, such as those of errors that were never retrieved."""
    found: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: found.append(f"{context['message']}: {context.get('exception')!r}"))
    gc.freeze()  # a collection then looks at the objects of this test, not at a million of earlier ones
    yield found
    loop.set_exception_handler(None)


async def cancel_after(turns: int, call: Awaitable[Any]) -> Any:
    """Cancel a call after some turns of the loop; return its result, None if there is none."""
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(result_of(call), name="call")
        await pass_turns(turns)
        task.cancel()
    return None if task.cancelled() else task.result()


async def result_of(call: Awaitable[Any]) -> Any:
    """Wait for a call."""
    return await call


async def pass_turns(count: int) -> None:
    """Let the loop turn."""
    for _ in range(count):
        await asyncio.sleep(0)


async def collect() -> None:
    """Delete futures that are no longer referenced: asyncio reports their errors then."""
    await pass_turns(AFTERWARDS)
    gc.collect()


async def test_an_attempt_to_connect_may_be_cancelled_at_any_moment(
    postgres: PostgresServer, reports: list[str]
) -> None:
    """G-26: a node whose server restarts gives up attempts all the time."""
    address = PostgresUrl.parse(await postgres.fresh_database())
    for turns in range(1, TURNS):
        connection = await cancel_after(turns, connect(address))
        if connection is not None:
            connection.terminate()
        del connection
        await collect()
        assert not reports, f"cancelled after {turns} turns"


@pytest.mark.parametrize("call", CALLS)
async def test_a_store_may_be_closed_at_any_moment_of_its_first_call(
    postgres: PostgresServer, reports: list[str], call: str
) -> None:
    """G-26: whatever it waits for, a connection or an answer."""
    store = PostgresStore(await postgres.fresh_store())
    for turns in range(1, TURNS):
        await store.open()
        await cancel_after(turns, CALLS[call](store))
        await store.close()
        await collect()
        assert not reports, f"cancelled after {turns} turns"
