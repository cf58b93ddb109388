"""A keyed reactor, or one of its partitions: a running reactor with many keys."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tidemill.engine.graphs.keys.keyed_loop import KeyedFiringLoop
from tidemill.engine.graphs.reactors.reactor import RunningReactor
from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.graphs.definition import Reactor
from tidemill.graphs.keys import InvalidKeyError, Key, check_key
from tidemill.graphs.result import Firing
from tidemill.graphs.state import KeyCounts
from tidemill.kernel.errors import NotFoundError, RequestError


class KeyedReactor(RunningReactor):
    """A reactor that keeps inputs and running state for each key."""

    firing_loop: KeyedFiringLoop

    def create_firing_loop(self) -> KeyedFiringLoop:
        return KeyedFiringLoop(self, self.runtime)

    def make_flush(self) -> Callable[[], None]:
        """Return the function that flushes the batches of the key that has fired, which may happen later."""
        keys = self.firing_loop.keys
        fired = keys.current
        fired.pins += 1

        def flush() -> None:
            fired.pins -= 1
            keys.select(fired)
            self.flush_batches()

        return flush

    async def fire_manually(self, values: Sequence[Any] | None, key: Any = None) -> Firing:
        self.check_key(key)
        keys = self.firing_loop.keys
        key_state = await keys.activate(check_request_key(key))
        key_state.pins += 1
        try:
            return await self.commands.fire_manually(values, partial(keys.select, key_state))
        finally:
            key_state.pins -= 1

    def check_key(self, key: Any) -> None:
        if key is None:
            message = f"reactor '{self.name}' has one state for each key: say which with key="
            raise RequestError(message, code="key_required")

    def show_key(self, key: Any) -> None:
        keys = self.firing_loop.keys
        if key is None:
            keys.deselect()
        elif (key_state := keys.active.get(check_request_key(key))) is not None:
            keys.select(key_state)
        else:
            raise NotFoundError("key", repr(key), f"reactor '{self.name}' has no active key {key!r}")

    def key_counts(self) -> KeyCounts:
        active = len(self.firing_loop.keys.active)
        return KeyCounts(total=active, active=active, stored=0)

    def migrate_inputs(self, convert: Callable[[int, Any], Any]) -> int:
        keys = self.firing_loop.keys
        return sum(self.firing_loop.inputs.migrate(convert) for _ in keys.select_each())


def check_request_key(key: Any) -> Key:
    """Return the key that a caller gives, or raise RequestError. A list, which JSON has, is a tuple."""
    try:
        return check_key(_to_tuples(key))
    except InvalidKeyError as error:
        raise RequestError(str(error), code="invalid_event_key") from error


def _to_tuples(value: Any) -> Any:
    return tuple(map(_to_tuples, value)) if isinstance(value, list) else value


def create_reactor(definition: Reactor, tenant: str, runtime: GraphRuntime) -> RunningReactor:
    """Create the running reactor of a declaration; it does nothing until started."""
    return (KeyedReactor if definition.is_keyed else RunningReactor)(definition, tenant, runtime)
