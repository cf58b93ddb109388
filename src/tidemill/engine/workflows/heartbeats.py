"""Heartbeats: as long as an attempt lives here, its lease is renewed; what is no longer ours is stopped.

They come from the loop, and from the lifeline while author code blocks that.
"""

import logging

from tidemill.engine.service import never_ending
from tidemill.engine.workflows.crew import Crew
from tidemill.engine.workflows.environment import Environment
from tidemill.engine.workflows.lifeline import Lifeline
from tidemill.kernel.errors import StoreError
from tidemill.telemetry import events

logger = logging.getLogger(__name__)


class Heartbeats:
    """Beats for everything that lives on this node."""

    def __init__(self, environment: Environment, crew: Crew) -> None:
        self._store = environment.store
        self._crew = crew
        self._clock = environment.clock
        self._settings = environment.settings
        self._figures = environment.figures
        self.is_beating = False
        """Whether the store is being told what lives here."""
        spare = environment.make_spare
        self._lifeline = None if spare is None else Lifeline(environment, crew, spare)

    async def run(self) -> None:
        """Beat until cancelled, while there is anything to beat for."""
        await never_ending(self._beat_later, self._failed)

    async def close(self, patience: float) -> None:
        """Beat no more, from wherever."""
        if self._lifeline is not None:
            await self._lifeline.close(patience)

    async def _beat_later(self) -> None:
        await self._crew.is_busy.wait()
        if self._lifeline is not None:
            self._lifeline.start()
        await self._clock.sleep(self._settings.heartbeat_interval)
        self.is_beating = True
        try:
            await self.beat()
        finally:
            self.is_beating = False

    def _failed(self, error: Exception) -> None:
        trace = None if isinstance(error, StoreError) else error
        self._figures.count("heartbeat_errors_total")
        logger.warning(events.HEARTBEAT_FAILED, exc_info=trace, extra={"error": str(error)})

    async def beat(self) -> None:
        """Renew the leases of what lives, or waits to be handed over, and stop what is not ours any more."""
        living = self._crew.in_hand()
        if living:
            ours = await self._store.runs.beat(self._crew.owner.id, living, self._settings.heartbeat_timeout)
            await self._crew.stop(sorted(living - ours), "no longer wanted")
