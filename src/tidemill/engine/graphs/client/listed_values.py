"""Values in lists: large ones are left out, so that a page is bounded in bytes."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from tidemill.graphs.outcomes import DeadLetter
from tidemill.graphs.state import ReactorState
from tidemill.graphs.views import FiringView
from tidemill.kernel.limits import LISTED_VALUE_LIMIT

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
