"""The events of all runs in one sequence: what a reader that continues where it stopped sees."""

import asyncio

import asyncpg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.contract.conftest import ContractDatabase
from tests.contract.run_samples import (
    after,
    claim,
    creation,
    event_row,
    history,
    make,
    move,
    queued,
    run_row,
    task_row,
)
from tests.postgres import PostgresServer
from tidemill.storage.postgres.store import PostgresStore
from tidemill.storage.sqlite.memory import MemoryStore
from tidemill.storage.store import Store
from tidemill.workflows.change import Refused
from tidemill.workflows.records import NumberedEvent
from tidemill.workflows.states import RunState


async def read_all(store: Store, number: int = 0, limit: int = 100) -> list[NumberedEvent]:
    """Return all events after a number, read in pages."""
    found: list[NumberedEvent] = []
    while page := await store.runs.read_events_after(found[-1].number if found else number, limit):
        found += page
    return found


async def test_an_empty_store_has_no_events(store: Store) -> None:
    assert await store.runs.last_event_number() == 0
    assert await store.runs.read_events_after(0, 10) == []


async def test_events_of_all_runs_and_tenants_have_growing_numbers(store: Store) -> None:
    """S-3: each event is there once, with whose run it is, also those of claims."""
    await make(store, creation(run_row("r1")), creation(run_row("r2", tenant="acme", workflow="other")))
    await store.runs.claim(claim())
    found = await read_all(store)
    assert [(one.tenant, one.workflow, one.event.run, one.event.after) for one in found] == [
        ("public", "flow", "r1", "running"),
        ("acme", "other", "r2", "running"),
        ("public", "flow", "r1", "queued"),
    ]
    numbers = [one.number for one in found]
    assert numbers == sorted(set(numbers))
    assert await store.runs.last_event_number() == numbers[-1]
    assert [one.event for one in found if one.event.run == "r1"] == await store.runs.read_events("r1")


async def test_a_reader_continues_in_the_middle_of_a_change(store: Store) -> None:
    """S-3: a change with many events is no unit for readers."""
    steps = [event_row(after=state) for state in ("scheduled", "queued", "running")]
    await make(store, creation(run_row(), history=history(*steps)))
    numbers = [one.number for one in await read_all(store)]
    for place, number in enumerate(numbers):
        rest = await read_all(store, number, limit=1)
        assert [one.event for one in rest] == steps[place + 1 :]


async def test_a_refused_change_has_no_events(store: Store) -> None:
    await make(store, creation())
    stale = move("r1", replace(task_row(), attempt=7), queued(task_row()), history=history(event_row()))
    assert isinstance(await store.runs.apply(stale), Refused)
    assert [one.event.after for one in await read_all(store)] == ["running"]


async def test_events_of_deleted_runs_are_gone(store: Store) -> None:
    ended = run_row("r1", state=RunState.SUCCESS, ended_at=after(1))
    await make(store, creation(ended), creation(run_row("r2")))
    assert await store.runs.prune("public", after(2), 10) == 1
    assert {one.event.run for one in await read_all(store)} == {"r2"}


@settings(max_examples=20, deadline=None)
@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=8), limit=st.integers(1, 4), data=st.data())
def test_readers_of_any_page_size_see_the_same(sizes: list[int], limit: int, data: st.DataObject) -> None:
    """S-3: wherever a reader stops and continues, it sees each event once, in order."""

    async def check() -> None:
        store = MemoryStore()
        await store.open()
        for number, size in enumerate(sizes):
            rows = [event_row(f"r{number}", f"t{one}") for one in range(size)]
            await make(store, creation(run_row(f"r{number}"), history=history(*rows)))
        everything = await read_all(store)
        assert len(everything) == sum(sizes)
        start = data.draw(st.integers(0, len(everything)))
        begin = everything[start - 1].number if start else 0
        assert await read_all(store, begin, limit) == everything[start:]
        await store.close()

    asyncio.run(check())


@pytest.mark.parametrize("other_is_rolled_back", [False, True])
async def test_no_event_appears_before_one_with_a_lower_number(
    postgres: PostgresServer, *, other_is_rolled_back: bool
) -> None:
    """S-3: PostgreSQL numbers events before they are committed, so a reader waits for transactions that are open."""
    url = await postgres.fresh_store()
    store = PostgresStore(url)
    await store.open()
    other = await asyncpg.connect(url)
    transaction = other.transaction()
    await transaction.start()
    await other.execute(
        "INSERT INTO tidemill.run_events (run, element, attempt, before, after, at, actor, reason) "
        "VALUES ('r1', -1, 0, 'queued', 'success', now(), 'other', '')"
    )
    await make(store, creation(run_row("r1")))
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(store.runs.read_events_after(0, 10), name="read")
        done, _ = await asyncio.wait([reading], timeout=0.2)
        assert not done
        await (transaction.rollback() if other_is_rolled_back else transaction.commit())
    actors = [one.event.actor for one in reading.result()]
    assert actors == (["node-1"] if other_is_rolled_back else ["other", "node-1"])
    await other.close()
    await store.close()


async def test_two_stores_share_the_sequence(database: ContractDatabase) -> None:
    """S-3: a feed resumes at another server where it stopped at the first."""
    one, two = database.store(), database.store()
    await one.open()
    await two.open()
    await make(one, creation(run_row("r1")))
    seen = await one.runs.last_event_number()
    await make(two, creation(run_row("r2")))
    assert [event.event.run for event in await read_all(one, seen)] == ["r2"]
    assert await read_all(one) == await read_all(two)
    await one.close()
    await two.close()
