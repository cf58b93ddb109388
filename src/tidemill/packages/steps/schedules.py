"""Step 1: rows of schedules. They begin disarmed: no slot has a run before the workflow is in place."""

from tidemill.engine.workflows.schedules import first_cursor
from tidemill.kernel.clock import Clock
from tidemill.packages.exchange import Exchange
from tidemill.packages.steps.step import Step
from tidemill.storage.run_ports import Schedules


class ScheduleRows(Step):
    """The rows of a package's schedules, keyed by tenant, workflow and schedule.

    A row that is there stays as it is, with its cursor and its pause: a reload misses no slot.
    """

    title = "schedules"
    takes_time = False

    def __init__(self, schedules: Schedules, clock: Clock) -> None:
        self._schedules = schedules
        self._clock = clock

    async def put(self, exchange: Exchange) -> None:
        now = self._clock.now()
        cursors = [
            first_cursor(exchange.tenant, workflow.name, schedule, now, armed=False)
            for workflow, schedule in exchange.after.schedules()
        ]
        if cursors:
            exchange.inserted += await self._schedules.insert(cursors)

    async def take_back(self, exchange: Exchange) -> None:
        if exchange.inserted:
            await self._schedules.delete(exchange.inserted)
            exchange.inserted.clear()

    async def retire(self, exchange: Exchange) -> None:
        if gone := exchange.gone_schedules:
            await self._schedules.delete(gone)
