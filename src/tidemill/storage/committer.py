"""The group committer: folds concurrent writes into one transaction.

A commit waits for the disk, whether it holds one row or a thousand. So units of work gather while a transaction is in
flight, and the next one takes all of them. Each caller gets the result of its own unit, after the commit.
Units that are submitted in one turn of the loop share a transaction; under load the next group stays open for a few
turns more, until it is as big as the last ones were. One that is so already when a transaction ends is sent at once.

A transaction has one of three outcomes:

* committed: every unit has its result;
* refused: nothing was written. If a unit of the group was at fault, the units run again one by one, so that only the
  caller of the faulty one gets the error; if the database was, all callers do.
* ambiguous: the connection was lost while the commit was in flight. Then the database is asked, until it answers, which
  of the two it was. Callers wait meanwhile: "unknown" is not a result to build on.
"""

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from tidemill.kernel.errors import StoreError
from tidemill.telemetry import events

T = TypeVar("T")
WriteT = TypeVar("WriteT")
UnitT = TypeVar("UnitT", contravariant=True)

logger = logging.getLogger(__name__)

Callback = Callable[[list[Any] | None, BaseException | None], None]
"""Called on the loop with the results of a group of units, or with the error that prevented them."""

RESOLVE_INTERVAL = 0.1  # seconds between two questions after an ambiguous commit
GATHER_TURN_LIMIT = 2  # turns of the loop that a group stays open for, until it is as big as the last ones were
GATHER_UNIT_LIMIT = 16  # units; no group stays open for more
GROUP_UNIT_LIMIT = 1000  # units in one transaction


class CommitFuture(asyncio.Future[T]):
    """The result of a unit of work, set when the unit is committed.

    A task that awaits it resumes one turn of the loop later. `on_done` runs in the same turn.
    """

    on_done: "Callable[[CommitFuture[T]], None] | None" = None

    def set_value(self, result: T) -> None:
        """Set the result, unless the caller has stopped waiting."""
        if not self.done():
            self.set_result(result)
            self._call_on_done()

    def set_error(self, error: BaseException) -> None:
        """Set the error, unless the caller has stopped waiting."""
        if not self.done():
            self.set_exception(error)
            self._call_on_done()

    def _call_on_done(self) -> None:
        if self.on_done is None:
            return
        try:
            self.on_done(self)
        except Exception as error:  # a failing callback must not keep the other units from their results: as in asyncio
            context: dict[str, Any] = {"message": "a commit callback failed", "exception": error, "future": self}
            self.get_loop().call_exception_handler(context)


_PendingUnit = tuple[WriteT, CommitFuture[Any]]


class Committed(msgspec.Struct, frozen=True):
    """Everything was written; the results of the units, in order."""

    results: list[Any]


class Ambiguous(msgspec.Struct, frozen=True):
    """The connection was lost during the commit; `token` identifies the transaction to the database."""

    token: Any
    results: list[Any]
    cause: str


class Transactor(Protocol[UnitT]):
    """A database that can run units of work in one transaction."""

    async def transact(self, units: Sequence[UnitT]) -> Committed | Ambiguous:
        """Run units in one transaction; StoreError if the database fails, a unit's own error if the unit does."""

    async def was_committed(self, token: Any) -> bool:
        """Return whether an ambiguous transaction was committed; StoreError while the database cannot tell."""


class CallbackTransactor(Transactor[UnitT]):
    """A database that also calls back, without a task per transaction. None of its commits is ever ambiguous."""

    @abstractmethod
    def transact_with_callback(self, units: Sequence[UnitT], on_done: Callback) -> None:
        """Run units in one transaction, as `transact` does, and pass the outcome to `on_done`."""

    @abstractmethod
    def translate_error(self, error: Exception) -> Exception:
        """Map a unit's own exception to the one its caller sees."""


class GroupCommitter(Generic[WriteT]):
    """The one way to write to a store."""

    def __init__(self, transactor: Transactor[WriteT]) -> None:
        self.transactor = transactor
        self._tasks = asyncio.TaskGroup()
        self._waiting: list[_PendingUnit[WriteT]] = []
        self._in_flight: list[_PendingUnit[WriteT]] = []
        self._task: asyncio.Task[None] | None = None
        self._is_open = self._is_busy = False
        self.has_failed = False
        """Whether a write has failed since the store was last found to take writes."""
        self._expected_group_size = 0
        """How many units the last groups had: the next group stays open for as many, for a few turns of the loop."""

    @property
    def transactor(self) -> Transactor[WriteT]:
        """The database that units are written to. Replace it only while no transaction is in flight."""
        return self._transactor

    @transactor.setter
    def transactor(self, transactor: Transactor[WriteT]) -> None:
        self._transactor = transactor
        self._callback_transactor = transactor if isinstance(transactor, CallbackTransactor) else None

    async def open(self) -> None:
        """Begin to accept units; works again after `close`, and on another loop."""
        self._loop = asyncio.get_running_loop()
        self._tasks = asyncio.TaskGroup()
        await self._tasks.__aenter__()
        self._is_open, self._is_busy = True, False

    async def close(self) -> None:
        """Accept no more units; fail those that wait."""
        if not self._is_open:
            return
        self._is_open = False
        if self._task is not None:
            self._task.cancel()
        await self._tasks.__aexit__(None, None, None)
        in_flight, self._in_flight, waiting, self._waiting = self._in_flight, [], self._waiting, []
        _set_errors(in_flight, StoreError("the store was closed before it answered"))
        _set_errors(waiting, StoreError("the store is closed"))

    def submit(self, unit: WriteT) -> CommitFuture[Any]:
        """Run a unit in the next transaction; the future has its result when it is committed."""
        if not self._is_open:
            raise StoreError("the store is not open")
        future: CommitFuture[Any] = CommitFuture()
        self._waiting.append((unit, future))
        if not self._is_busy:
            self._is_busy = True
            self._start_next_group()
        return future

    async def commit(self, unit: WriteT) -> Any:
        """Run a unit in the next transaction; return its result when it is committed."""
        return await self.submit(unit)

    # -- one group after the other

    def _start_next_group(self) -> None:
        """Begin the next group, after every writer of this turn of the loop has joined it."""
        if not self._waiting:
            self._is_busy = False
        elif self._callback_transactor is None:
            self._start_task(self._commit_groups())
        else:
            self._loop.call_soon(self._gather, self._callback_transactor, GATHER_TURN_LIMIT)

    def _gather(self, transactor: CallbackTransactor[WriteT], turns_left: int) -> None:
        """Have the next group written, once it is as big as the last ones were, or has been open for long enough."""
        if turns_left and len(self._waiting) < self._expected_group_size:
            self._loop.call_soon(self._gather, transactor, turns_left - 1)
        elif self._is_open and self._waiting and not self._in_flight:  # else closed meanwhile, and perhaps opened again
            group = self._next_group()
            transactor.transact_with_callback([unit for unit, _ in group], partial(self._on_group_done, group))

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        self._task = self._tasks.create_task(work, name="store: group committer")

    def _next_group(self) -> "list[_PendingUnit[WriteT]]":
        self._in_flight, self._waiting = self._waiting[:GROUP_UNIT_LIMIT], self._waiting[GROUP_UNIT_LIMIT:]
        self._expected_group_size = max(len(self._in_flight), min(self._expected_group_size, GATHER_UNIT_LIMIT) - 1)
        return self._in_flight

    def _on_group_done(
        self, group: "list[_PendingUnit[WriteT]]", results: list[Any] | None, error: BaseException | None
    ) -> None:
        """Pass the outcome of a group to its callers, and begin the next group."""
        if group is not self._in_flight:
            return  # the store was closed meanwhile
        if error is not None and _is_unit_error(error, group):
            _log_split(error, group)
            self._start_task(self._commit_each(group))
            return
        self._in_flight = []
        if self._callback_transactor is not None and len(self._waiting) >= self._expected_group_size:
            self._gather(self._callback_transactor, 0)  # the database writes it while callers handle their results
        if error is None:
            for (_, future), result in zip(group, results or [], strict=True):
                future.set_value(result)
        else:
            self._fail(group, error)
        if not self._in_flight:
            self._start_next_group()

    async def _commit_each(self, group: "list[_PendingUnit[WriteT]]") -> None:
        for one in group:
            await self._commit_group([one])
        self._in_flight = []
        self._start_next_group()

    async def _commit_groups(self) -> None:
        while self._waiting:
            await self._commit_group(self._next_group())
            self._in_flight = []
            await asyncio.sleep(0)  # every writer of this turn of the loop joins the next group
        self._is_busy = False

    async def _commit_group(self, group: "list[_PendingUnit[WriteT]]") -> None:
        try:
            results = await self._transact([unit for unit, _ in group])
        except Exception as error:
            if _is_unit_error(error, group):
                _log_split(error, group)
                for one in group:
                    await self._commit_group([one])
            else:
                self._fail(group, error)
        else:
            for (_, future), result in zip(group, results, strict=True):
                future.set_value(result)

    def _fail(self, group: "list[_PendingUnit[WriteT]]", error: BaseException) -> None:
        self.has_failed = True
        _set_errors(group, self._visible_error(error))

    def _visible_error(self, error: BaseException) -> BaseException:
        """Return the error that a caller sees: the database's as it is, a unit's own translated."""
        if self._callback_transactor is None or isinstance(error, StoreError) or not isinstance(error, Exception):
            return error
        return self._callback_transactor.translate_error(error)

    async def _transact(self, units: list[WriteT]) -> list[Any]:
        outcome = await self._transactor.transact(units)
        if isinstance(outcome, Ambiguous) and not await self._resolve_ambiguous(outcome):
            raise StoreError(f"not committed: {outcome.cause}")
        return outcome.results

    async def _resolve_ambiguous(self, outcome: Ambiguous) -> bool:
        """Return whether an ambiguous transaction was committed, however long it takes to find out."""
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
    """Return whether an error belongs to one unit of a group, without telling which."""
    return len(group) > 1 and isinstance(error, Exception) and not isinstance(error, StoreError)


def _log_split(error: BaseException, group: Sequence[Any]) -> None:
    """Log why a group runs again one by one: a unit that then succeeds leaves no other trace of the error."""
    logger.warning(events.COMMIT_SPLIT, extra={"units": len(group)}, exc_info=error)


def _set_errors(group: Sequence[tuple[Any, CommitFuture[Any]]], error: BaseException) -> None:
    for _, future in group:
        future.set_error(_copy_error(error))


def _copy_error(error: BaseException) -> BaseException:
    """Return a copy for one caller: an error that many raise would collect the tracebacks of all."""
    if not isinstance(error, StoreError):
        return error
    copy = StoreError(*error.args)
    copy.__cause__ = error.__cause__
    return copy
