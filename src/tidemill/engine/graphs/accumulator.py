"""A running accumulator: what it is beside the way of its events, namely its health, its life and its end."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any, Self

from tidemill.engine.graphs.environment import Environment
from tidemill.engine.graphs.intake import CUT_OFF, Intake
from tidemill.engine.graphs.migration import Migration
from tidemill.engine.graphs.supervision import Supervision
from tidemill.engine.graphs.target import Target
from tidemill.engine.service import stop
from tidemill.graphs.definition import Accumulator
from tidemill.graphs.health import ACCUMULATOR_MOVES, AccumulatorHealth
from tidemill.kernel.author_errors import AUTHOR_ERRORS, is_cut_off
from tidemill.storage.ports import PartKind
from tidemill.telemetry import events

logger = logging.getLogger(__name__)


class RunningAccumulator(Intake):
    """One loaded accumulator. Kinds differ in `work`, `take` and what happens around firings."""

    component: PartKind = "accumulator"
    flushes_after_firing = False
    works = False  # whether something runs beside the pushes
    healthy_as = AccumulatorHealth.SOCKET_ONLY

    def __init__(self, definition: Accumulator, tenant: str, environment: Environment) -> None:
        super().__init__(definition, tenant, environment)
        self.supervision = Supervision()
        self.severed = False  # a test cut its connection
        self.is_held = False  # until everything is there that was to be loaded with it
        self.is_ending = False
        self._loop: asyncio.Task[Any] | None = None

    def redefine(self, newer: Self) -> None:
        """Go on as a newer version, spawned but never started: counts, listeners and what fits of the state stay."""
        migrated = Migration(newer.definition.state)
        self.state, self.kept_state = (
            newer.state if newer.state is None or state is None or (fit := migrated(state)) is None else fit
            for state in (self.state, self.kept_state)
        )
        self._define(newer.definition)
        self.shut_path()
        self._end_loop()  # before the next begins, so that it goes on where this one stopped
        if self.down is None:
            self._start_loop()

    def _migrated(self, held: Iterable[Any]) -> list[Any]:
        """Return the held events that fit what is declared now; the others are counted as dropped."""
        before = list(held)
        fitting = Migration(self.definition.event_type).keep(before)
        if len(fitting) < len(before):
            self.dropped["migration"] += len(before) - len(fitting)
        return fitting

    @property
    def in_flight(self) -> object | None:
        """What stands for the event that is in the author's hands just now."""
        return self._in_flight

    # -- around firings

    def after_firing(self) -> None:
        """A reactor that this accumulator feeds has fired successfully."""

    @property
    def held(self) -> list[Any]:
        """What a batch or a window holds, oldest first."""
        return []

    def hold(self, content: Any) -> None:
        """Hold this in place of what is held: a manual firing's, or an earlier life's."""

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

    def open_up(self) -> None:
        """Begin what was held back until everything was loaded: who shares a source must not miss its first events."""
        if self.is_held:
            self.is_held = False
            if self._loop is None and self.down is None:
                self._start_loop()

    def _start_loop(self) -> None:
        if self.works and not self.is_held:
            self._loop = self.environment.tasks.start(f"accumulator {self.name}", self._watched())

    async def work(self) -> None:
        """Do what the kind does beside the pushes, until cancelled."""

    async def _watched(self) -> None:
        try:
            await self.work()
        except AUTHOR_ERRORS as error:  # the source's or ours: the supervisor decides
            if is_cut_off(error):
                raise
            if self._loop is asyncio.current_task():
                self._loop = None
                self.crash(error)
            else:  # it was given up already, and may have a successor
                logger.warning(events.SOURCE_LOST, extra={"accumulator": self.name, "reason": repr(error)})

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
        """Put the event aside that is in the author's hands: it is a dead letter now, whatever comes of it yet."""
        in_flight, self._in_flight = self._in_flight, None
        if in_flight is not None:
            self._dead(self._in_flight_event, CUT_OFF)
            in_flight.cancel()
        self._in_flight_event = None
        self._in_flight_since = self.stuck_since = None

    def _end_loop(self) -> None:
        if self._loop is not None:
            self._loop.cancel()
            self._loop = None

    def close(self, reason: str) -> None:
        """Turn new events away from now on, for good."""
        self.is_ending = True
        self.down = reason
        self.shut_path()

    async def drain(self) -> None:
        """Hand on what is still held back or in process, before an orderly end."""
        async with self._turn:
            await self.environment.keeper.all_committed()

    async def stop(self) -> None:
        """End whatever still runs here."""
        self.supervision.ended()
        loop, self._loop = self._loop, None
        self._abandon_event()
        await stop(loop)

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
