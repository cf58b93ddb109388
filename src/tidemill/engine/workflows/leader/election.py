"""Leader election: one node at a time leads, for a numbered term.

The lease row in the store decides. The node that wins it holds a term; everything it writes as leader carries the
term's number and is refused once another began. So no node has to be certain of being the only leader: it is enough
that only one can write. A leader renews its term well before it runs out, and stops by its own clock when it could not.
A candidate takes over from a leader whose process is gone, or whose term it has not seen renewed for a whole term.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from tidemill.engine.loop_watch import HeldLeases
from tidemill.engine.silence import SilenceWatch
from tidemill.engine.tasks import FOREVER, Wakeup, run_forever
from tidemill.engine.workflows.runtime import WorkflowRuntime
from tidemill.kernel.errors import StoreError
from tidemill.storage.store import Store
from tidemill.telemetry import events
from tidemill.workflows.change import LeaderFence

logger = logging.getLogger(__name__)

LEASE_NAME = "scheduler"
_RENEWAL_DEADLINE_SHARE = 2 / 3
"""The share of a term after which a leader that could not renew it steps down."""


_CAMPAIGN_INTERVAL_SHARE = 1 / 6
"""The share of a term after which a candidate checks the lease again."""


class LeaderElector:
    """Campaigns for the lease of this store's leader, and renews it while this node leads."""

    def __init__(self, runtime: WorkflowRuntime) -> None:
        self._store = runtime.store
        self._owner = runtime.owner
        self._clock = runtime.clock
        self._liveness = runtime.liveness
        self._metrics = runtime.metrics
        self._node_events = runtime.node_events
        self._sharing = runtime.sharing
        self._wakeup = Wakeup(self._clock)
        self._renewed_at = 0.0
        self._shared_ttl = runtime.settings.lease_ttl
        self._silence = SilenceWatch(runtime.clock)
        self._retry_interval = runtime.settings.lease_ttl * _CAMPAIGN_INTERVAL_SHARE
        self.is_using_store = False
        """Whether the lease is being acquired or renewed."""
        self.term: LeaderFence | None = None

    @property
    def _ttl(self) -> float:
        """The length of a term in seconds. A node that has the store to itself never renews its term."""
        return self._shared_ttl if self._sharing.is_shared else FOREVER

    @property
    def held(self) -> HeldLeases:
        """The lease of the term."""
        return HeldLeases(self._shared_ttl / 3, lambda: self.term is not None, self._renew_on)

    async def _renew_on(self, store: Store) -> None:
        """Renew the term on a thread, while the event loop is blocked."""
        term, renewed_at = self.term, self._clock.monotonic()
        if term is not None and await store.leases.renew(LEASE_NAME, term.epoch, self._ttl):
            self._renewed_at = renewed_at

    def renew_soon(self) -> None:
        """Renew the term now: its length has changed."""
        if self.term is not None:
            self.is_using_store = True
            self._wakeup.notify()

    async def run(self, lead: Callable[[LeaderFence], Coroutine[Any, Any, None]]) -> None:
        """Campaign until cancelled. While this node leads, run `lead`, which is cancelled when the term ends."""
        await run_forever(lambda: self._lead_one_term(lead), self._on_error)

    async def _lead_one_term(self, lead: Callable[[LeaderFence], Coroutine[Any, Any, None]]) -> None:
        term = await self._campaign()
        try:
            async with asyncio.TaskGroup() as group:
                leading = group.create_task(lead(term), name="leader: lead")
                await self._keep_renewing(term)
                leading.cancel()
        finally:
            self.term = None
            logger.info(events.LEADERSHIP_LOST, extra={"epoch": term.epoch})
            self._node_events.publish(events.LEADERSHIP_LOST, None, node=self._owner.id, epoch=term.epoch)

    def _on_error(self, error: Exception) -> None:
        """Count and log a failed term; the node campaigns again."""
        self._metrics.increment("scheduler_phase_errors_total", phase="election")
        logger.error(events.SCHEDULER_PHASE_FAILED, exc_info=error, extra={"phase": "election"})

    def step_down(self, term: LeaderFence) -> None:
        """End a term that is known to be over."""
        if self.term == term:
            self.term = None
            self._wakeup.notify()

    async def resign(self) -> None:
        """Release the lease, so that the next leader need not wait for it to expire."""
        term, self.term = self.term, None
        if term is not None:
            try:
                await self._store.leases.release(LEASE_NAME, term.epoch)
            except StoreError as error:
                logger.warning(events.LEADERSHIP_RENEWAL_FAILED, extra={"error": str(error)})

    async def try_acquire_once(self) -> None:
        """Try to acquire the lease once, before anything runs, so that a store that cannot hold one fails the start."""
        self.term = await self._try_acquire()

    async def _campaign(self) -> LeaderFence:
        while self.term is None:
            await self._clock.sleep(self._retry_interval)
            self.is_using_store = True
            try:
                self.term = await self._try_acquire()
            except StoreError as error:
                logger.warning(events.LEADERSHIP_RENEWAL_FAILED, extra={"error": str(error)})
            finally:
                self.is_using_store = False
        logger.info(events.LEADERSHIP_WON, extra={"epoch": self.term.epoch, "owner": self._owner.id})
        self._node_events.publish(events.LEADERSHIP_WON, None, node=self._owner.id, epoch=self.term.epoch)
        return self.term

    async def _try_acquire(self) -> LeaderFence | None:
        leases, ttl = self._store.leases, self._ttl
        renewal = await leases.last_renewal(LEASE_NAME)
        dead = [renewal.holder] if renewal is not None and await self._is_dead(renewal.holder) else []
        self._renewed_at, epoch = self._clock.monotonic(), None
        if renewal is not None and self._silence.lasts(LEASE_NAME, renewal, self._shared_ttl):
            epoch = await leases.take_over(LEASE_NAME, renewal, self._owner.id, ttl)
        elif renewal is None or dead or leases.has_own_clock:
            epoch = await leases.acquire(LEASE_NAME, self._owner.id, ttl, dead)
        return None if epoch is None else LeaderFence(LEASE_NAME, epoch)

    async def _is_dead(self, holder: str) -> bool:
        """Return whether the holder's process is known to be gone; a holder that is not registered is not."""
        if holder == self._owner.id:  # from an earlier term of this node
            return True
        holders = [owner for owner in await self._store.owners.list_all() if owner.id == holder]
        return bool(holders) and self._liveness.is_dead(holders[0])

    async def _keep_renewing(self, term: LeaderFence) -> None:
        """Return when the term is over."""
        while self.term == term:
            await self._wakeup.wait(self._ttl / 3)
            if self.term != term or not await self._renew(term):
                return

    async def _renew(self, term: LeaderFence) -> bool:
        renewed_at, self.is_using_store = self._clock.monotonic(), True
        try:
            async with asyncio.timeout(
                self._ttl * _RENEWAL_DEADLINE_SHARE
            ):  # real time: the store is outside the injected clock
                is_renewed = await self._store.leases.renew(LEASE_NAME, term.epoch, self._ttl)
        except (StoreError, TimeoutError) as error:
            logger.warning(events.LEADERSHIP_RENEWAL_FAILED, extra={"error": str(error)})
            return self._clock.monotonic() - self._renewed_at < self._ttl * _RENEWAL_DEADLINE_SHARE
        finally:
            self.is_using_store = False
        if is_renewed:
            self._renewed_at = max(self._renewed_at, renewed_at)
        return is_renewed
