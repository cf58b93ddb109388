"""A running reactor: the accumulators around the wheel, its health, its coming up and going down."""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from tidemill.annotations.codec import Codec, UnstorableError
from tidemill.engine.graphs.accumulator import RunningAccumulator
from tidemill.engine.graphs.environment import Environment
from tidemill.engine.graphs.housing import Housing
from tidemill.engine.graphs.migration import Migration
from tidemill.engine.graphs.outbox import Outbox
from tidemill.engine.graphs.push_path import Accumulating, PushPath
from tidemill.engine.graphs.supervision import Supervision
from tidemill.engine.graphs.target import Target
from tidemill.engine.graphs.wheel import Wheel
from tidemill.graphs.compiler import Compiled
from tidemill.graphs.definition import Accumulator, Reactor
from tidemill.graphs.health import REACTOR_MOVES, ReactorHealth
from tidemill.graphs.result import Firing
from tidemill.graphs.snapshot import digest_of
from tidemill.kernel.errors import RequestError
from tidemill.storage.ports import PartKind
from tidemill.telemetry import events

logger = logging.getLogger(__name__)

PERSIST = "persist"
"""Stands among the names of accumulators that degrade a reactor when its state cannot be written."""
MAX_PERSIST_FAILURES = 5  # in a row


class RunningReactor(Housing, Target):
    """One loaded reactor."""

    component: PartKind = "reactor"

    def __init__(self, definition: Reactor, tenant: str, environment: Environment) -> None:
        self.definition = definition
        self.name = definition.name
        self.tenant = tenant
        self.environment = environment
        self.clock = environment.clock
        self.health = ReactorHealth.STARTING
        self.supervision = Supervision()
        self.accumulators: list[RunningAccumulator] = []
        self.dropped: Counter[str] = Counter()
        self._batches: list[RunningAccumulator] = []
        self.durability = environment.keeper.durability(definition)
        self.generation = 0  # of its part of the checkpoint
        self.persist_failures = 0  # in a row
        self.checkpoint_failures = 0
        self._persists = True
        self._is_held = True  # until everything is there that was to be loaded with it
        self.wheel = Wheel(self, environment)
        self.room = self.wheel.room
        self.outbox = Outbox(self, environment)
        self.wheel.begin_series()

    # -- accumulators

    def attach(self, accumulator: RunningAccumulator, index: int) -> None:
        """Let an accumulator deliver here."""
        self.accumulators.append(accumulator)
        if accumulator.flushes_after_firing:
            self._batches.append(accumulator)
        accumulator.join(self, index)

    def open_path(self, path: PushPath, accumulator: Accumulating, index: int) -> None:
        wheel = self.wheel
        decides = not wheel.inputs.needs_all and bool(wheel.inputs.mask >> index & 1)
        if decides and wheel.plain_graph is not None:
            path.open(accumulator, index, wheel.plain_graph, wheel)
        elif self.takes_all and accumulator.admission.expected and accumulator.boundary.expected:
            path.absorb(accumulator, index, wheel)

    def take_in(self, index: int, boundary: Any, position: int = 0) -> None:
        self.wheel.take_in(index, boundary, position)

    def hand_over(self, index: int, boundary: Any, position: int) -> None:
        self.wheel.hand_over(index, boundary, position)

    def take_in_fed(self, index: int, content: list[Any]) -> None:
        self.wheel.begin_series()
        self.wheel.take_in(index, content)

    def go_on(self) -> None:
        self.wheel.go_on()

    def drop(self, reason: str) -> None:
        self.dropped[reason] += 1

    def all_dropped(self) -> Counter[str]:
        """Return what was not delivered, or not kept for `ctx.consumed`, by reason."""
        forgotten = self.wheel.inputs.forgotten
        return self.dropped + Counter({"consumed": forgotten}) if forgotten else Counter(self.dropped)

    def refresh_window(self, index: int, content: list[Any]) -> None:
        self.wheel.inputs.cache[index] = content
        self.wheel.lane.close()
        self.note()

    def feed(self, window: str, value: Any) -> None:
        for one in self.accumulators:
            if one.name == window:
                one.feed(value, by=self)

    def refill_windows(self, values: Sequence[Any]) -> None:
        for one, value in zip(self.accumulators, values, strict=True):
            if one.definition.is_window:
                one.hold(value)

    def after_firing(self, *, ok: bool) -> None:
        self.note()
        if self.durability == "fire":
            self.environment.keeper.hurry()
            if ok and self._batches:
                self.environment.keeper.after_write(self._flush_batches)
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
        return self.wheel.lane.arrivals

    @property
    def takes_all(self) -> bool:
        return not self.wheel.inputs.sequential and not self.needs_commit

    @property
    def needs_commit(self) -> bool:
        return self.definition.durability == "boundary"

    # -- what outlives the process

    @property
    def commits(self) -> bool:
        return self.durability == "boundary"

    @property
    def is_kept(self) -> bool:
        return self.durability != "none"

    @property
    def schema_digest(self) -> bytes:
        """What changes when the annotations of its accumulators do."""
        return digest_of([(one.name, one.schema_digest) for one in self.accumulators])

    def codec_for(self, source: str) -> Codec | None:
        try:
            return next((one.codecs.boundary for one in self.accumulators if one.name == source), None)
        except UnstorableError:
            return None

    def note(self) -> None:
        self.wheel.note()

    def unsaved(self) -> None:
        if self.is_kept:
            self.environment.keeper.note(self)

    def saved(self) -> None:
        """A write for this reactor has succeeded: if it counted as degraded for that, it no longer does."""
        if self.persist_failures:
            logger.info(events.CHECKPOINT_RECOVERED, extra={"reactor": self.name, "failures": self.persist_failures})
        self.persist_failures = 0
        self._persist(is_possible=True)

    def not_saved_for_long(self) -> None:
        """No write for this reactor has succeeded for too long, although one is wanted: that degrades it too."""
        self._persist(is_possible=False)

    def not_saved(self, reason: str) -> None:
        """A write for this reactor has failed; five in a row degrade it."""
        self.persist_failures += 1
        self.checkpoint_failures += 1
        if self.persist_failures in (1, MAX_PERSIST_FAILURES):  # the same again and again tells nobody anything
            facts = {"reactor": self.name, "reason": reason, "failures": self.persist_failures}
            logger.warning(events.CHECKPOINT_FAILED, extra=facts)
        if self.persist_failures >= MAX_PERSIST_FAILURES:
            self._persist(is_possible=False)

    def _persist(self, *, is_possible: bool) -> None:
        if is_possible is not self._persists:
            self._persists = is_possible
            self.review()

    # -- commands

    async def fire(self, values: Sequence[Any] | None = None) -> Firing:
        """Fire by hand: with the cache as it is, or with `values` in its place."""
        self.check_ready()
        return await self.wheel.fire_by_hand(values)

    def check_ready(self) -> None:
        if self.health in (ReactorHealth.STARTING, ReactorHealth.FAILED):
            remedy = f"restart it with `await node.reactor('{self.name}').restart()`"
            message = f"reactor '{self.name}' is {self.health} and cannot fire; {remedy}"
            raise RequestError(message, code="not_ready", status=409, health=str(self.health))

    async def pause(self) -> None:
        """Stop firing on criteria, beyond the end of the process; boundaries are still taken in."""
        self.hold_back()
        await self.environment.keeper.set_paused(self.tenant, self.name, paused=True)

    def hold_back(self) -> None:
        """Stop firing on criteria."""
        self.wheel.paused = True
        self.wheel.lane.close()

    async def resume(self) -> None:
        """Fire on criteria again, at once if they hold."""
        self.wheel.paused = False
        self.wheel.look_again()
        await self.environment.keeper.set_paused(self.tenant, self.name, paused=False)

    # -- graphs

    def set_graphs(self, graphs: dict[str, Compiled]) -> None:
        """Call these graphs from the next firing on."""
        self.wheel.set_graphs(graphs)
        for one in self.accumulators:
            one.shut_path()
        if self.health is not ReactorHealth.STARTING:
            self.wheel.ensure_driver()
            self.wheel.go_on()

    def follow(self) -> None:
        """Tell workflows of firings from now on: those that want to know by now."""
        was_followed = self.is_followed
        self.outbox.follow(self.environment.followers.names(self.tenant, self.name))
        if self.is_followed is not was_followed:
            self.wheel.outcomes.told = self.outbox.put if self.is_followed else None
            self.set_graphs(self.wheel.graphs)

    @property
    def is_followed(self) -> bool:
        return bool(self.outbox.followers)

    def redefine(self, definition: Reactor, graphs: dict[str, Compiled]) -> None:
        """Go on as another version of the same reactor: log and subscribers stay, and inputs that fit it."""
        pairs = zip(self.definition.accumulators, definition.accumulators, strict=True)
        migrations = {index: _migration(new) for index, (old, new) in enumerate(pairs) if old is not new}
        self.definition = definition
        self.durability = self.environment.keeper.durability(definition)
        inputs = self.wheel.inputs
        inputs.resize(definition.capacity)
        lost = inputs.migrate(lambda index, value: migrations[index](value) if index in migrations else value)
        if lost:
            self.dropped["migration"] += lost
        self.room.overflow = definition.overflow
        self.room.free()  # there may be more of it now
        self.wheel.begin_series()
        self.unsaved()
        self.set_graphs(graphs)

    # -- health

    def review(self) -> None:
        unhealthy = self.unhealthy
        self.wheel.lane.close()
        if self.health is ReactorHealth.WARMING and not unhealthy and not self._is_held:
            self._move(ReactorHealth.LIVE)
            self.wheel.look_again()
        if self.health.fires:
            self._move(ReactorHealth.DEGRADED if unhealthy or not self._persists else ReactorHealth.LIVE)
        self.wheel.go_on()

    @property
    def unhealthy(self) -> list[str]:
        """The accumulators that are not healthy, by name."""
        return [one.name for one in self.accumulators if not one.health.is_healthy]

    @property
    def disconnected(self) -> list[str]:
        """What degrades it: accumulators by name, and "persist" if its state cannot be written."""
        return self.unhealthy if self._persists else [*self.unhealthy, PERSIST]

    @property
    def is_degraded(self) -> bool:
        return self.health is ReactorHealth.DEGRADED

    def _move(self, health: ReactorHealth) -> None:
        if health is self.health:
            return
        REACTOR_MOVES.check(f"reactor '{self.name}'", self.health, health)
        self.health = health
        self.wheel.turns = health.fires
        logger.info(events.REACTOR_HEALTH, extra={"reactor": self.name, "health": str(health)})

    # -- life

    def open_up(self) -> None:
        """Fire from now on, if it was held so far: whatever was to be loaded with the reactor is."""
        if self._is_held:
            self._is_held = False
            self.review()

    def start(self) -> None:
        """Come up, or come up again: fresh internals around the inputs as they are."""
        self._move(ReactorHealth.STARTING)
        self.supervision.started(self.clock.monotonic())
        self._move(ReactorHealth.WARMING)
        self.wheel.ensure_driver()
        self.review()

    def crash(self, error: BaseException) -> None:
        self._halt(ReactorHealth.STARTING)
        logger.error(events.REACTOR_CRASHED, extra={"reactor": self.name, "error": repr(error)})
        self.environment.supervisor.crashed(self, error)

    def give_up(self) -> None:
        """Stay down until an operator restarts it."""
        self._halt(ReactorHealth.FAILED)

    def revive(self) -> None:
        """Come up again after a crash; called by the supervisor or an operator."""
        self._halt(ReactorHealth.STARTING)
        self.start()

    def _halt(self, health: ReactorHealth) -> None:
        self.wheel.halt()
        self._move(health)

    def abandon(self) -> None:
        """Fire nothing any more, whatever still comes."""
        self.wheel.turns = False
        self.wheel.lane.close()

    async def stop(self) -> None:
        """End everything that runs for this reactor."""
        self.supervision.ended()
        self.abandon()
        await self.wheel.stop()


def _migration(accumulator: Accumulator) -> Callable[[Any], Any]:
    """Return how an accumulator's boundaries become what its newer version declares; windows keep what fits."""
    return Migration(accumulator.element).keep if accumulator.is_window else Migration(accumulator.boundary_type)
