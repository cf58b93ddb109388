"""The group committer: folds writes, finds the faulty unit, and resolves every ambiguous commit."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tidemill.kernel.errors import IllegalTransitionError, StoreError
from tidemill.storage.committer import GROUP_UNIT_LIMIT, Ambiguous, Committed, GroupCommitter, Transactor
from tidemill.telemetry import events
from tidemill.testing.faults.stores import StoreFaults

Unit = Callable[[], Any]


class Scripted(Transactor[Unit]):
    """A database that writes down its transactions, and does with commits what a test says."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.faults: list[StoreError] = []
        self.is_ambiguous = False
        self.begun_when_asked: list[int] = []
        self.answers: list[bool | StoreError] = []
        self.may_go = asyncio.Event()
        self.may_go.set()
        self.has_begun = asyncio.Event()

    async def transact(self, units: Sequence[Unit]) -> Committed | Ambiguous:
        self.sizes.append(len(units))
        self.has_begun.set()
        await self.may_go.wait()
        if self.faults:
            raise self.faults.pop()
        results = [unit() for unit in units]
        return Ambiguous("token", results, "the connection was lost") if self.is_ambiguous else Committed(results)

    async def was_committed(self, token: Any) -> bool:
        assert token == "token"
        self.begun_when_asked.append(len(self.sizes))
        answer = self.answers.pop(0)
        if isinstance(answer, StoreError):
            raise answer
        return answer


@asynccontextmanager
async def committing(database: Scripted) -> AsyncIterator[GroupCommitter[Unit]]:
    """Run a committer on a database."""
    committer = GroupCommitter(database)
    await committer.open()
    try:
        yield committer
    finally:
        await committer.close()


def give(value: Any) -> Unit:
    """Return a unit with a result."""
    return lambda: value


def fail(error: Exception) -> Unit:
    """Return a unit that is at fault."""

    def unit() -> None:
        raise error

    return unit


async def test_each_caller_gets_the_result_of_its_own_unit() -> None:
    database = Scripted()
    async with committing(database) as committer:
        assert await asyncio.gather(*(committer.commit(give(number)) for number in range(5))) == [0, 1, 2, 3, 4]
    assert database.sizes == [5]


async def test_units_gather_while_a_transaction_is_on_its_way() -> None:
    database = Scripted()
    database.may_go.clear()
    async with committing(database) as committer, asyncio.TaskGroup() as group:
        group.create_task(committer.commit(give(1)), name="first")
        await database.has_begun.wait()
        for number in range(30):
            group.create_task(committer.commit(give(number)), name=f"later {number}")
            await asyncio.sleep(0)
        database.may_go.set()
    assert database.sizes == [1, 30]


async def test_a_transaction_has_a_limit() -> None:
    database = Scripted()
    async with committing(database) as committer:
        await asyncio.gather(*(committer.commit(give(1)) for _ in range(2 * GROUP_UNIT_LIMIT + 1)))
    assert database.sizes == [GROUP_UNIT_LIMIT, GROUP_UNIT_LIMIT, 1]


async def test_only_the_caller_of_a_faulty_unit_gets_its_error(caplog: pytest.LogCaptureFixture) -> None:
    """The group goes again one by one, and the log says why."""
    database = Scripted()
    async with committing(database) as committer:
        calls = [committer.commit(unit) for unit in (give(1), fail(ValueError("mine")), give(3))]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert (outcomes[0], repr(outcomes[1]), outcomes[2]) == (1, "ValueError('mine')", 3)
    assert database.sizes == [3, 1, 1, 1]
    [record] = caplog.records
    assert (record.message, record.levelname) == (events.COMMIT_SPLIT, "WARNING")
    assert "mine" in caplog.text


async def test_an_error_of_any_making_reaches_its_caller_and_the_committer_lives_on() -> None:
    database = Scripted()
    async with committing(database) as committer:
        with pytest.raises(IllegalTransitionError, match="cannot move"):
            await committer.commit(fail(IllegalTransitionError("it", "a", "b")))
        assert await committer.commit(give(2)) == 2


async def test_a_fault_of_the_database_reaches_all_callers_and_is_tried_once() -> None:
    """Each gets an error of its own, with the cause."""
    database = Scripted()
    fault = StoreError("the disk is full")
    fault.__cause__ = OSError("no space")
    database.faults = [fault]
    async with committing(database) as committer:
        outcomes = await asyncio.gather(*(committer.commit(give(1)) for _ in range(3)), return_exceptions=True)
    assert [str(one) for one in outcomes] == ["the disk is full"] * 3
    assert len({id(one) for one in outcomes}) == 3
    assert all(isinstance(one, StoreError) and one.__cause__ is fault.__cause__ for one in outcomes)
    assert database.sizes == [3]


@pytest.mark.parametrize("was_committed", [True, False])
async def test_an_ambiguous_commit_is_asked_about_until_it_is_known(
    was_committed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """G-24: callers wait; none gets "unknown"."""
    database = Scripted()
    database.is_ambiguous = True
    database.answers = [StoreError("no reply"), StoreError("starting up"), was_committed]
    async with committing(database) as committer:
        with caplog.at_level(logging.WARNING):
            outcomes = await asyncio.gather(
                committer.commit(give(1)), committer.commit(give(2)), return_exceptions=True
            )
    expected = ["1", "2"] if was_committed else ["not committed: the connection was lost"] * 2
    assert [str(one) for one in outcomes] == expected
    assert (database.sizes, database.answers) == ([2], [])
    assert [record.message for record in caplog.records] == [events.COMMIT_AMBIGUOUS, events.COMMIT_RESOLVED]


async def test_nothing_else_is_written_while_a_commit_is_unknown() -> None:
    database = Scripted()
    database.is_ambiguous = True
    database.answers = [StoreError("no reply"), True, True]
    async with committing(database) as committer, asyncio.TaskGroup() as group:
        first = group.create_task(committer.commit(give(1)), name="first")
        await database.has_begun.wait()
        second = group.create_task(committer.commit(give(2)), name="second")
    assert (first.result(), second.result()) == (1, 2)
    assert database.begun_when_asked == [1, 1, 2]


async def test_transactions_fail_on_purpose_before_they_begin() -> None:
    database = Scripted()
    async with committing(database) as committer:
        faults = StoreFaults()
        committer.transactor = faults.wrap(committer.transactor)
        faults.fail_next(2)
        for _ in range(2):
            with pytest.raises(StoreError, match="on purpose"):
                await committer.commit(give(1))
        assert await committer.commit(give(1)) == 1
    assert database.sizes == [1]


async def test_a_cancelled_caller_leaves_its_neighbours_alone() -> None:
    database = Scripted()
    database.may_go.clear()
    async with committing(database) as committer, asyncio.TaskGroup() as group:
        cancelled = group.create_task(committer.commit(give(1)), name="cancelled")
        stays = group.create_task(committer.commit(give(2)), name="stays")
        await database.has_begun.wait()
        cancelled.cancel()
        await asyncio.sleep(0)
        database.may_go.set()
    assert cancelled.cancelled()
    assert stays.result() == 2


async def test_an_end_refuses_all_who_wait() -> None:
    """Those in the transaction on its way, and those behind it."""
    database = Scripted()
    database.may_go.clear()
    committer = GroupCommitter(database)
    await committer.open()
    async with asyncio.TaskGroup() as group:
        callers = group.create_task(_refusals(committer, 3), name="callers")
        await database.has_begun.wait()
        late = group.create_task(_refusal(committer), name="late caller")
        await asyncio.sleep(0)
        await committer.close()
    assert callers.result() == ["the store was closed before it answered"] * 3
    assert late.result() == "the store is closed"


async def test_a_committer_is_open_between_open_and_close() -> None:
    committer = GroupCommitter(Scripted())
    for _ in range(2):
        assert await _refusal(committer) == "the store is not open"
        await committer.open()
        assert await committer.commit(give(1)) == 1
        await committer.close()
        await committer.close()


async def _refusals(committer: GroupCommitter[Unit], count: int) -> list[str]:
    return await asyncio.gather(*(_refusal(committer) for _ in range(count)))


async def _refusal(committer: GroupCommitter[Unit]) -> str:
    with pytest.raises(StoreError) as caught:
        await committer.commit(give(1))
    return str(caught.value)


async def test_a_unit_without_a_waiting_caller_is_written_all_the_same() -> None:
    """A caller may read the result from the future later."""
    database = Scripted()
    async with committing(database) as committer:
        future = committer.submit(give(1))
        assert not future.done()
        assert await committer.commit(give(2)) == 2
        assert future.result() == 1
    assert database.sizes == [2]
