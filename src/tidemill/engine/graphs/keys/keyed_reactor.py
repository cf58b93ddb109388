"""A keyed reactor, or one of its partitions: a running reactor with many keys."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from tidemill.engine.graphs.key_state import KeyState
from tidemill.engine.graphs.keys.keyed_ingest import KeyedAccumulator
from tidemill.engine.graphs.keys.keyed_kinds import KeyedBatch
from tidemill.engine.graphs.keys.keyed_loop import KeyedFiringLoop
from tidemill.engine.graphs.reactors.reactor import ReactorKeys, RunningReactor
from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.engine.graphs.unread_state import UnreadState
from tidemill.graphs.compiler import CompiledGraph
from tidemill.graphs.definition import Reactor
from tidemill.graphs.health import ReactorHealth
from tidemill.graphs.inputs import Inputs
from tidemill.graphs.keys import InvalidKeyError, Key, check_key, partition_of, to_tuples
from tidemill.graphs.result import Firing
from tidemill.graphs.state import KeyCounts
from tidemill.kernel.errors import NotFoundError, RequestError


class KeyHistory(msgspec.Struct, frozen=True):
    """Which stored snapshots of keys count."""

    lost_moments: tuple[tuple[int, int], ...] = ()
    """After each first moment, up to the second one, snapshots do not count: the reactor went back to the first."""
    reset_moment: int = 0
    """The reactor has another contract since then: the caches of older snapshots do not count."""

    def counts(self, moment: int) -> bool:
        """Return whether a snapshot of this moment counts."""
        return not any(first < moment <= last for first, last in self.lost_moments)


class KeysOfReactor(ReactorKeys):
    """What a keyed reactor says about its keys."""

    def __init__(self, reactor: "KeyedReactor") -> None:
        super().__init__(reactor.name)
        self._reactor = reactor

    def is_buffering(self, key_state: KeyState) -> bool:
        """Return whether a batch holds events of a key."""
        kinds = (one.kind for one in self._reactor.accumulators)
        return any(isinstance(one, KeyedBatch) and one.is_buffering(key_state) for one in kinds)

    def check(self, key: Any) -> Key:
        checked, definition = require_key(self._reactor.definition.declared_name, key), self._reactor.definition
        own = definition.partition
        if own is not None and own.number != partition_of(checked, definition.partitions):
            message = f"the key {key!r} belongs to another partition than '{self._reactor.name}'"
            raise RequestError(f"{message}: use '{definition.declared_name}'", code="invalid_event_key")
        return checked

    async def load(self, key: Any) -> None:
        loop = self._reactor.firing_loop
        if loop.keys.is_stored(checked := self.check(key)):
            await loop.memory.load(checked)

    def counts(self) -> KeyCounts:
        loop = self._reactor.firing_loop
        return KeyCounts(total=loop.memory.total, active=len(loop.keys.active), stored=loop.keys.stored.count)

    def is_pending(self, key_state: KeyState) -> bool:
        """Return whether a key has work to do after a restart, without a new event."""
        inputs = self._reactor.firing_loop.inputs_of(key_state)
        is_due = bool(inputs.queue) or bool(inputs.dirty and inputs.is_criteria_met)
        return is_due or self.is_buffering(key_state)

    def stored_facts(self) -> dict[str, Any]:
        return {
            "lost_moments": list(self._reactor.key_history.lost_moments),
            "reset_moment": self._reactor.key_history.reset_moment,
            "partitions": self._reactor.definition.partitions,
        }


class KeyedReactor(RunningReactor):
    """A reactor that keeps inputs and running state for each key."""

    firing_loop: KeyedFiringLoop
    keys: KeysOfReactor

    def __init__(self, definition: Reactor, tenant: str, runtime: GraphRuntime) -> None:
        self._lost_sources: set[str] = set()  # that another part of the node, or another node, reads for it
        super().__init__(definition, tenant, runtime)
        self.key_history = KeyHistory()
        self._is_counted = False

    def mark_source(self, accumulator: str, *, is_lost: bool) -> None:
        """Mark firings as degraded while the source of an accumulator is lost, which one node reads for all.

        That node may still run an older version: an accumulator that reads a source itself knows its own health.
        """
        if any(
            one.kind.has_background_loop and one.definition.declared_name == accumulator for one in self.accumulators
        ):
            return
        (self._lost_sources.add if is_lost else self._lost_sources.discard)(accumulator)
        self.firing_loop.fast_path_state.close()  # the firings of a burst share the mark
        self._update_degraded()

    def _set_health(self, health: ReactorHealth) -> None:
        super()._set_health(health)
        self._update_degraded()

    def _update_degraded(self) -> None:
        self.firing_loop.is_degraded = self.health is ReactorHealth.DEGRADED or bool(self._lost_sources)

    def start(self) -> None:
        """Start the reactor, which takes its share of the node's memory for keys."""
        self.runtime.keyed_reactors += not self._is_counted
        self._is_counted = True
        super().start()

    async def stop(self) -> None:
        """Stop the reactor, and leave its share to the others."""
        self.runtime.keyed_reactors -= self._is_counted
        self._is_counted = False
        await super().stop()

    def create_keys(self) -> KeysOfReactor:
        return KeysOfReactor(self)

    def create_firing_loop(self) -> KeyedFiringLoop:
        return KeyedFiringLoop(self, self.runtime, self.keys.is_buffering)

    def make_flush(self, key_state: KeyState | None) -> Callable[[], None]:
        """Return the function that flushes the batches of the key that has fired, which stays active until then."""
        assert key_state is not None, "a firing of a keyed reactor has a key"
        fired = key_state
        fired.pins += 1

        def flush() -> None:
            fired.pins -= 1
            self.flush_batches(fired.key)

        return flush

    async def fire_manually(self, values: Sequence[Any] | None, key: Any = None) -> Firing:
        key_state = await self.firing_loop.memory.activate(self.keys.check(key))
        key_state.pins += 1
        try:
            return await self.commands.fire_manually(values, key_state)
        finally:
            key_state.pins -= 1

    def inputs_of(self, key: Any) -> Inputs:
        """Return the inputs of a key, for one who reads them at once; without a key, empty ones."""
        key_state = None if key is None else self.firing_loop.keys.active.get(check_request_key(key))
        if key is not None and key_state is None:
            name = self.definition.declared_name
            raise NotFoundError("key", repr(key), f"reactor '{name}' has no active key {key!r}")
        return self.firing_loop.inputs_of(key_state)

    def redefine(self, definition: Reactor, graphs: dict[str, CompiledGraph]) -> None:
        """Become another version, which may read keys in another way; states stay with the keys that they have."""
        for one, declared in zip(self.accumulators, definition.accumulators, strict=True):
            assert isinstance(one, KeyedAccumulator), "a keyed reactor has keyed accumulators"
            one.intake.read_key = definition.key_reader(declared)
        self._lost_sources.clear()  # the newer version may have others; who reads them says which are lost
        self._update_degraded()
        super().redefine(definition, graphs)

    def migrate_inputs(self, convert: Callable[[int, Any], Any], unread: UnreadState) -> int:
        """Convert the inputs of all active keys, and write them again."""
        lost = 0
        for key_state in tuple(self.firing_loop.keys.active.values()):
            unread.key = key_state.key
            lost += self.firing_loop.inputs_of(key_state).migrate(convert)
            self.firing_loop.mark_changed(key_state)
        return lost


def require_key(reactor: str, key: Any) -> Key:
    """Return the key that a caller must give, or raise RequestError."""
    if key is None:
        message = f"reactor '{reactor}' has one state for each key: say which with key="
        raise RequestError(message, code="key_required")
    return check_request_key(key)


def check_request_key(key: Any) -> Key:
    """Return the key that a caller gives, or raise RequestError. A list, which JSON has, is a tuple."""
    try:
        return check_key(to_tuples(key))
    except InvalidKeyError as error:
        raise RequestError(str(error), code="invalid_event_key") from error


def create_reactor(definition: Reactor, tenant: str, runtime: GraphRuntime) -> RunningReactor:
    """Create the running reactor of a declaration; it does nothing until started."""
    return (KeyedReactor if definition.is_keyed else RunningReactor)(definition, tenant, runtime)
