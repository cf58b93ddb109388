"""An attempt of a remote executor, as its node knows it, and the deadline of its start."""

import asyncio
import logging

import msgspec

from tidemill.engine.workflows.executors.attempt_table import RunningAttempt
from tidemill.engine.workflows.executors.interface import AttemptRequest
from tidemill.engine.workflows.executors.remote.interface import StartTimeouts, UnitStatus
from tidemill.kernel.backoff import Backoff
from tidemill.kernel.clock import Clock
from tidemill.kernel.durations import format_duration
from tidemill.kernel.errors import StoreError
from tidemill.storage.tables.logs import LogChunk
from tidemill.storage.tables.orders import AttemptClaim
from tidemill.storage.workflow_ports import WorkflowStore
from tidemill.telemetry import events
from tidemill.telemetry.log_records import LogRecord
from tidemill.workflows.records import AttemptKey


class StartDeadline:
    """Since when one unit is pending, and since when it has a problem. Times are monotonic."""

    __slots__ = ("_pending_since", "_status", "_troubled_since")

    def __init__(self) -> None:
        self._status: UnitStatus | None = None
        self._pending_since: float | None = None
        self._troubled_since: float | None = None

    def update(self, status: UnitStatus, now: float) -> None:
        """Accept what the cluster says about the unit."""
        self._status = status
        if self._pending_since is None:
            self._pending_since = now
        if status.problem is None:
            self._troubled_since = None
        elif self._troubled_since is None:
            self._troubled_since = now

    def find_end(self, timeouts: StartTimeouts, now: float) -> UnitStatus | None:
        """Return the end that a unit deserves which should have started long ago; None if it need not have."""
        status = self._status
        if status is None or status.state != "pending" or self._pending_since is None:
            return None
        reason = status.reason or "the cluster does not say why"
        if self._troubled_since is not None and now - self._troubled_since >= timeouts.problem:
            text = f"its unit cannot be started for {format_duration(timeouts.problem)}: {reason}"
            return UnitStatus(state="ended", cause=status.problem, reason=text)
        if now - self._pending_since >= timeouts.pending:
            text = f"it did not start within {format_duration(timeouts.pending)}: {reason}"
            return UnitStatus(state="ended", cause="pending_timeout", reason=text)
        return None


class RemoteAttempt(RunningAttempt):
    """An attempt whose unit was launched or adopted."""

    def __init__(self, request: AttemptRequest, *, adopted_at: float | None = None, has_begun: bool = False) -> None:
        super().__init__(request)
        self.adopted_at = adopted_at
        """When this node took it over, on the monotonic clock; None if this node launches it."""
        self.has_begun = has_begun
        """Whether its code is known to run, whatever the cluster says about its unit."""
        self.launched = asyncio.Event()
        """Set once the launcher has answered."""
        if adopted_at is not None:
            self.launched.set()
        self.deadline = StartDeadline()
        self.is_judged = False


logger = logging.getLogger(__name__)

RETRY_BACKOFF = Backoff(0.5, 15.0)
"""Pauses between the tries of a call that a store or a cluster does not answer."""

_TAIL_NUMBER = 2**30
"""The number of the log chunk with the end of a unit's output: after all those of the attempt itself."""


class AttemptRecords:
    """The claims and the logs of attempts."""

    def __init__(self, store: WorkflowStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def read_claim(self, key: AttemptKey) -> AttemptClaim | None:
        """Return the claim of an attempt; None if it is over."""
        failures = 0
        while True:
            try:
                return (await self._store.attempt_orders.claims([key])).get(key)
            except StoreError as error:
                failures += 1
                logger.warning(events.UNIT_CALL_FAILED, extra={"attempt": str(key), "error": str(error)})
                await self._clock.sleep(RETRY_BACKOFF.delay(failures))

    async def write_tail(self, key: AttemptKey, status: UnitStatus) -> None:
        """Append the end of a unit's output to the log of its attempt; a failure costs only that."""
        if not status.log_tail:
            return
        now = self._clock.now()
        records = [LogRecord(at=now, message=line, stream="stderr") for line in status.log_tail.splitlines()]
        chunk = LogChunk(key=key, number=_TAIL_NUMBER, payload=msgspec.msgpack.encode(records))
        try:
            await self._store.logs.append([chunk])
        except StoreError as error:
            logger.warning(events.TASK_LOGS_FAILED, extra={"attempt": str(key), "error": str(error)})
