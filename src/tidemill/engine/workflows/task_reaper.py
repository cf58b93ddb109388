"""The task reaper: takes back attempts that nobody will report on any more.

There are two signs of that. The process that claimed an attempt is known to be gone: then its attempts are taken back
at once. Or its lease has run out, because nobody renewed it for the length of several heartbeats: then this is believed
only if the reaper has been able to hear heartbeats for a while, since leases also run out when it was the store, or
this node, that was away. An attempt whose owner is merely slow, or blocked in the author's code, is renewed by its node
and never touched.
"""

import logging

from tidemill.engine.workflows.crew import Crew
from tidemill.engine.workflows.desk import Desk
from tidemill.engine.workflows.environment import Environment
from tidemill.engine.workflows.leadership import OFFICE
from tidemill.kernel.errors import StoreError
from tidemill.telemetry import events
from tidemill.workflows.endings import Lost
from tidemill.workflows.records import AttemptKey, TaskKey, TaskRow

logger = logging.getLogger(__name__)

_BEATS = 2
"""How many heartbeats must have had time to arrive before silence means anything."""


_FORGET_EVERY = 60.0
"""Seconds between looks at which of the dead have left nothing behind."""


class TaskReaper:
    """Looks for attempts of the dead."""

    def __init__(self, environment: Environment, desk: Desk, crew: Crew) -> None:
        self._store = environment.store
        self._desk = desk
        self._crew = crew
        self._liveness = environment.liveness
        self._clock = environment.clock
        self._settings = environment.settings
        self._figures = environment.figures
        self._hearing_since = self._clock.monotonic()
        self._last_pass = self._clock.monotonic()
        self._forget_at = self._clock.monotonic()

    def deafened(self) -> None:
        """Take note that heartbeats could not have been heard until now."""
        self._hearing_since = self._clock.monotonic()

    async def reap(self) -> None:
        """Take back what belongs to the dead, and what has been silent for too long."""
        now = self._clock.monotonic()
        if now - self._last_pass > max(self._settings.heartbeat_interval, 3 * self._settings.tick_interval):
            self.deafened()  # this node itself was away
        self._last_pass = now
        try:
            await self._reap_the_dead()
            if now - self._hearing_since >= _BEATS * self._settings.heartbeat_interval:
                await self._reap_the_silent()
        except StoreError:
            self.deafened()
            raise

    async def _reap_the_dead(self) -> None:
        claimants = await self._store.runs.claimants() - {self._crew.owner.id}
        is_time_to_forget = self._clock.monotonic() >= self._forget_at
        if not claimants and not is_time_to_forget:
            return
        owners = [one for one in await self._store.owners.all() if one.id != self._crew.owner.id]
        dead = {one.id for one in owners if self._liveness.is_dead(one)}
        found = sorted(dead & claimants)
        for key, row in await self._store.runs.claimed(found) if found else ():
            await self._lose(key, row, Lost(f"the process that ran it, {row.claimed_by}, is gone"))
        if is_time_to_forget:
            await self._forget(dead - claimants)

    async def _forget(self, dead: set[str]) -> None:
        """Forget those of the dead that have left nothing behind: neither claims nor the office."""
        self._forget_at = self._clock.monotonic() + _FORGET_EVERY
        lease = await self._store.leases.current(OFFICE) if dead else None
        gone = dead - ({lease.holder} if lease is not None else set())
        if gone:
            await self._store.owners.forget(sorted(gone))

    async def _reap_the_silent(self) -> None:
        timeout = self._settings.heartbeat_timeout
        overdue = await self._store.runs.overdue(self._settings.reap_limit)
        ours = self._crew.in_hand() if overdue else set()
        for key, row in overdue:
            if row.claimed_by == self._crew.owner.id and AttemptKey(*key, row.attempt) in ours:
                continue  # it lives, under our own eyes: that its lease was not renewed says something of the store
            await self._lose(key, row, Lost(f"no heartbeat for {timeout:g} s", row.lease_until))

    async def _lose(self, key: TaskKey, row: TaskRow, lost: Lost) -> None:
        """Take one attempt back; trouble with it does not keep the others."""
        try:
            attempt = AttemptKey(*key, row.attempt)
            if await self._conclude(attempt, lost):
                self._crew.forget_vanished([attempt])
                self._figures.count("agent_lost_tasks_total")
                logger.warning(events.TASK_LOST, extra={"attempt": str(attempt), "reason": lost.reason})
        except StoreError as error:
            self.deafened()
            self._figures.count("agent_lost_error")
            logger.warning(events.TASK_LOST, extra={"run": key.run, "task": key.task, "error": str(error)})
        except Exception:  # a candidate that raises is its own problem, not that of the next
            self._figures.count("agent_lost_error")
            logger.exception(events.TASK_LOST, extra={"run": key.run, "task": key.task})

    async def _conclude(self, attempt: AttemptKey, lost: Lost) -> bool:
        active = self._desk.board.get(attempt.run)
        if active is None:
            return False  # not read yet, or it has ended meanwhile
        budgets = self._crew.budgets(active.version, attempt.task)
        self._desk.look_again(attempt.run)  # so that a heartbeat that came meanwhile is seen
        answer = self._desk.ask(attempt.run, lambda draft: draft.conclude(attempt, lost, budgets), once=True)
        return answer is not None and bool(await answer)
