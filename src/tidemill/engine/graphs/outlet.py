"""The way out of an accumulator: boundaries to its reactors, at once or when the journal has them.

Where some reactor has durability="boundary", what comes of an event is a step: it is committed to the journal first,
and happens then. Steps do not wait for one another's commit: each is prepared on top of those before it, which are
refused together if the store refuses one. What happens is written so that it can happen again, from the journal.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from typing import Any

from tidemill.annotations.admission import Admission, MisfitError
from tidemill.annotations.codec import UnstorableError
from tidemill.engine.graphs.environment import Environment
from tidemill.engine.graphs.lane import Tally
from tidemill.engine.graphs.step import Codecs, Step
from tidemill.engine.graphs.target import Target
from tidemill.graphs.definition import Accumulator
from tidemill.graphs.result import Receipt
from tidemill.graphs.snapshot import encode, journal_seed
from tidemill.storage.ports import JournalKey

Answer = Receipt | asyncio.Future[Receipt]
"""What became of an event, or will have when it is committed."""


class Outlet(ABC):
    """Where one accumulator's boundaries go, and what is kept of it."""

    definition: Accumulator
    boundary: Admission
    holds = False  # whether events are held back until they are summed up

    def __init__(self, definition: Accumulator, tenant: str, environment: Environment) -> None:
        self.name = definition.name
        self.tenant = tenant
        self.environment = environment
        self.clock = environment.clock
        self.tally = Tally()
        self.suppressed = self.buffered = 0
        self.dropped: Counter[str] = Counter()
        self.targets: list[tuple[Target, int]] = []
        self.commits = False  # whether everything is committed to the journal before it happens
        self.state: Any = definition.state() if definition.state is not None else None
        self.kept_state = self.state  # behind the state by what is being committed
        self.offset: Any = None  # how far the source was read, for those that have one
        self.journal_key = JournalKey(tenant, definition.name)
        self.journal_seed = journal_seed(*self.journal_key)
        self.position = 0  # of the newest thing in the journal that has happened
        self.covered = 0  # the position up to which the newest checkpoint in the store holds it
        self.departed: dict[Target, int] = {}  # reactors that are being exchanged, and the position when they left
        self.generation = 0  # of its part of the checkpoint
        self._codecs: Codecs | None = None
        self._last_event: float | None = None

    def deliver(self, boundary: Any, position: int = 0) -> None:
        """Hand a boundary to every reactor; none fires before all have it, so that all see the same order."""
        targets = self.targets
        for reactor, index in targets:
            reactor.take_in(index, boundary, position)
        for reactor, _ in targets:
            reactor.go_on()

    def note(self) -> None:
        """Let the next checkpoint include what has changed here, although no reactor was told."""
        for reactor, _ in self.targets:
            reactor.note()

    @property
    def sequence(self) -> int:
        """How many boundaries were emitted; the newest one's number."""
        return self.tally.sequence

    # -- boundaries out

    def hand_in(self, boundary: Any, event: Any, offset: Any = None, count: int = 0) -> "Answer":
        """Emit what came of an event; where that is called for, when it is committed."""
        if not self.commits:
            return self.emit(boundary, event, offset)
        self._last_event = self.clock.monotonic()
        if boundary is None:
            return self._suppress(None)  # the offset must not overtake what is being committed
        try:
            boundary = self.check(boundary)
        except MisfitError as error:
            return self._dead(event, error)
        return self.commit(Step("boundary", boundary, count, offset), event)

    def emit(self, boundary: Any, event: Any, offset: Any = None) -> Receipt:
        """Hand a boundary on at once, unless there is nothing to say or it is not what was declared."""
        self._last_event = self.clock.monotonic()
        if boundary is None:
            return self._suppress(offset)
        try:
            boundary = self.check(boundary)
        except MisfitError as error:
            return self._dead(event, error)
        if offset is not None:
            self.offset = offset
        if self.definition.state is not None:
            self.state = boundary
        receipt = self.number()
        self.deliver(boundary)
        return receipt

    def _suppress(self, offset: Any) -> Receipt:
        self.suppressed += 1
        if offset is not None:
            self.offset = offset
            self.note()
        return self._receipt("suppressed")

    def number(self) -> Receipt:
        """Give the next boundary its number, before it is handed on: what it sets off may push here again."""
        self.tally.sequence = sequence = self.tally.sequence + 1
        return Receipt(True, sequence, "emitted")

    def check(self, boundary: Any) -> Any:
        """Return a boundary that is what the function promised, or raise MisfitError."""
        classes = self.boundary.classes
        if classes is None or isinstance(boundary, classes) or (float in classes and type(boundary) is int):
            return boundary
        raise MisfitError(f"'{self.name}' returned {type(boundary).__name__}, which is not what it declares")

    # -- what is committed before it happens

    def commit(self, step: Step, event: Any) -> "Answer":
        """Begin to commit a step. What follows it here is built on it, and is refused with it if it is."""
        try:
            payload = encode(self.codecs.record(step))
        except UnstorableError as error:
            return self._dead(event, error)
        if step.kind == "boundary" and self.definition.state is not None:
            self.state = step.value
        self._reserve(step, +1)
        return self.environment.keeper.append(self, step, payload)

    def complete(self, step: Step, position: int) -> Receipt:
        """Let a step happen that is committed, and say what came of it."""
        self._reserve(step, -1)
        self.position = position
        boundary = self.advance(step)
        if boundary is None:
            self.note()
            return self._receipt("buffered" if self.holds and step.kind == "held" else "suppressed")
        receipt = Receipt(True, self.sequence, "emitted")
        if len(self.targets) == 1:
            reactor, index = self.targets[0]
            reactor.hand_over(index, boundary, position)
        else:
            self.deliver(boundary, position)
        return receipt

    def advance(self, step: Step) -> Any:
        """Take a step into account, now or when the journal is read; return the boundary that comes of it, if any."""
        if step.offset is not None:
            self.offset = step.offset
        if self.definition.state is not None:
            self.kept_state = step.value
        self.tally.sequence += 1
        return step.value

    def boundary_of(self, step: Step) -> Any:
        """Return the boundary that came of a step which was taken into account already."""
        return step.value if step.kind == "boundary" else None

    def refuse(self, step: Step, reason: str) -> Receipt:
        """Take a step back that was not committed, and all that were prepared behind it."""
        self._reserve(step, -1)
        self.state = self.kept_state
        if not self.comes_again(step):
            self._count_drop("not_stored")
        return self._receipt("rejected", f"not stored: {reason}")

    def _reserve(self, step: Step, change: int) -> None:
        if self.emits(step):
            for reactor, _ in self.targets:
                reactor.room.reserve(change)

    def emits(self, step: Step) -> bool:
        """Return whether a boundary comes of a step."""
        return step.kind == "boundary"

    def comes_again(self, step: Step) -> bool:
        """Return whether a step that was refused is tried again by itself: its source still has the event."""
        return step.offset is not None

    @property
    def schema_digest(self) -> bytes:
        """What changes when its annotations do."""
        return self.codecs.digest

    @property
    def codecs(self) -> "Codecs":
        """How what is kept of this accumulator is stored."""
        if self._codecs is None:
            self._codecs = Codecs.of(self.definition)
        return self._codecs

    # -- counting, and answers

    def _receipt(self, outcome: Any, reason: str | None = None) -> Receipt:
        return Receipt(outcome in ("emitted", "suppressed", "buffered"), self.sequence, outcome, reason)

    def _count_drop(self, reason: str) -> None:
        self.dropped[reason] += 1

    @abstractmethod
    def _dead(self, event: Any, error: BaseException, form: str = "json") -> Receipt:
        """Put an event aside that cannot be dealt with."""


async def answered(answer: Answer) -> Receipt:
    """Return what became of an event, when that is known."""
    return answer if isinstance(answer, Receipt) else await answer
