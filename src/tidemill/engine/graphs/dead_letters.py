"""Dead letters: what could not be dealt with, kept in a bounded box to be looked at and replayed."""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, Literal, Protocol

import msgspec

from tidemill.graphs.result import DeadLetter
from tidemill.kernel.clock import Clock
from tidemill.kernel.ids import sortable


class Gathered(msgspec.Struct, frozen=True):
    """Events that a batch gave to its function together, and that may die together."""

    events: list[Any]
    count: int = 0
    """How many of them are still at the front of the buffer: under a journal all, until what came of them is in it."""


class Replayed(msgspec.Struct, frozen=True):
    """Something that is tried again: should it die again, it is still this letter."""

    letter: DeadLetter


class Archive(Protocol):
    """Where letters outlive the process, if they do."""

    def put(self, letter: DeadLetter, detail: Any) -> None:
        """Keep a letter, in place of one with its id."""

    def remove(self, letter_id: str) -> None:
        """Forget a letter."""


class DeadLetterBox:
    """The dead letters of one accumulator or reactor, oldest out first when it is full."""

    def __init__(
        self, source: str, clock: Clock, limit: int, on_overflow: Callable[[str], None], archive: Archive
    ) -> None:
        self._source = source
        self._clock = clock
        self._limit = limit
        self._on_overflow = on_overflow
        self._archive = archive
        self._letters: OrderedDict[str, tuple[DeadLetter, Any]] = OrderedDict()
        self.total = 0

    def put(self, kind: Literal["event", "firing"], error: str, detail: Any = None, **content: Any) -> DeadLetter:
        """Keep a letter; `detail` is what a replay needs beyond what people see."""
        at = self._clock.now()
        letter = DeadLetter(id=sortable(at), kind=kind, source=self._source, at=at, error=error, **content)
        self._letters[letter.id] = (letter, detail)
        self._archive.put(letter, detail)
        self.total += 1
        self._trim()
        return letter

    def _trim(self) -> None:
        while len(self._letters) > self._limit:
            oldest, _ = self._letters.popitem(last=False)
            self._archive.remove(oldest)
            self._on_overflow("dead_letter_limit")

    def refill(self, letters: Iterable[tuple[DeadLetter, Any]]) -> None:
        """Hold what an earlier life archived, oldest first."""
        self._letters.update((letter.id, (letter, detail)) for letter, detail in letters)
        self._trim()

    def letters(self) -> list[DeadLetter]:
        """Return the letters, oldest first."""
        return [letter for letter, _ in self._letters.values()]

    def find(self, letter_id: str) -> tuple[DeadLetter, Any] | None:
        """Return a letter and its detail."""
        return self._letters.get(letter_id)

    def remove(self, letter_id: str) -> None:
        """Forget a letter: its replay succeeded."""
        if self._letters.pop(letter_id, None) is not None:
            self._archive.remove(letter_id)

    def failed_again(self, letter_id: str, error: str) -> None:
        """Note that a replay failed too, unless the letter left the box meanwhile."""
        if letter_id in self._letters:
            letter, detail = self._letters[letter_id]
            again = msgspec.structs.replace(letter, attempts=letter.attempts + 1, error=error)
            self._letters[letter_id] = (again, detail)
            self._archive.put(again, detail)
