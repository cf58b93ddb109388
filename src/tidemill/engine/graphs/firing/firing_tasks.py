"""The tasks of one reactor's firings: the driver, which awaits asynchronous graphs, and the retries, which wait.

One firing runs at a time. The driver fires what is due; commands fire in turn with it, under the same lock.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

from tidemill.engine.graphs.firing.fast_path import FastPathState
from tidemill.engine.graphs.firing.firing_log import FiringLog, FiringRecord
from tidemill.engine.graphs.firing.firing_results import FiringResults
from tidemill.engine.graphs.firing.graph_caller import GraphCaller, PendingFiring
from tidemill.engine.graphs.firing.host import FiringHost
from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.engine.tasks import cancel_and_wait
from tidemill.graphs.compiler import CompiledGraph
from tidemill.graphs.inputs import FiringInputs, Inputs
from tidemill.graphs.result import GraphResult

_current_driver: "ContextVar[FiringDriver | None]" = ContextVar("_current_driver", default=None)
"""The driver whose firing the running code is part of, including its concurrent graphs and threads."""


class LoopOfParts(Protocol):
    """A firing loop, as its parts see it: its fast firings, and its driver."""

    reactor: FiringHost
    fast_path_state: FastPathState
    inputs: Inputs
    graphs: dict[str, CompiledGraph]
    results: FiringResults
    log: FiringLog
    caller: GraphCaller
    repeated: deque[PendingFiring]
    """Interrupted firings and due retries, the next one first."""
    is_firing: bool
    is_degraded: bool

    @property
    def may_fire(self) -> bool:
        """Whether met criteria lead to a firing now."""

    def put(self, index: int, boundary: Any, position: int = 0) -> None:
        """Take a boundary, without firing."""

    def fire_due(self) -> None:
        """Fire what is due."""

    def take_due(self) -> PendingFiring | None:
        """Take the next firing if one is due."""

    def ready_graphs(self, values: list[Any]) -> list[CompiledGraph]:
        """Return the graphs whose required inputs are present."""

    def new_firing(self, inputs: FiringInputs, graphs: list[CompiledGraph]) -> PendingFiring:
        """Return a firing with its own number."""

    def finish(self, firing: PendingFiring, started: float, results: dict[str, GraphResult]) -> FiringRecord:
        """Process the results of a firing."""

    def requeue_interrupted(self, firing: PendingFiring) -> None:
        """Queue an interrupted firing to be fired again whole."""

    def detach_replaced(self) -> None:
        """Turn the logged firings of replaced graphs into plain values."""


class FiringDriver:
    """Awaits the graphs of one reactor, one firing after the other."""

    def __init__(self, loop: LoopOfParts, runtime: GraphRuntime, task_name: str) -> None:
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
                while self._task is this and await self._fire_next():
                    pass
        except Exception as error:  # an engine error, not the author's: the supervisor decides
            self._loop.reactor.crash(error)
        finally:
            if self._task is this:
                self._task = None
            else:
                self._loop.fire_due()  # the successor does not know of boundaries that came while this one was busy

    async def _fire_next(self) -> bool:
        async with self._lock:  # once per firing, so that commands get a turn in between
            firing = self._loop.take_due()
            if firing is not None:
                await self.fire(firing)
        return firing is not None

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
        loop.fast_path_state.close()
        outer = _current_driver.set(self)
        try:
            yield
        finally:
            _current_driver.reset(outer)
            loop.is_firing, self._firing_task, self.token = False, None, None
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


class Retries:
    """Failed firings of one reactor that wait for their next attempt."""

    def __init__(self, refire: Callable[[PendingFiring], None], runtime: GraphRuntime, task_name: str) -> None:
        self._refire = refire
        self._clock = runtime.clock
        self._tasks = runtime.tasks
        self._task_name = task_name
        self._waiting: dict[asyncio.Task[None], PendingFiring] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def tasks(self) -> Sequence["asyncio.Task[None]"]:
        """The tasks that wait."""
        return tuple(self._waiting)

    @property
    def firings(self) -> Iterable[PendingFiring]:
        """The firings, in the order in which they failed."""
        return self._waiting.values()

    def start(self, firing: PendingFiring, delay: float, on_end: Callable[[], None]) -> None:
        """Fire again after a delay; `on_end` is called when that has happened, or was cancelled."""
        task = self._tasks.start(f"{self._task_name}: retry", self._refire_later(firing, delay))
        self._waiting[task] = firing

        def end(ended: asyncio.Task[None]) -> None:
            self._waiting.pop(ended, None)
            on_end()

        task.add_done_callback(end)

    async def _refire_later(self, firing: PendingFiring, delay: float) -> None:
        await self._clock.sleep(delay)
        this = asyncio.current_task()
        assert this is not None
        self._waiting.pop(this, None)
        self._refire(firing)
