"""A running accumulator: lets events in, runs the author's function on each, hands boundaries on.

One event at a time per accumulator, in the order in which they came. A synchronous function is simply called; an
asynchronous one runs as a task of its own, so that an operator can restart an accumulator that hangs and the event is
still accounted for. What does not fit, and what the function cannot digest, becomes a dead letter.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

import msgspec

from tidemill.engine.graphs.dead_letters import DeadLetterBox
from tidemill.engine.graphs.environment import Environment
from tidemill.engine.graphs.lane import Tally
from tidemill.engine.graphs.push_path import Handle, PushPath
from tidemill.engine.graphs.supervision import Supervision
from tidemill.engine.service import stop
from tidemill.graphs.admission import Admission, MisfitError
from tidemill.graphs.definition import Accumulator
from tidemill.graphs.health import ACCUMULATOR_MOVES, AccumulatorHealth
from tidemill.graphs.result import DeadLetter, Receipt
from tidemill.kernel.errors import FullError, OperationError, RequestError
from tidemill.telemetry import events

logger = logging.getLogger(__name__)

AUTHOR_ERRORS = (Exception, SystemExit)  # author code: whatever it raises is about that event
REFUSED: Any = object()


class Target(Protocol):
    """A reactor, as an accumulator sees it."""

    name: str

    @property
    def arrivals(self) -> list[float | None]:
        """When each source last delivered."""

    @property
    def capacity(self) -> int | None:
        """How many boundaries it queues; None if it never queues."""

    @property
    def is_blocked(self) -> bool:
        """Whether pushers must wait for room."""

    @property
    def refuses(self) -> bool:
        """Whether a push is turned away."""

    async def wait_for_room(self) -> None:
        """Return when there is room."""

    def receive(self, index: int, boundary: Any) -> None:
        """Take a boundary in, whatever the reactor is doing."""

    def open_path(self, path: PushPath, accumulator: "RunningAccumulator", index: int) -> None:
        """Open the fast way through the reactor, if there is one."""

    def review(self) -> None:
        """Look at the health of the accumulators again."""

    def drop(self, reason: str) -> None:
        """Count something that was not delivered."""

    def refresh_window(self, index: int, content: list[Any]) -> None:
        """Show a window's new content without making it news."""


class RunningAccumulator:
    """One loaded accumulator. Kinds differ in `start`, `take` and what happens around firings."""

    component = "accumulator"
    flushes_after_firing = False
    is_plain = False  # whether an event is nothing but a call of the function
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
        self._unusual: Receipt  # what became of the last event that left the fast way
        self.pushes = 0
        self.push_seconds = 0.0
        self.stuck_since: float | None = None
        self._last_event: float | None = None
        self._in_flight: asyncio.Task[Any] | None = None
        self._in_flight_since: float | None = None
        self._turn = asyncio.Lock()
        self._loop: asyncio.Task[Any] | None = None

    def _define(self, definition: Accumulator) -> None:
        """Read from the declaration what every event needs. Handles look here, so that they outlive a reload."""
        self.definition = definition
        self.admission = Admission(definition.event_type)
        self.boundary = Admission(definition.boundary_type)
        self.expected = self.admission.expected
        self.promised = self.boundary.expected
        self.is_async = definition.function is not None and definition.function.is_async
        self.call: Callable[..., Any] = definition.function.call if definition.function else _no_function

    def redefine(self, definition: Accumulator) -> None:
        """Go on as another version of the same accumulator: counts, state and listeners stay."""
        self._end_loop()
        if definition.state is not None:
            self.state = migrated(self.state, definition.state, definition.state)
        self._define(definition)
        self.shut_path()
        self._loop = self._start_loop()

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
                return self._dead(event, error)
            if self.is_async:
                return await self._outlive_pusher(self._take_in_turn(value))
            if not self._blocked():
                return self._take_fast(value)
            async with self._turn:
                await self._wait_for_room()
                return self._turned_away() or self.take(value)
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
        for reactor, _ in self.targets:
            if reactor.refuses:
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
        if not self._path.is_open or value.__class__ is not self.expected:
            return self.take(value)
        sequence = self._path.call(value)
        return self._unusual if sequence is None else Receipt(True, sequence, "emitted")

    async def _outlive_pusher(self, work: Coroutine[Any, Any, Receipt]) -> Receipt:
        """Wait for work that goes on even if whoever pushed stops waiting."""
        task = self.environment.tasks.start(f"accumulator {self.name}: event", work)
        try:
            receipt: Receipt = await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise OperationError(f"the node stopped before '{self.name}' was done with an event") from None
            raise
        return receipt

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
        return self.emit(boundary, event)

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
        self.tally.sequence += 1
        self.deliver(boundary)
        return self._receipt("emitted")

    def check(self, boundary: Any) -> Any:
        """Return a boundary that is what the function promised, or raise MisfitError."""
        classes = self.boundary.classes
        if classes is None or isinstance(boundary, classes) or (float in classes and type(boundary) is int):
            return boundary
        raise MisfitError(f"'{self.name}' returned {type(boundary).__name__}, which is not what it declares")

    # -- the fast way

    def handle(self) -> Handle:
        """Return the synchronous way in for hot loops: it stays valid whatever is restarted or reloaded."""
        if self.is_async:
            message = f"accumulator '{self.name}' is asynchronous: use `await node.push(...)`"
            raise RequestError(message, code="needs_push", status=409)
        self._try_path()
        return self._path.call

    def _try_path(self) -> None:
        """Open the fast way once after each change, if there is one."""
        if self._path_was_tried:
            return
        self._path_was_tried = True
        plain = self.is_plain and not self.is_async and self.definition.state is None
        if plain and self.down is None and len(self.targets) == 1:
            reactor, index = self.targets[0]
            reactor.open_path(self._path, self, index)

    def shut_path(self) -> None:
        """Let nobody take the fast way: something on it has changed."""
        self._path.shut()
        self._path_was_tried = False

    def with_care(self, event: Any) -> int | None:
        """Take an event that is not plain, or for which there is no fast way."""
        value = self.let_in(event)
        if value is REFUSED:
            return None
        self._try_path()
        if self._path.is_open and value.__class__ is self.expected:
            return self._path.call(value)
        receipt = self.take(value)
        return receipt.sequence if receipt.outcome == "emitted" else None

    def spoiled(self, event: Any, error: BaseException) -> None:
        """Put an event aside that the author's function could not digest."""
        self._unusual = self._dead(event, error)

    def hand_on(self, event: Any, boundary: Any) -> int | None:
        """Emit a boundary the long way."""
        receipt = self._unusual = self.emit(boundary, event)
        return receipt.sequence if receipt.outcome == "emitted" else None

    def let_in(self, event: Any) -> Any:
        """Admit an event without waiting: REFUSED if it is turned away, FullError where it would have to wait."""
        for reactor, _ in self.targets:
            if reactor.is_blocked:
                raise FullError(reactor.name, reactor.capacity or 0)
        if self._turned_away() is not None:
            return REFUSED
        try:
            return self._admit(event, "json")
        except MisfitError as error:
            self._dead(event, error)
            return REFUSED

    def _blocked(self) -> bool:
        return self._turn.locked() or any(target.is_blocked for target, _ in self.targets)

    async def _wait_for_room(self) -> None:
        for reactor, _ in self.targets:
            if reactor.is_blocked:
                await reactor.wait_for_room()

    def _dead(self, event: Any, error: BaseException) -> Receipt:
        self._last_event = self.clock.monotonic()
        text = f"{type(error).__name__}: {error}"
        self.letters.put("event", text, event=event)
        logger.warning(events.EVENT_DEAD, extra={"accumulator": self.name, "error": text})
        return self._receipt("dead_lettered", text)

    def _receipt(self, outcome: Any, reason: str | None = None) -> Receipt:
        return Receipt(outcome in ("emitted", "suppressed", "buffered"), self.sequence, outcome, reason)

    async def replay(self, letter: DeadLetter) -> Receipt:
        """Try a dead event again; it stays a dead letter if it fails again."""
        before = self.letters.total
        receipt = await self.push(letter.event)
        if receipt.accepted:
            self.letters.remove(letter.id)
        elif self.letters.total > before:
            newest = self.letters.letters()[-1]
            self.letters.remove(newest.id)
            self.letters.failed_again(letter.id, newest.error)
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
        self.supervision.started(self.clock.monotonic())
        self._loop = self._start_loop()
        self.move(self.healthy_as)

    def _start_loop(self) -> "asyncio.Task[Any] | None":
        work = self.work()
        if work is None:
            return None
        return self.environment.tasks.start(f"accumulator {self.name}", self._watched(work))

    def work(self) -> Any:
        """Return the coroutine that runs beside the pushes, if the kind has one."""
        return None

    async def _watched(self, work: Any) -> None:
        try:
            await work
        except Exception as error:  # the source's or ours: the supervisor decides
            self._loop = None
            self.crash(error)

    def crash(self, error: BaseException) -> None:
        """Turn events away after an error outside author code, and tell the supervisor."""
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
        in_flight, self._in_flight = self._in_flight, None
        if in_flight is not None:
            in_flight.cancel()
        self._in_flight_since = self.stuck_since = None
        self.move(AccumulatorHealth.STARTING)
        self.start()

    def _end_loop(self) -> None:
        if self._loop is not None:
            self._loop.cancel()
            self._loop = None

    async def stop(self) -> None:
        """End the accumulator's own task."""
        await stop(self._loop)
        self._loop = None

    async def drain(self) -> None:
        """Hand on what is still held back, before an orderly end."""

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
        self.move(AccumulatorHealth.DISCONNECTED)

    def mend(self) -> None:
        """Have the connection again."""
        self.severed = False
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


def migrated(value: Any, annotation: Any, otherwise: Callable[[], Any]) -> Any:
    """Return a value as the type that a newer version declares, or what `otherwise` gives if it does not fit."""
    if value is None:
        return otherwise()
    try:
        admission = Admission(annotation)
        fits = admission.classes is None or isinstance(value, admission.classes)
        return value if fits else admission.admit(msgspec.to_builtins(value))
    except (MisfitError, TypeError):
        return otherwise()
