"""Events of runs as the feed shows them, and the tail that reads new ones from the store while someone listens."""

import logging
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Any

from tidemill.engine.tasks import Wakeup
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import StoreError
from tidemill.storage.workflow_ports import Runs
from tidemill.telemetry import events
from tidemill.workflows.plan import UNMAPPED
from tidemill.workflows.records import EventRow, NumberedEvent
from tidemill.workflows.states import RunState

logger = logging.getLogger(__name__)

PAGE_SIZE = 500
"""The number of changes that are read at once."""
RECENT_LIMIT = 4096
"""The number of events that readers get from memory; those that are further behind read the store."""
POLL_INTERVAL = 0.25
"""Seconds after which new events are looked for, even if no notification has come: some stores send none."""


def event_type(row: EventRow) -> str:
    """Return the type of a stored event."""
    if row.task is not None:
        return events.TASK_STATE
    if row.after == RunState.RUNNING:
        return events.RUN_STARTED
    return events.RUN_CLEARED if row.after == RunState.QUEUED else events.RUN_ENDED


def event_fields(numbered: NumberedEvent) -> dict[str, Any]:
    """Return the fields of a stored event."""
    row = numbered.event
    fields: dict[str, Any] = {"run": row.run, "workflow": numbered.workflow}
    if row.task is not None:
        index = None if row.index == UNMAPPED else row.index
        fields |= {"task": row.task, "index": index, "attempt": row.attempt, "before": row.before}
    return fields | {"state": row.after, "reason": row.reason, "actor": row.actor}


class RunEventTail:
    """Reads new events of all runs from the store, and keeps the newest for readers."""

    def __init__(self, runs: Runs, clock: Clock, on_read: Callable[[], None]) -> None:
        self._runs = runs
        self._on_read = on_read
        self._wakeup = Wakeup(clock)
        self._recent: deque[NumberedEvent] = deque()
        self._floor = 0
        self._is_failing = False
        self.number = 0
        """The number up to which events were read."""

    async def start(self) -> None:
        """Begin with the next event."""
        self.number = self._floor = await self._runs.last_event_number()
        self._recent.clear()

    async def run(self) -> None:
        """Read new events until cancelled."""
        while True:
            await self._wakeup.wait(POLL_INTERVAL)
            try:
                await self._read_new()
                self._is_failing = False
            except StoreError as error:
                if not self._is_failing:
                    logger.warning(events.EVENTS_UNREADABLE, extra={"error": str(error)})
                self._is_failing = True

    def wake(self) -> None:
        """Look for new events now."""
        self._wakeup.notify()

    async def _read_new(self) -> None:
        while page := await self._runs.read_events_after(self.number, PAGE_SIZE):
            self.number = page[-1].number
            self._recent.extend(page)
            while len(self._recent) > RECENT_LIMIT:
                self._floor = self._recent.popleft().number
            self._on_read()

    async def read_after(self, number: int) -> tuple[list[NumberedEvent], int]:
        """Return some events with higher numbers, and the number up to which these are all that there are."""
        if number >= self._floor:
            place = bisect_right(self._recent, number, key=lambda one: one.number)
            return list(islice(self._recent, place, None)), max(number, self.number)
        page = await self._runs.read_events_after(number, PAGE_SIZE)
        return page, page[-1].number if page else self._floor
