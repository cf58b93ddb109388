"""Removes units that no attempt needs: those that have ended, and those whose attempts are over."""

import logging
from collections.abc import MutableMapping

from tidemill.engine.tasks import TaskScope
from tidemill.engine.workflows.executors.attempt_table import AttemptTable
from tidemill.engine.workflows.executors.remote.interface import AttemptLauncher, UnitStatus
from tidemill.engine.workflows.executors.remote.remote_attempt import RemoteAttempt
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import OperationError, TidemillError
from tidemill.storage.tables.orders import AttemptOrders
from tidemill.telemetry import events
from tidemill.workflows.records import AttemptKey

logger = logging.getLogger(__name__)

SWEEP_INTERVAL = 10.0
"""Seconds between two looks for units that no attempt needs."""


class UnitSweeper:
    """Sweeps the units of one launcher, which its executor tracks."""

    def __init__(
        self,
        launcher: AttemptLauncher,
        orders: AttemptOrders,
        clock: Clock,
        *,
        attempts: AttemptTable[RemoteAttempt],
        units: MutableMapping[AttemptKey, UnitStatus],
        grace: float,
    ) -> None:
        self._launcher = launcher
        self._orders = orders
        self._clock = clock
        self._attempts = attempts
        self._units = units
        self._grace = grace
        self._next_sweep = 0.0
        self._is_sweeping = False

    def request(self, tasks: TaskScope) -> None:
        """Sweep soon, unless that is done already or was a moment ago."""
        now = self._clock.monotonic()
        if now >= self._next_sweep and not self._is_sweeping:
            self._next_sweep, self._is_sweeping = now + SWEEP_INTERVAL, True
            tasks.start("sweep units", self._sweep())

    async def _sweep(self) -> None:
        """Delete units whose attempts are over: they were cancelled, or lost, while their node was away."""
        try:
            unknown = [key for key in self._units if self._attempts.get(key) is None]
            claims = await self._orders.claims(unknown) if unknown else {}
            for key in unknown:
                if key not in claims and key in self._units:
                    await self.remove(key, self._units[key])
        except TidemillError as error:
            logger.warning(events.UNIT_CALL_FAILED, extra={"error": str(error)})
        finally:
            self._is_sweeping = False

    async def remove(self, key: AttemptKey, status: UnitStatus) -> None:
        """Remove a unit. If the cluster refuses that, as it may in one namespace, the other units go all the same."""
        try:
            if status.is_over:
                await self._launcher.discard(key)
                self._units.pop(key, None)
            else:
                await self._launcher.delete(key, self._grace)
        except OperationError as error:
            logger.warning(events.UNIT_CALL_FAILED, extra={"attempt": str(key), "error": str(error)})
