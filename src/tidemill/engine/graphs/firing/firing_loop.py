"""The firing loop: turns a reactor's inputs into firings, one at a time.

Every method runs on the loop's thread and is one atomic step up to its next await. Invariants:
* `put` and fast paths are the only writers of cache and flags, manual firings aside.
* `flags` says what the end of a firing must check: DIRTY inputs that may make one due, a fast path that was CLOSED.
* `credit` is positive only while a boundary may be fired straight from its push. A pause, a change of health, a waiting
  observer or a new graph closes the fast path; `_reopen_fast_path` alone grants credit again.
* `DueFirings` decides which firing is next; repeated ones come before all others.
* A sequential queue stands still while a retry waits; the latest strategy continues.
* Each change of what a checkpoint holds calls `mark_changed`. CHECKPOINTED keeps the fast path closed until then.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

import msgspec

from tidemill.engine.graphs.firing.broad_path import (
    BroadFiringFailure,
    BroadPath,
    BroadPathTarget,
    may_fire_broadly,
)
from tidemill.engine.graphs.firing.due_firings import DueFirings
from tidemill.engine.graphs.firing.fast_path import (
    CHECKPOINTED,
    DIRTY,
    FastFiringFailure,
    FastPathTarget,
    find_fast_graph,
)
from tidemill.engine.graphs.firing.firing_log import BroadBurst, BurstMaker, ChangeBurst, FiringRecord
from tidemill.engine.graphs.firing.graph_caller import GraphCaller, PendingFiring
from tidemill.engine.graphs.firing.host import FiringHost
from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.engine.tasks import cancel_and_wait
from tidemill.graphs.compiler import CompiledGraph
from tidemill.graphs.inputs import FiringInputs
from tidemill.graphs.result import GraphResult
from tidemill.kernel.author_errors import AUTHOR_ERRORS
from tidemill.kernel.backoff import Retry

FIRINGS_PER_YIELD = 256  # firings in a row before the event loop gets a turn

_current_firing_loop: "ContextVar[FiringLoop | None]" = ContextVar("_current_firing_loop", default=None)
"""The firing loop whose firing the running code is part of, including its concurrent graphs and threads."""


class FiringLoop(DueFirings):
    """Inputs, graphs and firings of one reactor. Accumulators deliver to it."""

    has_broad_path = True

    def __init__(self, reactor: FiringHost, runtime: GraphRuntime) -> None:
        super().__init__(reactor, runtime)
        self._tasks = runtime.tasks
        self._task_name = f"reactor {self.name}"
        self.is_degraded = False  # whether firings see stale values
        self.fast_graph: CompiledGraph | None = None  # the graph that plain fast paths may run
        self.broad_path: BroadPath | None = None  # for everything else, if its graphs are synchronous
        self._caller = GraphCaller(reactor, self.log, self.fast_path_state)
        describe = self._caller.describe_fast_firing
        firing = (self.finish_fast_firing, self.fail_fast_firing, describe)
        self.fast_path_target = FastPathTarget(self.fast_path_state, self.inputs, *firing)
        self._burst_start = 0  # the number of the first firing in the running burst
        self._is_firing = False
        self._retries: dict[asyncio.Task[Any], PendingFiring] = {}  # firings that wait for their next attempt
        self._running_firing: PendingFiring | None = None  # the firing whose graphs are being awaited
        self._is_async = False
        self._firing_lock = asyncio.Lock()
        self._work_ready = asyncio.Event()
        self._firing_task: asyncio.Task[Any] | None = None  # the task that awaits graphs
        self.firing_token: object | None = None  # identifies the firing whose graphs are being awaited
        self._driver_task: asyncio.Task[Any] | None = None

    # -- deciding

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs and nothing is due."""
        return not self._is_firing and not self._has_due_work

    def reevaluate(self) -> None:
        """Evaluate the criteria, even if no boundary has come."""
        self.fast_path_state.flags |= DIRTY
        self.fire_due()

    def fire_due(self) -> None:
        """Fire what is due, then reopen the fast path if every condition for it holds."""
        if self._is_firing or self.fast_path_state.credit is None:
            return
        self.fast_path_state.flags &= DIRTY | CHECKPOINTED
        if self._needs_new_series:
            self.new_series()
        self._detach_replaced()
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
                firing = self._take_due()
                if firing is None:
                    return
                self._fire_now(firing)
            asyncio.get_running_loop().call_soon(self.fire_due)
        except Exception as error:  # an engine error, not the author's: the supervisor decides
            self.reactor.crash(error)
        finally:
            self._is_firing = False

    # -- fast firings

    def _reopen_fast_path(self) -> None:
        """Grant fast firings if every condition for them holds."""
        state = self.fast_path_state
        if state.credit or state.flags or self._refire_queue or self._is_firing:
            return
        if not self.results.has_waiters and self.may_fire and self._has_fast_inputs():
            state.credit = self._begin_burst(self.inputs.applied_position)

    def _has_fast_inputs(self) -> bool:
        """Return whether the inputs leave the next boundary to fast firings: some graph is complete, none is due."""
        inputs, graph, path = self.inputs, self.fast_graph, self.broad_path
        if inputs.queue:
            return False
        if graph is not None:
            return not inputs.dirty and graph.has_required_inputs(inputs.cache)
        if path is None or inputs.is_criteria_met or not (ready := self._ready_graphs(inputs.cache)):
            return False
        path.set_ready(ready)
        return True

    def _begin_burst(self, number: int = 0) -> int:
        """Begin a run of fast firings, numbered at least from `number` on; return how many it may hold."""
        entries = self.fast_path_state.entries
        credit = self.log.begin_burst(self._burst_maker(), entries, degraded=self.is_degraded, number=number)
        self._burst_start = self.log.series.number + 1
        return credit

    def _burst_maker(self) -> BurstMaker:
        if self.broad_path is not None:
            return partial(BroadBurst, graphs=self.broad_path.graphs)
        assert self.fast_graph is not None, "bursts are of graphs with a fast path"
        return partial(ChangeBurst, graph=self.fast_graph, base_snapshot=self.inputs.cache.copy())

    def _follow_journal(self, position: int) -> int | None:
        """Give the next fast firing a journal position as its number; return the credit of a new burst, if needed."""
        if self._burst_start + len(self.fast_path_state.entries) == position:
            return None
        return self._begin_burst(position)  # other steps have the positions in between

    def put_and_fire(self, index: int, boundary: Any, position: int = 0) -> None:
        """Take a boundary, and fire it directly if the fast path allows. `position` is its journal position."""
        state, graph = self.fast_path_state, self.fast_graph
        credit = state.credit
        if credit and self.broad_path is not None and self.inputs.cache[index] is not None:
            return self._put_broadly(self.broad_path, credit, index, boundary, position)
        if not credit or graph is None or not self.inputs.criteria_mask >> index & 1:
            self.put(index, boundary, position)
            return self.fire_due()
        if position:
            self.inputs.applied_position = position
            credit = self._follow_journal(position) or credit
        state.credit = None
        state.cache[index] = boundary
        state.arrivals[index] = started = state.now()
        generated = graph.generated
        try:
            values = generated.function(state.cache)
        except BaseException as error:  # the author's, or a shutdown: `fail_fast_firing` distinguishes them
            return self.fail_fast_firing(FastFiringFailure(index, boundary, started, error, generated))
        state.entries.append((index, boundary, started, state.now(), *values))
        if credit == 1 or state.flags:
            self.finish_fast_firing()
        else:
            state.credit = credit - 1

    def _put_broadly(self, path: BroadPath, credit: int, index: int, boundary: Any, position: int) -> None:
        state, inputs = self.fast_path_state, self.inputs
        inputs.cache[index] = boundary
        state.arrivals[index] = started = state.now()
        if position:
            inputs.applied_position = position
        if inputs.is_sequential:
            inputs.consume(index, boundary)
        dirty = inputs.dirty | 1 << index
        if not inputs.meets_criteria(dirty):
            inputs.dirty = dirty
            return
        if position:
            credit = self._follow_journal(position) or credit
        path.fire(credit, dirty, started)

    def finish_fast_firing(self) -> None:
        """Fire what became due during a fast firing."""
        self.fast_path_state.credit = 0
        self.fire_due()

    def fail_fast_firing(self, failure: FastFiringFailure) -> None:
        """Handle a fast firing that raised."""
        self._is_firing = True
        self.fast_path_state.credit = 0
        try:
            snapshot = self.log.latest_snapshot()
            snapshot[failure.index] = failure.boundary
            inputs = FiringInputs(snapshot, [(failure.index, failure.boundary)], 1 << failure.index)
            (graph,) = self.graphs.values()
            firing = self._new_firing(inputs, [graph])
            if not isinstance(failure.error, AUTHOR_ERRORS):
                self._requeue_interrupted(firing)
                raise failure.error
            result = graph.failed_result(failure.error, failure.generated)
            self._finish(firing, failure.started, {graph.name: result})
        finally:
            self._is_firing = False
        self.fire_due()

    def _fail_broad_firing(self, failure: BroadFiringFailure) -> None:
        """Handle a firing on the broad path in which a graph raised: call the graphs that are left."""
        self._is_firing = True
        self.fast_path_state.credit = 0
        try:
            firing = self._new_firing(failure.inputs, list(failure.graphs))
            try:
                if not isinstance(failure.error, AUTHOR_ERRORS):
                    raise failure.error
                results = self._complete_results(firing, failure)
            except BaseException:
                self._requeue_interrupted(firing)
                raise
            self._finish(firing, failure.started, results)
        finally:
            self._is_firing = False
        self.fire_due()

    def _complete_results(self, firing: PendingFiring, failure: BroadFiringFailure) -> dict[str, GraphResult]:
        """Return the results of the graphs before the one that raised, its own, and those of the graphs after it."""
        graphs = firing.graphs
        failed = failure.values.index(None)
        done = zip(graphs[:failed], failure.values, strict=False)
        results = {graph.name: GraphResult(graph.layout, values) for graph, values in done if values is not None}
        results[graphs[failed].name] = graphs[failed].failed_result(failure.error)
        rest = msgspec.structs.replace(firing, graphs=graphs[failed + 1 :])
        return results | self._caller.call(rest)

    def _fail_effects(self, error: BaseException) -> None:
        """Handle an error of the engine after a firing on the broad path, as `_fire_some` does."""
        self.fast_path_state.credit = 0
        if not isinstance(error, Exception):
            raise error
        self.reactor.crash(error)
        self.fire_due()

    def _observe_fast_firing(self) -> None:
        observer = self.results.firing_observer
        assert observer is not None, "the path is closed when the last observer leaves"
        observer(self.log.newest_fast_record())

    def _fire_now(self, firing: PendingFiring) -> FiringRecord:
        started = self._clock.monotonic()
        try:
            results = self._caller.call(firing)
        except BaseException:
            self._requeue_interrupted(firing)
            raise
        return self._finish(firing, started, results)

    def _finish(self, firing: PendingFiring, started: float, results: dict[str, GraphResult]) -> FiringRecord:
        """Process the results of a firing, and schedule its retry."""
        can_retry = len(self._retries) < self._runtime.settings.dead_letter_limit
        outcome = self.results.finish(firing, started, results, degraded=self.is_degraded, can_retry=can_retry)
        if outcome.retry_graphs:
            attempt = firing.attempt + 1
            self._start_retry(msgspec.structs.replace(firing, retry_graphs=outcome.retry_graphs, attempt=attempt))
        self.mark_changed()
        self.reactor.after_firing(ok=not outcome.failed)
        return outcome.record

    def _requeue_interrupted(self, firing: PendingFiring) -> None:
        """Queue an interrupted firing to be fired again whole, under its number."""
        if not firing.is_repeated:
            return
        self._refire_queue.appendleft(firing)
        asyncio.get_running_loop().call_soon(self.fire_due)

    # -- firing asynchronous graphs

    def ensure_driver(self) -> None:
        """Start the task that fires asynchronous graphs, if there are any."""
        if self._is_async and self._driver_task is None:
            self._driver_task = self._tasks.start(self._task_name, self._run_driver())

    async def _run_driver(self) -> None:
        """Fire one firing after the other until cancelled."""
        this = asyncio.current_task()
        try:
            while self._driver_task is this:  # one that swallowed its cancellation must not fire beside its successor
                await self._work_ready.wait()
                self._work_ready.clear()
                while self._driver_task is this and await self._fire_next():
                    pass
        except Exception as error:  # an engine error, not the author's: the supervisor decides
            self.reactor.crash(error)
        finally:
            if self._driver_task is this:
                self._driver_task = None
            else:
                self.fire_due()  # the successor does not know of boundaries that came while this one was busy

    async def _fire_next(self) -> bool:
        async with self._firing_lock:  # once per firing, so that commands get a turn in between
            firing = self._take_due()
            if firing is not None:
                await self._fire_async(firing)
        return firing is not None

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
            return self._finish(firing, started, results)

    @contextmanager
    def _exclusive_firing(self) -> Iterator[None]:
        """Exclude other firings while graphs are awaited."""
        self._is_firing, self._firing_task, self.firing_token = True, asyncio.current_task(), object()
        self.fast_path_state.close()
        outer = _current_firing_loop.set(self)
        try:
            yield
        finally:
            _current_firing_loop.reset(outer)
            self._is_firing, self._firing_task, self.firing_token = False, None, None
            self._detach_replaced()

    # -- retries and replays

    def _start_retry(self, firing: PendingFiring) -> None:
        """Fire a failed firing again after the delay of its retry policy."""
        policy = self.reactor.definition.on_error
        assert isinstance(policy, Retry), "only a retry policy leaves graphs to retry"
        self.pause_queue(+1)
        delay = policy.delay_after(firing.attempt - 1, self._runtime.rng)
        task = self._tasks.start(f"{self._task_name}: retry", self._refire_later(firing, delay))
        self._retries[task] = firing
        task.add_done_callback(self._end_retry)

    def _end_retry(self, task: "asyncio.Task[Any]") -> None:
        self._retries.pop(task, None)
        self.pause_queue(-1)

    async def _refire_later(self, firing: PendingFiring, delay: float) -> None:
        await self._clock.sleep(delay)
        this = asyncio.current_task()
        assert this is not None
        self._retries.pop(this, None)
        self._refire_queue.append(firing)
        self.fire_due()

    async def rerun(self, firing: PendingFiring) -> tuple[float, dict[str, GraphResult]]:
        """Call the graphs of a firing again, in turn with other firings; return the start time and the results."""
        async with self.turn():
            with self._exclusive_firing():
                started = self._clock.monotonic()
                return started, await self._caller.call_async(firing)

    def pause_queue(self, delta: int, *, always: bool = False) -> None:
        """Pause (+1) or continue (-1) the queue; the latest strategy pauses only with `always`."""
        if self.inputs.is_sequential or always:
            self._queue_pauses += delta
            self.reevaluate()

    # -- manual firings

    @property
    def is_inside_firing(self) -> bool:
        """Whether the caller is a node of the firing in progress."""
        return self._is_firing and _current_firing_loop.get() is self

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn between firings, and raise RequestError if the reactor cannot fire."""
        try:
            async with self._firing_lock:
                self.reactor.check_ready()
                yield
        finally:
            self.fire_due()

    async def fire_inputs(self, inputs: FiringInputs) -> FiringRecord:
        """Fire manually with these inputs, within a turn."""
        self.new_series()
        series, number = self.log.manual_series.name, self.log.next_manual_number()
        graphs = self._ready_graphs(inputs.snapshot)
        return await self._fire_async(PendingFiring(series, number, inputs, graphs, manual=True))

    # -- graphs

    def set_graphs(self, graphs: dict[str, CompiledGraph]) -> None:
        """Call these graphs from the next firing on."""
        self.graphs, self._is_rebound = graphs, True
        own_windows = frozenset(window for graph in graphs.values() for _, window in graph.window_feeds)
        self.inputs.set_criteria(self.reactor.definition, own_windows)
        self._is_async = any(graph.is_async for graph in graphs.values())
        is_observed = bool(self.reactor.batches) or self.results.firing_observer is not None
        self.fast_graph = None if is_observed or self.inputs.needs_all else find_fast_graph(graphs.values())
        is_broad = self.has_broad_path and self.fast_graph is None and may_fire_broadly(list(graphs.values()))
        self.broad_path = self._build_broad_path() if is_broad else None
        self.fast_path_state.close()

    def _build_broad_path(self) -> BroadPath:
        observe = None if self.results.firing_observer is None else self._observe_fast_firing
        target = BroadPathTarget(
            target=self.fast_path_target,
            host=self.reactor,
            make_context=self._caller.fast_context_maker,
            observe=observe,
            fail_firing=self._fail_broad_firing,
            fail_effects=self._fail_effects,
        )
        return BroadPath(next(iter(self.graphs.values())).wiring.inputs, target)

    # -- checkpoints

    def unfinished_firings(self) -> list[PendingFiring]:
        """Return the firings that took their inputs and are not done: running, interrupted, or waiting for a retry."""
        firing = self._running_firing
        running = [firing] if firing is not None and firing.is_repeated else []
        return [*running, *self._refire_queue, *self._retries.values()]

    def restore_firings(self, firings: Iterable[PendingFiring]) -> None:
        """Queue the firings that an earlier process did not finish; they are fired before any other."""
        self._refire_queue.extend(firings)

    def mark_checkpointed(self) -> None:
        """Record that a checkpoint holds everything so far: the next change requests another."""
        self.fast_path_state.close()
        self.fast_path_state.flags |= CHECKPOINTED

    # -- stopping

    def interrupt(self) -> None:
        """Interrupt the firing that is being awaited; it is fired again whole after the next start."""
        for task in (self._driver_task, self._firing_task):
            if task is not None and task is not asyncio.current_task():
                task.cancel()
        self._driver_task = None
        self._work_ready = asyncio.Event()
        self.fast_path_state.close()

    async def drain(self) -> None:
        """Wait until nothing runs and nothing is due."""
        while not self.is_idle:
            async with self._firing_lock:
                pass
            await asyncio.sleep(0)

    async def stop(self) -> None:
        """Cancel pending retries, fail everyone waiting for a firing, and interrupt the one in progress."""
        is_durable = self.reactor.durability.is_durable
        try:
            for task in tuple(self._retries):
                await cancel_and_wait(task)
                if not is_durable:
                    self.dropped["unloaded"] += 1
            self.results.fail_waiters()
            await cancel_and_wait(self._firing_task)
            driver, self._driver_task = self._driver_task, None
            await cancel_and_wait(driver)
        finally:  # also when the stop times out because author code swallows its cancellation
            unfired = self.queued + len(self._refire_queue)
            if unfired and not is_durable:
                self.dropped["unloaded"] += unfired
                self.inputs.queue.clear()
                self._refire_queue.clear()
