"""A running accumulator: what it is beside the way of its events, namely its health, its life and its end."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any, Self

from tidemill.engine.graphs.accumulators.ingest import INTERRUPTED_ERROR, EventIngest
from tidemill.engine.graphs.event_path.ports import ReactorInput
from tidemill.engine.graphs.restart_state import RestartState
from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.engine.graphs.value_migration import ValueMigrator
from tidemill.engine.tasks import cancel_and_wait
from tidemill.graphs.definition import Accumulator
from tidemill.graphs.health import ACCUMULATOR_TRANSITIONS, AccumulatorHealth
from tidemill.kernel.author_errors import AUTHOR_ERRORS, is_cancelled_here
from tidemill.storage.graph_ports import PartKind
from tidemill.telemetry import events

logger = logging.getLogger(__name__)


class RunningAccumulator(EventIngest):
    """One loaded accumulator. Kinds differ in `work`, `take` and what happens around firings."""

    component: PartKind = "accumulator"
    flushes_after_firing = False
    has_background_loop = False  # whether something runs beside the pushes
    started_health = AccumulatorHealth.SOCKET_ONLY

    def __init__(self, definition: Accumulator, tenant: str, runtime: GraphRuntime) -> None:
        super().__init__(definition, tenant, runtime)
        self.restart_state = RestartState()
        self.disconnected = False  # a test cut its connection
        self.is_inactive = False  # until everything is there that was to be loaded with it
        self.is_closing = False
        self._loop_task: asyncio.Task[Any] | None = None

    def redefine(self, newer: Self) -> None:
        """Go on as a newer version, spawned but never started: counts, listeners and what fits of the state stay."""
        migrated = ValueMigrator(newer.definition.state)
        self.state, self.committed_state = (
            newer.state if newer.state is None or state is None or (fit := migrated(state)) is None else fit
            for state in (self.state, self.committed_state)
        )
        self._apply_definition(newer.definition)
        self.close_fast_path()
        self._end_loop()  # before the next begins, so that it goes on where this one stopped
        if self.down_reason is None:
            self._start_loop()

    def _migrate_events(self, events: Iterable[Any]) -> list[Any]:
        """Return the held events that fit what is declared now; the others are counted as dropped."""
        before = list(events)
        fitting = ValueMigrator(self.definition.event_type).migrate_fitting(before)
        if len(fitting) < len(before):
            self.dropped["migration"] += len(before) - len(fitting)
        return fitting

    @property
    def in_flight_call(self) -> object | None:
        """What stands for the event that is in the author's hands just now."""
        return self._in_flight

    # -- around firings

    def after_firing(self) -> None:
        """A reactor that this accumulator feeds has fired successfully."""

    @property
    def buffered_events(self) -> list[Any]:
        """What a batch or a window holds, oldest first."""
        return []

    def replace_buffer(self, content: Any) -> None:
        """Hold this in place of what is held: a manual firing's, or an earlier life's."""

    def feed(self, value: Any, source_reactor: ReactorInput) -> None:
        """Take what a node of `by` fed; only windows can."""

    # -- life

    def start(self) -> None:
        """Come up: start what the kind needs, and say so."""
        self.down_reason = None
        self.close_fast_path()
        self.restart_state.record_start(self.clock.monotonic())
        self._start_loop()
        self.set_health(self.started_health)

    def activate(self) -> None:
        """Begin what was held back until everything was loaded: who shares a source must not miss its first events."""
        if self.is_inactive:
            self.is_inactive = False
            if self._loop_task is None and self.down_reason is None:
                self._start_loop()

    def _start_loop(self) -> None:
        if self.has_background_loop and not self.is_inactive:
            self._loop_task = self.runtime.tasks.start(f"accumulator {self.name}", self._run_supervised())

    async def run_loop(self) -> None:
        """Do what the kind does beside the pushes, until cancelled."""

    async def _run_supervised(self) -> None:
        try:
            await self.run_loop()
        except AUTHOR_ERRORS as error:  # the source's or ours: the supervisor decides
            if is_cancelled_here(error):
                raise
            if self._loop_task is asyncio.current_task():
                self._loop_task = None
                self.crash(error)
            else:  # it was given up already, and may have a successor
                logger.warning(events.SOURCE_LOST, extra={"accumulator": self.name, "reason": repr(error)})

    def crash(self, error: BaseException) -> None:
        """Turn events away after an error outside author code, and tell the supervisor."""
        if self.health is AccumulatorHealth.FAILED:
            return
        self._end_loop()
        self.down_reason = f"crashed: {error!r}"
        self.close_fast_path()
        self.set_health(AccumulatorHealth.DISCONNECTED)
        logger.error(events.ACCUMULATOR_CRASHED, extra={"accumulator": self.name, "error": repr(error)})
        self.runtime.supervisor.on_crash(self, error)

    def mark_failed(self) -> None:
        """Stay down until an operator restarts it."""
        self.set_health(AccumulatorHealth.FAILED)

    def restart(self) -> None:
        """Come up again in place; an event that hangs is put aside."""
        self._end_loop()
        self._abandon_event()
        self.set_health(AccumulatorHealth.STARTING)
        self.start()

    def _abandon_event(self) -> None:
        """Put the event aside that is in the author's hands: it is a dead letter now, whatever comes of it yet."""
        in_flight, self._in_flight = self._in_flight, None
        if in_flight is not None:
            self._dead_letter(self._in_flight_event, INTERRUPTED_ERROR)
            in_flight.cancel()
        self._in_flight_event = None
        self._in_flight_since = self.stuck_since = None

    def _end_loop(self) -> None:
        if self._loop_task is not None:
            self._loop_task.cancel()
            self._loop_task = None

    def close(self, reason: str) -> None:
        """Turn new events away from now on, for good."""
        self.is_closing = True
        self.down_reason = reason
        self.close_fast_path()

    async def drain(self) -> None:
        """Hand on what is still held back or in process, before an orderly end."""
        async with self._process_lock:
            await self.runtime.durability.wait_committed()

    async def stop(self) -> None:
        """End whatever still runs here."""
        self.restart_state.record_end()
        loop, self._loop_task = self._loop_task, None
        self._abandon_event()
        await cancel_and_wait(loop)

    def redirect_handles(self, find_successor: Callable[[], EventIngest]) -> None:
        """Let handles that outlive this accumulator find the one that has its name now."""
        self._successor = find_successor
        self.close_fast_path()

    def set_health(self, health: AccumulatorHealth) -> None:
        """Change health, and let the reactors know."""
        if self.disconnected and health.is_healthy:
            health = AccumulatorHealth.DISCONNECTED
        if health is self.health:
            return
        ACCUMULATOR_TRANSITIONS.check(f"accumulator '{self.name}'", self.health, health)
        self.health = health
        logger.info(events.ACCUMULATOR_HEALTH, extra={"accumulator": self.name, "health": str(health)})
        for reactor, _ in tuple(self.targets):
            reactor.update_health()

    def disconnect(self) -> None:
        """Lose the connection to the source, as a test asks."""
        self.disconnected = True
        if self.health is not AccumulatorHealth.FAILED:
            self.set_health(AccumulatorHealth.DISCONNECTED)

    def reconnect(self) -> None:
        """Have the connection again."""
        self.disconnected = False
        if self.down_reason is None:
            self.set_health(self.started_health)

    def check_progress(self, timeout: float) -> None:
        """Notice an event that has been in the author's hands for longer than `patience` seconds."""
        since = self._in_flight_since
        if since is not None and self.stuck_since is None and self.clock.monotonic() - since >= timeout:
            self.stuck_since = since
            logger.warning(events.ACCUMULATOR_STUCK, extra={"accumulator": self.name})
