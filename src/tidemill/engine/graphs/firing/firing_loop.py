"""The firing loop: turns a reactor's inputs into firings, one at a time.

Every method runs on the loop's thread and is one atomic step up to its next await. Invariants:
* `put` and fast paths are the only writers of cache and flags, manual firings aside.
* `flags` says what the end of a firing must check: DIRTY inputs that may make one due, a fast path that was CLOSED.
* A firing clears its flags when it takes its snapshot.
* Interrupted firings, retries and firings that an earlier process left are fired again whole, under their number,
  before any other, as soon as the reactor's health allows.
* A sequential queue stands still while a retry waits; the latest strategy continues.
* Each change of what a checkpoint holds calls `mark_changed`. CHECKPOINTED keeps the fast path closed until then.

`fast` fires boundaries straight from their push, `driver` awaits asynchronous graphs, `retries` waits for the next try.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

import msgspec

from tidemill.engine.graphs.firing.fast_firings import FastFirings
from tidemill.engine.graphs.firing.firing_log import FiringRecord
from tidemill.engine.graphs.firing.firing_results import FiringResults, Retries
from tidemill.engine.graphs.firing.graph_caller import GraphCaller, PendingFiring
from tidemill.engine.graphs.firing.queue_gate import QueueGate
from tidemill.engine.graphs.host import FiringHost
from tidemill.engine.graphs.key_state import KeyState
from tidemill.engine.graphs.push_paths.one_graph import CHECKPOINTED, DIRTY, FastPathState
from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.engine.tasks import cancel_and_wait
from tidemill.graphs.compiler import CompiledGraph
from tidemill.graphs.inputs import FiringInputs, Inputs
from tidemill.graphs.keys import Key
from tidemill.graphs.result import GraphResult
from tidemill.kernel.backoff import Retry

FIRINGS_PER_YIELD = 256  # firings in a row before the event loop gets a turn

_current_driver: "ContextVar[FiringDriver | None]" = ContextVar("_current_driver", default=None)
"""The driver whose firing the running code is part of, including its concurrent graphs and threads."""


class FiringLoop:
    """Inputs, graphs and firings of one reactor. Accumulators deliver to it."""

    def __init__(self, reactor: FiringHost, runtime: GraphRuntime) -> None:
        definition = reactor.definition
        self.reactor = reactor
        self.name = definition.name
        self._runtime = runtime
        self._clock = runtime.clock
        self.dropped: Counter[str] = Counter()
        self.inputs = Inputs(definition)
        self.queue_gate = self.create_queue_gate()
        self.fast_path_state = FastPathState(self.inputs.cache, self._clock.monotonic)
        self.graphs: dict[str, CompiledGraph] = {}
        self.results = FiringResults(reactor, runtime, self.dropped)
        self.log = self.results.log
        self.caller = GraphCaller(reactor, self.log, self.fast_path_state)
        self.health_allows_firing = False
        self.paused = False
        self.incomplete = 0
        self.is_degraded = False  # whether firings see stale values
        self.is_firing = False
        self._queue_pauses = 0  # retries and full outboxes that pause the queue
        self._needs_new_series = False  # after the fast firing that runs now
        self.is_rebound = self.is_redefined = False  # since the log was last checked for replaced firings
        self.repeated: deque[PendingFiring] = deque()
        """Interrupted firings and due retries, the next one first."""
        task_name = f"reactor {self.name}"
        self.driver = FiringDriver(self, runtime, task_name)
        self.retries = Retries(self._fire_again, runtime, task_name)
        self.fast = self.create_fast_firings()

    def create_queue_gate(self) -> QueueGate:
        """Create the gate in front of its queue."""
        definition = self.reactor.definition
        return QueueGate(definition.declared_name, self.inputs, definition.overflow, self.dropped)

    def create_fast_firings(self) -> FastFirings:
        """Create the part that fires boundaries straight from their push."""
        return FastFirings(self)

    # -- inputs

    def inputs_of(self, key_state: KeyState | None) -> Inputs:  # noqa: ARG002 - without keys
        """Return the inputs; with keys, those of one key, only until those of another one are asked for."""
        return self.inputs

    def put(self, index: int, boundary: Any, position: int = 0, key_state: KeyState | None = None) -> None:
        """Take a boundary; callers call `fire_due` when all reactors have it. `position` is its journal position."""
        state = self.fast_path_state
        if state.credit != 0:
            state.close()
        state.arrivals[index] = state.now()
        if self.inputs.is_full and not self.queue_gate.make_room():
            return
        self.inputs.put(index, boundary, position)
        state.flags |= DIRTY
        self.mark_changed(key_state)

    def refresh_window(self, index: int, content: list[Any], key_state: KeyState | None = None) -> None:
        """Show a window's new content without marking it as changed."""
        self.inputs_of(key_state).cache[index] = content
        self.mark_changed(key_state)

    def mark_changed(self, key_state: KeyState | None = None) -> None:  # noqa: ARG002 - without keys
        """Request a checkpoint if this is the first change since the last one."""
        if self.fast_path_state.flags & CHECKPOINTED:
            self.fast_path_state.flags &= ~CHECKPOINTED
            self.request_checkpoint()

    def request_checkpoint(self) -> None:
        """Include the reactor in the next checkpoint, if it is durable and may be written."""
        if self.reactor.durability.is_durable and not self.reactor.is_unsaved_reset:
            self._runtime.durability.request_checkpoint(self.reactor)

    @property
    def queued(self) -> int:
        """How many boundaries wait in the queue."""
        return len(self.inputs.queue)

    def pause_queue(self, delta: int, key_state: KeyState | None = None, *, always: bool = False) -> None:  # noqa: ARG002
        """Pause (+1) or continue (-1) the queue; the latest strategy pauses only with `always`."""
        if self.inputs.is_sequential or always:
            self._queue_pauses += delta
            self.reevaluate()

    # -- deciding

    @property
    def may_fire(self) -> bool:
        """Whether met criteria lead to a firing now."""
        return self.health_allows_firing and not self.paused and not self._queue_pauses

    @property
    def _has_due_work(self) -> bool:
        """Whether a firing may be due: repeated firings wait neither for criteria nor for a resume."""
        is_dirty = self.fast_path_state.flags & DIRTY and not self.paused and not self._queue_pauses
        return self.health_allows_firing and bool(is_dirty or self.repeated)

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs and nothing is due."""
        return not self.is_firing and not self._has_due_work

    def reevaluate(self) -> None:
        """Evaluate the criteria, even if no boundary has come."""
        self.fast_path_state.flags |= DIRTY
        self.fire_due()

    def fire_due(self) -> None:
        """Fire what is due, then reopen the fast path if every condition for it holds."""
        state = self.fast_path_state
        if self.is_firing or state.credit is None:
            return
        state.flags &= DIRTY | CHECKPOINTED
        if self._needs_new_series:
            self.new_series()
        if self.is_rebound:
            self.detach_replaced()
        if self._has_due_work:
            if self.driver.is_needed:
                return self.driver.wake()
            self._fire_some()
        if not (state.credit or state.flags) and self.fast.is_possible:
            self.fast.reopen()

    def _fire_some(self) -> None:
        self.is_firing = True
        self.fast_path_state.credit = 0
        try:
            for _ in range(FIRINGS_PER_YIELD):
                firing = self.take_due()
                if firing is None:
                    return
                self._fire_now(firing)
            asyncio.get_running_loop().call_soon(self.fire_due)
        except Exception as error:  # an engine error, not the author's: the supervisor decides
            self.reactor.crash(error)
        finally:
            self.is_firing = False

    def take_due(self) -> PendingFiring | None:
        """Take the next firing if one is due."""
        while self.repeated and self.health_allows_firing:
            if (repeated := self._with_current_graphs(self.repeated.popleft())) is not None:
                return repeated
        return self._take_next() if self.fast_path_state.flags & DIRTY and self.may_fire else None

    def _take_next(self, key_state: KeyState | None = None) -> PendingFiring | None:
        """Take a firing if the inputs meet the criteria; apply queued boundaries on the way to it."""
        inputs = self.inputs
        while not inputs.is_sequential or inputs.apply_next():
            if inputs.is_sequential and self.queue_gate.has_waiters:
                self.queue_gate.wake_waiters()
            if inputs.meets_criteria(inputs.dirty):
                ready = self.ready_graphs(inputs.cache)
                if ready or not self.graphs:
                    flags = self.fast_path_state.flags
                    self.fast_path_state.flags = flags & CHECKPOINTED | (DIRTY if inputs.queue else 0)
                    return self.new_firing(inputs.take_snapshot(), ready, key_state)
                self.incomplete += 1
            if not inputs.is_sequential:
                break
        self._clear_dirty()
        return None

    def _clear_dirty(self, keep: int = 0) -> None:
        self.fast_path_state.flags = self.fast_path_state.flags & CHECKPOINTED | keep

    def _with_current_graphs(self, firing: PendingFiring) -> PendingFiring | None:
        """Return a repeated firing with the graphs that are bound now."""
        if firing.attempt > 1:
            return self.results.prepare_retry(firing, self.graphs)
        ready = self.ready_graphs(firing.inputs.snapshot)
        if not ready and self.graphs:
            self.incomplete += 1
            return None
        return msgspec.structs.replace(firing, graphs=ready)

    def ready_graphs(self, values: list[Any]) -> list[CompiledGraph]:
        """Return the graphs whose required inputs are present."""
        return [graph for graph in self.graphs.values() if graph.has_required_inputs(values)]

    # -- firing

    def new_firing(
        self,
        inputs: FiringInputs,
        graphs: list[CompiledGraph],
        key_state: KeyState | None = None,  # noqa: ARG002 - without keys
    ) -> PendingFiring:
        """Return a firing with its own number; with a journal, the number is at least its inputs' position."""
        return PendingFiring(self.log.series.name, self.log.next_number(self.inputs.applied_position), inputs, graphs)

    def new_series(self) -> None:
        """Start a new number series after a change of inputs that the journal does not hold, so that no id repeats.

        A fast firing that runs now did not see the change: it keeps its number, and the series starts after it.
        """
        self._needs_new_series = self.fast_path_state.credit is None
        if self.reactor.durability.is_journaled and not self._needs_new_series:
            self.log.new_series()

    def _fire_now(self, firing: PendingFiring) -> None:
        started = self._clock.monotonic()
        try:
            results = self.caller.call(firing)
        except BaseException:
            self.requeue_interrupted(firing)
            raise
        self.finish(firing, started, results)

    def finish(self, firing: PendingFiring, started: float, results: dict[str, GraphResult]) -> FiringRecord:
        """Process the results of a firing, and schedule its retry."""
        key_state = None if firing.key is None else self.state_of(firing.key)
        self.mark_changed(key_state)
        outcome = self.results.finish(firing, started, results, degraded=self.is_degraded, can_retry=self._can_retry)
        if outcome.retry_graphs:
            attempt = firing.attempt + 1
            self._retry(msgspec.structs.replace(firing, retry_graphs=outcome.retry_graphs, attempt=attempt), key_state)
        self.reactor.after_firing(key_state, ok=not outcome.failed)
        return outcome.record

    def state_of(self, key: Key) -> KeyState | None:  # noqa: ARG002 - without keys
        """Return the state of a key, which is active; None without keys."""
        return None

    def _can_retry(self) -> bool:
        """Return whether another failed firing may wait for a retry."""
        return len(self.retries) < self._runtime.settings.dead_letter_limit

    def requeue_interrupted(self, firing: PendingFiring) -> None:
        """Queue an interrupted firing to be fired again whole, under its number."""
        if not firing.is_repeated:
            return
        self.repeated.appendleft(firing)
        asyncio.get_running_loop().call_soon(self.fire_due)

    async def fire_inputs(self, inputs: FiringInputs, key_state: KeyState | None) -> FiringRecord:  # noqa: ARG002
        """Fire manually with these inputs, within a turn of the driver."""
        self.new_series()
        series, number = self.log.manual_series.name, self.log.next_manual_number()
        graphs = self.ready_graphs(inputs.snapshot)
        return await self.driver.fire(PendingFiring(series, number, inputs, graphs, manual=True))

    # -- retries

    def _retry(self, firing: PendingFiring, key_state: KeyState | None) -> None:
        """Fire a failed firing again after the delay of its retry policy; its queue stands still meanwhile."""
        policy = self.reactor.definition.on_error
        assert isinstance(policy, Retry), "only a retry policy leaves graphs to retry"
        self.pause_queue(+1, key_state)
        resume = partial(self.pause_queue, -1, key_state)
        self.retries.start(firing, policy.delay_after(firing.attempt - 1, self._runtime.rng), resume)

    def _fire_again(self, firing: PendingFiring) -> None:
        self.repeated.append(firing)
        self.fire_due()

    # -- graphs

    def set_graphs(self, graphs: dict[str, CompiledGraph]) -> None:
        """Call these graphs from the next firing on."""
        self.graphs, self.is_rebound = graphs, True
        own_windows = frozenset(window for graph in graphs.values() for _, window in graph.window_feeds)
        self.inputs.set_criteria(self.reactor.definition, own_windows)
        self.driver.is_needed = any(graph.is_async for graph in graphs.values())
        self.fast.set_graphs(graphs)

    def detach_replaced(self) -> None:
        """Turn the logged firings of replaced graphs into plain values; called between firings."""
        if self.is_rebound:
            self.log.detach(self.graphs.values(), is_redefined=self.is_redefined)
            self.is_rebound = self.is_redefined = False

    # -- checkpoints

    def unfinished_firings(self) -> list[PendingFiring]:
        """Return the firings that took their inputs and are not done: running, interrupted, or waiting for a retry."""
        firing = self.driver.firing
        running = [firing] if firing is not None and firing.is_repeated else []
        return [*running, *self.repeated, *self.retries.firings]

    def restore_firings(self, firings: Iterable[PendingFiring]) -> None:
        """Queue the firings that an earlier process did not finish; they are fired before any other."""
        self.repeated.extend(firings)

    def mark_checkpointed(self) -> None:
        """Record that a checkpoint holds everything so far: the next change requests another."""
        self.fast_path_state.close()
        self.fast_path_state.flags |= CHECKPOINTED

    # -- stopping

    def interrupt(self) -> None:
        """Interrupt the firing that is being awaited; it is fired again whole after the next start."""
        self.driver.interrupt()
        self.fast_path_state.close()

    async def drain(self) -> None:
        """Wait until nothing runs and nothing is due."""
        while not self.is_idle:
            await self.driver.wait_for_turn()
            await asyncio.sleep(0)

    async def stop(self) -> None:
        """Cancel pending retries, fail everyone waiting for a firing, and interrupt the one in progress."""
        is_durable = self.reactor.durability.is_durable
        try:
            for task in self.retries.tasks:
                await cancel_and_wait(task)
                if not is_durable:
                    self.dropped["unloaded"] += 1
            self.log.fail_waiters()
            await self.driver.stop()
        finally:  # also when the stop times out because author code swallows its cancellation
            unfired = self.queued + len(self.repeated)
            if unfired and not is_durable:
                self.dropped["unloaded"] += unfired
                self.inputs.queue.clear()
                self.repeated.clear()


class FiringDriver:
    """Awaits the graphs of one reactor, one firing after the other."""

    def __init__(self, loop: "FiringLoop", runtime: GraphRuntime, task_name: str) -> None:
        self._loop = loop
        self._clock = runtime.clock
        self._tasks = runtime.tasks
        self._task_name = task_name
        self._lock = asyncio.Lock()
        self._work_ready = asyncio.Event()
        self._task: asyncio.Task[None] | None = None  # fires what is due
        self._firing_task: asyncio.Task[None] | None = None  # the task that awaits graphs
        self.is_needed = False  # whether a graph is asynchronous
        self.firing: PendingFiring | None = None
        """The firing whose graphs are being awaited."""
        self.token: object | None = None
        """Identifies the firing, or the replay, whose graphs are being awaited."""

    def ensure(self) -> None:
        """Start the task that fires asynchronous graphs, if there are any."""
        if self.is_needed and self._task is None:
            self._task = self._tasks.start(self._task_name, self._run())

    def wake(self) -> None:
        """Let the task fire what is due."""
        self._work_ready.set()

    async def _run(self) -> None:
        """Fire one firing after the other until cancelled."""
        this = asyncio.current_task()
        try:
            while self._task is this:  # one that swallowed its cancellation must not go on firing
                await self._work_ready.wait()
                self._work_ready.clear()
                is_due = True
                while is_due and self._task is this:
                    async with self._lock:  # once per firing, so that commands get a turn in between
                        if is_due := (firing := self._loop.take_due()) is not None:
                            await self.fire(firing)
        except Exception as error:  # an engine error, not the author's: the supervisor decides
            self._loop.reactor.crash(error)
        finally:
            if self._task is this:
                self._task = None
            else:
                self._loop.fire_due()  # the successor does not know of boundaries that came while this one was busy

    async def fire(self, firing: PendingFiring) -> FiringRecord:
        """Fire within a turn, and return the record of the firing."""
        loop = self._loop
        with self._excluding_others():
            started = self._clock.monotonic()
            self.firing = firing
            try:
                results = await loop.caller.call_async(firing)
            except BaseException:
                loop.requeue_interrupted(firing)
                raise
            finally:
                self.firing = None
            return loop.finish(firing, started, results)

    async def rerun(self, firing: PendingFiring) -> tuple[float, dict[str, GraphResult]]:
        """Call the graphs of a firing again, in turn with other firings; return the start time and the results."""
        async with self.turn():
            with self._excluding_others():
                started = self._clock.monotonic()
                return started, await self._loop.caller.call_async(firing)

    @contextmanager
    def _excluding_others(self) -> Iterator[None]:
        """Exclude other firings while graphs are awaited."""
        loop = self._loop
        loop.is_firing, self._firing_task, self.token = True, asyncio.current_task(), object()
        if loop.fast_path_state.credit:
            loop.fast_path_state.close()
        outer = _current_driver.set(self)
        try:
            yield
        finally:
            _current_driver.reset(outer)
            loop.is_firing, self._firing_task, self.token = False, None, None
            if loop.is_rebound:
                loop.detach_replaced()

    @property
    def is_inside_firing(self) -> bool:
        """Whether the caller is a node of the firing in progress."""
        return self._loop.is_firing and _current_driver.get() is self

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn between firings, and raise RequestError if the reactor cannot fire."""
        try:
            async with self._lock:
                self._loop.reactor.check_ready()
                yield
        finally:
            self._loop.fire_due()

    async def wait_for_turn(self) -> None:
        """Wait until the firing in progress is done."""
        async with self._lock:
            pass

    def interrupt(self) -> None:
        """Interrupt the firing that is being awaited; it is fired again whole after the next start."""
        for task in (self._task, self._firing_task):
            if task is not None and task is not asyncio.current_task():
                task.cancel()
        self._task = None
        self._work_ready = asyncio.Event()

    async def stop(self) -> None:
        """Interrupt the firing in progress, and wait until it has ended."""
        await cancel_and_wait(self._firing_task)
        driver, self._task = self._task, None
        await cancel_and_wait(driver)
