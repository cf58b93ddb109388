"""Who plans: one node at a time, for a numbered term.

The row in the store decides. Whoever wins it holds a term; everything it writes as leader carries the term's number and
is refused once another has begun. So nobody has to be certain of being the only leader: it is enough that only one can
write. A leader renews its term well before it runs out, and stops by its own clock when it could not.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from tidemill.engine.tasks import run_forever
from tidemill.engine.wakeup import FOREVER, Wakeup
from tidemill.engine.workflows.runtime import WorkflowRuntime
from tidemill.kernel.errors import StoreError
from tidemill.storage.workflow_ports import Lease
from tidemill.telemetry import events
from tidemill.workflows.change import LeaderFence

logger = logging.getLogger(__name__)

LEASE_NAME = "scheduler"
_RENEWAL_DEADLINE_SHARE = 2 / 3
"""The share of a term after which a leader that could not renew it stops by itself."""


class LeaderElector:
    """The office of this store's scheduler, as seen from one node."""

    def __init__(self, runtime: WorkflowRuntime) -> None:
        self._store = runtime.store
        self._owner = runtime.owner
        self._clock = runtime.clock
        self._liveness = runtime.liveness
        self._metrics = runtime.metrics
        self._is_single_node = runtime.is_single_node
        self._ttl = FOREVER if self._is_single_node else runtime.settings.lease_ttl
        self._wakeup = Wakeup(self._clock)
        self._renewed_at = 0.0
        self._retry_interval = runtime.settings.lease_ttl / 3
        self.is_campaigning = False
        """Whether the store is being asked for the office."""
        self.term: LeaderFence | None = None

    async def run(self, lead: Callable[[LeaderFence], Coroutine[Any, Any, None]]) -> None:
        """Campaign until cancelled; while in office, `serve`, which is cancelled when the office is lost."""
        await run_forever(lambda: self._lead_one_term(lead), self._on_error)

    async def _lead_one_term(self, lead: Callable[[LeaderFence], Coroutine[Any, Any, None]]) -> None:
        term = await self._campaign()
        try:
            async with asyncio.TaskGroup() as group:
                service = group.create_task(lead(term), name="leader: serve")
                await self._keep_renewing(term)
                service.cancel()
        finally:
            self.term = None
            logger.info(events.LEADERSHIP_LOST, extra={"epoch": term.epoch})

    def _on_error(self, error: Exception) -> None:
        """Take note that something ended a term, or a campaign: somebody must plan, so this node tries again."""
        self._metrics.increment("scheduler_phase_errors_total", phase="office")
        logger.error(events.SCHEDULER_PHASE_FAILED, exc_info=error, extra={"phase": "office"})

    def step_down(self, term: LeaderFence) -> None:
        """Leave a term of which somebody has learned that it is over."""
        if self.term == term:
            self.term = None
            self._wakeup.notify()

    async def resign(self) -> None:
        """Leave the office in good order, so that the next leader need not wait."""
        term, self.term = self.term, None
        if term is not None:
            try:
                await self._store.leases.release(LEASE_NAME, term.epoch)
            except StoreError as error:
                logger.warning(events.LEADERSHIP_RENEWAL_FAILED, extra={"error": str(error)})

    async def try_acquire_once(self) -> None:
        """Try for the office once, before anything runs: a store in which nobody could ever hold it is refused now."""
        self.term = await self._try_acquire()

    async def _campaign(self) -> LeaderFence:
        while self.term is None:
            await self._clock.sleep(self._retry_interval)
            self.is_campaigning = True
            try:
                self.term = await self._try_acquire()
            except StoreError as error:
                logger.warning(events.LEADERSHIP_RENEWAL_FAILED, extra={"error": str(error)})
            finally:
                self.is_campaigning = False
        logger.info(events.LEADERSHIP_WON, extra={"epoch": self.term.epoch, "owner": self._owner.id})
        return self.term

    async def _try_acquire(self) -> LeaderFence | None:
        dead = await self._dead_holders()
        self._renewed_at = self._clock.monotonic()
        epoch = await self._store.leases.acquire(LEASE_NAME, self._owner.id, self._ttl, dead)
        return None if epoch is None else LeaderFence(LEASE_NAME, epoch)

    async def _dead_holders(self) -> list[str]:
        lease = await self._store.leases.current(LEASE_NAME)
        if lease is not None and lease.holder == self._owner.id:  # from a term of ours that is over
            return [lease.holder]
        return [] if lease is None or not await self._is_dead(lease) else [lease.holder]

    async def _is_dead(self, lease: Lease) -> bool:
        """Return whether the holder's process is known to be gone; one that never introduced itself is not."""
        holders = [owner for owner in await self._store.owners.list_all() if owner.id == lease.holder]
        return bool(holders) and self._liveness.is_dead(holders[0])

    async def _keep_renewing(self, term: LeaderFence) -> None:
        """Return when the term is over."""
        if self._is_single_node:
            while self.term == term:
                await self._wakeup.wait(FOREVER)
            return
        while self.term == term:
            await self._wakeup.wait(self._ttl / 3)
            if self.term != term or not await self._renew(term):
                return

    async def _renew(self, term: LeaderFence) -> bool:
        asked_at = self._clock.monotonic()
        try:
            async with asyncio.timeout(self._ttl * _RENEWAL_DEADLINE_SHARE):  # real time: the store's own patience
                is_ours = await self._store.leases.renew(LEASE_NAME, term.epoch, self._ttl)
        except (StoreError, TimeoutError) as error:
            logger.warning(events.LEADERSHIP_RENEWAL_FAILED, extra={"error": str(error)})
            return self._clock.monotonic() - self._renewed_at < self._ttl * _RENEWAL_DEADLINE_SHARE
        if is_ours:
            self._renewed_at = asked_at
        return is_ours
