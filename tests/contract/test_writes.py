"""Writes on every database: folded, refused as a whole, cancelled, and cut off by an end."""

import asyncio

import pytest

from tests.contract.samples import block, journal, letter, outcomes, part
from tidemill.kernel.errors import StoreError
from tidemill.storage.store import Store
from tidemill.testing.faults.stores import fail_next


async def positions(store: Store) -> list[int]:
    """Return the positions in the one journal of these tests."""
    return [found.position for found in await store.checkpoints.read_blocks([journal()])]


async def test_writes_of_one_turn_share_one_transaction(store: Store) -> None:
    """A single failure reaches all of them, whatever port they came through."""
    fail_next(store, 1)
    calls = [
        *(store.checkpoints.append([block(number)]) for number in range(50)),
        store.dead_letters.upsert([letter("01")]),
        store.pauses.set_paused("public", "r", paused=True),
    ]
    assert await outcomes(*calls) == ["refused"] * 52
    await store.checkpoints.append([block(99)])
    assert await positions(store) == [99]
    assert (await store.dead_letters.list_all(), await store.pauses.list_paused()) == ([], [])


@pytest.mark.parametrize("times", [1, 3])
async def test_exactly_as_many_transactions_fail_as_were_asked_to(store: Store, times: int) -> None:
    """G-26: what failed has left nothing behind, and may be tried again with the same positions."""
    fail_next(store, times)
    for _ in range(times):
        with pytest.raises(StoreError, match="on purpose"):
            await store.checkpoints.append([block(1)])
    await store.checkpoints.append([block(1)])
    assert await positions(store) == [1]


async def test_many_writers_are_all_heard(store: Store) -> None:
    """More than one transaction takes."""
    await asyncio.gather(*(store.checkpoints.append([block(number)]) for number in range(2_500)))
    assert await positions(store) == list(range(2_500))


async def test_a_writer_reads_what_it_wrote(store: Store) -> None:
    """What was answered is committed, and a read that begins then sees it."""
    for number in range(50):
        await store.checkpoints.append([block(number)])
        assert len(await positions(store)) == number + 1


async def test_a_reader_sees_a_checkpoint_whole_or_not_at_all(store: Store) -> None:
    """G-23: parts of one moment appear together."""
    owners = [part(1, payload=bytes(20_000)).key._replace(name=str(number)) for number in range(20)]

    async def write() -> None:
        for generation in range(1, 21):
            await store.checkpoints.save([part(generation, of=owner) for owner in owners])

    async with asyncio.TaskGroup() as group:
        writer = group.create_task(write(), name="writer")
        while not writer.done():
            moments = [found.moment for found in await store.checkpoints.read_parts(owners)]
            assert all(moments.count(moment) == len(owners) for moment in moments)
            await asyncio.sleep(0)


async def test_a_cancelled_writer_disturbs_no_other(store: Store) -> None:
    async with asyncio.TaskGroup() as group:
        for number in range(20):
            task = group.create_task(store.checkpoints.append([block(number)]), name=f"writer {number}")
            if number % 2:
                await asyncio.sleep(0)
                task.cancel()
    found = await positions(store)
    assert set(found) >= set(range(0, 20, 2))
    await store.checkpoints.append([block(100)])
    assert await positions(store) == [*found, 100]


async def test_a_cancelled_reader_disturbs_no_other(store: Store) -> None:
    await store.checkpoints.append([block(1)])
    async with asyncio.TaskGroup() as group:
        for number in range(10):
            task = group.create_task(positions(store), name=f"reader {number}")
            await asyncio.sleep(0)
            task.cancel()
    assert await positions(store) == [1]


async def test_a_store_that_is_closed_refuses_writes(store: Store) -> None:
    await store.close()
    with pytest.raises(StoreError, match="not open"):
        await store.checkpoints.append([block(1)])
    await store.close()  # a second time is no error


async def test_an_end_leaves_no_writer_waiting(store: Store) -> None:
    """Each caller learns either that it was written, or that the store was closed."""
    async with asyncio.TaskGroup() as group:
        calls = (store.checkpoints.append([block(number)]) for number in range(100))
        writers = group.create_task(outcomes(*calls), name="writers")
        await asyncio.sleep(0)
        await store.close()
    assert set(writers.result()) <= {"done", "refused"}
