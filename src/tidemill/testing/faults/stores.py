"""Store faults: transactions that a test fails, delays or observes."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, TypeVar

from tidemill.kernel.errors import StoreError
from tidemill.storage.committer import (
    Ambiguous,
    Callback,
    CallbackTransactor,
    Committed,
    GroupCommitter,
    Transactor,
)
from tidemill.storage.store import Store
from tidemill.storage.workflow_ports import Lease, LeaseRenewal, Leases

UnitT = TypeVar("UnitT")


class StoreFaults:
    """The number of transactions of one store that are still to fail."""

    def __init__(self) -> None:
        self._remaining = 0

    def fail_next(self, times: int) -> None:
        """Fail the next `times` transactions; 0 lets them succeed again."""
        self._remaining = times

    def next_error(self) -> StoreError | None:
        """Count a transaction; return the error that it fails with, if it does."""
        if not self._remaining:
            return None
        self._remaining -= 1
        return StoreError("the transaction failed on purpose")

    def check(self) -> None:
        """Count a transaction; raise the error that it fails with, if it does."""
        error = self.next_error()
        if error is not None:
            raise error

    def wrap(self, transactor: Transactor[UnitT]) -> Transactor[UnitT]:
        """Return a transactor whose transactions fail when these faults say so."""
        if isinstance(transactor, CallbackTransactor):
            return FaultyCallbackTransactor(transactor, self)
        return FaultyTransactor(transactor, self)


class FaultyTransactor(Transactor[UnitT]):
    """Runs transactions on another transactor, except those that are to fail."""

    def __init__(self, inner: Transactor[UnitT], faults: StoreFaults) -> None:
        self.inner = inner
        self.faults = faults

    async def transact(self, units: Sequence[UnitT]) -> Committed | Ambiguous:
        self.faults.check()
        return await self.inner.transact(units)

    async def was_committed(self, token: Any) -> bool:
        return await self.inner.was_committed(token)


class FaultyCallbackTransactor(FaultyTransactor[UnitT], CallbackTransactor[UnitT]):
    """Runs transactions on another transactor that calls back, except those that are to fail."""

    inner: CallbackTransactor[UnitT]

    def __init__(self, inner: CallbackTransactor[UnitT], faults: StoreFaults) -> None:
        super().__init__(inner, faults)

    def transact_with_callback(self, units: Sequence[UnitT], on_done: Callback) -> None:
        error = self.faults.next_error()
        if error is None:
            self.inner.transact_with_callback(units, on_done)
        else:
            asyncio.get_running_loop().call_soon(on_done, None, error)

    def translate_error(self, error: Exception) -> Exception:
        return self.inner.translate_error(error)


class FaultyLeases(Leases):
    """Leases that are written without a committer: each call is one transaction, and fails when it is to."""

    def __init__(self, inner: Leases, faults: StoreFaults) -> None:
        self._inner = inner
        self._faults = faults
        self.has_own_clock = inner.has_own_clock

    async def acquire(self, name: str, holder: str, ttl: float, dead_holders: Collection[str] = ()) -> int | None:
        self._faults.check()
        return await self._inner.acquire(name, holder, ttl, dead_holders)

    async def take_over(self, name: str, silent: LeaseRenewal, holder: str, ttl: float) -> int | None:
        self._faults.check()
        return await self._inner.take_over(name, silent, holder, ttl)

    async def last_renewal(self, name: str) -> LeaseRenewal | None:
        return await self._inner.last_renewal(name)

    async def renew(self, name: str, epoch: int, ttl: float) -> bool:
        self._faults.check()
        return await self._inner.renew(name, epoch, ttl)

    async def release(self, name: str, epoch: int) -> None:
        self._faults.check()
        await self._inner.release(name, epoch)

    async def current(self, name: str) -> Lease | None:
        return await self._inner.current(name)


def install_faults(store: Store) -> StoreFaults:
    """Let the transactions of a store fail on demand; return what decides which, the same one every time.

    Install them before an engine is built on the store: PostgreSQL's leases, which have their own session instead
    of a committer, are replaced by a proxy.
    """
    committers = [value for value in vars(store).values() if isinstance(value, GroupCommitter)]
    for committer in committers:
        if isinstance(committer.transactor, FaultyTransactor):
            return committer.transactor.faults
    faults = StoreFaults()
    for committer in committers:
        committer.transactor = faults.wrap(committer.transactor)
    if not any(isinstance(value, GroupCommitter) for value in vars(store.leases).values()):
        store.leases = FaultyLeases(store.leases, faults)
    return faults


def fail_next(store: Store, times: int) -> None:
    """Fail the next `times` transactions of a store; 0 lets them succeed again."""
    install_faults(store).fail_next(times)


Transact = Callable[[Sequence[Any]], Awaitable[Any]]


def intercept_transactions(
    store: Store,
    intercept: Callable[[Transact, Sequence[Any]], Awaitable[Any]],
    was_committed: Callable[[Any], Awaitable[bool]] | None = None,
) -> Callable[[], None]:
    """Call `intercept` with the original function for each transaction of a memory store; return the undo function.

    It may return that a transaction is ambiguous; `was_committed` is asked then.
    """
    transactor: Any = store._committer.transactor  # type: ignore[attr-defined]
    transact, asked_before = transactor.transact, transactor.was_committed

    async def intercepted(units: Sequence[Any]) -> Any:
        return await intercept(transact, units)

    def undo() -> None:
        transactor.transact, transactor.was_committed = transact, asked_before

    transactor.transact, transactor.was_committed = intercepted, was_committed or asked_before
    return undo
