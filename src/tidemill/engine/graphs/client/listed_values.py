"""Values in lists: large ones are left out, so that a page is bounded in bytes."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from tidemill.access.principal import Caller
from tidemill.engine.graphs.checkpoints.dead_letter_store import to_plain_dead_letter
from tidemill.engine.graphs.dead_letters import find_by_end
from tidemill.graphs.outcomes import DeadLetter
from tidemill.graphs.state import ReactorState
from tidemill.graphs.views import FiringView
from tidemill.kernel.limits import LISTED_VALUE_LIMIT
from tidemill.storage.store import Store

_encode = msgspec.json.Encoder().encode


class _Omitted:
    """Leaves out large plain values, and notes their bytes by path."""

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}

    def shorten(self, path: str, value: Any) -> Any:
        """Return a value; None if it is large."""
        if (size := len(_encode(value))) <= LISTED_VALUE_LIMIT:
            return value
        self.sizes[path] = size
        return None

    def shorten_each(self, path: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return values by name, each None if it is large."""
        return {name: self.shorten(f"{path}.{name}", value) for name, value in values.items()}


def to_listed_dead_letter(one: DeadLetter) -> DeadLetter:
    """Return a plain dead letter without large values."""
    omitted = _Omitted()
    event = omitted.shorten("event", one.event)
    inputs = None if one.inputs is None else omitted.shorten_each("inputs", one.inputs)
    return replace(one, event=event, inputs=inputs, omitted=omitted.sizes) if omitted.sizes else one


def to_listed_state(one: ReactorState) -> ReactorState:
    """Return the state of a reactor without large values of its cache."""
    omitted = _Omitted()
    cache = omitted.shorten_each("cache", one.cache)
    return replace(one, cache=cache, omitted=omitted.sizes) if omitted.sizes else one


def to_listed_firing(one: FiringView) -> FiringView:
    """Return a firing without large inputs and outputs."""
    omitted = _Omitted()
    inputs = omitted.shorten_each("inputs", one.inputs)
    results = {
        name: replace(result, outputs=omitted.shorten_each(f"results.{name}.outputs", result.outputs))
        for name, result in one.results.items()
    }
    return replace(one, inputs=inputs, results=results, omitted=omitted.sizes) if omitted.sizes else one


class StoredDeadLetters:
    """Reads the dead letters of a caller's tenant from a store, newest first."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def list_all(self, caller: Caller) -> list[DeadLetter]:
        """Return all dead letters, without large values."""
        return [to_listed_dead_letter(one) for one in await self._read(caller)]

    async def get_by_end(self, caller: Caller, end: str) -> DeadLetter:
        """Return the dead letter whose id ends so, with all its values."""
        return find_by_end(await self._read(caller), end)

    async def _read(self, caller: Caller) -> list[DeadLetter]:
        rows = await self._store.dead_letters.list_all()
        return [to_plain_dead_letter(row) for row in reversed(rows) if row.tenant == caller.tenant]
