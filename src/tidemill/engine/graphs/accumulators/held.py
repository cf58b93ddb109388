"""The content of an accumulator between events: one for all without keys, and one for each key."""

from typing import Any

from tidemill.engine.graphs.key_state import KeyState
from tidemill.graphs.keys import Key


class Held:
    """The running state of an accumulator and the events that it keeps; with keys, those of one key.

    It is handed on with each event, so that no part has to know which key is being worked on.
    """

    __slots__ = ("committed_state", "events", "is_flushing", "key_state", "releasing_count", "state")

    def __init__(self, state: Any, events: Any = (), key_state: KeyState | None = None) -> None:
        self.state = state
        self.committed_state = state
        """Without the steps that are being committed."""
        self.events = events
        """A list of a batch, a deque of a window; other kinds keep none."""
        self.releasing_count = 0
        """Events at the front of a batch whose boundary is being committed."""
        self.is_flushing = False
        """Whether a flush because of the size is running."""
        self.key_state = key_state

    @property
    def key(self) -> Key | None:
        """The key that it belongs to; None without keys."""
        return None if self.key_state is None else self.key_state.key
