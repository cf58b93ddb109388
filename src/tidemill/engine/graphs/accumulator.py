"""A running accumulator: what it is beside the way of its events, namely its health, its life and its end."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from tidemill.engine.graphs.environment import Environment
from tidemill.engine.graphs.intake import Intake
from tidemill.engine.graphs.migration import migrated
from tidemill.engine.graphs.supervision import Supervision
from tidemill.engine.graphs.target import Target
from tidemill.engine.service import stop
from tidemill.graphs.definition import Accumulator
from tidemill.graphs.health import ACCUMULATOR_MOVES, AccumulatorHealth
from tidemill.telemetry import events

logger = logging.getLogger(__name__)


class RunningAccumulator(Intake):
    """One loaded accumulator. Kinds differ in `work`, `take` and what happens around firings."""

    component = "accumulator"
    flushes_after_firing = False
    works = False  # whether something runs beside the pushes
    healthy_as = AccumulatorHealth.SOCKET_ONLY

    def __init__(self, definition: Accumulator, tenant: str, environment: Environment) -> None:
        super().__init__(definition, environment)
        self.tenant = tenant
        self.supervision = Supervision()
        self.severed = False  # a test cut its connection
        self._loop: asyncio.Task[Any] | None = None

    def redefine(self, definition: Accumulator) -> None:
        """Go on as another version of the same accumulator: counts, state and listeners stay."""
        self._end_loop()
        if definition.state is not None:
            self.state = migrated(self.state, definition.state, definition.state)
        self._define(definition)
        self.shut_path()
        if self.down is None:
            self._start_loop()

    # -- around firings

    def after_firing(self) -> None:
        """A reactor that this accumulator feeds has fired successfully."""

    def feed(self, value: Any, by: Target) -> None:
        """Take what a node of `by` fed; only windows can."""

    # -- life

    def start(self) -> None:
        """Come up: start what the kind needs, and say so."""
        self.down = None
        self.shut_path()
        self.supervision.started(self.clock.monotonic())
        self._start_loop()
        self.move(self.healthy_as)

    def _start_loop(self) -> None:
        if self.works:
            self._loop = self.environment.tasks.start(f"accumulator {self.name}", self._watched())

    async def work(self) -> None:
        """Do what the kind does beside the pushes, until cancelled."""

    async def _watched(self) -> None:
        try:
            await self.work()
        except Exception as error:  # the source's or ours: the supervisor decides
            self._loop = None
            self.crash(error)

    def crash(self, error: BaseException) -> None:
        """Turn events away after an error outside author code, and tell the supervisor."""
        if self.health is AccumulatorHealth.FAILED:
            return
        self._end_loop()
        self.down = f"crashed: {error!r}"
        self.shut_path()
        self.move(AccumulatorHealth.DISCONNECTED)
        logger.error(events.ACCUMULATOR_CRASHED, extra={"accumulator": self.name, "error": repr(error)})
        self.environment.supervisor.crashed(self, error)

    def give_up(self) -> None:
        """Stay down until an operator restarts it."""
        self.move(AccumulatorHealth.FAILED)

    def revive(self) -> None:
        """Come up again in place; an event that hangs is put aside."""
        self._end_loop()
        self._abandon_event()
        self.move(AccumulatorHealth.STARTING)
        self.start()

    def _abandon_event(self) -> None:
        """Put the event aside that is in the author's hands."""
        in_flight, self._in_flight = self._in_flight, None
        if in_flight is not None:
            in_flight.cancel()
        self._in_flight_since = self.stuck_since = None

    def _end_loop(self) -> None:
        if self._loop is not None:
            self._loop.cancel()
            self._loop = None

    def close(self, reason: str) -> None:
        """Turn new events away from now on, for good."""
        self.down = reason
        self.shut_path()

    async def drain(self) -> None:
        """Hand on what is still held back or in process, before an orderly end."""
        async with self._turn:
            pass

    async def stop(self) -> None:
        """End whatever still runs here."""
        self.supervision.ended()
        self._abandon_event()
        await stop(self._loop)
        self._loop = None

    def bequeath(self, heir: Callable[[], Intake]) -> None:
        """Let handles that outlive this accumulator find the one that has its name now."""
        self._heir = heir
        self.shut_path()

    def move(self, health: AccumulatorHealth) -> None:
        """Change health, and let the reactors know."""
        if self.severed and health.is_healthy:
            health = AccumulatorHealth.DISCONNECTED
        if health is self.health:
            return
        ACCUMULATOR_MOVES.check(f"accumulator '{self.name}'", self.health, health)
        self.health = health
        logger.info(events.ACCUMULATOR_HEALTH, extra={"accumulator": self.name, "health": str(health)})
        for reactor, _ in tuple(self.targets):
            reactor.review()

    def sever(self) -> None:
        """Lose the connection to the source, as a test asks."""
        self.severed = True
        if self.health is not AccumulatorHealth.FAILED:
            self.move(AccumulatorHealth.DISCONNECTED)

    def mend(self) -> None:
        """Have the connection again."""
        self.severed = False
        if self.down is None:
            self.move(self.healthy_as)

    def check_progress(self, patience: float) -> None:
        """Notice an event that has been in the author's hands for longer than `patience` seconds."""
        since = self._in_flight_since
        if since is not None and self.stuck_since is None and self.clock.monotonic() - since >= patience:
            self.stuck_since = since
            logger.warning(events.ACCUMULATOR_STUCK, extra={"accumulator": self.name})
