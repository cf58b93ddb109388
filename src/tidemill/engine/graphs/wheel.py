"""The wheel: turns a reactor's inputs into firings, one at a time.

Everything here happens on the loop's own thread, so each method is one atomic step up to its next await. Invariants:

* `take_in` and push paths are the only writers of cache and flags, manual firings aside.
* `lane.pending` says what whoever ends a firing must look at: NEWS that may make one due, a lane that was CLOSED.
* `lane.credit` is positive only while a boundary may be fired straight from where it was pushed. Whatever ends that (a
  pause, a change of health, a waiting observer, a new graph) closes the lane; `_reopen` alone grants credit again.
* A firing's flags are cleared when it takes its snapshot. If it is cut off, `_again` keeps it: it is fired again whole,
  under its number, before anything else is, as soon as the reactor's health allows. So are retries, and firings that
  the death of an earlier process cut off.
* Whatever changes what a checkpoint holds calls `note`. SAVED in `lane.pending` keeps the fast lane closed until then.
* Whatever is awaited under `_turn` runs in a task of the node, so that a crash or an unload can end it.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import msgspec

from tidemill.engine.graphs.environment import Environment
from tidemill.engine.graphs.firing import Caller, Due
from tidemill.engine.graphs.firing_log import Record
from tidemill.engine.graphs.housing import Housing
from tidemill.engine.graphs.lane import NEWS, SAVED, Lane
from tidemill.engine.graphs.outcomes import Outcomes
from tidemill.engine.graphs.push_path import FastFailure
from tidemill.engine.graphs.room import Room
from tidemill.engine.service import stop
from tidemill.graphs.compiler import Compiled
from tidemill.graphs.inputs import Inputs, Taken
from tidemill.graphs.result import Firing, GraphResult
from tidemill.kernel.author_errors import AUTHOR_ERRORS
from tidemill.kernel.errors import OperationError, RequestError

TURN = 256  # firings in a row before the loop gets a turn

_around: "ContextVar[Wheel | None]" = ContextVar("_around", default=None)
"""The wheel whose firing the running code is part of, its strands and threads included."""


class Wheel:
    """Inputs, graphs and firings of one reactor."""

    def __init__(self, housing: Housing, environment: Environment) -> None:
        definition = housing.definition
        self._housing = housing
        self._tasks = environment.tasks
        self._clock = environment.clock
        self._title = f"reactor {definition.name}"
        self.inputs = Inputs(definition)
        self.room = Room(self.inputs, definition.overflow)
        self.lane = Lane(self.inputs.cache, self._clock.monotonic)
        self.graphs: dict[str, Compiled] = {}
        self.outcomes = Outcomes(housing, self, environment)
        self.log = self.outcomes.log
        self.turns = False  # whether the reactor's health allows firings
        self.paused = False
        self.incomplete = 0
        self.plain_graph: Compiled | None = None
        self._caller = Caller(definition.name, definition.names, self.log.firing_id)
        self._busy = False
        self._held = 0  # retries that hold the queue
        self._again: deque[Due] = deque()  # firings that were cut off or are to be tried again, next one first
        self._running: Due | None = None  # the firing whose graphs are awaited just now
        self._is_async = False
        self._turn = asyncio.Lock()
        self._wake = asyncio.Event()
        self._worker: asyncio.Task[Any] | None = None  # awaits graphs just now
        self.awaited: object | None = None  # stands for the firing whose graphs are awaited just now
        self._driver: asyncio.Task[Any] | None = None

    # -- deciding

    def take_in(self, index: int, boundary: Any, position: int = 0) -> None:
        """Take a boundary in; whoever does calls `go_on` when everybody has it."""
        self.lane.close()
        self.lane.arrivals[index] = self._clock.monotonic()
        if self.inputs.is_full:
            if self.room.refuses:
                return self._housing.drop("full")
            if self.room.overflow == "drop_oldest":  # who cannot wait for room, as windows cannot, exceeds it
                self.inputs.drop_oldest()
                self._housing.drop("overflow")
        self.inputs.put(index, boundary, position)
        self.lane.pending |= NEWS
        self.note()

    def note(self) -> None:
        """Let it be known that the last checkpoint, if there is one, no longer tells the truth."""
        if self.lane.pending & SAVED:
            self.lane.pending &= ~SAVED
            self._housing.unsaved()

    @property
    def may_fire(self) -> bool:
        """Whether criteria lead to firings now."""
        return self.turns and not self.paused and not self._held

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs and nothing is due."""
        return not self._busy and not self._has_work

    @property
    def _has_work(self) -> bool:
        """Whether something may be due: firings that come again do not wait for criteria, nor for a resume."""
        return bool(self._again and self.turns) or bool(self.lane.pending & NEWS and self.may_fire)

    def look_again(self) -> None:
        """Evaluate the criteria, although nothing new may have come."""
        self.lane.pending |= NEWS
        self.go_on()

    def go_on(self) -> None:
        """Fire what is due, then open the fast lane again if nothing stands against it."""
        if self._busy or self.lane.credit is None:
            return
        self.lane.pending &= NEWS | SAVED
        if self._has_work:
            if self._is_async:
                self._wake.set()
                return
            self._drain()
        self._reopen()

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
            self._housing.crash(error)
        finally:
            self._busy = False

    def _next_due(self) -> Due | None:
        """Take the next firing if one is due; apply queued boundaries on the way to it."""
        while self._again and self.turns:
            if (again := self._renewed(self._again.popleft())) is not None:
                return again
        if not (self.lane.pending & NEWS and self.may_fire):
            return None
        inputs = self.inputs
        while not inputs.sequential or inputs.advance():
            if inputs.sequential:
                self.room.free()
            if inputs.is_met:
                ready = self._ready_graphs(inputs.cache)
                if ready or not self.graphs:
                    self._no_news(but=NEWS if inputs.queue else 0)
                    return self._due(inputs.take(), ready)
                self.incomplete += 1
            if not inputs.sequential:
                break
        self._no_news()
        return None

    def _no_news(self, but: int = 0) -> None:
        self.lane.pending = self.lane.pending & SAVED | but

    def _due(self, taken: Taken, graphs: list[Compiled]) -> Due:
        """Return a firing with a number of its own; under a journal the number says what it has seen of it."""
        return Due(self.log.series.name, self.log.next_number(self.inputs.applied), taken, graphs)

    def begin_series(self) -> None:
        """Give no number that the journal would give again: inputs have changed in a way that is not written there."""
        if self._housing.commits:
            self.log.begin_series()

    def _renewed(self, due: Due) -> Due | None:
        """Return a firing that comes again with the graphs as they are bound by now."""
        if due.attempt > 1:
            return self.outcomes.renewed(due)
        ready = self._ready_graphs(due.taken.snapshot)
        if not ready and self.graphs:
            self.incomplete += 1
            return None
        return msgspec.structs.replace(due, graphs=ready)

    def _ready_graphs(self, values: list[Any]) -> list[Compiled]:
        """Return the graphs that have all they need."""
        return [graph for graph in self.graphs.values() if graph.has_all(values)]

    def _reopen(self) -> None:
        """Grant the fast lane if every condition for it holds."""
        graph, lane, inputs = self.plain_graph, self.lane, self.inputs
        if graph is None or lane.credit or lane.pending or self._again or self._busy:
            return
        if self.outcomes.is_watched or not self.may_fire:
            return
        if not inputs.dirty and not inputs.queue and graph.has_all(inputs.cache):
            degraded = self._housing.is_degraded
            lane.credit = self.log.begin_burst(graph, inputs.cache, lane.entries, degraded=degraded)

    # -- firing at once

    def hand_over(self, index: int, boundary: Any, position: int) -> None:
        """Take in a boundary that the journal holds, and fire it straight away if the fast lane allows that."""
        lane, graph = self.lane, self.plain_graph
        credit = lane.credit
        if not credit or graph is None or not self.inputs.mask >> index & 1:
            self.take_in(index, boundary, position)
            return self.go_on()
        if not self.log.goes_on_with(position):  # something else has the positions in between
            credit = self.log.begin_burst(
                graph, lane.cache, lane.entries, degraded=self._housing.is_degraded, number=position
            )
        lane.credit = None
        lane.cache[index] = boundary
        self.inputs.applied = position
        lane.arrivals[index] = started = lane.now()
        try:
            values = graph.function(lane.cache)
        except BaseException as error:  # the author's, or an end: `failed_fast` tells them apart
            return self.failed_fast(FastFailure(index, boundary, started, error, graph.routine))
        lane.entries.append((index, boundary, started, lane.now(), *values))
        if credit == 1 or lane.pending:
            self.end_fast()
        else:
            lane.credit = credit - 1

    def end_fast(self) -> None:
        """Look at what is pending after a fast firing."""
        self.lane.credit = 0
        self.go_on()

    def failed_fast(self, failure: FastFailure) -> None:
        """Deal with a fast firing that raised."""
        self._busy = True
        self.lane.credit = 0
        try:
            snapshot = self.log.latest_snapshot()
            snapshot[failure.index] = failure.boundary
            taken = Taken(snapshot, [(failure.index, failure.boundary)], 1 << failure.index)
            (graph,) = self.graphs.values()
            due = self._due(taken, [graph])
            if not isinstance(failure.error, AUTHOR_ERRORS):
                self._cut_off(due)
                raise failure.error
            result = graph.failed(failure.error, failure.routine)
            self.outcomes.finish(due, failure.started, {graph.name: result})
        finally:
            self._busy = False
        self.go_on()

    def _fire_now(self, due: Due) -> Record:
        started = self._clock.monotonic()
        try:
            results = self._caller.call(due)
        except BaseException:
            self._cut_off(due)
            raise
        return self.outcomes.finish(due, started, results)

    def _cut_off(self, due: Due) -> None:
        """Keep a firing that was cut off, to be fired again whole when it is over; its number stays."""
        if not _comes_again(due):
            return
        self._again.appendleft(due)
        asyncio.get_running_loop().call_soon(self.go_on)

    # -- firing graphs that must be awaited

    def ensure_driver(self) -> None:
        """Have a task that fires, if some graph must be awaited."""
        if self._is_async and self._driver is None:
            self._driver = self._tasks.start(self._title, self._drive())

    async def _drive(self) -> None:
        """Fire asynchronous graphs, one firing after the other, until cancelled."""
        this = asyncio.current_task()
        try:
            while self._driver is this:  # one that swallowed its cancellation must not fire beside its successor
                await self._wake.wait()
                self._wake.clear()
                while self._driver is this and await self._fire_next():
                    pass
        except Exception as error:  # ours, not the author's: the supervisor decides
            self._housing.crash(error)
        finally:
            if self._driver is this:
                self._driver = None
            else:
                self.go_on()  # its successor was not told of what came while this one was busy

    async def _fire_next(self) -> bool:
        async with self._turn:  # a turn per firing, so that commands get theirs in between
            due = self._next_due()
            if due is not None:
                await self._fire_async(due)
        return due is not None

    async def _fire_async(self, due: Due) -> Record:
        with self._working():
            started = self._clock.monotonic()
            self._running = due
            try:
                results = await self._caller.call_async(due)
            except BaseException:
                self._cut_off(due)
                raise
            finally:
                self._running = None
            return self.outcomes.finish(due, started, results)

    @contextmanager
    def _working(self) -> Iterator[None]:
        """Keep other firings out while graphs are awaited."""
        self._busy, self._worker, self.awaited = True, asyncio.current_task(), object()
        self.lane.close()
        outer = _around.set(self)
        try:
            yield
        finally:
            _around.reset(outer)
            self._busy, self._worker, self.awaited = False, None, None

    # -- firing again, or by hand

    async def call_again(self, due: Due) -> tuple[float, dict[str, GraphResult]]:
        """Call the graphs of a firing once more, in turn with other firings; return when it began, and the results."""
        try:
            async with self._turn:
                self._housing.check_ready()
                with self._working():
                    started = self._clock.monotonic()
                    return started, await self._caller.call_async(due)
        finally:
            self.go_on()

    def fire_again(self, due: Due) -> None:
        """Fire once more, before anything else and as soon as the reactor's health allows."""
        self._again.append(due)
        self.go_on()

    def hold(self, change: int, *, always: bool = False) -> None:
        """Begin (+1) or end (-1) holding the queue; the latest strategy only waits if that is said."""
        if self.inputs.sequential or always:
            self._held += change
            self.look_again()

    async def fire_by_hand(self, values: Sequence[Any] | None) -> Firing:
        """Fire whatever the criteria say: with the cache as it is, or with `values` in its place."""
        if self._busy and _around.get() is self:
            message = (
                f"{self._title}: a node cannot wait for a firing of its own reactor; push to an accumulator instead"
            )
            raise RequestError(message, code="inside_firing", status=409)
        title = f"{self._title}: manual firing"
        withdrawn = asyncio.Event()
        try:
            return self.log.view(await self._tasks.see_through(title, self._fire_in_turn(values, withdrawn)))
        except asyncio.CancelledError:
            withdrawn.set()  # it does not begin any more; one that runs is seen through
            raise

    async def _fire_in_turn(self, values: Sequence[Any] | None, withdrawn: asyncio.Event) -> Record:
        try:
            async with self._turn:
                if withdrawn.is_set():
                    raise OperationError(f"{self._title}: nobody waits for this manual firing any more")
                self._housing.check_ready()
                self._check_complete(list(self.inputs.cache if values is None else values))
                self.lane.close()
                taken = self.inputs.take() if values is None else self._replaced(values)
                self.begin_series()
                series, number = self.log.life.name, self.log.next_manual_number()
                due = Due(series, number, taken, self._ready_graphs(taken.snapshot), manual=True)
                return await self._fire_async(due)
        finally:
            self.go_on()

    def _replaced(self, values: Sequence[Any]) -> Taken:
        self._housing.refill_windows(values)
        return self.inputs.replace(values)

    def _check_complete(self, values: list[Any]) -> None:
        lacking = {graph.name: graph.missing(values) for graph in self.graphs.values()}
        if lacking and all(lacking.values()):
            names = sorted({name for missing in lacking.values() for name in missing})
            reactor = self._housing.definition.name
            lacking_from = ", ".join(map(repr, names))
            message = (
                f"reactor '{reactor}' cannot fire: no value yet from {lacking_from}; push to it first, or use fire_with"
            )
            raise RequestError(message, code="incomplete_inputs", status=409, missing=names)

    async def next_firing(self, timeout: float | None) -> Firing:
        """Return the oldest firing not handed out yet; wait for one if there is none, up to `timeout` seconds."""
        ends = None if timeout is None else self._clock.monotonic() + timeout
        while (firing := self.log.hand_out()) is None:
            watcher = self.outcomes.watch()
            self.lane.close()
            await self._wait_until(ends, watcher)
        self.go_on()
        return firing

    async def _wait_until(self, ends: float | None, watcher: "asyncio.Future[None]") -> None:
        """Wait for the next firing, but not beyond `ends`: then TimeoutError."""
        if ends is None:
            return await watcher
        timer = self._tasks.start(f"{self._title}: next firing", self._time_out(ends, watcher))
        try:
            await watcher
        finally:
            timer.cancel()

    async def _time_out(self, ends: float, watcher: "asyncio.Future[None]") -> None:
        await self._clock.sleep(ends - self._clock.monotonic())
        if not watcher.done():
            watcher.set_exception(TimeoutError())

    # -- what it turns, and whether

    def set_graphs(self, graphs: dict[str, Compiled]) -> None:
        """Call these graphs from the next firing on."""
        self.graphs = graphs
        own = frozenset(window for graph in graphs.values() for _, window in graph.feeds)
        self.inputs.watch(self._housing.definition, own)
        self._is_async = any(graph.is_async for graph in graphs.values())
        self.plain_graph = self._find_plain_graph()
        self.lane.close()

    def _find_plain_graph(self) -> Compiled | None:
        """Return the graph that push paths may run: the only one, synchronous, and nothing follows its firings."""
        if len(self.graphs) != 1 or self.inputs.needs_all:
            return None
        (graph,) = self.graphs.values()
        follows = graph.feeds or self._housing.has_batches or self._housing.is_followed
        return None if graph.is_async or graph.needs_context or follows else graph

    # -- what outlives the process

    def unfinished(self) -> list[Due]:
        """Return the firings that took their inputs and are not done: running, cut off, or to be tried again."""
        running = [self._running] if self._running is not None and _comes_again(self._running) else []
        return [*running, *self._again, *self.outcomes.awaiting_retry]

    def resume(self, firings: Iterable[Due]) -> None:
        """Fire these first, as soon as the reactor's health allows: an earlier life did not finish them."""
        self._again.extend(firings)

    def mark_saved(self) -> None:
        """Have the next change noted: a checkpoint holds everything so far."""
        self.lane.close()
        self.lane.pending |= SAVED

    # -- its end

    def halt(self) -> None:
        """Cut off what is awaited just now; it is fired again whole after the next start."""
        for task in (self._driver, self._worker):
            if task is not None and task is not asyncio.current_task():
                task.cancel()
        self._driver = None
        self._wake = asyncio.Event()
        self.lane.close()

    async def wind_down(self) -> None:
        """Return when nothing runs and nothing is due any more."""
        while not self.is_idle:
            async with self._turn:
                pass
            await asyncio.sleep(0)

    async def stop(self) -> None:
        """End the driver and pending retries; a firing in progress is interrupted."""
        try:
            await self.outcomes.stop()
            await stop(self._worker)
            driver, self._driver = self._driver, None
            await stop(driver)
        finally:  # also when the grace is over before author code gives in
            if not self._housing.is_kept:
                self._drop_the_rest()

    def _drop_the_rest(self) -> None:
        """Count what will never be fired: queued boundaries, and firings that were to come again."""
        for _ in range(len(self.inputs.queue) + len(self._again)):
            self._housing.drop("unloaded")
        self.inputs.queue.clear()
        self._again.clear()


def _comes_again(due: Due) -> bool:
    """Return whether a firing that is cut off is fired again: not if it took no news, and whoever asked is told."""
    return not due.manual or due.attempt > 1 or bool(due.taken.flags)
