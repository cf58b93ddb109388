"""The group committer: folds concurrent writes into one transaction.

A commit costs a disk's patience, whether it holds one row or a thousand. So units of work gather while a transaction
is on its way, and the next one takes all of them. Each caller gets the result of its own unit, after the commit.

Three things can come of a transaction, and they are told apart:

* committed: every unit has its result;
* refused: nothing was written. If a unit of the group was at fault, the units go again one by one, so that only the
  faulty one is told; if the database was, all are.
* ambiguous: the connection went while the commit was on its way. Then the database is asked, until it answers, which
  of the two it was. Callers wait meanwhile: "unknown" is no answer to build on.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from tidemill.kernel.errors import StoreError
from tidemill.telemetry import events

logger = logging.getLogger(__name__)

Unit = TypeVar("Unit", contravariant=True)
Write = TypeVar("Write")

RESOLVE_EVERY = 0.1  # seconds between questions after an ambiguous commit
GROUP_LIMIT = 1000  # units in one transaction


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
        explain: Callable[[Exception], Exception] = lambda error: error,
    ) -> None:
        """Write to a database; `explain` says of a unit's own error how whoever asked is told of it."""
        self._transactor = transactor
        self._explain = explain
        self._group = asyncio.TaskGroup()
        self._waiting: list[tuple[Write, asyncio.Future[Any]]] = []
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._failures_to_come = 0

    async def open(self) -> None:
        """Begin to take units; also again after `close`, and then on another loop if need be."""
        self._group, self._news = asyncio.TaskGroup(), asyncio.Event()
        await self._group.__aenter__()
        self._task = self._group.create_task(self._work(), name="store: group committer")

    async def close(self) -> None:
        """Take no more units; those that wait are refused."""
        if self._task is None:
            return
        task, self._task = self._task, None
        task.cancel()
        await self._group.__aexit__(None, None, None)
        _refuse(self._waiting, StoreError("the store is closed"))
        self._waiting = []

    def fail_next(self, times: int) -> None:
        """Let the next transactions fail before they begin."""
        self._failures_to_come = times

    def fail_if_told(self) -> None:
        """Fail if `fail_next` says so; also for whatever is written to the same database without a committer."""
        if self._failures_to_come:
            self._failures_to_come -= 1
            raise StoreError("the transaction failed on purpose")

    def submit(self, unit: Write) -> "asyncio.Future[Any]":
        """Run a unit in the next transaction; its result comes when it is committed."""
        if self._task is None:
            raise StoreError("the store is not open")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._waiting.append((unit, future))
        if len(self._waiting) == 1:
            loop.call_soon(self._news.set)  # not at once: whoever is about to write in this turn of the loop joins
        return future

    async def commit(self, unit: Write) -> Any:
        """Run a unit in the next transaction; return its result when it is committed."""
        return await self.submit(unit)

    async def _work(self) -> None:
        while True:
            await self._news.wait()
            group, self._waiting = self._waiting[:GROUP_LIMIT], self._waiting[GROUP_LIMIT:]
            if not self._waiting:
                self._news.clear()
            try:
                await self._commit(group)
            except BaseException:
                _refuse(group, StoreError("the store was closed before it answered"))
                raise

    async def _commit(self, group: list[tuple[Write, "asyncio.Future[Any]"]]) -> None:
        try:
            results = await self._transact([unit for unit, _ in group])
        except StoreError as error:
            _refuse(group, error)
        except Exception as error:  # a unit's own: told only to whom it belongs
            if len(group) == 1:
                _refuse(group, self._explain(error))
            else:
                for one in group:
                    await self._commit([one])
        else:
            for (_, future), result in zip(group, results, strict=True):
                if not future.done():
                    future.set_result(result)

    async def _transact(self, units: list[Write]) -> list[Any]:
        self.fail_if_told()
        outcome = await self._transactor.transact(units)
        if isinstance(outcome, Ambiguous) and not await self._resolve(outcome):
            raise StoreError(f"not committed: {outcome.cause}")
        return outcome.results

    async def _resolve(self, outcome: Ambiguous) -> bool:
        """Return whether an ambiguous transaction was committed, however long it takes to learn that."""
        logger.warning(events.COMMIT_AMBIGUOUS, extra={"cause": outcome.cause})
        while True:
            try:
                was_committed = await self._transactor.was_committed(outcome.token)
            except StoreError:
                await asyncio.sleep(RESOLVE_EVERY)  # real time: the database's own
            else:
                logger.warning(events.COMMIT_RESOLVED, extra={"committed": was_committed})
                return was_committed


def _refuse(group: Sequence[tuple[Any, "asyncio.Future[Any]"]], error: Exception) -> None:
    for _, future in group:
        if not future.done():
            future.set_exception(_own(error))


def _own(error: Exception) -> Exception:
    """Return an error of the caller's own: one that many raise would gather the tracebacks of all."""
    if not isinstance(error, StoreError):
        return error
    own = StoreError(*error.args)
    own.__cause__ = error.__cause__
    return own
