"""Step 1: rows of schedules. They begin disarmed: no slot has a run before the workflow is in place."""

from tidemill.engine.workflows.schedules import first_cursor
from tidemill.kernel.clock import Clock
from tidemill.packages.exchange import Exchange
from tidemill.packages.ledger import Ledger
from tidemill.packages.steps.step import Step
from tidemill.storage.run_ports import ScheduleKey, Schedules


class ScheduleRows(Step):
    """The rows of a package's schedules, keyed by tenant, workflow and schedule.

    A row that is there stays as it is, with its cursor and its pause: a reload misses no slot.
    """

    title = "schedules"
    takes_time = False

    def __init__(self, schedules: Schedules, clock: Clock, ledger: Ledger) -> None:
        self._schedules = schedules
        self._clock = clock
        self._ledger = ledger

    async def put(self, exchange: Exchange) -> None:
        now = self._clock.now()
        cursors = [
            first_cursor(exchange.tenant, workflow.name, schedule, now, armed=False)
            for workflow, schedule in exchange.after.schedules()
        ]
        if cursors:
            exchange.doubtful = [one.schedule for one in cursors]
            exchange.inserted += await self._schedules.insert(cursors)
            exchange.doubtful = []

    async def take_back(self, exchange: Exchange) -> None:
        doubtful = [key for key in exchange.doubtful if await self._ledger.is_disarmed(key)]
        await self._delete({*exchange.inserted, *doubtful})
        exchange.inserted, exchange.doubtful = [], []

    async def retire(self, exchange: Exchange) -> None:
        await self._delete(set(exchange.gone_schedules))

    async def _delete(self, keys: set[ScheduleKey]) -> None:
        """Delete rows, but for those of other nodes: whoever is the last to have a schedule takes its row away."""
        if keys:
            await self._schedules.delete(sorted(keys - await self._ledger.needed_elsewhere()))
