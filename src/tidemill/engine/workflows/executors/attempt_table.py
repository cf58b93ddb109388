"""Bookkeeping that the executors share: the attempts that run, and those that have ended recently."""

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

from tidemill.engine.workflows.executors.interface import AttemptListener, AttemptRequest
from tidemill.kernel.errors import TidemillError
from tidemill.workflows.attempt_results import AttemptResult, Failed, HandedBack
from tidemill.workflows.records import AttemptKey, TaskError


class RunningAttempt:
    """One accepted attempt, until its code has ended."""

    __slots__ = ("is_reported", "request", "stop_ending", "watchdog")

    def __init__(self, request: AttemptRequest) -> None:
        self.request = request
        self.watchdog: asyncio.Task[Any] | None = None
        """The task that enforces its timeout or its cancellation."""
        self.stop_ending: AttemptResult | None = None
        """Its result if it is stopped from outside."""
        self.is_reported = False
        """Whether its result has been reported, or must not be."""

    @property
    def may_start(self) -> bool:
        """Whether its code may still be called."""
        return not self.is_reported and self.stop_ending is None

    async def request_start(self, listener: AttemptListener) -> None:
        """Ask the listener to record the start, if that is not done; `may_start` then holds the answer."""
        if self.request.has_begun or not self.may_start:
            return
        try:
            if not await listener.record_start(self.request.key):
                self.is_reported = True
        except TidemillError as error:
            self.stop_ending = self.stop_ending or HandedBack(f"its start could not be recorded: {error}")

    def build_timeout_failure(self) -> Failed:
        """Return the result of an attempt that ran longer than its timeout."""
        error = TaskError("TimeoutError", f"it ran longer than {self.request.timeout:g} s")
        return Failed(error=error, outcome="timeout")

    def cancel_watchdog(self) -> None:
        """Stop enforcing the timeout or the cancellation."""
        if self.watchdog is not None:
            self.watchdog.cancel()


Attempt = TypeVar("Attempt", bound=RunningAttempt)


class AttemptTable(Generic[Attempt]):
    """The attempts of one executor by key. It remembers ended ones, so that a repeated request starts nothing twice."""

    def __init__(self, recent_limit: int = 4096) -> None:
        self._running: dict[AttemptKey, Attempt] = {}
        self._ended: set[AttemptKey] = set()
        self._ended_oldest_first: deque[AttemptKey] = deque(maxlen=recent_limit)

    def __len__(self) -> int:
        return len(self._running)

    def __iter__(self) -> Iterator[Attempt]:
        return iter(tuple(self._running.values()))

    def keys(self) -> set[AttemptKey]:
        """Return the keys of the running attempts."""
        return set(self._running)

    def get(self, key: AttemptKey) -> Attempt | None:
        """Return a running attempt."""
        return self._running.get(key)

    def is_known(self, key: AttemptKey) -> bool:
        """Return whether an attempt runs or has ended recently."""
        return key in self._running or key in self._ended

    def add(self, attempt: Attempt) -> None:
        """Record an accepted attempt."""
        self._running[attempt.request.key] = attempt

    def remove(self, attempt: Attempt) -> bool:
        """Record the end of an attempt; False if it is no longer in the table."""
        key = attempt.request.key
        if self._running.get(key) is not attempt:
            return False
        del self._running[key]
        if len(self._ended_oldest_first) == self._ended_oldest_first.maxlen:
            self._ended.discard(self._ended_oldest_first[0])
        self._ended_oldest_first.append(key)
        self._ended.add(key)
        return True

    def forget(self, attempt: Attempt) -> None:
        """Remove an attempt as if it had never been accepted."""
        if self._running.get(attempt.request.key) is attempt:
            del self._running[attempt.request.key]
