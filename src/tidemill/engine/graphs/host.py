"""The reactor as its firing loop sees it."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from tidemill.annotations.codec import Codec
from tidemill.engine.graphs.durability.backend import DurabilityPolicy
from tidemill.engine.graphs.durability.write_health import WriteHealth
from tidemill.engine.graphs.key_state import KeyState
from tidemill.graphs.definition import Reactor
from tidemill.graphs.keys import Key


class BufferingSource(Protocol):
    """The kind of an accumulator that buffers events, as the firing loop sees it."""

    @property
    def buffered_count(self) -> int:
        """The number of events that it holds until it processes them together."""


class FiringHost(Protocol):
    """A reactor, as its firing loop and its accumulators see it.

    Reactors are built on accumulators, which deliver to firing loops: this is the one way back up.
    """

    definition: Reactor
    tenant: str
    durability: DurabilityPolicy
    write_health: WriteHealth
    is_fenced: bool
    """Whether another node has acquired the reactor."""
    is_unsaved_reset: bool
    """Whether it has started empty over older stored state, which the rollback of its load would need."""

    @property
    def batches(self) -> Sequence[BufferingSource]:
        """Its accumulators that are flushed after each firing."""

    @property
    def requires_journal(self) -> bool:
        """Whether the declaration asks for a journal, with or without a store: pushers must be able to wait."""

    def codec_for(self, source: str) -> Codec | None:
        """Return the codec for the boundaries of a source; None if they cannot be stored."""

    def check_owned(self) -> None:
        """Raise RequestError if another node owns the reactor now."""

    def check_ready(self) -> None:
        """Raise RequestError if the reactor is not up and cannot fire."""

    def window_feed(self, window: str, key: Key | None = None) -> Callable[[Any], None]:
        """Return the function that appends a node's result to a window; with keys, to that of one key."""

    def push_feed(self, graph: str, accumulator: str, value: Any) -> None:
        """Push the result of a graph's node into an accumulator of the graph's tenant."""

    def replace_windows(self, values: Sequence[Any], key_state: KeyState | None) -> None:
        """Replace the content of the windows by the inputs of a manual firing."""

    def after_firing(self, key_state: KeyState | None = None, *, ok: bool) -> None:
        """Write a checkpoint if the durability policy says so, then flush batches if the firing succeeded."""

    def update_health(self) -> None:
        """Recompute the reactor's health from that of its accumulators."""

    def crash(self, error: BaseException) -> None:
        """Stop firing after an error in the engine."""
