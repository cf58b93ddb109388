# Written by scripts/blocking_client.py from the asynchronous module of this name: change it there.
"""Methods of the client for schedules, triggers, backfills and nodes."""

from datetime import datetime

from tidemill.api.paging import Page
from tidemill.client.calls import command, get, make, name_in_path
from tidemill.client.synchronous.transport import Transport
from tidemill.client.values import BackfillInfo
from tidemill.workflows.slots import BackfillPlan


class ClockCalls:
    """Methods for what starts runs, and for what limits them."""

    _transport: Transport

    # -- backfills

    def backfill(
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
        return self._transport.send(make("/backfills", BackfillPlan, body))

    def backfills(self, limit: int | None = 50) -> list[BackfillInfo]:
        """Return the newest backfills, newest first, with the states of their runs."""
        return self._transport.collect(get("/backfills", Page[BackfillInfo]), limit)

    def cancel_backfill(self, id: str) -> BackfillInfo:
        """Start no more runs of a backfill, and cancel its active ones."""
        return self._transport.send(command(f"/backfills/{name_in_path(id)}/cancel", BackfillInfo))
