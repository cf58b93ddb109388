"""Positions in the event feed: where a reader continues, on the same server or on another one."""

import re

import msgspec

from tidemill.kernel.errors import RequestError

_FORMAT = re.compile(r"(?P<stored>\d{1,18})-(?P<local>\d{1,18})-(?P<node>[0-9a-z]{1,32})")


class FeedPosition(msgspec.Struct, frozen=True):
    """How far a reader is: in the events of all runs, which are in the store, and in the own events of one node."""

    stored: int
    local: int
    node: str
    """Identifies the node whose own events `local` counts; another one after each start."""

    def __str__(self) -> str:
        return f"{self.stored}-{self.local}-{self.node}"

    @classmethod
    def parse(cls, text: str) -> "FeedPosition":
        """Return the position that an event id is; RequestError if it is none."""
        found = _FORMAT.fullmatch(text)
        if found is None:
            message = f"{text!r} is not the id of an event: pass the id of the last event that you have received"
            raise RequestError(message, code="invalid_event_id")
        return cls(int(found["stored"]), int(found["local"]), found["node"])
