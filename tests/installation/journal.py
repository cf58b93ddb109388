"""The journal of the clients: an append-only file of what they sent, and of what the installation answered."""

import time
from pathlib import Path
from typing import NamedTuple

import msgspec

from tests.system.journal_lines import complete_lines


class Event(NamedTuple):
    """An event: its reactor, and its number among those of a producer, and of an account if the reactor has keys."""

    reactor: str
    producer: str
    number: int
    account: str = ""


class StartSent(msgspec.Struct, frozen=True, tag="start sent"):
    """A client is about to send a start for the first time."""

    key: str


class StartAnswered(msgspec.Struct, frozen=True, tag="start answered"):
    """A start, or a repetition of it, was acknowledged with a run."""

    key: str
    run: str


class EventsSent(msgspec.Struct, frozen=True, tag="events sent"):
    """A client is about to send events."""

    events: list[Event]


class EventsAnswered(msgspec.Struct, frozen=True, tag="events answered"):
    """The installation acknowledged events, or rejected them: then they had no effect."""

    events: list[Event]
    is_accepted: bool
    reason: str = ""


class GivenUp(msgspec.Struct, frozen=True, tag="given up"):
    """A client stopped repeating a request, which was never acknowledged."""

    what: str
    answer: str


class RunSeen(msgspec.Struct, frozen=True, tag="run seen"):
    """A reader of the feed got the end of a run."""

    reader: str
    run: str
    id: str


Entry = StartSent | StartAnswered | EventsSent | EventsAnswered | GivenUp | RunSeen


class _Line(msgspec.Struct, frozen=True):
    at: float
    entry: Entry


class Journal:
    """Writes entries, each at once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("ab", buffering=0)
        self.counts: dict[str, int] = {}
        """How many entries there are of each kind, for the progress of a soak."""

    def write(self, entry: Entry) -> None:
        """Append an entry."""
        self._file.write(msgspec.json.encode(_Line(time.monotonic(), entry)) + b"\n")
        kind = type(entry).__name__
        self.counts[kind] = self.counts.get(kind, 0) + 1

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def read(self) -> list[Entry]:
        """Return all entries."""
        decoder = msgspec.json.Decoder(_Line)
        return [decoder.decode(line).entry for line in complete_lines(self._path)]
