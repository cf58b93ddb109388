"""Methods of the client for schedules, triggers, backfills and nodes."""

from datetime import datetime

from tidemill.api.paging import Page
from tidemill.client.asynchronous.transport import AsyncTransport
from tidemill.client.calls import command, get, make, name_in_path, patch
from tidemill.client.values import BackfillInfo, ScheduleInfo, TriggerInfo, UpcomingSlot
from tidemill.engine.workflows.client.values import BackfillPlan


class AsyncClockCalls:
    """Methods for what starts runs, and for what limits them."""

    _transport: AsyncTransport

    # -- schedules and triggers

    async def schedules(self) -> list[ScheduleInfo]:
        """Return the schedules of the loaded workflows, with their next slots."""
        return await self._transport.collect(get("/schedules", Page[ScheduleInfo]))

    async def preview_schedule(self, workflow: str, count: int = 10) -> list[UpcomingSlot]:
        """Return the next slots of a workflow, of all its schedules."""
        path = f"/workflows/{name_in_path(workflow)}/schedule/preview"
        return (await self._transport.send(get(path, Page[UpcomingSlot], count=count))).items

    async def triggers(self) -> list[TriggerInfo]:
        """Return the triggers of the loaded workflows by name."""
        return await self._transport.collect(get("/triggers", Page[TriggerInfo]))

    async def pause_trigger(self, name: str) -> TriggerInfo:
        """Pause a trigger: it starts nothing until it is resumed."""
        return await self._transport.send(patch(f"/triggers/{name_in_path(name)}", TriggerInfo, {"paused": True}))

    async def resume_trigger(self, name: str) -> TriggerInfo:
        """Resume a trigger."""
        return await self._transport.send(patch(f"/triggers/{name_in_path(name)}", TriggerInfo, {"paused": False}))

    # -- backfills

    async def backfill(
        self,
        workflow: str,
        start: datetime,
        end: datetime,
        *,
        preview: bool = False,
        only_missing: bool = True,
        limit: int = 1,
        key: str | None = None,
    ) -> BackfillPlan:
        """Start a run for every past slot of a schedule in [start, end], at most `limit` running at a time.

        Slots that have had a run are left out unless `only_missing` is False. With `preview` nothing is changed.
        """
        body = {
            "workflow": workflow,
            "from": start,
            "to": end,
            "preview": preview,
            "only_missing": only_missing,
            "limit": limit,
            "key": key,
        }
        return await self._transport.send(make("/backfills", BackfillPlan, body))

    async def backfills(self, limit: int | None = 50) -> list[BackfillInfo]:
        """Return the newest backfills, newest first, with the states of their runs."""
        return await self._transport.collect(get("/backfills", Page[BackfillInfo]), limit)

    async def cancel_backfill(self, id: str) -> BackfillInfo:
        """Start no more runs of a backfill, and cancel its active ones."""
        return await self._transport.send(command(f"/backfills/{name_in_path(id)}/cancel", BackfillInfo))
