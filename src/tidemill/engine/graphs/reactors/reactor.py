"""A running reactor: the accumulators around the wheel, its health, its coming up and going down."""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from tidemill.annotations.codec import Codec, UnstorableError
from tidemill.engine.graphs.accumulators.accumulator import RunningAccumulator
from tidemill.engine.graphs.event_path.fast_path import Accumulating, FastPath
from tidemill.engine.graphs.event_path.ports import FiringHost, ReactorInput
from tidemill.engine.graphs.reactors.firing_loop import FiringLoop
from tidemill.engine.graphs.reactors.outbox import Outbox
from tidemill.engine.graphs.restart_state import RestartState
from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.engine.graphs.value_migration import ValueMigrator
from tidemill.graphs.compiler import CompiledGraph
from tidemill.graphs.definition import Accumulator, Reactor
from tidemill.graphs.health import REACTOR_TRANSITIONS, ReactorHealth
from tidemill.graphs.result import Firing
from tidemill.graphs.snapshot import compute_digest
from tidemill.kernel.errors import RequestError
from tidemill.storage.graph_ports import PartKind
from tidemill.telemetry import events

logger = logging.getLogger(__name__)

PERSIST_MARKER = "persist"
"""Stands among the names of accumulators that degrade a reactor when its state cannot be written."""
PERSIST_FAILURE_LIMIT = 5  # in a row


class RunningReactor(FiringHost, ReactorInput):
    """One loaded reactor."""

    component: PartKind = "reactor"

    def __init__(self, definition: Reactor, tenant: str, runtime: GraphRuntime) -> None:
        self.definition = definition
        self.name = definition.name
        self.tenant = tenant
        self.runtime = runtime
        self.clock = runtime.clock
        self.health = ReactorHealth.STARTING
        self.restart_state = RestartState()
        self.accumulators: list[RunningAccumulator] = []
        self.dropped: Counter[str] = Counter()
        self._batches: list[RunningAccumulator] = []
        self.durability = runtime.durability.mode_for(definition)
        self.generation = 0  # of its part of the checkpoint
        self.persist_failures = 0  # in a row
        self.checkpoint_failures = 0
        self._can_persist = True
        self._is_inactive = True  # until everything is there that was to be loaded with it
        self.firing_loop = FiringLoop(self, runtime)
        self.queue_gate = self.firing_loop.queue_gate
        self.outbox = Outbox(self, runtime)
        self.firing_loop.new_series()

    # -- accumulators

    def attach(self, accumulator: RunningAccumulator, index: int) -> None:
        """Let an accumulator deliver here."""
        self.accumulators.append(accumulator)
        if accumulator.flushes_after_firing:
            self._batches.append(accumulator)
        accumulator.add_target(self, index)

    def open_fast_path(self, path: FastPath, accumulator: Accumulating, index: int) -> None:
        wheel = self.firing_loop
        decides = not wheel.inputs.needs_all and bool(wheel.inputs.criteria_mask >> index & 1)
        if decides and wheel.fast_graph is not None:
            path.open_to_graph(accumulator, index, wheel.fast_graph, wheel)
        elif (
            self.accepts_all and accumulator.event_validator.exact_class and accumulator.boundary_validator.exact_class
        ):
            path.open_to_cache(accumulator, index, wheel)

    def put(self, index: int, boundary: Any, position: int = 0) -> None:
        self.firing_loop.put(index, boundary, position)

    def put_and_fire(self, index: int, boundary: Any, position: int) -> None:
        self.firing_loop.put_and_fire(index, boundary, position)

    def put_from_feed(self, index: int, content: list[Any]) -> None:
        self.firing_loop.new_series()
        self.firing_loop.put(index, content)

    def fire_due(self) -> None:
        self.firing_loop.fire_due()

    def count_drop(self, reason: str) -> None:
        self.dropped[reason] += 1

    def all_dropped(self) -> Counter[str]:
        """Return what was not delivered, or not kept for `ctx.consumed`, by reason."""
        forgotten = self.firing_loop.inputs.dropped_consumed
        return self.dropped + Counter({"consumed": forgotten}) if forgotten else Counter(self.dropped)

    def refresh_window(self, index: int, content: list[Any]) -> None:
        self.firing_loop.inputs.cache[index] = content
        self.firing_loop.fast_path_state.close()
        self.mark_changed()

    def feed(self, window: str, value: Any) -> None:
        for one in self.accumulators:
            if one.name == window:
                one.feed(value, source_reactor=self)

    def replace_windows(self, values: Sequence[Any]) -> None:
        for one, value in zip(self.accumulators, values, strict=True):
            if one.definition.is_window:
                one.replace_buffer(value)

    def after_firing(self, *, ok: bool) -> None:
        self.mark_changed()
        if self.durability == "fire":
            self.runtime.durability.flush_soon()
            if ok and self._batches:
                self.runtime.durability.on_next_write(self._flush_batches)
        elif ok:
            self._flush_batches()

    def _flush_batches(self) -> None:
        for one in self._batches:
            one.after_firing()

    @property
    def has_batches(self) -> bool:
        return bool(self._batches)

    @property
    def arrivals(self) -> list[float | None]:
        return self.firing_loop.fast_path_state.arrivals

    @property
    def accepts_all(self) -> bool:
        return not self.firing_loop.inputs.is_sequential and not self.requires_journal

    @property
    def requires_journal(self) -> bool:
        return self.definition.durability == "boundary"

    # -- what outlives the process

    @property
    def is_journaled(self) -> bool:
        return self.durability == "boundary"

    @property
    def is_durable(self) -> bool:
        return self.durability != "none"

    @property
    def schema_digest(self) -> bytes:
        """What changes when the annotations of its accumulators do."""
        return compute_digest([(one.name, one.schema_digest) for one in self.accumulators])

    def codec_for(self, source: str) -> Codec | None:
        try:
            return next((one.codecs.boundary for one in self.accumulators if one.name == source), None)
        except UnstorableError:
            return None

    def mark_changed(self) -> None:
        self.firing_loop.mark_changed()

    def request_checkpoint(self) -> None:
        if self.is_durable:
            self.runtime.durability.request_checkpoint(self)

    def on_write_ok(self) -> None:
        """A write for this reactor has succeeded: if it counted as degraded for that, it no longer does."""
        if self.persist_failures:
            logger.info(events.CHECKPOINT_RECOVERED, extra={"reactor": self.name, "failures": self.persist_failures})
        self.persist_failures = 0
        self._set_can_persist(is_possible=True)

    def on_write_stalled(self) -> None:
        """No write for this reactor has succeeded for too long, although one is wanted: that degrades it too."""
        self._set_can_persist(is_possible=False)

    def on_write_failed(self, reason: str) -> None:
        """A write for this reactor has failed; five in a row degrade it."""
        self.persist_failures += 1
        self.checkpoint_failures += 1
        if self.persist_failures in (1, PERSIST_FAILURE_LIMIT):  # the same again and again tells nobody anything
            facts = {"reactor": self.name, "reason": reason, "failures": self.persist_failures}
            logger.warning(events.CHECKPOINT_FAILED, extra=facts)
        if self.persist_failures >= PERSIST_FAILURE_LIMIT:
            self._set_can_persist(is_possible=False)

    def _set_can_persist(self, *, is_possible: bool) -> None:
        if is_possible is not self._can_persist:
            self._can_persist = is_possible
            self.update_health()

    # -- commands

    async def fire_manually(self, values: Sequence[Any] | None = None) -> Firing:
        """Fire by hand: with the cache as it is, or with `values` in its place."""
        self.check_ready()
        return await self.firing_loop.fire_manually(values)

    def check_ready(self) -> None:
        if self.health in (ReactorHealth.STARTING, ReactorHealth.FAILED):
            remedy = f"restart it with `await node.reactor('{self.name}').restart()`"
            message = f"reactor '{self.name}' is {self.health} and cannot fire; {remedy}"
            raise RequestError(message, code="not_ready", status=409, health=str(self.health))

    async def pause(self) -> None:
        """Stop firing on criteria, beyond the end of the process; boundaries are still taken in."""
        self.pause_firing()
        await self.runtime.durability.set_paused(self.tenant, self.name, paused=True)

    def pause_firing(self) -> None:
        """Stop firing on criteria."""
        self.firing_loop.paused = True
        self.firing_loop.fast_path_state.close()

    async def resume(self) -> None:
        """Fire on criteria again, at once if they hold."""
        self.firing_loop.paused = False
        self.firing_loop.reevaluate()
        await self.runtime.durability.set_paused(self.tenant, self.name, paused=False)

    # -- graphs

    def set_graphs(self, graphs: dict[str, CompiledGraph]) -> None:
        """Call these graphs from the next firing on."""
        self.firing_loop.set_graphs(graphs)
        for one in self.accumulators:
            one.close_fast_path()
        if self.health is not ReactorHealth.STARTING:
            self.firing_loop.ensure_driver()
            self.firing_loop.fire_due()

    def refresh_subscribers(self) -> None:
        """Tell workflows of firings from now on: those that want to know by now."""
        was_followed = self.has_subscribers
        self.outbox.set_subscribers(self.runtime.subscribers.workflows_for(self.tenant, self.name))
        if self.has_subscribers is not was_followed:
            self.firing_loop.results.firing_observer = self.outbox.put if self.has_subscribers else None
            self.set_graphs(self.firing_loop.graphs)

    @property
    def has_subscribers(self) -> bool:
        return bool(self.outbox.subscribers)

    def redefine(self, definition: Reactor, graphs: dict[str, CompiledGraph]) -> None:
        """Go on as another version of the same reactor: log and subscribers stay, and inputs that fit it."""
        pairs = zip(self.definition.accumulators, definition.accumulators, strict=True)
        migrations = {index: _migrator_for(new) for index, (old, new) in enumerate(pairs) if old is not new}
        self.definition = definition
        self.durability = self.runtime.durability.mode_for(definition)
        inputs = self.firing_loop.inputs
        inputs.resize(definition.capacity)
        lost = inputs.migrate(lambda index, value: migrations[index](value) if index in migrations else value)
        if lost:
            self.dropped["migration"] += lost
        self.queue_gate.overflow = definition.overflow
        self.queue_gate.wake_waiters()  # there may be more of it now
        self.firing_loop.new_series()
        self.request_checkpoint()
        self.set_graphs(graphs)

    # -- health

    def update_health(self) -> None:
        unhealthy = self.unhealthy_accumulators
        self.firing_loop.fast_path_state.close()
        if self.health is ReactorHealth.WARMING and not unhealthy and not self._is_inactive:
            self._set_health(ReactorHealth.LIVE)
            self.firing_loop.reevaluate()
        if self.health.can_fire:
            self._set_health(ReactorHealth.DEGRADED if unhealthy or not self._can_persist else ReactorHealth.LIVE)
        self.firing_loop.fire_due()

    @property
    def unhealthy_accumulators(self) -> list[str]:
        """The accumulators that are not healthy, by name."""
        return [one.name for one in self.accumulators if not one.health.is_healthy]

    @property
    def disconnected(self) -> list[str]:
        """What degrades it: accumulators by name, and "persist" if its state cannot be written."""
        return self.unhealthy_accumulators if self._can_persist else [*self.unhealthy_accumulators, PERSIST_MARKER]

    @property
    def is_degraded(self) -> bool:
        return self.health is ReactorHealth.DEGRADED

    def _set_health(self, health: ReactorHealth) -> None:
        if health is self.health:
            return
        REACTOR_TRANSITIONS.check(f"reactor '{self.name}'", self.health, health)
        self.health = health
        self.firing_loop.health_allows_firing = health.can_fire
        logger.info(events.REACTOR_HEALTH, extra={"reactor": self.name, "health": str(health)})

    # -- life

    def activate(self) -> None:
        """Fire from now on, if it was held so far: whatever was to be loaded with the reactor is."""
        if self._is_inactive:
            self._is_inactive = False
            self.update_health()

    def start(self) -> None:
        """Come up, or come up again: fresh internals around the inputs as they are."""
        self._set_health(ReactorHealth.STARTING)
        self.restart_state.record_start(self.clock.monotonic())
        self._set_health(ReactorHealth.WARMING)
        self.firing_loop.ensure_driver()
        self.update_health()

    def crash(self, error: BaseException) -> None:
        self._interrupt(ReactorHealth.STARTING)
        logger.error(events.REACTOR_CRASHED, extra={"reactor": self.name, "error": repr(error)})
        self.runtime.supervisor.on_crash(self, error)

    def mark_failed(self) -> None:
        """Stay down until an operator restarts it."""
        self._interrupt(ReactorHealth.FAILED)

    def restart(self) -> None:
        """Come up again after a crash; called by the supervisor or an operator."""
        self._interrupt(ReactorHealth.STARTING)
        self.start()

    def _interrupt(self, health: ReactorHealth) -> None:
        self.firing_loop.interrupt()
        self._set_health(health)

    def stop_firing(self) -> None:
        """Fire nothing any more, whatever still comes."""
        self.firing_loop.health_allows_firing = False
        self.firing_loop.fast_path_state.close()

    async def stop(self) -> None:
        """End everything that runs for this reactor."""
        self.restart_state.record_end()
        self.stop_firing()
        await self.firing_loop.stop()


def _migrator_for(accumulator: Accumulator) -> Callable[[Any], Any]:
    """Return how an accumulator's boundaries become what its newer version declares; windows keep what fits."""
    return (
        ValueMigrator(accumulator.element).migrate_fitting
        if accumulator.is_window
        else ValueMigrator(accumulator.boundary_type)
    )
