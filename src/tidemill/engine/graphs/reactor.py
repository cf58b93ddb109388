"""A running reactor: takes boundaries in, decides, fires, and lives on whatever its graphs do.

Everything here happens on the loop's own thread, so each method is one atomic step up to its next await. Invariants:

* `receive` and the channel's fast path are the only writers of cache and flags, commands aside.
* `lane.pending` says what whoever ends a firing must look at: NEWS that may make one due, a lane that was CLOSED.
* `lane.credit` is positive only while a boundary may be fired straight from its channel. Whatever ends that (a pause,
  a change of health, a waiting observer, a new graph) closes the lane; `reopen` alone grants credit again.
* A firing's flags are cleared when it takes its snapshot. If it is interrupted, they are given back.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any

from tidemill.engine.graphs.accumulator import RunningAccumulator, migrated
from tidemill.engine.graphs.environment import Environment
from tidemill.engine.graphs.firing import AUTHOR_ERRORS, Caller, Due
from tidemill.engine.graphs.firing_log import Record
from tidemill.engine.graphs.lane import NEWS, Lane
from tidemill.engine.graphs.outcomes import Outcomes
from tidemill.engine.graphs.push_path import FastFailure, PushPath
from tidemill.engine.graphs.supervision import Supervision
from tidemill.engine.service import stop
from tidemill.graphs.compiler import Compiled
from tidemill.graphs.definition import Reactor
from tidemill.graphs.health import REACTOR_MOVES, ReactorHealth
from tidemill.graphs.inputs import Inputs, Taken
from tidemill.graphs.result import Firing, GraphResult
from tidemill.kernel.errors import RequestError
from tidemill.telemetry import events

logger = logging.getLogger(__name__)


TURN = 256  # firings in a row before the loop gets a turn


class RunningReactor:
    """One loaded reactor: inputs, graphs, health, log."""

    component = "reactor"

    def __init__(self, definition: Reactor, tenant: str, environment: Environment) -> None:
        self.definition = definition
        self.name = definition.name
        self.tenant = tenant
        self.environment = environment
        self.clock = environment.clock
        self.inputs = Inputs(definition)
        self.lane = Lane(self.inputs.cache, self.clock.monotonic)
        self.supervision = Supervision()
        self.accumulators: list[RunningAccumulator] = []
        self._batches: list[RunningAccumulator] = []
        self.graphs: dict[str, Compiled] = {}
        self.health = ReactorHealth.STARTING
        self._fires = False
        self.paused = False
        self.incomplete = 0
        self.dropped: Counter[str] = Counter()
        self.outcomes = Outcomes(self, environment)
        self.log = self.outcomes.log
        self._caller = Caller(self.name, definition.names, self.log.firing_id)
        self._busy = False
        self._held = 0  # retries that hold the queue
        self._running: Due | None = None
        self._is_async = False
        self._plain_graph: Compiled | None = None
        self._room = asyncio.Event()
        self._turn = asyncio.Lock()
        self._wake = asyncio.Event()
        self._driver: asyncio.Task[Any] | None = None

    # -- taking in

    def attach(self, accumulator: RunningAccumulator, index: int) -> None:
        """Let an accumulator deliver here."""
        self.accumulators.append(accumulator)
        if accumulator.flushes_after_firing:
            self._batches.append(accumulator)
        accumulator.join(self, index)

    def open_path(self, path: PushPath, accumulator: RunningAccumulator, index: int) -> None:
        """Open the fast way from an accumulator through this reactor, if its boundaries can take one."""
        decides = not self.inputs.needs_all and bool(self.inputs.mask >> index & 1)
        if decides and self._plain_graph is not None:
            path.open(accumulator, index, self._plain_graph, self)

    def receive(self, index: int, boundary: Any) -> None:
        """Take a boundary in, and fire if that is due and nobody else will see to it."""
        self.lane.arrivals[index] = self.clock.monotonic()
        if self.inputs.is_full:
            self.inputs.drop_oldest()
            self.drop("overflow")
        self.inputs.put(index, boundary)
        self.lane.pending |= NEWS
        if not self._busy:
            self.go_on()

    def drop(self, reason: str) -> None:
        """Count something that was not delivered."""
        self.dropped[reason] += 1

    def refresh_window(self, index: int, content: list[Any]) -> None:
        """Show a window's new content without making it news: the reactor's own graph fed it."""
        self.inputs.cache[index] = content
        self.lane.close()

    @property
    def arrivals(self) -> list[float | None]:
        """When each source last delivered."""
        return self.lane.arrivals

    @property
    def capacity(self) -> int | None:
        """How many boundaries it queues; None for the latest strategy, which never queues."""
        return self.inputs.capacity if self.inputs.sequential else None

    @property
    def is_blocked(self) -> bool:
        """Whether pushers must wait for room in the queue."""
        return self.inputs.is_full and self.definition.overflow == "block"

    @property
    def refuses(self) -> bool:
        """Whether a push is turned away because the queue is full."""
        return self.inputs.is_full and self.definition.overflow == "reject"

    async def wait_for_room(self) -> None:
        """Return when the queue has room again."""
        while self.is_blocked:
            self._room.clear()
            await self._room.wait()

    # -- deciding

    @property
    def may_fire(self) -> bool:
        """Whether criteria lead to firings now."""
        return self._fires and not self.paused and not self._held

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs and nothing is due."""
        if self._busy:
            return False
        return not (self.lane.pending & NEWS and self.may_fire)

    def go_on(self) -> None:
        """Fire what is due, then open the fast lane again if nothing stands against it."""
        if self._busy:
            return
        self.lane.pending &= NEWS
        if self.lane.pending and self.may_fire:
            if self._is_async:
                self._wake.set()
                return
            self._drain()
        self.reopen()

    def _drain(self) -> None:
        self._busy = True
        self.lane.credit = 0
        try:
            for _ in range(TURN):
                due = self._next_due()
                if due is None:
                    return
                self._fire_now(due)
            asyncio.get_running_loop().call_soon(self.go_on)
        except Exception as error:  # ours, not the author's: the supervisor decides
            self.crash(error)
        finally:
            self._busy = False

    def _next_due(self) -> Due | None:
        """Take the next firing if one is due; apply queued boundaries on the way to it."""
        if not (self.lane.pending & NEWS and self.may_fire):
            return None
        inputs = self.inputs
        while not inputs.sequential or inputs.advance():
            if inputs.sequential:
                self._room.set()
            if inputs.is_met:
                ready = self._ready_graphs(inputs.cache)
                if ready or not self.graphs:
                    self.lane.pending = NEWS if inputs.queue else 0
                    return Due(self.log.next_number(), inputs.take(), ready)
                self.incomplete += 1
            if not inputs.sequential:
                break
        self.lane.pending = 0
        return None

    def _ready_graphs(self, values: list[Any]) -> list[Compiled]:
        """Return the graphs that have all they need."""
        return [graph for graph in self.graphs.values() if graph.has_all(values)]

    def reopen(self) -> None:
        """Grant the fast lane if every condition for it holds."""
        graph, lane, inputs = self._plain_graph, self.lane, self.inputs
        if graph is None or lane.credit or lane.pending or self._busy or self.outcomes.is_watched or not self.may_fire:
            return
        if not inputs.dirty and not inputs.queue and graph.has_all(inputs.cache):
            lane.credit = self.log.begin_burst(graph, inputs.cache, lane.entries, degraded=self.is_degraded)

    def _find_plain_graph(self) -> Compiled | None:
        """Return the graph that push paths may run: the only one, synchronous, and nothing follows its firings."""
        if len(self.graphs) != 1 or self.inputs.needs_all:
            return None
        (graph,) = self.graphs.values()
        follows = graph.feeds or self._batches
        return None if graph.is_async or graph.needs_context or follows else graph

    # -- firing

    def failed_fast(self, failure: FastFailure) -> None:
        """Deal with a fast firing that raised."""
        self._busy = True
        try:
            snapshot = self.log.latest_snapshot()
            snapshot[failure.index] = failure.boundary
            taken = Taken(snapshot, [(failure.index, failure.boundary)], 1 << failure.index)
            if not isinstance(failure.error, AUTHOR_ERRORS):
                self._interrupted(taken)
                raise failure.error
            (graph,) = self.graphs.values()
            result = graph.failed(failure.error, failure.routine)
            self.outcomes.finish(Due(self.log.next_number(), taken, [graph]), failure.started, {graph.name: result})
        finally:
            self._busy = False
        self.go_on()

    def _fire_now(self, due: Due) -> Record:
        started = self.clock.monotonic()
        try:
            results = self._caller.call(due)
        except BaseException:
            self._interrupted(due.taken)
            raise
        return self.outcomes.finish(due, started, results)

    async def call_again(self, due: Due) -> dict[str, GraphResult]:
        """Call the graphs of a firing once more, in turn with other firings."""
        async with self._turn:
            return await self._caller.call_async(due)

    def hold(self, change: int) -> None:
        """Begin (+1) or end (-1) holding the queue for a retry; the latest strategy never waits."""
        if self.inputs.sequential:
            self._held += change
            self.lane.pending |= NEWS
            self.go_on()

    def feed(self, window: str, value: Any) -> None:
        """Append a node's result to one of the windows."""
        for one in self.accumulators:
            if one.name == window:
                one.feed(value, by=self)

    def flush_batches(self) -> None:
        """Let batches hand on what they hold."""
        for one in self._batches:
            one.after_firing()

    @property
    def is_degraded(self) -> bool:
        """Whether firings see stale values."""
        return self.health is ReactorHealth.DEGRADED

    def _interrupted(self, taken: Taken) -> None:
        """Make the news of a firing that was cut off news again."""
        self.inputs.give_back(taken)
        self.lane.pending |= NEWS

    # -- commands

    async def fire(self, values: Sequence[Any] | None = None) -> Firing:
        """Fire by hand: with the cache as it is, or with `values` in its place."""
        if self.health in (ReactorHealth.STARTING, ReactorHealth.FAILED):
            message = f"reactor '{self.name}' is {self.health} and cannot fire"
            raise RequestError(message, code="not_ready", status=409, health=str(self.health))
        async with self._turn:
            seen = self.inputs.cache if values is None else values
            self._check_complete(list(seen))
            self.lane.close()
            taken = self.inputs.take() if values is None else self.inputs.replace(values)
            due = Due(self.log.next_number(), taken, self._ready_graphs(taken.snapshot), manual=True)
            record = await self._fire_async(due)
        self.go_on()
        return self.log.view(record)

    def _check_complete(self, values: list[Any]) -> None:
        lacking = {graph.name: graph.missing(values) for graph in self.graphs.values()}
        if lacking and all(lacking.values()):
            names = sorted({name for missing in lacking.values() for name in missing})
            message = f"reactor '{self.name}' cannot fire: no value yet from {', '.join(map(repr, names))}"
            raise RequestError(message, code="incomplete_inputs", status=409, missing=names)

    def pause(self) -> None:
        """Stop firing on criteria; boundaries are still taken in."""
        self.paused = True
        self.lane.close()

    def resume(self) -> None:
        """Fire on criteria again, at once if they hold."""
        self.paused = False
        self.lane.pending |= NEWS
        self.go_on()

    async def next_firing(self) -> Firing:
        """Return the oldest firing not handed out yet; wait for one if there is none."""
        while (firing := self.log.hand_out()) is None:
            self.lane.close()
            self.go_on()
            await self.outcomes.watch()
        self.go_on()
        return firing

    # -- graphs

    def bind(self, graph: Compiled) -> None:
        """Call this graph too from the next firing on."""
        self.graphs[graph.name] = graph
        self._rewire()

    def unbind(self, name: str) -> None:
        """Call this graph no more."""
        self.graphs.pop(name, None)
        self._rewire()

    def _rewire(self) -> None:
        own = frozenset(window for graph in self.graphs.values() for _, window in graph.feeds)
        self.inputs.watch(self.definition, own)
        self._is_async = any(graph.is_async for graph in self.graphs.values())
        self._plain_graph = self._find_plain_graph()
        self.lane.close()
        for one in self.accumulators:
            one.shut_path()
        if self.health is not ReactorHealth.STARTING:
            self._ensure_driver()
            self.go_on()

    def redefine(self, definition: Reactor) -> None:
        """Go on as another version of the same reactor: inputs, log and subscribers stay."""
        self.definition = definition
        self.inputs.capacity = definition.capacity
        for index, one in enumerate(definition.accumulators):
            value = self.inputs.cache[index]
            self.inputs.cache[index] = migrated(value, one.boundary_type, list if one.is_window else lambda: None)
        self._rewire()

    # -- life

    def start(self) -> None:
        """Come up, or come up again: fresh internals around the inputs as they are."""
        self._turn = asyncio.Lock()
        self._wake = asyncio.Event()
        self._driver = None
        self._move(ReactorHealth.STARTING)
        self.supervision.started(self.clock.monotonic())
        self._move(ReactorHealth.WARMING)
        self._ensure_driver()
        self.review()

    def _ensure_driver(self) -> None:
        if self._is_async and self._driver is None:
            self._driver = self.environment.tasks.start(f"reactor {self.name}", self._drive())

    async def _drive(self) -> None:
        """Fire asynchronous graphs, one firing after the other, until cancelled."""
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while await self._fire_next():
                    pass
        except Exception as error:  # ours, not the author's: the supervisor decides
            self._driver = None
            self.crash(error)

    async def _fire_next(self) -> bool:
        async with self._turn:  # a turn per firing, so that commands get theirs in between
            due = self._next_due()
            if due is not None:
                await self._fire_async(due)
        return due is not None

    async def _fire_async(self, due: Due) -> Record:
        self._busy, self._running = True, due
        self.lane.credit = 0
        try:
            started = self.clock.monotonic()
            results = await self._caller.call_async(due)
            self._running = None
            return self.outcomes.finish(due, started, results)
        finally:
            self._busy = False
            if self._running is due:
                self._running = None
                self._interrupted(due.taken)

    def review(self) -> None:
        """Follow the health of the accumulators: open the gate, or say what was lost."""
        unhealthy = self.unhealthy
        if self.health is ReactorHealth.WARMING and not unhealthy:
            self._move(ReactorHealth.LIVE)
            self.lane.pending |= NEWS
        elif self.health.fires:
            self._move(ReactorHealth.DEGRADED if unhealthy else ReactorHealth.LIVE)
        self.lane.close()
        self.go_on()

    @property
    def unhealthy(self) -> list[str]:
        """The accumulators that are not healthy, by name."""
        return [one.name for one in self.accumulators if not one.health.is_healthy]

    def _move(self, health: ReactorHealth) -> None:
        if health is self.health:
            return
        REACTOR_MOVES.check(f"reactor '{self.name}'", self.health, health)
        self.health = health
        self._fires = health.fires
        logger.info(events.REACTOR_HEALTH, extra={"reactor": self.name, "health": str(health)})

    def crash(self, error: BaseException) -> None:
        """Stop firing after an error of our own, and tell the supervisor."""
        self._halt(ReactorHealth.STARTING)
        logger.error(events.REACTOR_CRASHED, extra={"reactor": self.name, "error": repr(error)})
        self.environment.supervisor.crashed(self, error)

    def give_up(self) -> None:
        """Stay down until an operator restarts it."""
        self._halt(ReactorHealth.FAILED)

    def revive(self) -> None:
        """Come up again after a crash; called by the supervisor or an operator."""
        self._halt(ReactorHealth.STARTING)
        self.start()

    def _halt(self, health: ReactorHealth) -> None:
        if self._driver is not None:
            self._driver.cancel()
            self._driver = None
        self.lane.close()
        self._move(health)

    async def wind_down(self) -> None:
        """Return when nothing runs and nothing is due any more."""
        while not self.is_idle:
            async with self._turn:
                pass
            await asyncio.sleep(0)

    async def stop(self) -> None:
        """End the driver and pending retries; a firing in progress is interrupted."""
        self.lane.close()
        await stop(self._driver)
        await self.outcomes.stop()
        self._driver = None
