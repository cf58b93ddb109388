"""The reactor around its wheel, as the wheel and the outcomes of its firings see it."""

from collections.abc import Sequence
from typing import Any, Protocol

from tidemill.annotations.codec import Codec
from tidemill.graphs.definition import Reactor


class Housing(Protocol):
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
    def is_followed(self) -> bool:
        """Whether workflows are told of each firing."""

    @property
    def commits(self) -> bool:
        """Whether boundaries are committed to a journal before they are taken in."""

    @property
    def is_kept(self) -> bool:
        """Whether the store holds what is left undone, for the reactor's next life."""

    def codec_for(self, source: str) -> Codec | None:
        """Return how boundaries of a source are stored; None if they cannot be."""

    def unsaved(self) -> None:
        """Something has changed since the last checkpoint."""

    def check_ready(self) -> None:
        """Refuse manual firings while the reactor is not up."""

    def drop(self, reason: str) -> None:
        """Count something that was not delivered."""

    def feed(self, window: str, value: Any) -> None:
        """Append a node's result to a window."""

    def refill_windows(self, values: Sequence[Any]) -> None:
        """Let windows hold what a manual firing puts into their place."""

    def after_firing(self, *, ok: bool) -> None:
        """See to what follows a firing: a write where that was declared, then batches if it went well."""

    def crash(self, error: BaseException) -> None:
        """Stop firing after an error of our own."""
