"""The claims and logs of remote attempts in the store, for the node that has launched or adopted them."""

import logging

import msgspec

from tidemill.engine.workflows.executors.interface import LogRecord
from tidemill.engine.workflows.executors.remote.interface import UnitStatus
from tidemill.kernel.backoff import Backoff
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import StoreError
from tidemill.storage.tables.logs import LogChunk
from tidemill.storage.tables.orders import AttemptClaim
from tidemill.storage.workflow_ports import WorkflowStore
from tidemill.telemetry import events
from tidemill.workflows.records import AttemptKey

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
