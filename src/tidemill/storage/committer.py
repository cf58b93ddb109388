"""The group committer: folds concurrent writes into one transaction.

A commit costs a disk's patience, whether it holds one row or a thousand. So units of work gather while a transaction
is on its way, and the next one takes all of them. Each caller gets the result of its own unit, after the commit.
What is written in one turn of the loop shares a transaction; where many come together, the next group is kept open for
a few turns more, for as many.

Three things can come of a transaction, and they are told apart:

* committed: every unit has its result;
* refused: nothing was written. If a unit of the group was at fault, the units go again one by one, so that only the
  faulty one is told; if the database was, all are.
* ambiguous: the connection went while the commit was on its way. Then the database is asked, until it answers, which
  of the two it was. Callers wait meanwhile: "unknown" is no answer to build on.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from tidemill.kernel.errors import StoreError
from tidemill.telemetry import events

T = TypeVar("T")


class CommitFuture(asyncio.Future[T]):
    """The result of a unit of work, which comes when it is committed.

    Whoever awaits it has it one turn of the loop later. `then` is called in the same turn.
    """

    on_done: "Callable[[CommitFuture[T]], None] | None" = None

    def set_value(self, result: T) -> None:
        """Give the result, unless nobody waits for it any more."""
        if not self.done():
            self.set_result(result)
            self._call_on_done()

    def set_error(self, error: BaseException) -> None:
        """Say why there is no result, unless nobody waits for it any more."""
        if not self.done():
            self.set_exception(error)
            self._call_on_done()

    def _call_on_done(self) -> None:
        if self.on_done is None:
            return
        try:
            self.on_done(self)
        except Exception as error:  # whatever one of them does, the others are told too: as asyncio does
            told: dict[str, Any] = {"message": "what follows from an answer failed", "exception": error, "future": self}
            self.get_loop().call_exception_handler(told)


logger = logging.getLogger(__name__)

Unit = TypeVar("Unit", contravariant=True)
Write = TypeVar("Write")

Callback = Callable[[list[Any] | None, BaseException | None], None]
"""Is called on the loop with the results of some units, or with what stood against them."""
TransactWithCallback = Callable[[Sequence[Write], Callback], None]
"""Runs units in one transaction, like `Transactor.transact`."""
_PendingUnit = tuple[Write, CommitFuture[Any]]

RESOLVE_INTERVAL = 0.1  # seconds between questions after an ambiguous commit
GATHER_TURN_LIMIT = 2  # more turns of the loop for which a group waits until it is as big as the last ones were
GATHER_UNIT_LIMIT = 16  # units; no group waits for more
GROUP_UNIT_LIMIT = 1000  # units in one transaction


class Committed(msgspec.Struct, frozen=True):
    """Everything was written; the results of the units, in their order."""

    results: list[Any]


class Ambiguous(msgspec.Struct, frozen=True):
    """The connection was lost during the commit; `token` tells the database which one is meant."""

    token: Any
    results: list[Any]
    cause: str


class Transactor(Protocol[Unit]):
    """A database that can run units of work in one transaction."""

    async def transact(self, units: Sequence[Unit]) -> Committed | Ambiguous:
        """Run units in one transaction; StoreError if the database fails, a unit's own error if that does."""

    async def was_committed(self, token: Any) -> bool:
        """Return what became of an ambiguous transaction; StoreError while that cannot be told."""


class GroupCommitter(Generic[Write]):
    """The one way to write to a store."""

    def __init__(
        self,
        transactor: Transactor[Write],
        translate_error: Callable[[Exception], Exception] = lambda error: error,
        transact_with_callback: "TransactWithCallback[Write] | None" = None,
    ) -> None:
        """Write to a database; `explain` says of a unit's own error how whoever asked is told of it.

        `express` is a shorter way than `transact`, for a database in which no commit is ever ambiguous.
        """
        self._transactor = transactor
        self._translate_error = translate_error
        self._transact_with_callback = transact_with_callback
        self._tasks = asyncio.TaskGroup()
        self._waiting: list[_PendingUnit[Write]] = []
        self._in_flight: list[_PendingUnit[Write]] = []
        self._task: asyncio.Task[None] | None = None
        self._is_open = self._is_busy = False
        self._expected_group_size = 0
        """How many units the last groups had: as many are waited for, for a few turns of the loop."""
        self._failures_to_come = 0

    async def open(self) -> None:
        """Begin to take units; also again after `close`, and then on another loop if need be."""
        self._loop = asyncio.get_running_loop()
        self._tasks = asyncio.TaskGroup()
        await self._tasks.__aenter__()
        self._is_open, self._is_busy = True, False

    async def close(self) -> None:
        """Take no more units; those that wait are refused."""
        if not self._is_open:
            return
        self._is_open = False
        if self._task is not None:
            self._task.cancel()
        await self._tasks.__aexit__(None, None, None)
        writing, self._in_flight, waiting, self._waiting = self._in_flight, [], self._waiting, []
        _set_errors(writing, StoreError("the store was closed before it answered"))
        _set_errors(waiting, StoreError("the store is closed"))

    def fail_next(self, times: int) -> None:
        """Let the next transactions fail before they begin."""
        self._failures_to_come = times

    def fail_if_told(self) -> None:
        """Fail if `fail_next` says so; also for whatever is written to the same database without a committer."""
        if self._failures_to_come:
            self._failures_to_come -= 1
            raise StoreError("the transaction failed on purpose")

    def submit(self, unit: Write) -> CommitFuture[Any]:
        """Run a unit in the next transaction; its result comes when it is committed."""
        if not self._is_open:
            raise StoreError("the store is not open")
        answer: CommitFuture[Any] = CommitFuture()
        self._waiting.append((unit, answer))
        if not self._is_busy:
            self._is_busy = True
            self._start_next_group()
        return answer

    async def commit(self, unit: Write) -> Any:
        """Run a unit in the next transaction; return its result when it is committed."""
        return await self.submit(unit)

    # -- one group after the other

    def _start_next_group(self) -> None:
        """Begin the next group, once whoever is about to write in this turn of the loop has joined it."""
        if not self._waiting:
            self._is_busy = False
        elif self._transact_with_callback is None:
            self._start_task(self._commit_groups())
        else:
            self._loop.call_soon(self._gather, self._transact_with_callback, GATHER_TURN_LIMIT)

    def _gather(self, transact_with_callback: "TransactWithCallback[Write]", turns_left: int) -> None:
        """Send the next group if it is as big as the last ones were, or was kept open for long enough."""
        if not turns_left or len(self._waiting) >= self._expected_group_size:
            self._send_group(transact_with_callback)
        else:
            self._loop.call_soon(self._gather, transact_with_callback, turns_left - 1)

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        self._task = self._tasks.create_task(work, name="store: group committer")

    def _next_group(self) -> "list[_PendingUnit[Write]]":
        self._in_flight, self._waiting = self._waiting[:GROUP_UNIT_LIMIT], self._waiting[GROUP_UNIT_LIMIT:]
        self._expected_group_size = max(len(self._in_flight), min(self._expected_group_size, GATHER_UNIT_LIMIT) - 1)
        return self._in_flight

    def _send_group(self, transact_with_callback: "TransactWithCallback[Write]") -> None:
        """Have a group written without a task."""
        if not self._is_open or not self._waiting or self._in_flight:
            return  # it was closed meanwhile, and may have been opened again
        group = self._next_group()
        try:
            self.fail_if_told()
        except StoreError as error:
            self._loop.call_soon(self._on_group_done, group, None, error)
        else:
            transact_with_callback([unit for unit, _ in group], partial(self._on_group_done, group))

    def _on_group_done(
        self, group: "list[_PendingUnit[Write]]", results: list[Any] | None, error: BaseException | None
    ) -> None:
        """Take what came of a group that was sent."""
        if group is not self._in_flight:
            return  # the store was closed meanwhile
        if error is None:
            _set_values(group, results or [])
        elif _is_unit_error(error, group):
            self._start_task(self._commit_each(group))
            return
        else:
            _set_errors(group, self._visible_error(error))
        self._in_flight = []
        self._start_next_group()

    async def _commit_each(self, group: "list[_PendingUnit[Write]]") -> None:
        for one in group:
            await self._commit_group([one])
        self._in_flight = []
        self._start_next_group()

    async def _commit_groups(self) -> None:
        while self._waiting:
            await self._commit_group(self._next_group())
            self._in_flight = []
            await asyncio.sleep(0)  # whoever is about to write in this turn of the loop joins
        self._is_busy = False

    async def _commit_group(self, group: "list[_PendingUnit[Write]]") -> None:
        try:
            results = await self._transact([unit for unit, _ in group])
        except Exception as error:
            if _is_unit_error(error, group):
                for one in group:
                    await self._commit_group([one])
            else:
                _set_errors(group, self._visible_error(error))
        else:
            _set_values(group, results)

    def _visible_error(self, error: BaseException) -> BaseException:
        """Return how an error is told: that of the database as it is, a unit's own as it is explained."""
        if isinstance(error, StoreError) or not isinstance(error, Exception):
            return error
        return self._translate_error(error)

    async def _transact(self, units: list[Write]) -> list[Any]:
        self.fail_if_told()
        outcome = await self._transactor.transact(units)
        if isinstance(outcome, Ambiguous) and not await self._resolve_ambiguous(outcome):
            raise StoreError(f"not committed: {outcome.cause}")
        return outcome.results

    async def _resolve_ambiguous(self, outcome: Ambiguous) -> bool:
        """Return whether an ambiguous transaction was committed, however long it takes to learn that."""
        logger.warning(events.COMMIT_AMBIGUOUS, extra={"cause": outcome.cause})
        while True:
            try:
                was_committed = await self._transactor.was_committed(outcome.token)
            except StoreError:
                await asyncio.sleep(RESOLVE_INTERVAL)  # real time: the database's own
            else:
                logger.warning(events.COMMIT_RESOLVED, extra={"committed": was_committed})
                return was_committed


def _is_unit_error(error: BaseException, group: Sequence[Any]) -> bool:
    """Return whether an error belongs to one unit of a group, nobody knows to which."""
    return len(group) > 1 and isinstance(error, Exception) and not isinstance(error, StoreError)


def _set_values(group: Sequence[tuple[Any, CommitFuture[Any]]], results: Sequence[Any]) -> None:
    for (_, answer), result in zip(group, results, strict=True):
        answer.set_value(result)


def _set_errors(group: Sequence[tuple[Any, CommitFuture[Any]]], error: BaseException) -> None:
    for _, answer in group:
        answer.set_error(_copy_error(error))


def _copy_error(error: BaseException) -> BaseException:
    """Return an error of the caller's own: one that many raise would gather the tracebacks of all."""
    if not isinstance(error, StoreError):
        return error
    own = StoreError(*error.args)
    own.__cause__ = error.__cause__
    return own
