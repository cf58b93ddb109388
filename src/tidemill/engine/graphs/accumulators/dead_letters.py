"""Dead letters: what could not be dealt with, kept in a bounded box to be looked at and replayed."""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, Literal

import msgspec

from tidemill.engine.graphs.durability_backend import DeadLetterStore
from tidemill.graphs.result import DeadLetter
from tidemill.kernel.clock import Clock
from tidemill.kernel.ids import new_sortable_id


class BatchedEvents(msgspec.Struct, frozen=True):
    """Events that a batch gave to its function together, and that may die together."""

    events: list[Any]
    count: int = 0
    """How many of them are still at the front of the buffer: under a journal all, until what came of them is in it."""


class ReplayedEvent(msgspec.Struct, frozen=True):
    """Something that is tried again: should it die again, it is still this letter."""

    dead_letter: DeadLetter


class DeadLetterQueue:
    """The dead letters of one accumulator or reactor, oldest out first when it is full."""

    def __init__(
        self, source: str, clock: Clock, limit: int, on_overflow: Callable[[str], None], store: DeadLetterStore
    ) -> None:
        self._source = source
        self._clock = clock
        self._limit = limit
        self._on_overflow = on_overflow
        self._store = store
        self._entries: OrderedDict[str, tuple[DeadLetter, Any]] = OrderedDict()
        self.total = 0

    def put(self, kind: Literal["event", "firing"], error: str, detail: Any = None, **content: Any) -> DeadLetter:
        """Keep a letter; `detail` is what a replay needs beyond what people see."""
        at = self._clock.now()
        letter = DeadLetter(id=new_sortable_id(at), kind=kind, source=self._source, at=at, error=error, **content)
        self._entries[letter.id] = (letter, detail)
        self._store.put(letter, detail)
        self.total += 1
        self._trim()
        return letter

    def _trim(self) -> None:
        while len(self._entries) > self._limit:
            oldest, _ = self._entries.popitem(last=False)
            self._store.remove(oldest)
            self._on_overflow("dead_letter_limit")

    def restore(self, stored: Iterable[tuple[DeadLetter, Any]]) -> None:
        """Hold what an earlier life archived, oldest first."""
        self._entries.update((letter.id, (letter, detail)) for letter, detail in stored)
        self._trim()

    def entries(self) -> list[DeadLetter]:
        """Return the letters, oldest first."""
        return [letter for letter, _ in self._entries.values()]

    def find(self, dead_letter_id: str) -> tuple[DeadLetter, Any] | None:
        """Return a letter and its detail."""
        return self._entries.get(dead_letter_id)

    def remove(self, dead_letter_id: str) -> None:
        """Forget a letter: its replay succeeded."""
        if self._entries.pop(dead_letter_id, None) is not None:
            self._store.remove(dead_letter_id)

    def record_failed_replay(self, dead_letter_id: str, error: str) -> None:
        """Note that a replay failed too, unless the letter left the box meanwhile."""
        if dead_letter_id in self._entries:
            letter, detail = self._entries[dead_letter_id]
            again = msgspec.structs.replace(letter, attempts=letter.attempts + 1, error=error)
            self._entries[dead_letter_id] = (again, detail)
            self._store.put(again, detail)
