"""Standby: packages whose reactors another node owns are loaded as soon as that node releases them."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from tidemill.engine.graphs.durability.ownership import ReactorOwnedError, ReactorOwnership
from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.engine.graphs.scheduler import GraphScheduler
from tidemill.kernel.errors import RequestError, StoreError, TidemillError
from tidemill.telemetry import events

logger = logging.getLogger(__name__)

Load = Callable[[], Awaitable[Any]]

_RETRY_INTERVAL_SHARE = 1 / 6
"""The share of `lease_ttl` after which a waiting node looks at the owners again."""


class StandbyLoads:
    """The loads of one node that wait for another node, in their order.

    Callers that ask for a reactor or an accumulator of such a package learn which node owns it.
    """

    def __init__(self, runtime: GraphRuntime, scheduler: GraphScheduler, ownership: ReactorOwnership | None) -> None:
        self._runtime = runtime
        self._scheduler = scheduler
        self._ownership = ownership
        if ownership is not None:
            ownership.on_lost = scheduler.on_ownership_lost
        self._waiting: list[Load] = []
        self._is_running = False

    async def load_or_wait(self, load: Load) -> None:
        """Load a package; if another node owns a reactor of it, load it when that node releases the reactor."""
        try:
            await load()
        except RequestError as error:
            is_behind = bool(self._waiting) and error.code == "reactor_not_loaded"  # its reactor waits
            if not isinstance(error, ReactorOwnedError) and not is_behind:
                raise
            self.wait(load, error)

    def wait(self, load: Load, error: RequestError) -> None:
        """Load a package, or the rest of it, when the node that owns a reactor of it releases the reactor."""
        self._waiting.append(load)
        if isinstance(error, ReactorOwnedError):
            self._scheduler.standby |= dict.fromkeys(error.keys, error)
        if not self._is_running:
            self._is_running = True
            logger.warning(events.REACTOR_STANDBY, extra={"reason": str(error)})
            self._runtime.tasks.start("standby", self._run())

    async def _run(self) -> None:
        while self._waiting:
            await self._runtime.clock.sleep(self._runtime.settings.lease_ttl * _RETRY_INTERVAL_SHARE)
            if await self._is_free():
                await self._retry()
        self._is_running = False

    async def _is_free(self) -> bool:
        try:
            return self._ownership is not None and await self._ownership.is_free(self._scheduler.standby)
        except StoreError as error:
            logger.warning(events.REACTOR_STANDBY, extra={"reason": str(error)})
            return False

    async def _retry(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._scheduler.standby.clear()
        for load in waiting:
            try:
                await self.load_or_wait(load)
            except TidemillError as error:
                logger.error(events.REACTOR_STANDBY, exc_info=error, extra={"reason": str(error)})
