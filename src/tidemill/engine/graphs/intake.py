"""Letting events in: admission, the author's function on each, boundaries out; and the fast way for hot loops.

One event at a time per accumulator, in the order in which they came. A synchronous function is simply called; an
asynchronous one runs as a task of its own, so that an operator can restart an accumulator that hangs and the event is
still accounted for. What does not fit, and what the function cannot digest, becomes a dead letter.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from tidemill.annotations.admission import Admission, MisfitError
from tidemill.engine.graphs.dead_letters import DeadLetterBox, Gathered, Replayed
from tidemill.engine.graphs.environment import Environment
from tidemill.engine.graphs.outlet import Answer, Outlet, answered
from tidemill.engine.graphs.push_path import Handle, PushPath
from tidemill.engine.graphs.sites import site_of
from tidemill.engine.graphs.target import Target
from tidemill.graphs.definition import Accumulator
from tidemill.graphs.health import AccumulatorHealth
from tidemill.graphs.result import DeadLetter, Receipt
from tidemill.kernel.author_errors import AUTHOR_ERRORS, is_cut_off
from tidemill.kernel.errors import FullError, RequestError
from tidemill.telemetry import events

logger = logging.getLogger(__name__)

REFUSED: Any = object()
PUSHES_IN_A_ROW = 256  # before the loop gets a turn
CUT_OFF = RuntimeError("the accumulator was ended or restarted while it processed this event")


class Intake(Outlet):
    """The way of one accumulator's events, from whoever pushes them to the reactors."""

    is_plain = False  # whether an event is nothing but a call of the function

    def __init__(self, definition: Accumulator, tenant: str, environment: Environment) -> None:
        super().__init__(definition, tenant, environment)
        self.health = AccumulatorHealth.STARTING
        self.down: str | None = None  # why events are turned away, if they are
        archive = environment.keeper.archive(tenant, "accumulator", self.name)
        limit = environment.settings.dead_letter_limit
        self.letters = DeadLetterBox(self.name, self.clock, limit, self._count_drop, archive)
        self._define(definition)
        self._path = PushPath(self.with_care)
        self._path_was_tried = False
        self._is_free = False  # whether no event ever has to wait or is turned away, as long as nothing changes
        self._unusual: Receipt  # what became of the last event that left the fast way
        self.pushes = 0
        self.push_seconds = 0.0
        self.stuck_since: float | None = None
        self._in_flight: asyncio.Task[Any] | None = None
        self._in_flight_event: Any = None
        self._in_flight_since: float | None = None
        self._turn = asyncio.Lock()
        self._is_processing = False
        self._behind: deque[Any] = deque()
        self._waiting = 0  # pushers that wait for their turn or for room
        self._flows = asyncio.Event()  # not while it stands still
        self._flows.set()
        self._heir: Callable[[], Intake] | None = None

    def _define(self, definition: Accumulator) -> None:
        """Read from the declaration what every event needs. Handles look here, so that they outlive a reload."""
        self.definition = definition
        self.admission = Admission(definition.event_type)
        self.boundary = Admission(definition.boundary_type)
        self.is_async = definition.function is not None and definition.function.is_async
        self.call: Callable[..., Any] = definition.function.call if definition.function else _no_function
        self._codecs = None

    # -- where boundaries go

    def join(self, reactor: Target, index: int) -> None:
        """Deliver to this reactor too."""
        self.targets.append((reactor, index))
        self.shut_path()

    def leave(self, reactor: Target) -> None:
        """Deliver to this reactor no more."""
        self.departed[reactor] = self.position
        self.targets = [target for target in self.targets if target[0] is not reactor]
        self.shut_path()

    # -- events in

    async def push(self, event: Any, form: str = "json", offset: Any = None) -> Receipt:
        """Take an event, wait where that is called for, and say what became of it.

        `offset` says how far the source is read with this event, if it came from one.
        """
        began = self.clock.monotonic()
        try:
            receipt = await self._take_any(event, form, offset)
        finally:
            self.pushes += 1
            self.push_seconds += self.clock.monotonic() - began
        if self.commits and receipt.outcome == "dead_lettered":
            await self.environment.keeper.keep_letters()
        if not self.pushes % PUSHES_IN_A_ROW:  # a loop of pushes awaits nothing else, and must not starve the node
            await asyncio.sleep(0)
        return receipt

    async def _take_any(self, event: Any, form: str, offset: Any) -> Receipt:
        if (turned_away := self._turned_away()) is not None:
            return turned_away
        try:
            value = self._admit(event, form)
        except MisfitError as error:
            return self._dead(event, error, form)
        if self.is_async:
            title = f"accumulator {self.name}: event"
            return await self.environment.tasks.see_through(title, self._take_in_turn(value, offset))
        if self.commits:
            return await self._take_committed(value, offset)
        if not self._blocked():
            return self._take_fast(value)
        return await self._take_with_room(value)

    def _admit(self, event: Any, form: str) -> Any:
        if isinstance(event, bytes | bytearray | memoryview):
            return self.admission.decode(bytes(event), form)
        return self.admission.admit(event)

    def _turned_away(self) -> Receipt | None:
        if self.down is not None:
            self._count_drop("accumulator_down")
            return self._receipt("rejected", f"accumulator '{self.name}' {self.down}")
        return self._refused()

    def _refused(self) -> Receipt | None:
        if self._is_free:
            return None
        for reactor, _ in self.targets:
            if reactor.room.refuses:
                reactor.drop("full")
                return self._receipt("rejected", f"the queue of reactor '{reactor.name}' is full")
        return None

    def take(self, value: Any) -> Receipt:
        """Process an admitted event at once; for synchronous functions.

        What the function itself pushes here waits until it is done: one event at a time, in order.
        """
        if self._is_processing:
            self._behind.append(value)
            return self._receipt("buffered")
        receipt = self._take_one(value)
        while self._behind and not self._is_processing:
            self._take_one(self._behind.popleft())
        return receipt

    def _take_one(self, value: Any) -> Receipt:
        self._is_processing = True
        try:
            boundary = self.process(value)
        except AUTHOR_ERRORS as error:
            return self._dead(value, error)
        finally:
            self._is_processing = False
        return self.emit(boundary, value)

    def _take_fast(self, value: Any) -> Receipt:
        """Take an admitted event by the fast way if that is open."""
        self._try_path()
        if not self._path.is_open or value.__class__ is not self.admission.expected:
            return self.take(value)
        sequence = self._path.call(value)
        return self._unusual if sequence is None else Receipt(True, sequence, "emitted")

    async def _take_with_room(self, value: Any) -> Receipt:
        """Process an admitted event after those that wait already, when there is room."""
        self._waiting += 1
        try:
            async with self._turn:
                await self._wait_for_room()
                return self._turned_away() or self.take(value)
        finally:
            self._waiting -= 1

    async def _take_committed(self, value: Any, offset: Any) -> Receipt:
        """Process an admitted event, and wait until what comes of it is committed; others go on meanwhile."""
        if not self._blocked():
            return await answered(self.take_step(value, offset))
        self._waiting += 1
        try:
            async with self._turn:
                await self._wait_for_room()
                answer = self._turned_away() or self.take_step(value, offset)
        finally:
            self._waiting -= 1
        return await answered(answer)

    def take_step(self, value: Any, offset: Any = None) -> "Answer":
        """Process an admitted event, and begin to commit what comes of it; for synchronous functions."""
        try:
            boundary = self.process(value)
        except AUTHOR_ERRORS as error:
            return self._dead(value, error)
        return self.hand_in(boundary, value, offset)

    async def _take_in_turn(self, value: Any, offset: Any = None) -> Receipt:
        """Process an admitted event after all that came before it; for asynchronous functions."""
        async with self._turn:
            await self._wait_for_room()
            if (turned_away := self._turned_away()) is not None:
                return turned_away
            answer = await self.watch_over(lambda: self.process(value), value, offset)
        return await answered(answer)

    async def watch_over(self, call: Callable[[], Awaitable[Any]], event: Any, offset: Any = None) -> "Answer":
        """Await the author's function so that a restart can end it, and hand in what it returns."""
        task = self._in_flight = asyncio.current_task()
        self._in_flight_since = self.clock.monotonic()
        self._in_flight_event = event
        try:
            with self.environment.activity:
                boundary = await call()
        except AUTHOR_ERRORS as error:
            if self._in_flight is task:
                if is_cut_off(error):
                    self._dead(event, CUT_OFF)
                    raise
                return self._dead(event, error)
        finally:
            was_abandoned = self._in_flight is not task
            if not was_abandoned:
                self._in_flight = self._in_flight_event = self._in_flight_since = self.stuck_since = None
        if was_abandoned:  # it is a dead letter already, whatever came of it since
            return self._receipt("dead_lettered", _told(CUT_OFF))
        await self._wait_for_room()  # others may have taken it since
        refused = self._refused()
        if refused is not None:
            self.turned_back(event)
            return refused
        return self.hand_in(boundary, event, offset)

    def turned_back(self, event: Any) -> None:
        """What came of an event was turned away after all; whoever pushed it is told."""

    def process(self, value: Any) -> Any:
        """Call the author's function, with the running state if there is one."""
        return self.call(value) if self.definition.state is None else self.call(value, self.state)

    # -- the fast way

    def handle(self) -> Handle:
        """Return the synchronous way in for hot loops: it stays valid whatever is restarted or reloaded."""
        self._check_needs_no_wait()
        self._try_path()
        return self._path.call

    def _check_needs_no_wait(self) -> None:
        waits = "is asynchronous" if self.is_async else None
        if any(reactor.needs_commit for reactor, _ in self.targets):
            waits = "feeds a reactor with durability='boundary'"
        if waits is not None:
            message = f"accumulator '{self.name}' {waits}: use `await node.push(...)`"
            raise RequestError(message, code="needs_push", status=409)

    def _try_path(self) -> None:
        """Open the fast way once after each change, if there is one."""
        if self._path_was_tried:
            return
        self._path_was_tried = True
        self._is_free = self.down is None and not self.is_async and all(one.takes_all for one, _ in self.targets)
        is_checked = self.admission.expected is not None or self.admission.classes is None
        plain = self.is_plain and is_checked and not self.is_async and self.definition.state is None
        plain = plain and not self.commits
        if plain and self.down is None and len(self.targets) == 1:
            reactor, index = self.targets[0]
            reactor.open_path(self._path, self, index)

    def shut_path(self) -> None:
        """Let nobody take the fast way: something on it has changed."""
        self._path.shut()
        self._path_was_tried = self._is_free = False
        did_commit, self.commits = self.commits, any(reactor.commits for reactor, _ in self.targets)
        if self.commits and not did_commit:
            self.kept_state = self.state

    def with_care(self, event: Any) -> int | None:
        """Take an event that is not plain, or for which there is no fast way."""
        if self._heir is not None:
            return self._heir().with_care(event)
        self._try_path()
        value = self.let_in(event)
        if value is REFUSED:
            return None
        if self._path.is_open and value.__class__ is self.admission.expected:
            return self._path.call(value)
        receipt = self.take(value)
        return receipt.sequence if receipt.outcome == "emitted" else None

    def spoiled(self, event: Any, error: BaseException) -> None:
        """Put an event aside that the author's function could not digest."""
        self._unusual = self._dead(event, error)

    def hand_on(self, event: Any, boundary: Any) -> int | None:
        """Emit a boundary the long way, if there is room for it."""
        if boundary is not None and not self._is_free:
            self._check_room()
        receipt = self._unusual = self._refused() or self.emit(boundary, event)
        return receipt.sequence if receipt.outcome == "emitted" else None

    def let_in(self, event: Any) -> Any:
        """Admit an event without waiting: REFUSED if it is turned away, FullError where it would have to wait."""
        if not self._is_free:
            self._check_needs_no_wait()
            if self._turned_away() is not None:
                return REFUSED
            self._check_room()
        try:
            return self._admit(event, "json")
        except MisfitError as error:
            self._dead(event, error)
            return REFUSED

    def _check_room(self) -> None:
        if self._blocked():
            reactor = next((one for one, _ in self.targets if one.room.is_blocked), self.targets[0][0])
            raise FullError(reactor.name, reactor.room.capacity)

    def _blocked(self) -> bool:
        if self._waiting or not self._flows.is_set():
            return True
        return not self._is_free and any(target.room.is_blocked for target, _ in self.targets)

    async def _wait_for_room(self) -> None:
        await self._flows.wait()
        while full := [target.room for target, _ in self.targets if target.room.is_blocked]:
            await full[0].wait()
            await self._flows.wait()

    @asynccontextmanager
    async def standing_still(self) -> AsyncIterator[None]:
        """Begin nothing more, and go on when what is being committed has happened: a change must not meet it."""
        self._flows.clear()
        try:
            await self.environment.keeper.all_committed()
            yield
        finally:
            self._flows.set()

    def _dead(self, event: Any, error: BaseException, form: str = "json") -> Receipt:
        self._last_event = self.clock.monotonic()
        text = _told(error)
        if isinstance(event, Replayed):
            self.letters.failed_again(event.letter.id, text)
        elif isinstance(event, Gathered):
            self.letters.put("event", text, event, event=event.events)
        else:
            self.letters.put("event", text, form, event=event)
        place = site_of(error, self.definition.function)
        logger.warning(events.EVENT_DEAD, extra={"accumulator": self.name, "error": text, "place": place})
        return self._receipt("dead_lettered", text)

    # -- dead letters

    async def replay(self, letter: DeadLetter, detail: Any) -> Receipt:
        """Try a dead event again, by the same rules as any event; it stays a dead letter if it fails again."""
        title = f"accumulator {self.name}: replay"
        return await self.environment.tasks.see_through(title, self._replay_in_turn(letter, detail))

    async def _replay_in_turn(self, letter: DeadLetter, detail: Any) -> Receipt:
        self._waiting += 1
        try:
            async with self._turn:
                await self._wait_for_room()
                receipt = self._turned_away() or await self._take_again(letter, detail)
        finally:
            self._waiting -= 1
        if receipt.accepted:
            self.letters.remove(letter.id)
        return receipt

    async def _take_again(self, letter: DeadLetter, detail: Any) -> Receipt:
        """Take the event of a letter; `detail` says how it is encoded, if it is."""
        try:
            value = self._admit(letter.event, detail)
        except MisfitError as error:
            return self._dead(Replayed(letter), error)
        return await self._process_again(value, Replayed(letter))

    async def _process_again(self, value: Any, replayed: Replayed) -> Receipt:
        if self.is_async:
            return await answered(await self.watch_over(lambda: self.process(value), replayed))
        try:
            boundary = self.process(value)
        except AUTHOR_ERRORS as error:
            return self._dead(replayed, error)
        return await answered(self.hand_in(boundary, replayed))

    # -- counting

    @property
    def last_event(self) -> float | None:
        """When the last event came, in seconds of the clock."""
        known = [target.arrivals[index] for target, index in self.targets]
        return max((moment for moment in (*known, self._last_event) if moment is not None), default=None)

    @property
    def events(self) -> int:
        """How many events were taken in, whatever became of them."""
        return self.sequence + self.suppressed + self.buffered + self.letters.total


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _no_function(*_: Any) -> Any:
    raise TypeError("a window has no function")
