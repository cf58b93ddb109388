"""Standby: packages whose reactors another node owns are loaded as soon as that node releases them."""

import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Any, NamedTuple

from tidemill.engine.graphs.durability.ownership import ReactorOwnedError, ReactorOwnership, reactor_part_keys
from tidemill.engine.graphs.reactors.reactor import RunningReactor
from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.engine.graphs.scheduler import GraphScheduler
from tidemill.kernel.errors import RequestError, StoreError, TidemillError
from tidemill.storage.graph_ports import PartKey
from tidemill.telemetry import events

logger = logging.getLogger(__name__)

Load = Callable[[], Awaitable[Any]]

_RETRY_INTERVAL_SHARE = 1 / 6
"""The share of `lease_ttl` after which a waiting node looks at the owners again."""


class _WaitingLoad(NamedTuple):
    """A load, and the error that keeps it waiting."""

    load: Load
    error: RequestError

    @property
    def keys(self) -> Collection[PartKey]:
        """The parts that it waits for; none if it waits for the load of another package."""
        return self.error.keys if isinstance(self.error, ReactorOwnedError) else ()


class StandbyLoads:
    """The loads of one node that wait for another node, in their order.

    Callers that ask for a reactor or an accumulator of such a package learn which node owns it.
    """

    def __init__(self, runtime: GraphRuntime, scheduler: GraphScheduler, ownership: ReactorOwnership | None) -> None:
        self._runtime = runtime
        self._scheduler = scheduler
        self._loaded = scheduler.loaded
        self.ownership = ownership
        self.is_retrying = False
        """Whether it looks at the owners, or loads what they have released."""
        self._waiting: list[_WaitingLoad] = []
        self._is_running = False

    async def load_or_wait(self, load: Load) -> None:
        """Load a package; if another node owns a reactor of it, load it when that node releases the reactor."""
        try:
            await load()
        except RequestError as error:
            is_behind = bool(self._waiting) and error.code == "reactor_not_found"  # its reactor waits
            if not isinstance(error, ReactorOwnedError) and not is_behind:
                raise
            self.wait(load, error)

    def wait(self, load: Load, error: RequestError) -> None:
        """Load a package, or the rest of it, when the node that owns a reactor of it releases the reactor."""
        self._waiting.append(_WaitingLoad(load, error))
        if isinstance(error, ReactorOwnedError):
            self._loaded.standby.update(dict.fromkeys(error.keys, error))
        if not self._is_running:
            self._is_running = True
            logger.warning(events.REACTOR_STANDBY, extra={"reason": str(error)})
            self._runtime.tasks.start("standby", self._run())

    def wait_for_lost(self, lost: RunningReactor, reclaim: Load) -> None:
        """Acquire a reactor again, which another node has acquired, when that node releases it."""
        part, parts = PartKey(lost.tenant, "reactor", lost.name), reactor_part_keys(lost.tenant, lost.definition)
        self.wait(reclaim, ReactorOwnedError(part, "is owned by another node now", parts, ""))

    async def _run(self) -> None:
        while self._waiting:
            await self._runtime.clock.sleep(self._runtime.settings.lease_ttl * _RETRY_INTERVAL_SHARE)
            self.is_retrying = True
            try:
                with self._scheduler.activation.hold():  # no reactor fires before the graphs behind it are loaded
                    for one in list(self._waiting):
                        await self._retry(one)
            finally:
                self.is_retrying = False
                self._scheduler.activate()
        self._is_running = False

    async def _retry(self, waiting: _WaitingLoad) -> None:
        """Load what waits, if its reactors are free; it goes on waiting while the store fails."""
        try:
            if waiting.keys and not (self.ownership and await self.ownership.is_free(waiting.keys)):
                return
            self._waiting.remove(waiting)
            try:
                await self.load_or_wait(waiting.load)
            finally:
                self._forget(waiting)
            if self.ownership is not None:
                self.ownership.announce()  # requests for what was loaded may be waiting
        except StoreError as error:
            logger.warning(events.REACTOR_STANDBY, extra={"reason": str(error)})
            if waiting not in self._waiting:
                self.wait(*waiting)
        except TidemillError as error:
            logger.error(events.REACTOR_STANDBY, exc_info=error, extra={"reason": str(error)})

    def _forget(self, waiting: _WaitingLoad) -> None:
        """Forget which node owned the parts of a load; not before its end, or callers would not find them meanwhile."""
        for key in waiting.keys:
            if self._loaded.standby.get(key) is waiting.error:
                del self._loaded.standby[key]
