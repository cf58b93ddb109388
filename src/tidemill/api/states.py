"""How the states of runs and task runs look. `workflows/states.py` says what they are and how they follow each other.

The command line draws states from this table. A test compares it with the tables of the web UI and with the statements.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

Tone = Literal["green", "blue", "red", "amber", "violet", "grey"]


class StateMark(NamedTuple):
    """How a state looks on every surface."""

    tone: Tone
    symbol: str
    """On a terminal."""
    plain_symbol: str
    """On a terminal that shows ASCII only."""


STATE_MARKS: Mapping[str, StateMark] = {
    "none": StateMark("grey", "·", "."),
    "scheduled": StateMark("grey", "○", "o"),
    "queued": StateMark("amber", "○", "o"),
    "running": StateMark("blue", "●", "*"),
    "success": StateMark("green", "✓", "+"),
    "failed": StateMark("red", "✗", "x"),
    "skipped": StateMark("grey", "-", "-"),
    "upstream_failed": StateMark("red", "↑", "^"),
    "up_for_retry": StateMark("amber", "↻", "r"),
    "deferred": StateMark("violet", "◔", "d"),
    "cancelled": StateMark("grey", "■", "#"),
}
"""By the state of a run or of a task run; a state of both looks the same."""
