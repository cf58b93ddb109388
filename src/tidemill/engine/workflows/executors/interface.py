"""What an executor is: something that runs attempts, each at most once, and says how they end.

An executor knows nothing of runs, rules and retries. It is handed an order, and reports: that the attempt begins, what
it logs, how it ended. Everything is idempotent by the attempt's key, so whoever is in doubt asks again.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from tidemill.kernel.errors import OperationError
from tidemill.workflows.attempt_results import AttemptResult, Failed
from tidemill.workflows.records import AttemptKey, TaskError

LOG_LINE_LIMIT = 64 * 1024
"""How much of one record of a log is kept: bytes of what is printed, characters of what is logged."""


class SingleInput(msgspec.Struct, frozen=True, tag=True):
    """The value of a task, encoded."""

    value: bytes


class ListInput(msgspec.Struct, frozen=True, tag=True):
    """The values of those elements of a mapped task that succeeded, in order."""

    values: tuple[bytes, ...]


class ItemOfList(msgspec.Struct, frozen=True, tag=True):
    """One element of a task's list."""

    value: bytes
    number: int


class EncodedItem(msgspec.Struct, frozen=True, tag=True):
    """One element of a task's list, cut out of it: that travels lighter than the list."""

    value: bytes


Input = SingleInput | ListInput | ItemOfList | EncodedItem


class AttemptRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is needed to run one attempt, but the code."""

    key: AttemptKey
    tenant: str
    workflow: str
    version: str
    executor: str
    number: int
    """Which try it is, for the author: 1 for the first."""
    deferrals: int
    """How many of its deferrals are over."""
    params: bytes
    inputs: Mapping[str, Input]
    """By parameter; one that is not here has no value."""
    slot: datetime | None = None
    timeout: float | None = None
    has_begun: bool = False
    """Whether the attempt is already recorded as running: then `Reports.begins` is not asked."""


class LogRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Something that an attempt said."""

    at: datetime
    message: str
    level: str = "info"
    stream: str = "log"
    """Where it was said: "log", "stdout" or "stderr"."""
    fields: dict[str, object] = {}


class AttemptListener(Protocol):
    """Who is told about attempts."""

    async def record_start(self, key: AttemptKey) -> bool:
        """Record that an attempt begins; False if it must not, because it is no longer wanted."""

    def on_log(self, key: AttemptKey, records: Sequence[LogRecord]) -> None:
        """Take what an attempt said."""

    def on_ended(self, key: AttemptKey, ending: AttemptResult) -> None:
        """Take how an attempt ended; said once."""

    def resume_work(self) -> None:
        """Go on from what was told, at once: nothing more of this moment is to be told. Nobody has to say so."""


class Executor(Protocol):
    """Something that runs attempts."""

    name: str
    is_immediate: bool
    """Whether it takes an order at once, by `take`, so that nobody needs to wait for it."""

    async def open(self) -> None:
        """Get ready."""

    async def close(self, timeout: float) -> None:
        """End every attempt that still runs, within so many seconds, without a report."""

    def abandon(self) -> None:
        """Let everything that runs here vanish without a report, as far as it can be ended."""

    def free_slots(self) -> int:
        """Return how many more attempts it could take now."""

    async def submit(self, request: AttemptRequest) -> None:
        """Take an order; returns when it is accepted. An attempt that is here already is not begun again.

        What cannot be run raises OperationError; then nothing is begun.
        """

    def submit_now(self, request: AttemptRequest) -> None:
        """Take an order as `submit` does, but at once; only who is immediate can."""
        raise OperationError(f"{self.name} takes its time: submit {request.key}")

    def running(self) -> set[AttemptKey]:
        """Return the attempts that are here and may still report."""

    async def cancel(self, key: AttemptKey, reason: str) -> None:
        """End an attempt as far as possible, which then reports Stopped; unknown ones are no error."""


STOP_GRACE_PERIOD = 5.0
"""Seconds that code has to end after it was asked to."""


def build_timeout_failure(request: AttemptRequest) -> Failed:
    """Return the ending of an attempt that took too long."""
    error = TaskError("TimeoutError", f"it ran longer than {request.timeout:g} s")
    return Failed(error=error, outcome="timeout")


class RecentAttempts:
    """The newest attempts that have ended here: they do not begin again if somebody asks twice."""

    def __init__(self, size: int = 4096) -> None:
        self._oldest_first: deque[AttemptKey] = deque(maxlen=size)
        self._keys: set[AttemptKey] = set()

    def add(self, key: AttemptKey) -> None:
        """Remember an attempt."""
        if len(self._oldest_first) == self._oldest_first.maxlen:
            self._keys.discard(self._oldest_first[0])
        self._oldest_first.append(key)
        self._keys.add(key)

    def __contains__(self, key: AttemptKey) -> bool:
        return key in self._keys
