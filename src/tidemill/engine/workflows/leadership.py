"""Who plans: one node at a time, for a numbered term.

The row in the store decides. Whoever wins it holds a term; everything it writes as leader carries the term's number and
is refused once another has begun. So nobody has to be certain of being the only leader: it is enough that only one can
write. A leader renews its term well before it runs out, and stops by its own clock when it could not.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from tidemill.engine.service import never_ending
from tidemill.engine.wakeups import FOR_GOOD, Alarm
from tidemill.engine.workflows.environment import Environment
from tidemill.kernel.errors import StoreError
from tidemill.storage.run_ports import Lease
from tidemill.telemetry import events
from tidemill.workflows.change import Fence

logger = logging.getLogger(__name__)

OFFICE = "scheduler"
_CARE = 2 / 3
"""The share of a term after which a leader that could not renew it stops by itself."""


class Leadership:
    """The office of this store's scheduler, as seen from one node."""

    def __init__(self, environment: Environment) -> None:
        self._store = environment.store
        self._owner = environment.owner
        self._clock = environment.clock
        self._liveness = environment.liveness
        self._figures = environment.figures
        self._is_alone = environment.is_alone
        self._ttl = FOR_GOOD if self._is_alone else environment.settings.lease_ttl
        self._alarm = Alarm(self._clock)
        self._renewed_at = 0.0
        self._retry_every = environment.settings.lease_ttl / 3
        self.is_asking = False
        """Whether the store is being asked for the office."""
        self.term: Fence | None = None

    async def run(self, serve: Callable[[Fence], Coroutine[Any, Any, None]]) -> None:
        """Campaign until cancelled; while in office, `serve`, which is cancelled when the office is lost."""
        await never_ending(lambda: self._serve_a_term(serve), self._failed)

    async def _serve_a_term(self, serve: Callable[[Fence], Coroutine[Any, Any, None]]) -> None:
        term = await self._campaign()
        try:
            async with asyncio.TaskGroup() as group:
                service = group.create_task(serve(term), name="leader: serve")
                await self._hold(term)
                service.cancel()
        finally:
            self.term = None
            logger.info(events.LEADERSHIP_LOST, extra={"epoch": term.epoch})

    def _failed(self, error: Exception) -> None:
        """Take note that something ended a term, or a campaign: somebody must plan, so this node tries again."""
        self._figures.count("scheduler_phase_errors_total", phase="office")
        logger.error(events.PHASE_FAILED, exc_info=error, extra={"phase": "office"})

    def step_down(self, term: Fence) -> None:
        """Leave a term of which somebody has learned that it is over."""
        if self.term == term:
            self.term = None
            self._alarm.ring()

    async def resign(self) -> None:
        """Leave the office in good order, so that the next leader need not wait."""
        term, self.term = self.term, None
        if term is not None:
            try:
                await self._store.leases.release(OFFICE, term.epoch)
            except StoreError as error:
                logger.warning(events.LEADERSHIP_UNKNOWN, extra={"error": str(error)})

    async def try_once(self) -> None:
        """Try for the office once, before anything runs: a store in which nobody could ever hold it is refused now."""
        self.term = await self._try()

    async def _campaign(self) -> Fence:
        while self.term is None:
            await self._clock.sleep(self._retry_every)
            self.is_asking = True
            try:
                self.term = await self._try()
            except StoreError as error:
                logger.warning(events.LEADERSHIP_UNKNOWN, extra={"error": str(error)})
            finally:
                self.is_asking = False
        logger.info(events.LEADERSHIP_WON, extra={"epoch": self.term.epoch, "owner": self._owner.id})
        return self.term

    async def _try(self) -> Fence | None:
        dead = await self._dead_holder()
        self._renewed_at = self._clock.monotonic()
        epoch = await self._store.leases.take(OFFICE, self._owner.id, self._ttl, dead)
        return None if epoch is None else Fence(OFFICE, epoch)

    async def _dead_holder(self) -> list[str]:
        lease = await self._store.leases.current(OFFICE)
        if lease is not None and lease.holder == self._owner.id:  # from a term of ours that is over
            return [lease.holder]
        return [] if lease is None or not await self._is_dead(lease) else [lease.holder]

    async def _is_dead(self, lease: Lease) -> bool:
        """Return whether the holder's process is known to be gone; one that never introduced itself is not."""
        holders = [owner for owner in await self._store.owners.all() if owner.id == lease.holder]
        return bool(holders) and self._liveness.is_dead(holders[0])

    async def _hold(self, term: Fence) -> None:
        """Return when the term is over."""
        if self._is_alone:
            while self.term == term:
                await self._alarm.sleep(FOR_GOOD)
            return
        while self.term == term:
            await self._alarm.sleep(self._ttl / 3)
            if self.term != term or not await self._renew(term):
                return

    async def _renew(self, term: Fence) -> bool:
        asked_at = self._clock.monotonic()
        try:
            async with asyncio.timeout(self._ttl * _CARE):  # real time: the store's own patience
                is_ours = await self._store.leases.renew(OFFICE, term.epoch, self._ttl)
        except (StoreError, TimeoutError) as error:
            logger.warning(events.LEADERSHIP_UNKNOWN, extra={"error": str(error)})
            return self._clock.monotonic() - self._renewed_at < self._ttl * _CARE
        if is_ours:
            self._renewed_at = asked_at
        return is_ours
