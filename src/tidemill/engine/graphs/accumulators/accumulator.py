"""A running accumulator: its health, start, restart and stop, around the intake of its events."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Self

from msgspec.structs import replace

from tidemill.engine.graphs.accumulators.held import Held
from tidemill.engine.graphs.accumulators.ingest import EventIngest
from tidemill.engine.graphs.accumulators.kind import Kind
from tidemill.engine.graphs.accumulators.push_paths import PushPaths
from tidemill.engine.graphs.accumulators.pushes import Pushes
from tidemill.engine.graphs.dead_letters import BatchedEvents
from tidemill.engine.graphs.durability.journal import JournalStep
from tidemill.engine.graphs.firing.firing_loop import FiringLoop
from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.engine.graphs.supervisor import RestartState
from tidemill.engine.graphs.unread_state import UnreadState
from tidemill.engine.graphs.value_migration import ValueMigrator
from tidemill.engine.tasks import cancel_and_wait
from tidemill.graphs.definition import Accumulator
from tidemill.graphs.health import ACCUMULATOR_TRANSITIONS, AccumulatorHealth
from tidemill.graphs.keys import Key
from tidemill.graphs.outcomes import DeadLetter
from tidemill.graphs.pushes import PushHandle
from tidemill.kernel.author_errors import AUTHOR_ERRORS, is_cancelled_here
from tidemill.storage.graph_ports import PartKind
from tidemill.telemetry import events

logger = logging.getLogger(__name__)


MakeKind = Callable[[Any], Kind]
"""Creates the kind of an accumulator that is being created."""


class RunningAccumulator:
    """One loaded accumulator, of some kind: its health, start, restart and stop, around the intake of its events."""

    component: PartKind = "accumulator"
    intake: EventIngest

    def __init__(self, definition: Accumulator, tenant: str, runtime: GraphRuntime, make_kind: MakeKind) -> None:
        self.name = definition.name
        self.tenant = tenant
        self.runtime = runtime
        self.clock = runtime.clock
        self.intake = self.create_intake(definition)
        self.emitter = self.intake.emitter
        self.dead_letters = self.intake.dead_letters
        self.paths = self.create_paths()
        self.pushes = self.create_pushes()
        self.push = self.pushes.push  # for reactors whose nodes feed it: the front of a keyed reactor has the same verb
        self.restart_state = RestartState()
        self.generation = 0  # of its part of the checkpoint
        self.is_inactive = False  # until everything that loads together with it is there
        self.is_closing = False
        self.health = AccumulatorHealth.STARTING
        self.health_since = self.counted_since = self.clock.now()
        self.unhealthy_reason: str | None = None
        self.loop_task: asyncio.Task[Any] | None = None
        self.kind = make_kind(self)
        self.intake.set_kind(self.kind)
        self.unread = UnreadState()

    def create_intake(self, definition: Accumulator) -> EventIngest:
        """Create the part that takes its events."""
        return EventIngest(definition, self.tenant, self.runtime)

    def create_paths(self) -> PushPaths:
        """Create the fast ways of its events."""
        return PushPaths(self.intake)

    def create_pushes(self) -> Pushes:
        """Create the part that takes its pushes."""
        return Pushes(self.intake, self.paths)

    def handle(self) -> PushHandle:
        """Return the synchronous push function for hot loops; it stays valid across restarts and reloads."""
        return self.paths.handle()

    @property
    def definition(self) -> Accumulator:
        """Its declaration, which a newer version replaces."""
        return self.intake.definition

    @property
    def last_event_time(self) -> float | None:
        """When the last event came, in monotonic seconds."""
        arrivals = [target.fast_path_state.arrivals[index] for target, index in self.emitter.targets]
        return max((time for time in (*arrivals, self.emitter.arrived_at) if time is not None), default=None)

    @property
    def is_waiting_for_space(self) -> bool:
        """Whether pushers have to wait for space in the queue of a reactor; with keys, each key has a queue."""
        return any(gate.is_blocked() for gate in self.emitter.queue_gates)

    # -- targets

    def add_target(self, reactor: FiringLoop, index: int) -> None:
        """Deliver to this reactor too."""
        self.emitter.targets.append((reactor, index))
        self.close_fast_path()

    def remove_target(self, reactor: FiringLoop) -> None:
        """Stop delivering to this reactor."""
        self.emitter.departed_reactors[reactor] = self.emitter.position
        self.emitter.targets = [target for target in self.emitter.targets if target[0] is not reactor]
        self.close_fast_path()

    def close_fast_path(self) -> None:
        """Close the fast path because something behind it has changed."""
        self.paths.close()
        self.intake.update_targets()

    def redirect_handles(self, find_successor: Callable[[], "RunningAccumulator"]) -> None:
        """Redirect push handles that outlive this accumulator to its successor."""
        self.paths.redirect(lambda: find_successor().paths)
        self.intake.update_targets()

    # -- redefinition

    @property
    def schema_digest(self) -> bytes:
        """Changes when the accumulator's annotations do."""
        return self.emitter.codecs.digest

    def redefine(self, newer: Self) -> None:
        """Become a newer version, which was created but never started. Counters and targets stay; state if it fits."""
        self.unread = UnreadState()
        self.kind.before_redefine(newer.kind)
        for held in self.emitter.held_now():
            self._migrate_state(held, newer)
        self.intake.read_definition(newer.definition)
        self.kind.apply_definition(newer.definition)
        self.dead_letters.migrate(partial(_migrate_dead_letter, ValueMigrator(newer.definition.event_type)))
        self.close_fast_path()
        self._end_loop()  # before the next starts, so that it continues where this one stopped
        if self.intake.down_reason is None:
            self.start_loop()
        for held in self.emitter.held_now():
            self.kind.migrate_events(held)
        self.kind.after_redefine()

    def _migrate_state(self, held: Held, newer: Self) -> None:
        """Convert a running state to the newer declaration; if it does not fit, it starts again."""
        fresh, self.unread.key = newer.emitter.new_state(), held.key
        unread = self.unread if _has_changed(held.state, self.definition.state) else None
        is_committed = held.state is held.committed_state
        before = held.state, None if is_committed else held.committed_state
        held.state, committed = (
            fresh if fresh is None or state is None or (fitting := migrate(state)) is None else fitting
            for state, migrate in zip(before, state_migrators(newer.definition, unread), strict=True)
        )
        held.committed_state = held.state if is_committed else committed

    def fitting_events(self, held: Held, events: Iterable[Any]) -> list[Any]:
        """Return the events that it holds and that fit the new declaration; the others are counted as dropped."""
        before, self.unread.key = list(events), held.key
        migrator = ValueMigrator(self.definition.event_type, self.unread, "an event that it held")
        fitting = migrator.migrate_fitting(before)
        if len(fitting) < len(before):
            self.emitter.dropped["migration"] += len(before) - len(fitting)
        return fitting

    @property
    def is_fenced(self) -> bool:
        """Whether another node has acquired the reactors that it feeds."""
        return any(target.reactor.is_fenced for target, _ in self.emitter.targets)

    @property
    def is_partition(self) -> bool:
        """Whether this belongs to one partition of a keyed reactor."""
        return self.definition.partition is not None

    def held_for(self, event: Any, encoding: str) -> Held:  # noqa: ARG002 - without keys
        """Return what is held for the key of an event, for one who asks about its queue."""
        return self.emitter.held

    def held_at(self, key: Key | None) -> Held:  # noqa: ARG002 - without keys
        """Return what is held for a key, which is active; None without keys."""
        return self.emitter.held

    def held_of_step(self, step: JournalStep) -> Held:  # noqa: ARG002 - without keys
        """Return what is held for the key of a step that a restart applies again."""
        return self.emitter.held

    # -- lifecycle

    def start(self) -> None:
        """Start the accumulator and set its health."""
        self.intake.down_reason = None
        self.close_fast_path()
        self.restart_state.record_start(self.clock.monotonic())
        self.start_loop()
        self.set_health(self.kind.started_health)

    def activate(self) -> None:
        """Start the background loop once everything is loaded: reactors that share a source must miss no event."""
        if self.is_inactive:
            self.is_inactive = False
            if self.loop_task is None and self.intake.down_reason is None:
                self.start_loop()

    def start_loop(self) -> None:
        """Start the background loop of its kind, unless it is not to run yet."""
        if self.kind.has_background_loop and not self.is_inactive:
            self.loop_task = self.runtime.tasks.start(f"accumulator {self.name}", self._run_supervised())

    async def _run_supervised(self) -> None:
        try:
            await self.kind.run_loop()
        except AUTHOR_ERRORS as error:  # an error of the source or of the engine: the supervisor decides
            if is_cancelled_here(error):
                raise
            if self.loop_task is asyncio.current_task():
                self.loop_task = None
                self.crash(error)
            else:  # the loop was already replaced
                logger.warning(events.SOURCE_LOST, extra={"accumulator": self.name, "reason": repr(error)})

    def crash(self, error: BaseException) -> None:
        """Reject events after an error outside author code, and report it to the supervisor."""
        if self.health is AccumulatorHealth.FAILED:
            return
        self._end_loop()
        self.intake.down_reason = f"crashed: {error!r}"
        self.close_fast_path()
        self.set_health(AccumulatorHealth.DISCONNECTED, self.intake.down_reason)
        logger.error(events.ACCUMULATOR_CRASHED, extra={"accumulator": self.name, "error": repr(error)})
        self.runtime.supervisor.on_crash(self, error)

    def mark_failed(self) -> None:
        """Stay down until an operator restarts it."""
        self.set_health(AccumulatorHealth.FAILED)

    def restart(self) -> None:
        """Start again in place; an event that hangs becomes a dead letter."""
        self._end_loop()
        self.intake.abandon_event()
        self.set_health(AccumulatorHealth.STARTING)
        self.start()

    def _end_loop(self) -> None:
        if self.loop_task is not None:
            self.loop_task.cancel()
            self.loop_task = None

    def close(self, reason: str) -> None:
        """Reject new events from now on, permanently."""
        self.is_closing = True
        self.intake.down_reason = reason
        self.close_fast_path()

    async def drain(self) -> None:
        """Finish the events in progress, before an orderly stop."""
        await self.kind.drain()

    async def stop(self) -> None:
        """Cancel everything that still runs."""
        self.kind.before_stop()
        self.restart_state.record_end()
        loop, self.loop_task = self.loop_task, None
        self.intake.abandon_event()
        await cancel_and_wait(loop)

    def set_health(self, health: AccumulatorHealth, reason: str | None = None) -> None:
        """Change the health, and update that of the reactors; the last `reason` counts until it is healthy again."""
        self._enter_health(health, reason)
        self.kind.on_health_set()

    def _enter_health(self, health: AccumulatorHealth, reason: str | None) -> None:
        health = self.runtime.health_filter(self.tenant, self.name, health)
        self.unhealthy_reason = None if health.is_healthy else reason or self.unhealthy_reason
        if health is self.health:
            return
        ACCUMULATOR_TRANSITIONS.check(f"accumulator '{self.name}'", self.health, health)
        self.health, self.health_since = health, self.clock.now()
        logger.info(events.ACCUMULATOR_HEALTH, extra={"accumulator": self.name, "health": str(health)})
        facts = {"accumulator": self.name, "health": str(health), "reason": self.unhealthy_reason}
        self.runtime.node_events.publish(events.ACCUMULATOR_HEALTH, self.tenant, **facts)
        for target, _ in tuple(self.emitter.targets):
            target.reactor.update_health()

    def check_progress(self, timeout: float) -> None:
        """Mark the accumulator as stuck if its function has been running for `timeout` seconds."""
        since = self.intake.in_flight_since
        if since is not None and self.intake.stuck_since is None and self.clock.monotonic() - since >= timeout:
            self.intake.stuck_since = since
            logger.warning(events.ACCUMULATOR_STUCK, extra={"accumulator": self.name})


def _migrate_dead_letter(migrator: ValueMigrator, dead_letter: DeadLetter, detail: Any) -> tuple[DeadLetter, Any]:
    """Return a dead event as the newer declaration has it, or as a plain value."""
    if isinstance(detail, BatchedEvents):
        events = [migrator.migrate_or_describe(event) for event in detail.events]
        return replace(dead_letter, event=events), replace(detail, events=events)
    return replace(dead_letter, event=migrator.migrate_or_describe(dead_letter.event)), detail


def state_migrators(newer: Accumulator, unread: UnreadState | None) -> tuple[ValueMigrator, ValueMigrator]:
    """Return what converts the running state, and silently the one without the steps that are being committed."""
    upgrade = newer.state_upgrade
    reporting = ValueMigrator(newer.state, unread, "its running state", upgrade)
    return reporting, ValueMigrator(newer.state, upgrade=upgrade)


def _has_changed(state: Any, kind: type | None) -> bool:
    """Return whether a running state is another than at the start, so that something of it can be lost."""
    try:
        return kind is not None and bool(state != kind())
    except AUTHOR_ERRORS:  # author code: values may refuse to be compared
        return True
