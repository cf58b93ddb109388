"""The loop of whoever is in office: plan, reap runs, reap tasks. It never dies, and it is on time.

Every tick reads from the store which runs are active and makes the desk agree with it, so that nothing depends on any
message having arrived. Between ticks the loop sleeps to the next instant at which something is due, a slot, a retry,
the end of a deferral, or until somebody rings. A phase that fails is counted and said, and the next one has its turn.
No phase waits for an executor.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime

from tidemill.engine.wakeups import FOR_GOOD, Alarm
from tidemill.engine.workflows.crew import Crew
from tidemill.engine.workflows.desk import Desk
from tidemill.engine.workflows.environment import STORE_RETRY, Environment
from tidemill.engine.workflows.library import Library
from tidemill.engine.workflows.pollers import Pollers
from tidemill.engine.workflows.retention import Retention
from tidemill.engine.workflows.run_reaper import RunReaper
from tidemill.engine.workflows.schedules import Schedules
from tidemill.engine.workflows.task_reaper import TaskReaper
from tidemill.kernel.errors import StoreError
from tidemill.telemetry import events

logger = logging.getLogger(__name__)

PATIENCE = 5.0  # seconds that a phase may take
QUIET = 300.0  # seconds between ticks at most, where nobody else can change anything and nothing runs


class Scheduler:
    """The loop of one term."""

    def __init__(
        self,
        environment: Environment,
        library: Library,
        desk: Desk,
        crew: Crew,
        schedules: Schedules,
        pollers: Pollers,
        alarm: Alarm,
    ) -> None:
        self._store = environment.store
        self._library = library
        self._desk = desk
        self._crew = crew
        self._schedules = schedules
        self._pollers = pollers
        self._run_reaper = RunReaper(environment, desk)
        self._task_reaper = TaskReaper(environment, desk, crew)
        self._retention = Retention(environment)
        self._alarm = alarm
        self._clock = environment.clock
        self._settings = environment.settings
        self._figures = environment.figures
        self._is_alone = environment.is_alone
        self._interval = self._settings.tick_interval
        self._next_tick = self._clock.monotonic()
        self._has_heard = False
        self._has_seen_all = False
        """Whether the board is known to hold everything that is active."""
        self._has_failed = False
        self._failures = 0

    @property
    def is_asleep(self) -> bool:
        """Whether the loop sleeps, and nobody is waking it."""
        return self._alarm.is_asleep

    @property
    def is_asking(self) -> bool:
        """Whether some trigger, or what some deferral waits for, is being asked."""
        return self._pollers.asking > 0 or self._desk.polls.asking > 0

    def hear(self) -> None:
        """Take note that somebody else changed something: what the desk has in mind may be out of date."""
        self._has_heard = True
        self._alarm.ring()

    def stir(self) -> None:
        """Come back to the rhythm of ticks after a quiet time."""
        soon = self._clock.monotonic() + self._settings.tick_interval
        if self._next_tick > soon:
            self._next_tick, self._interval = soon, self._settings.tick_interval
            self._alarm.ring()

    async def run(self) -> None:
        """Go on until cancelled."""
        while True:
            self._has_failed = False
            if self._clock.monotonic() >= self._next_tick:
                await self.step()
            elif self._has_heard:
                self._has_heard = False
                await self._isolated("plan", self._plan)
            else:
                await self._isolated("due", self._do_what_is_due)
            self._failures = self._failures + 1 if self._has_failed else 0
            if await self._alarm.sleep(self._until_next()):
                self._interval = self._settings.tick_interval

    async def step(self) -> None:
        """Do one full pass."""
        began = self._clock.monotonic()
        self._figures.read("scheduler_tick_lag_seconds", began - self._next_tick)
        await self._isolated("plan", self._plan)
        await self._isolated("reap runs", self._run_reaper.reap)
        await self._isolated("reap tasks", self._task_reaper.reap)
        await self._isolated("retention", self._retention.prune)
        self._figures.count("scheduler_ticks_total")
        self._figures.read("scheduler_tick_seconds", self._clock.monotonic() - began)
        self._set_next_tick(began)

    def _set_next_tick(self, began: float) -> None:
        """Keep to the rhythm; ticks that were missed are not made up for."""
        is_busy = self._desk.working or self._crew.held or self._crew.living()  # also code that was given up: it ends
        is_quiet = self._is_alone and not is_busy and self._retention.next > began
        base = self._settings.tick_interval
        self._interval = min(self._interval * 2, max(QUIET, base)) if is_quiet else base
        due = self._next_tick + self._interval
        self._next_tick = due if due > began else began + self._interval
        if is_quiet and self._has_seen_all and not self._desk.board:  # only to delete: who brings anything else stirs
            self._next_tick = max(self._next_tick, self._retention.next_if_idle)

    async def _isolated(self, phase: str, work: Callable[[], Awaitable[None]]) -> None:
        try:
            async with asyncio.timeout(PATIENCE):  # real time: it is the store that is waited for
                await work()
        except (StoreError, TimeoutError) as error:
            self._has_failed = True
            self._figures.count("scheduler_phase_errors_total", phase=phase)
            said = str(error) or f"it took longer than {PATIENCE:g} s"
            logger.warning(events.PHASE_FAILED, extra={"phase": phase, "error": said})
            self._task_reaper.deafened()
        except Exception:  # whatever is wrong with a phase, the loop goes on
            self._has_failed = True
            self._figures.count("scheduler_phase_errors_total", phase=phase)
            logger.exception(events.PHASE_FAILED, extra={"phase": phase})

    async def _plan(self) -> None:
        self._has_seen_all = False
        self._desk.allotment.heed_pauses(await self._store.schedules.paused())
        old = self._library.superseded()
        if await self._desk.refresh():
            self._library.forget(old - {active.version for active in self._desk.board.values()})
        else:
            self.hear()  # there is more to be read
        self._figures.read("runs_active", len(self._desk.board))
        self._desk.allotment.places.unpark()
        self._has_seen_all = True
        if self._desk.board:
            self.stir()
        await self._do_what_is_due()

    async def _do_what_is_due(self) -> None:
        self._desk.wake_due()  # first: it asks nothing of the store
        self._desk.allotment.give()
        await self._schedules.sync()
        await self._pollers.sync()
        await self._schedules.fire_due()

    def _until_next(self) -> float:
        until_tick = self._next_tick - self._clock.monotonic()
        now = self._clock.now()
        times = [time for time in (self._desk.timers.next, self._schedules.next_time) if time is not None]
        least = STORE_RETRY.delay(self._failures) if self._failures else 0.0  # what is due stays due while that is away
        return min(max(least, min([until_tick, *(_seconds(time, now) for time in times)])), FOR_GOOD)


def _seconds(time: datetime, now: datetime) -> float:
    return (time - now).total_seconds()
