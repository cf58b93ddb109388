"""Faults of the store: transactions that are delayed, observed or failed by a test."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from tidemill.storage.store import Store

Transact = Callable[[Sequence[Any]], Awaitable[Any]]


def intercept_transactions(
    store: Store, intercept: Callable[[Transact, Sequence[Any]], Awaitable[Any]]
) -> Callable[[], None]:
    """Call `intercept` with the original function for each transaction of a memory store; return the undo function."""
    transactor: Any = store._committer.transactor  # type: ignore[attr-defined]
    transact = transactor.transact

    async def intercepted(units: Sequence[Any]) -> Any:
        return await intercept(transact, units)

    def undo() -> None:
        transactor.transact = transact

    transactor.transact = intercepted
    return undo
