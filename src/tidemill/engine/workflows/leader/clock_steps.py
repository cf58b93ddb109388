"""Steps of the wall clock: retries and deferrals wait for some seconds, and are stored as wall times.

Once the wall clock has been stepped by an hour, a stored time is an hour off. The leader has counted the seconds
meanwhile, so it moves the times of all that waits by the length of the step, in memory immediately and in the store
with the next change of each run. Deferrals that name a time of the wall clock, and schedules, follow the clock.
"""

import logging
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from msgspec.structs import replace

from tidemill.engine.workflows.leader.active_runs import ActiveRun, DraftEdit
from tidemill.engine.workflows.leader.timers import RunTimers
from tidemill.telemetry import events
from tidemill.workflows.records import AttemptKey
from tidemill.workflows.run_draft import RunDraft

logger = logging.getLogger(__name__)


def move_timers(
    active_runs: Mapping[str, ActiveRun],
    timers: RunTimers,
    request: Callable[[str, DraftEdit], Any],
    step: timedelta,
) -> None:
    """Let everything that waits for seconds to pass wait as long as if the wall clock had not been stepped."""
    logger.warning(events.CLOCK_STEPPED, extra={"seconds": step.total_seconds()})
    for run, active in list(active_runs.items()):
        if times := _move_wake_times(active, step):
            timers.cancel(run)
            timers.schedule(run, active.rows.values())
            request(run, partial(RunDraft.set_wake_times, times=times))


def _move_wake_times(active: ActiveRun, step: timedelta) -> dict[AttemptKey, datetime]:
    """Move the wake times of a cached run; return the new ones."""
    moved: dict[AttemptKey, datetime] = {}
    for ref, row in list(active.rows.items()):
        if row.is_counting_down and row.wake_at is not None:
            moved[AttemptKey(active.run.id, *ref, row.attempt)] = row.wake_at + step
            active.rows = active.rows | {ref: replace(row, wake_at=row.wake_at + step)}
    return moved
