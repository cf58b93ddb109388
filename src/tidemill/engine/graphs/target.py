"""A reactor as an accumulator sees it: where boundaries go, and whether there is room for them."""

from typing import Any, Protocol

from tidemill.engine.graphs.push_path import Accumulating, PushPath
from tidemill.engine.graphs.room import Room


class Target(Protocol):
    """A reactor, as an accumulator sees it."""

    name: str
    room: Room

    @property
    def arrivals(self) -> list[float | None]:
        """When each source last delivered."""

    @property
    def takes_all(self) -> bool:
        """Whether it takes every boundary at once, as long as it is not redefined."""

    @property
    def needs_commit(self) -> bool:
        """Whether it is declared that a boundary counts only once it is committed: pushers must be able to wait."""

    @property
    def commits(self) -> bool:
        """Whether there is a journal in which boundaries are committed before they are taken in."""

    @property
    def is_kept(self) -> bool:
        """Whether the store holds what is left undone, for the reactor's next life."""

    def take_in(self, index: int, boundary: Any, position: int = 0) -> None:
        """Take a boundary in, whatever the reactor is doing; `position` is its place in the journal."""

    def hand_over(self, index: int, boundary: Any, position: int) -> None:
        """Take in a boundary that the journal holds, and fire if that is due; for a source of this reactor alone."""

    def take_in_fed(self, index: int, content: list[Any]) -> None:
        """Take in a window that another reactor's graph has fed, of which no journal knows."""

    def note(self) -> None:
        """Something has changed that a checkpoint of the reactor holds, if only in an accumulator."""

    def go_on(self) -> None:
        """Fire if that is due and nobody else will see to it."""

    def open_path(self, path: PushPath, accumulator: Accumulating, index: int) -> None:
        """Open the fast way through the reactor, if there is one."""

    def review(self) -> None:
        """Look at the health of the accumulators again."""

    def drop(self, reason: str) -> None:
        """Count something that was not delivered."""

    def refresh_window(self, index: int, content: list[Any]) -> None:
        """Show a window's new content without making it news."""
