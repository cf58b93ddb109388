"""Draws state machines from their transition tables: every legal transition, and no other one.

A frame around several states stands for each of them, so that "every active task can be cancelled" is one arrow.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from html import escape
from typing import Any

from scripts.drawings.canvas import Area, Canvas, Look, Point
from tidemill.kernel.transitions import TransitionTable

HEIGHT = 40.0
States = tuple[StrEnum, ...]


@dataclass
class StateDrawing:
    """A drawing of a transition table; `to_canvas` fails unless the arrows are exactly the table."""

    canvas: Canvas
    table: TransitionTable[Any]
    looks: Mapping[Any, Look] = field(default_factory=dict)
    _drawn: set[tuple[StrEnum, StrEnum]] = field(default_factory=set)

    def state(self, state: StrEnum, x: float, y: float, width: float = 120.0) -> Area:
        """Draw a state."""
        return self.canvas.box(x, y, width, HEIGHT, state.value, look=self.looks.get(state, "plain"))

    def move(self, before: StrEnum | States, after: StrEnum | States, *points: Point, both: bool = False) -> None:
        """Draw the transitions from each state before to each state after; with `both` also those back."""
        sources, targets = _states(before), _states(after)
        pairs = {(one, other) for one in sources for other in targets if one is not other}
        pairs |= {(other, one) for one, other in pairs} if both else set()
        assert not (twice := pairs & self._drawn), f"drawn twice: {twice}"
        self._drawn |= pairs
        about = " ".join(sorted(f"{one}>{other}" for one, other in pairs))
        self.canvas.arrow(*points, both=both, about=f' data-moves="{escape(about)}"')

    def to_canvas(self) -> Canvas:
        """Return the canvas."""
        legal = {(before, after) for before, targets in self.table.table.items() for after in targets}
        assert self._drawn == legal, f"missing: {legal - self._drawn}; illegal: {self._drawn - legal}"
        return self.canvas


def _states(given: StrEnum | States) -> States:
    return given if isinstance(given, tuple) else (given,)
