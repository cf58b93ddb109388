"""A running accumulator: lets events in, runs the author's function on each, hands boundaries on.

One event at a time per accumulator, in the order in which they came. A synchronous function is simply called; an
asynchronous one runs as a task of its own, so that an operator can restart an accumulator that hangs and the event is
still accounted for. What does not fit, and what the function cannot digest, becomes a dead letter.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from tidemill.engine.graphs.dead_letters import DeadLetterBox
from tidemill.engine.graphs.environment import Environment
from tidemill.engine.graphs.lane import Tally
from tidemill.engine.graphs.migration import migrated
from tidemill.engine.graphs.push_path import Handle, PushPath
from tidemill.engine.graphs.supervision import Supervision
from tidemill.engine.graphs.target import Target
from tidemill.engine.service import stop
from tidemill.graphs.admission import Admission, MisfitError
from tidemill.graphs.definition import Accumulator
from tidemill.graphs.health import ACCUMULATOR_MOVES, AccumulatorHealth
from tidemill.graphs.result import DeadLetter, Receipt
from tidemill.kernel.errors import FullError, RequestError
from tidemill.telemetry import events

logger = logging.getLogger(__name__)

AUTHOR_ERRORS = (Exception, SystemExit)  # author code: whatever it raises is about that event
REFUSED: Any = object()


class RunningAccumulator:
    """One loaded accumulator. Kinds differ in `start`, `take` and what happens around firings."""

    component = "accumulator"
    flushes_after_firing = False
    is_plain = False  # whether an event is nothing but a call of the function
    works = False  # whether something runs beside the pushes
    healthy_as = AccumulatorHealth.SOCKET_ONLY

    def __init__(self, definition: Accumulator, tenant: str, environment: Environment) -> None:
        self.name = definition.name
        self.tenant = tenant
        self.environment = environment
        self.clock = environment.clock
        self.health = AccumulatorHealth.STARTING
        self.supervision = Supervision()
        self.down: str | None = None  # why events are turned away, if they are
        self.tally = Tally()
        self.suppressed = self.buffered = 0
        self.dropped: Counter[str] = Counter()
        self.letters = DeadLetterBox(self.name, self.clock, environment.settings.dead_letter_limit, self._count_drop)
        self.state: Any = definition.state() if definition.state is not None else None
        self.severed = False  # a test cut its connection
        self._define(definition)
        self.targets: list[tuple[Target, int]] = []
        self._path = PushPath(self.with_care)
        self._path_was_tried = False
        self._is_free = False  # whether no event ever has to wait or is turned away, as long as nothing changes
        self._unusual: Receipt  # what became of the last event that left the fast way
        self.pushes = 0
        self.push_seconds = 0.0
        self.stuck_since: float | None = None
        self._last_event: float | None = None
        self._in_flight: asyncio.Task[Any] | None = None
        self._in_flight_since: float | None = None
        self._turn = asyncio.Lock()
        self._waiting = 0  # pushers that wait for their turn or for room
        self._loop: asyncio.Task[Any] | None = None
        self._heir: Callable[[], RunningAccumulator] | None = None

    def _define(self, definition: Accumulator) -> None:
        """Read from the declaration what every event needs. Handles look here, so that they outlive a reload."""
        self.definition = definition
        self.admission = Admission(definition.event_type)
        self.boundary = Admission(definition.boundary_type)
        self.is_async = definition.function is not None and definition.function.is_async
        self.call: Callable[..., Any] = definition.function.call if definition.function else _no_function

    def redefine(self, definition: Accumulator) -> None:
        """Go on as another version of the same accumulator: counts, state and listeners stay."""
        self._end_loop()
        if definition.state is not None:
            self.state = migrated(self.state, definition.state, definition.state)
        self._define(definition)
        self.shut_path()
        if self.down is None:
            self._start_loop()

    # -- where boundaries go

    def join(self, reactor: Target, index: int) -> None:
        """Deliver to this reactor too."""
        self.targets.append((reactor, index))
        self.shut_path()

    def leave(self, reactor: Target) -> None:
        """Deliver to this reactor no more."""
        self.targets = [target for target in self.targets if target[0] is not reactor]
        self.shut_path()

    def deliver(self, boundary: Any) -> None:
        """Hand a boundary to every reactor."""
        for reactor, index in self.targets:
            reactor.receive(index, boundary)

    @property
    def sequence(self) -> int:
        """How many boundaries were emitted; the newest one's number."""
        return self.tally.sequence

    # -- events in

    async def push(self, event: Any, form: str = "json") -> Receipt:
        """Take an event, wait where that is called for, and say what became of it."""
        began = self.clock.monotonic()
        try:
            if (turned_away := self._turned_away()) is not None:
                return turned_away
            try:
                value = self._admit(event, form)
            except MisfitError as error:
                return self._dead(event, error, form)
            if self.is_async:
                title = f"accumulator {self.name}: event"
                return await self.environment.tasks.see_through(title, self._take_in_turn(value))
            if not self._blocked():
                return self._take_fast(value)
            return await self._take_with_room(value)
        finally:
            self.pushes += 1
            self.push_seconds += self.clock.monotonic() - began

    def _admit(self, event: Any, form: str) -> Any:
        if isinstance(event, bytes | bytearray | memoryview):
            return self.admission.decode(bytes(event), form)
        return self.admission.admit(event)

    def _turned_away(self) -> Receipt | None:
        if self.down is not None:
            self._count_drop("accumulator_down")
            return self._receipt("rejected", f"accumulator '{self.name}' is {self.health}: {self.down}")
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
        """Process an admitted event at once; for synchronous functions."""
        try:
            boundary = self.process(value)
        except AUTHOR_ERRORS as error:
            return self._dead(value, error)
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

    async def _take_in_turn(self, value: Any) -> Receipt:
        """Process an admitted event after all that came before it; for asynchronous functions."""
        async with self._turn:
            await self._wait_for_room()
            if (turned_away := self._turned_away()) is not None:
                return turned_away
            return await self.watch_over(lambda: self.process(value), value)

    async def watch_over(self, call: Callable[[], Awaitable[Any]], event: Any) -> Receipt:
        """Await the author's function so that a restart can end it, and emit what it returns."""
        task = self._in_flight = asyncio.current_task()
        self._in_flight_since = self.clock.monotonic()
        try:
            with self.environment.activity:
                boundary = await call()
        except AUTHOR_ERRORS as error:
            return self._dead(event, error)
        except asyncio.CancelledError:
            if self._in_flight is task:
                raise
            return self._dead(event, RuntimeError("the accumulator was restarted while it processed this event"))
        finally:
            if self._in_flight is task:
                self._in_flight = self._in_flight_since = self.stuck_since = None
        await self._wait_for_room()  # others may have taken it since
        return self._refused() or self.emit(boundary, event)

    def process(self, value: Any) -> Any:
        """Call the author's function, with the running state if there is one."""
        return self.call(value) if self.definition.state is None else self.call(value, self.state)

    def emit(self, boundary: Any, event: Any) -> Receipt:
        """Hand a boundary on, unless there is nothing to say or it is not what was declared."""
        self._last_event = self.clock.monotonic()
        if boundary is None:
            self.suppressed += 1
            return self._receipt("suppressed")
        try:
            boundary = self.check(boundary)
        except MisfitError as error:
            return self._dead(event, error)
        if self.definition.state is not None:
            self.state = boundary
        receipt = self.number()
        self.deliver(boundary)
        return receipt

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
        if plain and self.down is None and len(self.targets) == 1:
            reactor, index = self.targets[0]
            reactor.open_path(self._path, self, index)

    def shut_path(self) -> None:
        """Let nobody take the fast way: something on it has changed."""
        self._path.shut()
        self._path_was_tried = self._is_free = False

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
        return self._waiting > 0 or any(target.room.is_blocked for target, _ in self.targets)

    async def _wait_for_room(self) -> None:
        while full := [target.room for target, _ in self.targets if target.room.is_blocked]:
            await full[0].wait()

    def _dead(self, event: Any, error: BaseException, form: str = "json") -> Receipt:
        self._last_event = self.clock.monotonic()
        text = f"{type(error).__name__}: {error}"
        self.letters.put("event", text, form, event=event)
        logger.warning(events.EVENT_DEAD, extra={"accumulator": self.name, "error": text})
        return self._receipt("dead_lettered", text)

    def _receipt(self, outcome: Any, reason: str | None = None) -> Receipt:
        return Receipt(outcome in ("emitted", "suppressed", "buffered"), self.sequence, outcome, reason)

    async def replay(self, letter: DeadLetter, form: str) -> Receipt:
        """Try a dead event again; it stays a dead letter if it fails again."""
        before = {one.id for one in self.letters.letters()}
        receipt = await self.push(letter.event, form)
        if receipt.accepted:
            self.letters.remove(letter.id)
        elif receipt.outcome == "dead_lettered":
            again = [one for one in self.letters.letters() if one.id not in before and one.error == receipt.reason]
            self.letters.failed_again(letter, receipt.reason or letter.error, [one.id for one in again[-1:]])
        return receipt

    # -- around firings

    def after_firing(self) -> None:
        """A reactor that this accumulator feeds has fired successfully."""

    def feed(self, value: Any, by: Target) -> None:
        """Take what a node of `by` fed; only windows can."""

    # -- life

    def start(self) -> None:
        """Come up: start what the kind needs, and say so."""
        self.down = None
        self.shut_path()
        self.supervision.started(self.clock.monotonic())
        self._start_loop()
        self.move(self.healthy_as)

    def _start_loop(self) -> None:
        if self.works:
            self._loop = self.environment.tasks.start(f"accumulator {self.name}", self._watched())

    async def work(self) -> None:
        """Do what the kind does beside the pushes, until cancelled."""

    async def _watched(self) -> None:
        try:
            await self.work()
        except Exception as error:  # the source's or ours: the supervisor decides
            self._loop = None
            self.crash(error)

    def crash(self, error: BaseException) -> None:
        """Turn events away after an error outside author code, and tell the supervisor."""
        if self.health is AccumulatorHealth.FAILED:
            return
        self._end_loop()
        self.down = f"crashed: {error!r}"
        self.shut_path()
        self.move(AccumulatorHealth.DISCONNECTED)
        logger.error(events.ACCUMULATOR_CRASHED, extra={"accumulator": self.name, "error": repr(error)})
        self.environment.supervisor.crashed(self, error)

    def give_up(self) -> None:
        """Stay down until an operator restarts it."""
        self.move(AccumulatorHealth.FAILED)

    def revive(self) -> None:
        """Come up again in place; an event that hangs is put aside."""
        self._end_loop()
        self._abandon_event()
        self.move(AccumulatorHealth.STARTING)
        self.start()

    def _abandon_event(self) -> None:
        """Put the event aside that is in the author's hands."""
        in_flight, self._in_flight = self._in_flight, None
        if in_flight is not None:
            in_flight.cancel()
        self._in_flight_since = self.stuck_since = None

    def _end_loop(self) -> None:
        if self._loop is not None:
            self._loop.cancel()
            self._loop = None

    def close(self, reason: str) -> None:
        """Turn new events away from now on, for good."""
        self.down = reason
        self.shut_path()

    async def drain(self) -> None:
        """Hand on what is still held back or in process, before an orderly end."""
        async with self._turn:
            pass

    async def stop(self) -> None:
        """End whatever still runs here."""
        self.supervision.ended()
        self._abandon_event()
        await stop(self._loop)
        self._loop = None

    def bequeath(self, heir: "Callable[[], RunningAccumulator]") -> None:
        """Let handles that outlive this accumulator find the one that has its name now."""
        self._heir = heir
        self.shut_path()

    def move(self, health: AccumulatorHealth) -> None:
        """Change health, and let the reactors know."""
        if self.severed and health.is_healthy:
            health = AccumulatorHealth.DISCONNECTED
        if health is self.health:
            return
        ACCUMULATOR_MOVES.check(f"accumulator '{self.name}'", self.health, health)
        self.health = health
        logger.info(events.ACCUMULATOR_HEALTH, extra={"accumulator": self.name, "health": str(health)})
        for reactor, _ in tuple(self.targets):
            reactor.review()

    def sever(self) -> None:
        """Lose the connection to the source, as a test asks."""
        self.severed = True
        if self.health is not AccumulatorHealth.FAILED:
            self.move(AccumulatorHealth.DISCONNECTED)

    def mend(self) -> None:
        """Have the connection again."""
        self.severed = False
        if self.down is None:
            self.move(self.healthy_as)

    def check_progress(self, patience: float) -> None:
        """Notice an event that has been in the author's hands for longer than `patience` seconds."""
        since = self._in_flight_since
        if since is not None and self.stuck_since is None and self.clock.monotonic() - since >= patience:
            self.stuck_since = since
            logger.warning(events.ACCUMULATOR_STUCK, extra={"accumulator": self.name})

    @property
    def last_event(self) -> float | None:
        """When the last event came, in seconds of the clock."""
        known = [target.arrivals[index] for target, index in self.targets]
        return max((moment for moment in (*known, self._last_event) if moment is not None), default=None)

    @property
    def events(self) -> int:
        """How many events were taken in, whatever became of them."""
        return self.sequence + self.suppressed + self.buffered + self.letters.total

    def _count_drop(self, reason: str) -> None:
        self.dropped[reason] += 1


def _no_function(*_: Any) -> Any:
    raise TypeError("a window has no function")
