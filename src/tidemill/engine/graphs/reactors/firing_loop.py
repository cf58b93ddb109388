"""The firing loop: turns a reactor's inputs into firings, one at a time.

Every method runs on the loop's thread and is one atomic step up to its next await. Invariants:
* `put` and fast paths are the only writers of cache and flags, manual firings aside.
* `flags` says what the end of a firing must check: DIRTY inputs that may make one due, a fast path that was CLOSED.
* `credit` is positive only while a boundary may be fired straight from its push. A pause, a change of health, a waiting
  observer or a new graph closes the fast path; `_reopen` alone grants credit again.
* A firing clears its flags when it takes its snapshot. Interrupted firings, retries and firings that an earlier process
  left are fired again whole, under their number, before any other, as soon as the reactor's health allows.
* Each change of what a checkpoint holds calls `mark_changed`. CHECKPOINTED keeps the fast path closed until then.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import msgspec

from tidemill.engine.graphs.event_path.fast_path import CHECKPOINTED, DIRTY, FastFiringFailure, FastPathState
from tidemill.engine.graphs.event_path.ports import FiringHost
from tidemill.engine.graphs.event_path.queue_gate import QueueGate
from tidemill.engine.graphs.reactors.firing import GraphCaller, PendingFiring
from tidemill.engine.graphs.reactors.firing_log import FiringRecord
from tidemill.engine.graphs.reactors.firing_results import FiringResults
from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.engine.tasks import cancel_and_wait
from tidemill.graphs.compiler import CompiledGraph
from tidemill.graphs.inputs import FiringInputs, Inputs
from tidemill.graphs.result import Firing, GraphResult
from tidemill.kernel.author_errors import AUTHOR_ERRORS
from tidemill.kernel.errors import OperationError, RequestError

FIRINGS_PER_YIELD = 256  # firings in a row before the loop gets a turn

_current_firing_loop: "ContextVar[FiringLoop | None]" = ContextVar("_current_firing_loop", default=None)


class FiringLoop:
    """Inputs, graphs and firings of one reactor."""

    def __init__(self, reactor: FiringHost, runtime: GraphRuntime) -> None:
        definition = reactor.definition
        self._reactor = reactor
        self._tasks = runtime.tasks
        self._clock = runtime.clock
        self._task_name = f"reactor {definition.name}"
        self.inputs = Inputs(definition)
        self.queue_gate = QueueGate(self.inputs, definition.overflow)
        self.fast_path_state = FastPathState(self.inputs.cache, self._clock.monotonic)
        self.graphs: dict[str, CompiledGraph] = {}
        self.results = FiringResults(reactor, self, runtime)
        self.log = self.results.log
        self.health_allows_firing = False
        self.paused = False
        self.incomplete = 0
        self.fast_graph: CompiledGraph | None = None
        self._caller = GraphCaller(definition.name, definition.accumulator_names, self.log.firing_id)
        self._is_firing = False
        self._queue_pauses = 0  # retries that hold the queue
        self._refire_queue: deque[PendingFiring] = (
            deque()
        )  # firings that were cut off or are to be tried again, next one first
        self._running_firing: PendingFiring | None = None  # the firing whose graphs are awaited just now
        self._is_async = False
        self._firing_lock = asyncio.Lock()
        self._work_ready = asyncio.Event()
        self._firing_task: asyncio.Task[Any] | None = None  # awaits graphs just now
        self.firing_token: object | None = None  # stands for the firing whose graphs are awaited just now
        self._driver_task: asyncio.Task[Any] | None = None

    # -- deciding

    def put(self, index: int, boundary: Any, position: int = 0) -> None:
        """Take a boundary in; whoever does calls `go_on` when everybody has it."""
        self.fast_path_state.close()
        self.fast_path_state.arrivals[index] = self._clock.monotonic()
        if self.inputs.is_full:
            if self.queue_gate.rejects:
                return self._reactor.count_drop("full")
            if self.queue_gate.overflow == "drop_oldest":  # who cannot wait for room, as windows cannot, exceeds it
                self.inputs.drop_oldest()
                self._reactor.count_drop("overflow")
        self.inputs.put(index, boundary, position)
        self.fast_path_state.flags |= DIRTY
        self.mark_changed()

    def mark_changed(self) -> None:
        """Let it be known that the last checkpoint, if there is one, no longer tells the truth."""
        if self.fast_path_state.flags & CHECKPOINTED:
            self.fast_path_state.flags &= ~CHECKPOINTED
            self._reactor.request_checkpoint()

    @property
    def may_fire(self) -> bool:
        """Whether criteria lead to firings now."""
        return self.health_allows_firing and not self.paused and not self._queue_pauses

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs and nothing is due."""
        return not self._is_firing and not self._has_due_work

    @property
    def _has_due_work(self) -> bool:
        """Whether something may be due: firings that come again do not wait for criteria, nor for a resume."""
        return bool(self._refire_queue and self.health_allows_firing) or bool(
            self.fast_path_state.flags & DIRTY and self.may_fire
        )

    def reevaluate(self) -> None:
        """Evaluate the criteria, although nothing new may have come."""
        self.fast_path_state.flags |= DIRTY
        self.fire_due()

    def fire_due(self) -> None:
        """Fire what is due, then open the fast lane again if nothing stands against it."""
        if self._is_firing or self.fast_path_state.credit is None:
            return
        self.fast_path_state.flags &= DIRTY | CHECKPOINTED
        if self._has_due_work:
            if self._is_async:
                self._work_ready.set()
                return
            self._fire_some()
        self._reopen_fast_path()

    def _fire_some(self) -> None:
        self._is_firing = True
        self.fast_path_state.credit = 0
        try:
            for _ in range(FIRINGS_PER_YIELD):
                due = self._take_due()
                if due is None:
                    return
                self._fire_now(due)
            asyncio.get_running_loop().call_soon(self.fire_due)
        except Exception as error:  # ours, not the author's: the supervisor decides
            self._reactor.crash(error)
        finally:
            self._is_firing = False

    def _take_due(self) -> PendingFiring | None:
        """Take the next firing if one is due; apply queued boundaries on the way to it."""
        while self._refire_queue and self.health_allows_firing:
            if (again := self._with_current_graphs(self._refire_queue.popleft())) is not None:
                return again
        if not (self.fast_path_state.flags & DIRTY and self.may_fire):
            return None
        inputs = self.inputs
        while not inputs.is_sequential or inputs.apply_next():
            if inputs.is_sequential:
                self.queue_gate.wake_waiters()
            if inputs.is_criteria_met:
                ready = self._ready_graphs(inputs.cache)
                if ready or not self.graphs:
                    self._clear_dirty(keep=DIRTY if inputs.queue else 0)
                    return self._new_firing(inputs.take_snapshot(), ready)
                self.incomplete += 1
            if not inputs.is_sequential:
                break
        self._clear_dirty()
        return None

    def _clear_dirty(self, keep: int = 0) -> None:
        self.fast_path_state.flags = self.fast_path_state.flags & CHECKPOINTED | keep

    def _new_firing(self, inputs: FiringInputs, graphs: list[CompiledGraph]) -> PendingFiring:
        """Return a firing with a number of its own; under a journal the number says what it has seen of it."""
        return PendingFiring(self.log.series.name, self.log.next_number(self.inputs.applied_position), inputs, graphs)

    def new_series(self) -> None:
        """Give no number that the journal would give again: inputs have changed in a way that is not written there."""
        if self._reactor.is_journaled:
            self.log.new_series()

    def _with_current_graphs(self, firing: PendingFiring) -> PendingFiring | None:
        """Return a firing that comes again with the graphs as they are bound by now."""
        if firing.attempt > 1:
            return self.results.with_current_graphs(firing)
        ready = self._ready_graphs(firing.inputs.snapshot)
        if not ready and self.graphs:
            self.incomplete += 1
            return None
        return msgspec.structs.replace(firing, graphs=ready)

    def _ready_graphs(self, values: list[Any]) -> list[CompiledGraph]:
        """Return the graphs that have all they need."""
        return [graph for graph in self.graphs.values() if graph.has_required_inputs(values)]

    def _reopen_fast_path(self) -> None:
        """Grant the fast lane if every condition for it holds."""
        graph, lane, inputs = self.fast_graph, self.fast_path_state, self.inputs
        if graph is None or lane.credit or lane.flags or self._refire_queue or self._is_firing:
            return
        if self.results.has_waiters or not self.may_fire:
            return
        if not inputs.dirty and not inputs.queue and graph.has_required_inputs(inputs.cache):
            degraded = self._reactor.is_degraded
            lane.credit = self.log.begin_burst(graph, inputs.cache, lane.entries, degraded=degraded)

    # -- firing at once

    def put_and_fire(self, index: int, boundary: Any, position: int) -> None:
        """Take in a boundary that the journal holds, and fire it straight away if the fast lane allows that."""
        lane, graph = self.fast_path_state, self.fast_graph
        credit = lane.credit
        if not credit or graph is None or not self.inputs.criteria_mask >> index & 1:
            self.put(index, boundary, position)
            return self.fire_due()
        if not self.log.continues_at(position):  # something else has the positions in between
            credit = self.log.begin_burst(
                graph, lane.cache, lane.entries, degraded=self._reactor.is_degraded, number=position
            )
        lane.credit = None
        lane.cache[index] = boundary
        self.inputs.applied_position = position
        lane.arrivals[index] = started = lane.now()
        try:
            values = graph.function(lane.cache)
        except BaseException as error:  # the author's, or an end: `failed_fast` tells them apart
            return self.fail_fast_firing(FastFiringFailure(index, boundary, started, error, graph.generated))
        lane.entries.append((index, boundary, started, lane.now(), *values))
        if credit == 1 or lane.flags:
            self.finish_fast_firing()
        else:
            lane.credit = credit - 1

    def finish_fast_firing(self) -> None:
        """Look at what is pending after a fast firing."""
        self.fast_path_state.credit = 0
        self.fire_due()

    def fail_fast_firing(self, failure: FastFiringFailure) -> None:
        """Deal with a fast firing that raised."""
        self._is_firing = True
        self.fast_path_state.credit = 0
        try:
            snapshot = self.log.latest_snapshot()
            snapshot[failure.index] = failure.boundary
            taken = FiringInputs(snapshot, [(failure.index, failure.boundary)], 1 << failure.index)
            (graph,) = self.graphs.values()
            due = self._new_firing(taken, [graph])
            if not isinstance(failure.error, AUTHOR_ERRORS):
                self._requeue_interrupted(due)
                raise failure.error
            result = graph.failed_result(failure.error, failure.routine)
            self.results.finish(due, failure.started, {graph.name: result})
        finally:
            self._is_firing = False
        self.fire_due()

    def _fire_now(self, firing: PendingFiring) -> FiringRecord:
        started = self._clock.monotonic()
        try:
            results = self._caller.call(firing)
        except BaseException:
            self._requeue_interrupted(firing)
            raise
        return self.results.finish(firing, started, results)

    def _requeue_interrupted(self, firing: PendingFiring) -> None:
        """Keep a firing that was cut off, to be fired again whole when it is over; its number stays."""
        if not _is_refired(firing):
            return
        self._refire_queue.appendleft(firing)
        asyncio.get_running_loop().call_soon(self.fire_due)

    # -- firing graphs that must be awaited

    def ensure_driver(self) -> None:
        """Have a task that fires, if some graph must be awaited."""
        if self._is_async and self._driver_task is None:
            self._driver_task = self._tasks.start(self._task_name, self._run_driver())

    async def _run_driver(self) -> None:
        """Fire asynchronous graphs, one firing after the other, until cancelled."""
        this = asyncio.current_task()
        try:
            while self._driver_task is this:  # one that swallowed its cancellation must not fire beside its successor
                await self._work_ready.wait()
                self._work_ready.clear()
                while self._driver_task is this and await self._fire_next():
                    pass
        except Exception as error:  # ours, not the author's: the supervisor decides
            self._reactor.crash(error)
        finally:
            if self._driver_task is this:
                self._driver_task = None
            else:
                self.fire_due()  # its successor was not told of what came while this one was busy

    async def _fire_next(self) -> bool:
        async with self._firing_lock:  # a turn per firing, so that commands get theirs in between
            due = self._take_due()
            if due is not None:
                await self._fire_async(due)
        return due is not None

    async def _fire_async(self, firing: PendingFiring) -> FiringRecord:
        with self._exclusive_firing():
            started = self._clock.monotonic()
            self._running_firing = firing
            try:
                results = await self._caller.call_async(firing)
            except BaseException:
                self._requeue_interrupted(firing)
                raise
            finally:
                self._running_firing = None
            return self.results.finish(firing, started, results)

    @contextmanager
    def _exclusive_firing(self) -> Iterator[None]:
        """Keep other firings out while graphs are awaited."""
        self._is_firing, self._firing_task, self.firing_token = True, asyncio.current_task(), object()
        self.fast_path_state.close()
        outer = _current_firing_loop.set(self)
        try:
            yield
        finally:
            _current_firing_loop.reset(outer)
            self._is_firing, self._firing_task, self.firing_token = False, None, None

    # -- firing again, or by hand

    async def rerun_graphs(self, firing: PendingFiring) -> tuple[float, dict[str, GraphResult]]:
        """Call the graphs of a firing once more, in turn with other firings; return when it began, and the results."""
        try:
            async with self._firing_lock:
                self._reactor.check_ready()
                with self._exclusive_firing():
                    started = self._clock.monotonic()
                    return started, await self._caller.call_async(firing)
        finally:
            self.fire_due()

    def refire(self, firing: PendingFiring) -> None:
        """Fire once more, before anything else and as soon as the reactor's health allows."""
        self._refire_queue.append(firing)
        self.fire_due()

    def pause_queue(self, delta: int, *, always: bool = False) -> None:
        """Begin (+1) or end (-1) holding the queue; the latest strategy only waits if that is said."""
        if self.inputs.is_sequential or always:
            self._queue_pauses += delta
            self.reevaluate()

    async def fire_manually(self, values: Sequence[Any] | None) -> Firing:
        """Fire whatever the criteria say: with the cache as it is, or with `values` in its place."""
        if self._is_firing and _current_firing_loop.get() is self:
            message = (
                f"{self._task_name}: a node cannot wait for a firing of its own reactor; push to an accumulator instead"
            )
            raise RequestError(message, code="inside_firing", status=409)
        title = f"{self._task_name}: manual firing"
        withdrawn = asyncio.Event()
        try:
            return self.log.to_firing(
                await self._tasks.run_shielded(title, self._fire_manually_in_order(values, withdrawn))
            )
        except asyncio.CancelledError:
            withdrawn.set()  # it does not begin any more; one that runs is seen through
            raise

    async def _fire_manually_in_order(self, values: Sequence[Any] | None, withdrawn: asyncio.Event) -> FiringRecord:
        try:
            async with self._firing_lock:
                if withdrawn.is_set():
                    raise OperationError(f"{self._task_name}: nobody waits for this manual firing any more")
                self._reactor.check_ready()
                self._check_inputs_complete(list(self.inputs.cache if values is None else values))
                self.fast_path_state.close()
                taken = self.inputs.take_snapshot() if values is None else self._replace_inputs(values)
                self.new_series()
                series, number = self.log.manual_series.name, self.log.next_manual_number()
                due = PendingFiring(series, number, taken, self._ready_graphs(taken.snapshot), manual=True)
                return await self._fire_async(due)
        finally:
            self.fire_due()

    def _replace_inputs(self, values: Sequence[Any]) -> FiringInputs:
        self._reactor.replace_windows(values)
        return self.inputs.replace_cache(values)

    def _check_inputs_complete(self, values: list[Any]) -> None:
        lacking = {graph.name: graph.missing_inputs(values) for graph in self.graphs.values()}
        if lacking and all(lacking.values()):
            names = sorted({name for missing in lacking.values() for name in missing})
            reactor = self._reactor.definition.name
            lacking_from = ", ".join(map(repr, names))
            message = (
                f"reactor '{reactor}' cannot fire: no value yet from {lacking_from}; push to it first, or use fire_with"
            )
            raise RequestError(message, code="incomplete_inputs", status=409, missing=names)

    async def next_firing(self, timeout: float | None) -> Firing:
        """Return the oldest firing not handed out yet; wait for one if there is none, up to `timeout` seconds."""
        ends = None if timeout is None else self._clock.monotonic() + timeout
        while (firing := self.log.next_unread()) is None:
            watcher = self.results.add_waiter()
            self.fast_path_state.close()
            await self._wait_for_firing(ends, watcher)
        self.fire_due()
        return firing

    async def _wait_for_firing(self, deadline: float | None, waiter: "asyncio.Future[None]") -> None:
        """Wait for the next firing, but not beyond `ends`: then TimeoutError."""
        if deadline is None:
            return await waiter
        timer = self._tasks.start(f"{self._task_name}: next firing", self._expire_waiter(deadline, waiter))
        try:
            await waiter
        finally:
            timer.cancel()

    async def _expire_waiter(self, deadline: float, waiter: "asyncio.Future[None]") -> None:
        await self._clock.sleep(deadline - self._clock.monotonic())
        if not waiter.done():
            waiter.set_exception(TimeoutError())

    # -- what it turns, and whether

    def set_graphs(self, graphs: dict[str, CompiledGraph]) -> None:
        """Call these graphs from the next firing on."""
        self.graphs = graphs
        own = frozenset(window for graph in graphs.values() for _, window in graph.window_feeds)
        self.inputs.set_criteria(self._reactor.definition, own)
        self._is_async = any(graph.is_async for graph in graphs.values())
        self.fast_graph = self._find_fast_graph()
        self.fast_path_state.close()

    def _find_fast_graph(self) -> CompiledGraph | None:
        """Return the graph that push paths may run: the only one, synchronous, and nothing follows its firings."""
        if len(self.graphs) != 1 or self.inputs.needs_all:
            return None
        (graph,) = self.graphs.values()
        follows = graph.window_feeds or self._reactor.has_batches or self._reactor.has_subscribers
        return None if graph.is_async or graph.needs_context or follows else graph

    # -- what outlives the process

    def unfinished_firings(self) -> list[PendingFiring]:
        """Return the firings that took their inputs and are not done: running, cut off, or to be tried again."""
        running = (
            [self._running_firing] if self._running_firing is not None and _is_refired(self._running_firing) else []
        )
        return [*running, *self._refire_queue, *self.results.awaiting_retry]

    def restore_firings(self, firings: Iterable[PendingFiring]) -> None:
        """Fire these first, as soon as the reactor's health allows: an earlier life did not finish them."""
        self._refire_queue.extend(firings)

    def mark_checkpointed(self) -> None:
        """Have the next change noted: a checkpoint holds everything so far."""
        self.fast_path_state.close()
        self.fast_path_state.flags |= CHECKPOINTED

    # -- its end

    def interrupt(self) -> None:
        """Cut off what is awaited just now; it is fired again whole after the next start."""
        for task in (self._driver_task, self._firing_task):
            if task is not None and task is not asyncio.current_task():
                task.cancel()
        self._driver_task = None
        self._work_ready = asyncio.Event()
        self.fast_path_state.close()

    async def drain(self) -> None:
        """Return when nothing runs and nothing is due any more."""
        while not self.is_idle:
            async with self._firing_lock:
                pass
            await asyncio.sleep(0)

    async def stop(self) -> None:
        """End the driver and pending retries; a firing in progress is interrupted."""
        try:
            await self.results.stop()
            await cancel_and_wait(self._firing_task)
            driver, self._driver_task = self._driver_task, None
            await cancel_and_wait(driver)
        finally:  # also when the grace is over before author code gives in
            if not self._reactor.is_durable:
                self._drop_unfired()

    def _drop_unfired(self) -> None:
        """Count what will never be fired: queued boundaries, and firings that were to come again."""
        for _ in range(len(self.inputs.queue) + len(self._refire_queue)):
            self._reactor.count_drop("unloaded")
        self.inputs.queue.clear()
        self._refire_queue.clear()


def _is_refired(firing: PendingFiring) -> bool:
    """Return whether a firing that is cut off is fired again: not if it took no news, and whoever asked is told."""
    return not firing.manual or firing.attempt > 1 or bool(firing.inputs.flags)
