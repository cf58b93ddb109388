"""A reactor as an accumulator sees it: where boundaries go, and whether there is room for them."""

from collections.abc import Sequence
from typing import Any, Protocol

from tidemill.annotations.codec import Codec
from tidemill.engine.graphs.event_path.fast_path import Accumulating, FastPath
from tidemill.engine.graphs.event_path.queue_gate import QueueGate
from tidemill.graphs.definition import Reactor


class ReactorInput(Protocol):
    """A reactor, as an accumulator sees it."""

    name: str
    queue_gate: QueueGate

    @property
    def arrivals(self) -> list[float | None]:
        """When each source last delivered."""

    @property
    def accepts_all(self) -> bool:
        """Whether it takes every boundary at once, as long as it is not redefined."""

    @property
    def requires_journal(self) -> bool:
        """Whether it is declared that a boundary counts only once it is committed: pushers must be able to wait."""

    @property
    def is_journaled(self) -> bool:
        """Whether there is a journal in which boundaries are committed before they are taken in."""

    @property
    def is_durable(self) -> bool:
        """Whether the store holds what is left undone, for the reactor's next life."""

    def put(self, index: int, boundary: Any, position: int = 0) -> None:
        """Take a boundary in, whatever the reactor is doing; `position` is its place in the journal."""

    def put_and_fire(self, index: int, boundary: Any, position: int) -> None:
        """Take in a boundary that the journal holds, and fire if that is due; for a source of this reactor alone."""

    def put_from_feed(self, index: int, content: list[Any]) -> None:
        """Take in a window that another reactor's graph has fed, of which no journal knows."""

    def mark_changed(self) -> None:
        """Something has changed that a checkpoint of the reactor holds, if only in an accumulator."""

    def fire_due(self) -> None:
        """Fire if that is due and nobody else will see to it."""

    def open_fast_path(self, path: FastPath, accumulator: Accumulating, index: int) -> None:
        """Open the fast way through the reactor, if there is one."""

    def update_health(self) -> None:
        """Look at the health of the accumulators again."""

    def count_drop(self, reason: str) -> None:
        """Count something that was not delivered."""

    def refresh_window(self, index: int, content: list[Any]) -> None:
        """Show a window's new content without making it news."""


class FiringHost(Protocol):
    """Whose firings these are: declaration, health, and the accumulators around."""

    definition: Reactor
    tenant: str

    @property
    def is_degraded(self) -> bool:
        """Whether firings see stale values."""

    @property
    def has_batches(self) -> bool:
        """Whether some accumulator flushes after each firing."""

    @property
    def has_subscribers(self) -> bool:
        """Whether workflows are told of each firing."""

    @property
    def is_journaled(self) -> bool:
        """Whether boundaries are committed to a journal before they are taken in."""

    @property
    def is_durable(self) -> bool:
        """Whether the store holds what is left undone, for the reactor's next life."""

    def codec_for(self, source: str) -> Codec | None:
        """Return how boundaries of a source are stored; None if they cannot be."""

    def request_checkpoint(self) -> None:
        """Something has changed since the last checkpoint."""

    def check_ready(self) -> None:
        """Refuse manual firings while the reactor is not up."""

    def count_drop(self, reason: str) -> None:
        """Count something that was not delivered."""

    def feed(self, window: str, value: Any) -> None:
        """Append a node's result to a window."""

    def replace_windows(self, values: Sequence[Any]) -> None:
        """Let windows hold what a manual firing puts into their place."""

    def after_firing(self, *, ok: bool) -> None:
        """See to what follows a firing: a write where that was declared, then batches if it went well."""

    def crash(self, error: BaseException) -> None:
        """Stop firing after an error of our own."""
