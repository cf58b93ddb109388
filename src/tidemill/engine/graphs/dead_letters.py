"""Dead letters: events, firings and starts of runs that failed for good, in a bounded queue, to inspect and replay."""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from tidemill.engine.graphs.durability.backend import DeadLetterStore
from tidemill.graphs.outcomes import DeadLetter, DeadLetterKind
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import NotFoundError, RequestError
from tidemill.kernel.ids import new_sortable_id


class BatchedEvents(msgspec.Struct, frozen=True):
    """Events that a batch passed to its function together; if that fails they become one dead letter."""

    events: list[Any]
    count: int = 0
    """How many of them are still at the front of the buffer: with a journal all, until their outcome is committed."""


class ReplayedEvent(msgspec.Struct, frozen=True):
    """An event that is processed again; if that fails it stays the same dead letter."""

    dead_letter: DeadLetter


class DeadLetterQueue:
    """The dead letters of one accumulator or reactor. A full queue drops the oldest, and counts it in `dropped`."""

    def __init__(
        self,
        source: str,
        clock: Clock,
        limit: int,
        dropped: Counter[str],
        store: DeadLetterStore,
        on_added: Callable[[DeadLetter], None],
    ) -> None:
        self._source = source
        self._clock = clock
        self._on_added = on_added
        self._limit = limit
        self._dropped = dropped
        self._store = store
        self._entries: OrderedDict[str, tuple[DeadLetter, Any]] = OrderedDict()
        self.total = 0
        """Those that were put since the process loaded it, with those that are gone."""

    def put(self, kind: DeadLetterKind, error: str, detail: Any = None, **content: Any) -> DeadLetter:
        """Add a dead letter; `detail` is what a replay needs beyond the public fields."""
        at = self._clock.now()
        dead_letter = DeadLetter(id=new_sortable_id(at), kind=kind, source=self._source, at=at, error=error, **content)
        self._entries[dead_letter.id] = (dead_letter, detail)
        self._store.put(dead_letter, detail)
        self.total += 1
        self._trim()
        self._on_added(dead_letter)
        return dead_letter

    def _trim(self) -> None:
        while len(self._entries) > self._limit:
            oldest, _ = self._entries.popitem(last=False)
            self._store.remove(oldest)
            self._dropped["dead_letter_limit"] += 1

    def restore(self, stored: Iterable[tuple[DeadLetter, Any]]) -> None:
        """Add dead letters that an earlier process stored, oldest first."""
        self._entries.update((dead_letter.id, (dead_letter, detail)) for dead_letter, detail in stored)
        self._trim()

    def migrate(self, migrate: Callable[[DeadLetter, Any], tuple[DeadLetter, Any]]) -> None:
        """Convert dead letters and details to a newer declaration; what the store has of them stays as it is."""
        for dead_letter_id, entry in self._entries.items():
            self._entries[dead_letter_id] = migrate(*entry)

    def __len__(self) -> int:
        return len(self._entries)

    def entries(self) -> list[DeadLetter]:
        """Return the dead letters, oldest first."""
        return [dead_letter for dead_letter, _ in self._entries.values()]

    def entries_with_details(self) -> list[tuple[DeadLetter, Any]]:
        """Return the dead letters with their details, oldest first."""
        return list(self._entries.values())

    def find(self, dead_letter_id: str) -> tuple[DeadLetter, Any] | None:
        """Return a dead letter and its detail."""
        return self._entries.get(dead_letter_id)

    def remove(self, dead_letter_id: str) -> None:
        """Remove a dead letter: its replay succeeded, or an operator drops it."""
        if self._entries.pop(dead_letter_id, None) is not None:
            self._store.remove(dead_letter_id)

    def record_failed_replay(self, dead_letter_id: str, error: str) -> None:
        """Record a failed replay, unless the dead letter was removed meanwhile."""
        if dead_letter_id in self._entries:
            dead_letter, detail = self._entries[dead_letter_id]
            replayed = msgspec.structs.replace(dead_letter, attempts=dead_letter.attempts + 1, error=error)
            self._entries[dead_letter_id] = (replayed, detail)
            self._store.put(replayed, detail)


def find_dead_letter(queues: Iterable[DeadLetterQueue], id: str) -> tuple[DeadLetterQueue, tuple[DeadLetter, Any]]:
    """Return a dead letter with its detail, and the queue that holds it; NotFoundError if none does."""
    for queue in queues:
        if (entry := queue.find(id)) is not None:
            return queue, entry
    raise unknown_dead_letter_error(id)


def unknown_dead_letter_error(id: str) -> NotFoundError:
    """Return the error for a dead letter that is not there."""
    message = f"there is no dead letter '{id}' here: it was replayed or dropped, or it never existed"
    return NotFoundError("dead_letter", id, message)


def find_by_end(letters: Iterable[DeadLetter], end: str) -> DeadLetter:
    """Return the dead letter whose id ends so; RequestError unless there is exactly one."""
    found = [one for one in letters if one.id.endswith(end)]
    if len(found) != 1:
        problem = "several dead letters have" if found else "there is no dead letter with"
        message = f"{problem} an id that ends in '{end}': `tidemill dead-letter list` shows the ids"
        raise RequestError(message, code="dead_letter_not_found", status=404)
    return found[0]


def check_editable(letter: DeadLetter, accumulator_kind: str) -> None:
    """Raise RequestError unless another event can be processed instead of that of a dead letter."""
    if letter.kind != "event":
        message = f"dead letter '{letter.id}' is a {letter.kind}: only an event can be edited before it is replayed"
        raise RequestError(message, code="not_editable", status=409)
    if accumulator_kind == "batch" and isinstance(letter.event, list):
        message = f"dead letter '{letter.id}' has several events: push them to '{letter.source}', and drop it"
        raise RequestError(message, code="not_editable", status=409)
