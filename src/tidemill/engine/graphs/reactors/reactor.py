"""A running reactor: its accumulators, health, start, restart and stop, around its firing loop."""

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from tidemill.annotations.codec import Codec, UnstorableError
from tidemill.engine.graphs.accumulators.accumulator import RunningAccumulator
from tidemill.engine.graphs.accumulators.kind import Kind
from tidemill.engine.graphs.durability.backend import declared_policy
from tidemill.engine.graphs.durability.write_health import WriteHealth
from tidemill.engine.graphs.firing.commands import FiringCommands
from tidemill.engine.graphs.firing.firing_loop import FiringLoop
from tidemill.engine.graphs.host import FiringHost
from tidemill.engine.graphs.key_state import KeyState
from tidemill.engine.graphs.reactors.feed_outbox import FeedOutbox
from tidemill.engine.graphs.reactors.outbox import FailedStart, Outbox
from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.engine.graphs.supervisor import RestartState
from tidemill.engine.graphs.unread_state import UnreadState
from tidemill.engine.graphs.value_migration import ValueMigrator
from tidemill.graphs.compiler import CompiledGraph
from tidemill.graphs.definition import Accumulator, Reactor
from tidemill.graphs.health import REACTOR_TRANSITIONS, ReactorHealth
from tidemill.graphs.inputs import FiringInputs, Inputs
from tidemill.graphs.keys import Key
from tidemill.graphs.outcomes import DeadLetter, to_jsonable
from tidemill.graphs.result import Firing
from tidemill.graphs.snapshot import compute_digest
from tidemill.graphs.state import KeyCounts
from tidemill.kernel.errors import RequestError
from tidemill.storage.graph_ports import PartKind
from tidemill.telemetry import events

logger = logging.getLogger(__name__)

PERSIST_MARKER = "persist"
"""Listed among the accumulators that degrade a reactor when its state cannot be written."""


class Pausing:
    """Pauses and resumes the firings of one reactor."""

    def __init__(self, reactor: "RunningReactor") -> None:
        self._reactor = reactor
        self._loop = reactor.firing_loop

    async def pause(self) -> None:
        """Stop firing on criteria, even after a restart of the process; boundaries are still accepted."""
        self._reactor.check_owned()
        self.hold()
        await self._store(paused=True)

    def hold(self) -> None:
        """Stop firing on criteria."""
        self._loop.paused = True
        self._loop.fast_path_state.close()

    def follow(self, is_paused: bool) -> None:
        """Pause or resume firing, without a word to the store, which says so already."""
        if is_paused and not self._loop.paused:
            self.hold()
        elif not is_paused and self._loop.paused:
            self._release()

    def _release(self) -> None:
        self._loop.paused = False
        self._loop.reevaluate()

    async def resume(self) -> None:
        """Fire on criteria again, immediately if they are met."""
        self._reactor.check_owned()
        self._release()
        await self._store(paused=False)

    async def _store(self, *, paused: bool) -> None:
        reactor = self._reactor
        await reactor.runtime.durability.set_paused(reactor.tenant, reactor.definition.declared_name, paused=paused)


class ReactorKeys:
    """What a reactor says about its keys: without keys, that it has none."""

    def __init__(self, name: str) -> None:
        self._name = name

    def check(self, key: Any) -> Key | None:
        """Return the key that a caller gives; RequestError for one that the reactor cannot have."""
        if key is not None:
            raise RequestError(f"reactor '{self._name}' has no keys: leave out key=", code="no_keys")
        return None

    async def load(self, key: Any) -> None:
        """Read the state of a key from the store, if it is there and not in memory."""
        self.check(key)

    def counts(self) -> KeyCounts | None:
        """Return how many keys there are; None without keys."""
        return None

    def stored_facts(self) -> dict[str, Any]:
        """Return what the reactor's part of a checkpoint says about its keys."""
        return {}


class RunningReactor(FiringHost):
    """One loaded reactor."""

    component: PartKind = "reactor"

    def __init__(self, definition: Reactor, tenant: str, runtime: GraphRuntime) -> None:
        self.definition = definition
        self.name = definition.name
        self.tenant = tenant
        self.runtime = runtime
        self.clock = runtime.clock
        self.health = ReactorHealth.STARTING
        self.health_since = self.counted_since = self.clock.now()
        self.restart_state = RestartState()
        self.accumulators: list[RunningAccumulator] = []
        self._batches: list[RunningAccumulator] = []
        self.durability = runtime.durability.policy_for(definition)
        self.write_health = WriteHealth(self.name, self.update_health)
        self.generation = 0  # of its part of the checkpoint
        self.is_fenced = False  # whether another node has acquired it
        self.is_unsaved_reset = False  # whether it replaces older stored state as soon as it is active
        self.is_inactive = True  # until everything that loads together with it is there
        self.keys = self.create_keys()
        self.firing_loop = self.create_firing_loop()
        self.commands = FiringCommands(self.firing_loop, runtime)
        self.pausing = Pausing(self)
        self.outbox = Outbox(self, self.firing_loop, runtime)
        self.feed_outbox = FeedOutbox(self, self.firing_loop, runtime)
        self.firing_loop.new_series()

    def create_firing_loop(self) -> FiringLoop:
        """Create the loop that fires this reactor's graphs."""
        return FiringLoop(self, self.runtime)

    def create_keys(self) -> ReactorKeys:
        """Create the part that answers for its keys."""
        return ReactorKeys(self.name)

    @property
    def is_partition(self) -> bool:
        """Whether this is one partition of a keyed reactor."""
        return self.definition.is_partition

    # -- accumulators

    def attach(self, accumulator: RunningAccumulator, index: int) -> None:
        """Connect an accumulator as the input at this index."""
        self.accumulators.append(accumulator)
        if accumulator.kind.flushes_after_firing:
            self._batches.append(accumulator)
        accumulator.add_target(self.firing_loop, index)

    def all_dropped(self) -> Counter[str]:
        """Return the boundaries that were not delivered, or not kept for `ctx.consumed`, by reason."""
        dropped, unconsumed = self.firing_loop.dropped, self.firing_loop.inputs.dropped_consumed
        return dropped + Counter({"consumed": unconsumed}) if unconsumed else Counter(dropped)

    @property
    def batches(self) -> Sequence[Kind]:
        return [one.kind for one in self._batches]

    def window_feed(self, window: str, key: Key | None = None) -> Callable[[Any], None]:
        fed = self.accumulators[self.definition.accumulator_names.index(window)]
        return partial(fed.kind.feed, source_reactor=self.firing_loop, held=fed.held_at(key))

    def push_feed(self, graph: str, accumulator: str, value: Any) -> None:
        tenant = graph.rpartition("/")[0] or self.tenant  # of the graph: it may be bound to another tenant's reactor
        self.feed_outbox.put((tenant, accumulator), value)

    def replace_windows(self, values: Sequence[Any], key_state: KeyState | None) -> None:
        key = None if key_state is None else key_state.key
        for one, value in zip(self.accumulators, values, strict=True):
            if one.definition.is_window:
                one.kind.replace_events(one.held_at(key), value)

    def after_firing(self, key_state: KeyState | None = None, *, ok: bool) -> None:
        flush = self.make_flush(key_state) if ok and self._batches else None
        if flush is not None or self.durability.writes_each_firing:
            self.durability.after_firing(self.runtime.durability, flush)

    def make_flush(self, key_state: KeyState | None) -> Callable[[], None]:  # noqa: ARG002 - without keys
        """Return the function that flushes the batches after this firing, which may happen later."""
        return self.flush_batches

    def flush_batches(self, key: Key | None = None) -> None:
        """Flush the batches after a firing."""
        for one in self._batches:
            one.kind.after_firing(one.held_at(key))

    # -- durability

    @property
    def requires_journal(self) -> bool:
        return declared_policy(self.definition).is_journaled

    @property
    def schema_digest(self) -> bytes:
        """Changes when the annotations of its accumulators do."""
        return compute_digest([(one.name, one.schema_digest) for one in self.accumulators])

    def codec_for(self, source: str) -> Codec | None:
        try:
            names = self.definition.accumulator_names
            return self.accumulators[names.index(source)].emitter.codecs.boundary if source in names else None
        except UnstorableError:
            return None

    # -- commands

    def check_owned(self) -> None:
        if self.is_fenced:
            name = self.definition.declared_name
            remedy = f"use that node, or stop it and take the reactor back with `node.reactor('{name}').restart()`"
            message = f"reactor '{name}' is owned by another node now; {remedy}"
            raise RequestError(message, code="reactor_owned", status=409, reactor=name)

    def check_ready(self) -> None:
        self.check_owned()
        if self.health in (ReactorHealth.STARTING, ReactorHealth.FAILED):
            name = self.definition.declared_name
            remedy = f"restart it with `await node.reactor('{name}').restart()`"
            message = f"reactor '{name}' is {self.health} and cannot fire; {remedy}"
            raise RequestError(message, code="not_ready", status=409, health=str(self.health))

    async def fire_manually(self, values: Sequence[Any] | None, key: Any = None) -> Firing:
        """Fire regardless of the criteria: with the cache as it is, or with `values` in its place."""
        self.keys.check(key)
        return await self.commands.fire_manually(values)

    def inputs_of(self, key: Any) -> Inputs:
        """Return the inputs of a key, for one who reads them at once; without keys, of the reactor."""
        self.keys.check(key)
        return self.firing_loop.inputs

    # -- graphs

    def set_graphs(self, graphs: dict[str, CompiledGraph]) -> None:
        """Call these graphs from the next firing on."""
        self.firing_loop.set_graphs(graphs)
        for one in self.accumulators:
            one.close_fast_path()
        if self.health is not ReactorHealth.STARTING:
            self.firing_loop.driver.ensure()
            self.firing_loop.fire_due()

    def refresh_subscribers(self) -> None:
        """Deliver firings to the workflows that subscribe to them now."""
        was_observed = bool(self.outbox.subscriptions)
        self.outbox.set_subscriptions(
            self.runtime.subscribers.subscriptions_to(self.tenant, self.definition.declared_name)
        )
        if bool(self.outbox.subscriptions) is not was_observed:
            self.firing_loop.results.firing_observer = None if was_observed else self.outbox.put
            self.set_graphs(self.firing_loop.graphs)

    def redefine(self, definition: Reactor, graphs: dict[str, CompiledGraph]) -> None:
        """Become another version of the same reactor: log and subscribers stay, and inputs that fit."""
        pairs = zip(self.definition.accumulators, definition.accumulators, strict=True)
        unread = UnreadState()
        migrators = {index: _migrator_for(new, unread) for index, (old, new) in enumerate(pairs) if old is not new}
        self.definition = definition
        self.durability = self.runtime.durability.policy_for(definition)
        loop = self.firing_loop
        loop.is_redefined = True
        loop.inputs.resize(definition.capacity)
        convert = partial(_convert_input, migrators)
        if lost := self.migrate_inputs(convert, unread):
            loop.dropped["migration"] += lost
        self.runtime.supervisor.on_unread_state(self, unread.describe())
        loop.results.dead_letters.migrate(partial(_migrate_dead_letter, definition.accumulator_names, convert))
        loop.queue_gate.set_overflow(definition.overflow)
        loop.new_series()
        loop.request_checkpoint()
        self.set_graphs(graphs)

    def migrate_inputs(self, convert: Callable[[int, Any], Any], unread: UnreadState) -> int:  # noqa: ARG002
        """Convert all inputs to a newer declaration; return how many did not fit."""
        return self.firing_loop.inputs.migrate(convert)

    # -- health

    def update_health(self) -> None:
        unhealthy = self._has_unhealthy_accumulator()
        self.firing_loop.fast_path_state.close()
        if self.health is ReactorHealth.WARMING and not unhealthy and not self.is_inactive:
            self._set_health(ReactorHealth.LIVE)
            self.firing_loop.reevaluate()
        if self.health.can_fire:
            self._set_health(ReactorHealth.DEGRADED if unhealthy or not self.write_health.is_ok else ReactorHealth.LIVE)
        self.firing_loop.fire_due()

    def _has_unhealthy_accumulator(self) -> bool:
        """Return whether an accumulator is not healthy; checks the last ones first: they start last."""
        return any(not one.health.is_healthy for one in reversed(self.accumulators))

    @property
    def unhealthy_accumulators(self) -> list[str]:
        """The names of the accumulators that are not healthy."""
        return [one.name for one in self.accumulators if not one.health.is_healthy]

    @property
    def disconnected(self) -> list[str]:
        """What degrades the reactor: accumulators by name, and "persist" if its state cannot be written."""
        return (
            self.unhealthy_accumulators if self.write_health.is_ok else [*self.unhealthy_accumulators, PERSIST_MARKER]
        )

    def _set_health(self, health: ReactorHealth) -> None:
        if health is self.health:
            return
        REACTOR_TRANSITIONS.check(f"reactor '{self.name}'", self.health, health)
        self.health, self.health_since = health, self.clock.now()
        self.firing_loop.health_allows_firing = health.can_fire
        self.firing_loop.is_degraded = health is ReactorHealth.DEGRADED
        logger.info(events.REACTOR_HEALTH, extra={"reactor": self.name, "health": str(health)})
        facts = {"reactor": self.name, "health": str(health), "disconnected": self.disconnected}
        self.runtime.node_events.publish(events.REACTOR_HEALTH, self.tenant, **facts)

    # -- lifecycle

    def activate(self) -> None:
        """Allow firings, now that everything that loads together with the reactor is there."""
        if self.is_inactive:
            self.is_inactive = False
            self.feed_outbox.activate()
            self.update_health()

    def start(self) -> None:
        """Start or restart the reactor with its current inputs."""
        self._set_health(ReactorHealth.STARTING)
        self.restart_state.record_start(self.clock.monotonic())
        self._set_health(ReactorHealth.WARMING)
        self.firing_loop.driver.ensure()
        self.update_health()

    def crash(self, error: BaseException) -> None:
        self._interrupt(ReactorHealth.STARTING)
        logger.error(events.REACTOR_CRASHED, extra={"reactor": self.name, "error": repr(error)})
        self.runtime.supervisor.on_crash(self, error)

    def mark_failed(self) -> None:
        """Stay down until an operator restarts it."""
        self._interrupt(ReactorHealth.FAILED)

    def restart(self) -> None:
        """Start again after a crash, for the supervisor or an operator."""
        self._interrupt(ReactorHealth.STARTING)
        self.start()

    def _interrupt(self, health: ReactorHealth) -> None:
        self.firing_loop.interrupt()
        self._set_health(health)

    def stop_firing(self) -> None:
        """Fire nothing from now on, and push no results."""
        self.feed_outbox.stop()
        self.firing_loop.health_allows_firing = False
        self.firing_loop.fast_path_state.close()

    async def stop(self) -> None:
        """Stop everything that runs for this reactor."""
        self.restart_state.record_end()
        self.stop_firing()
        await self.firing_loop.stop()


def _migrator_for(accumulator: Accumulator, unread: UnreadState) -> Callable[[Any], Any]:
    """Return the function that converts boundaries to the newer declaration; windows keep the newest that fit."""
    what = f"a boundary of '{accumulator.declared_name}'"
    if not accumulator.is_window:
        return ValueMigrator(accumulator.boundary_type, unread, what, accumulator.state_upgrade)
    migrator = ValueMigrator(accumulator.element, unread, what)
    return lambda content: accumulator.trim_to_capacity(migrator.migrate_fitting(content))


def _convert_input(migrators: Mapping[int, Callable[[Any], Any]], index: int, value: Any) -> Any:
    """Return an input as the newer declaration has it; None if it does not fit."""
    return migrators[index](value) if index in migrators else value


def _migrate_dead_letter(
    names: Sequence[str], convert: Callable[[int, Any], Any], dead_letter: DeadLetter, detail: Any
) -> tuple[DeadLetter, Any]:
    """Return a dead firing or start with inputs of the newer declaration, or plain ones where they do not fit."""

    def migrate(index: int, value: Any) -> Any:
        return to_jsonable(value) if (migrated := convert(index, value)) is None else migrated

    before = detail.record.snapshot if isinstance(detail, FailedStart) else detail[0].inputs.snapshot
    snapshot = [None if value is None else migrate(index, value) for index, value in enumerate(before)]
    if isinstance(detail, FailedStart):
        detail = replace(detail, record=replace(detail.record, snapshot=snapshot))
    else:
        firing, failed = detail
        consumed = [(index, migrate(index, value)) for index, value in firing.inputs.consumed]
        detail = replace(firing, inputs=FiringInputs(snapshot, consumed, firing.inputs.flags)), failed
    inputs = {name: value for name, value in zip(names, snapshot, strict=True) if value is not None}
    return replace(dead_letter, inputs=inputs), detail
