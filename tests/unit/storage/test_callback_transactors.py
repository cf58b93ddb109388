"""The group committer on a database that calls back: no task per group, and groups as big as the last ones."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tidemill.kernel.errors import StoreError
from tidemill.storage.committer import (
    GATHER_TURN_LIMIT,
    Ambiguous,
    Callback,
    CallbackTransactor,
    CommitFuture,
    Committed,
    GroupCommitter,
)
from tidemill.testing.faults.stores import StoreFaults

Unit = Callable[[], Any]


class Sent(CallbackTransactor[Unit]):
    """A database that keeps each group until a test has it answered."""

    def __init__(self) -> None:
        self.sent: list[tuple[Sequence[Unit], Callback]] = []
        self.one_by_one = 0

    def transact_with_callback(self, units: Sequence[Unit], on_done: Callback) -> None:
        self.sent.append((units, on_done))

    def translate_error(self, error: Exception) -> Exception:
        return StoreError(f"translated: {error}")

    def answer(self) -> int:
        """Commit the oldest group; return how big it was."""
        units, on_done = self.sent.pop(0)
        try:
            on_done([unit() for unit in units], None)
        except Exception as error:  # a unit's own
            on_done(None, error)
        return len(units)

    async def transact(self, units: Sequence[Unit]) -> Committed | Ambiguous:
        self.one_by_one += len(units)
        return Committed([unit() for unit in units])

    async def was_committed(self, token: Any) -> bool:
        raise AssertionError(f"never ambiguous: {token}")


@asynccontextmanager
async def committing(database: Sent) -> AsyncIterator[GroupCommitter[Unit]]:
    """Run a committer on a database."""
    committer: GroupCommitter[Unit] = GroupCommitter(database)
    await committer.open()
    try:
        yield committer
    finally:
        await committer.close()


def one() -> int:
    """Be a unit with a result."""
    return 1


def fault() -> None:
    """Be a unit that is at fault."""
    raise ValueError("mine")


async def turns(count: int = 1) -> None:
    """Let others have their turns."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_lone_unit_is_sent_after_one_turn_and_its_callback_runs_at_once() -> None:
    database = Sent()
    async with committing(database) as committer:
        for _ in range(3):
            results: list[int] = []
            future = committer.submit(one)
            future.on_done = lambda known, results=results: results.append(known.result())
            assert not database.sent
            await turns()
            database.answer()
            assert results == [1]
            assert await future == 1


async def test_after_a_large_group_the_next_one_stays_open_for_as_many_but_not_for_long() -> None:
    database = Sent()
    async with committing(database) as committer:
        together = [committer.submit(one) for _ in range(3)]
        await turns()
        assert database.answer() == 3
        committer.submit(one)
        await turns()
        assert not database.sent
        committer.submit(one)
        committer.submit(one)
        await turns()
        assert database.answer() == 3
        committer.submit(one)
        for _ in range(1 + GATHER_TURN_LIMIT):
            assert not database.sent
            await turns()
        assert database.answer() == 1
        assert await asyncio.gather(*together) == [1] * 3


async def test_a_group_that_is_as_big_already_is_sent_before_callers_handle_the_last_one() -> None:
    """The database writes it meanwhile: a start waits for the transaction of another run, not for its tasks."""
    database = Sent()
    async with committing(database) as committer:
        first = committer.submit(one)
        await turns()
        second, sent = committer.submit(one), list[int]()
        first.on_done = lambda _: sent.append(len(database.sent))
        third = [committer.submit(one) for _ in range(2)]
        assert (database.answer(), sent) == (1, [1])
        committer.submit(one)
        assert (database.answer(), len(database.sent)) == (3, 0)  # one is fewer than the last group had
        await turns(1 + GATHER_TURN_LIMIT)
        assert database.answer() == 1
        assert await asyncio.gather(first, second, *third) == [1] * 4


async def test_only_the_caller_of_a_faulty_unit_gets_its_error_translated() -> None:
    database = Sent()
    async with committing(database) as committer:
        good, bad, other = committer.submit(one), committer.submit(fault), committer.submit(one)
        await turns()
        database.answer()
        assert await asyncio.gather(good, other) == [1, 1]
        with pytest.raises(StoreError, match="translated: mine"):
            await bad
        assert database.one_by_one == 3
        later = committer.submit(one)
        await turns(1 + GATHER_TURN_LIMIT)
        database.answer()
        assert await later == 1


async def test_every_caller_gets_an_error_of_the_database_as_it_is() -> None:
    database = Sent()
    async with committing(database) as committer:
        refused = [committer.submit(one) for _ in range(2)]
        await turns()
        database.sent.pop()[1](None, StoreError("the disk is full"))
        errors = await asyncio.gather(*refused, return_exceptions=True)
        assert [str(error) for error in errors] == ["the disk is full"] * 2
        assert database.one_by_one == 0


async def test_transactions_fail_on_purpose_before_they_are_sent() -> None:
    database = Sent()
    async with committing(database) as committer:
        faults = StoreFaults()
        committer.transactor = faults.wrap(committer.transactor)
        faults.fail_next(1)
        future = committer.submit(one)
        assert not future.done()
        with pytest.raises(StoreError, match="on purpose"):
            await future
        assert not database.sent


async def test_closing_fails_all_waiting_callers_and_ignores_a_later_result() -> None:
    database = Sent()
    async with committing(database) as committer:
        sent = committer.submit(one)
        await turns()
        late = committer.submit(one)
    errors = await asyncio.gather(sent, late, return_exceptions=True)
    assert [str(error) for error in errors] == ["the store was closed before it answered", "the store is closed"]
    database.answer()
    assert not database.sent


async def test_a_callback_may_fail_and_write(caplog: pytest.LogCaptureFixture) -> None:
    """Neither keeps the others of its group from their results."""
    database, later = Sent(), list[CommitFuture[Any]]()
    async with committing(database) as committer:
        group = [committer.submit(one) for _ in range(3)]
        await turns()
        group[0].on_done = lambda _: fault()
        group[1].on_done = lambda _: later.append(committer.submit(one))
        database.answer()
        assert await asyncio.gather(*group) == [1, 1, 1]
        await turns(1 + GATHER_TURN_LIMIT)
        assert database.answer() == 1
        assert await later[0] == 1
    assert "a commit callback failed" in caplog.text
