"""What follows a firing: the log, windows and batches, another try, or a dead letter.

A failed firing is tried again as its reactor's policy says: only with the graphs that failed, under the same id, with
one log entry per attempt. A sequential queue stands still meanwhile; the latest strategy goes on. When no try is left
the exact snapshot becomes a dead letter.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import msgspec

from tidemill.engine.graphs.accumulators.dead_letters import DeadLetterQueue
from tidemill.engine.graphs.event_path.ports import FiringHost
from tidemill.engine.graphs.reactors.firing import PendingFiring
from tidemill.engine.graphs.reactors.firing_log import FiringLog, FiringRecord
from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.engine.tasks import cancel_and_wait
from tidemill.graphs.compiler import CompiledGraph
from tidemill.graphs.result import SKIPPED, Firing, GraphResult
from tidemill.kernel.backoff import Retry
from tidemill.kernel.errors import RequestError
from tidemill.telemetry import events

logger = logging.getLogger(__name__)


class Turning(Protocol):
    """The wheel, as the outcomes of its firings see it."""

    graphs: dict[str, CompiledGraph]

    def pause_queue(self, delta: int) -> None:
        """Begin (+1) or end (-1) holding the queue for a retry."""

    async def rerun_graphs(self, firing: PendingFiring) -> tuple[float, dict[str, GraphResult]]:
        """Call the graphs of a firing once more, in turn with other firings; return when it began, and the results."""

    def refire(self, firing: PendingFiring) -> None:
        """Fire once more, before anything else and as soon as the reactor's health allows."""


class FiringResults:
    """The firing log, dead letters and pending retries of one reactor."""

    def __init__(self, reactor: FiringHost, firing_loop: Turning, runtime: GraphRuntime) -> None:
        self._reactor = reactor
        self._firing_loop = firing_loop
        self._runtime = runtime
        self._clock = runtime.clock
        definition = reactor.definition
        self.log = FiringLog(definition.name, definition.accumulator_names, self._clock)
        archive = runtime.durability.dead_letter_store(reactor.tenant, "reactor", definition.name, reactor.codec_for)
        limit = runtime.settings.dead_letter_limit
        self.dead_letters = DeadLetterQueue(definition.name, self._clock, limit, reactor.count_drop, archive)
        self.failures = 0
        self.firing_observer: Callable[[FiringRecord], None] | None = None
        """Who is told of each firing, once, whatever came of it."""
        self._waiters: list[asyncio.Future[None]] = []
        self._retries: dict[asyncio.Task[Any], PendingFiring] = {}

    # -- after a firing

    def finish(self, firing: PendingFiring, started: float, results: dict[str, GraphResult]) -> FiringRecord:
        """Log a firing, then see to what follows from its outcome."""
        record = self._log_firing(firing, started, results)
        failed = [name for name, result in results.items() if result.error is not None]
        self._feed_windows(firing.graphs, results)
        if failed:
            self._handle_failure(firing, results, failed)
        if self.firing_observer is not None and firing.attempt == 1:
            self.firing_observer(record)
        self._reactor.after_firing(ok=not failed)
        return record

    def _log_firing(self, firing: PendingFiring, started: float, results: dict[str, GraphResult]) -> FiringRecord:
        ended, degraded = self._clock.monotonic(), self._reactor.is_degraded
        facts = (firing.manual, degraded, firing.attempt, self.log.wall_offset())
        record = FiringRecord(firing.series, firing.number, started, ended, firing.inputs.snapshot, results, *facts)
        self.log.add(record)
        if self._waiters:
            self._notify_waiters()
        return record

    def _feed_windows(self, graphs: list[CompiledGraph], results: dict[str, GraphResult]) -> None:
        for graph in graphs:
            if graph.window_feeds and results[graph.name].ok:
                for position, window in graph.window_feeds:
                    value = results[graph.name].values[position]
                    if value is not SKIPPED:
                        self._reactor.feed(window, value)

    def _handle_failure(self, firing: PendingFiring, results: dict[str, GraphResult], failed: list[str]) -> None:
        self.failures += firing.attempt == 1
        text = _join_errors(results, failed)
        facts = {
            "reactor": self._reactor_name,
            "firing": self.log.firing_id(firing.series, firing.number),
            "graphs": failed,
        }
        logger.warning(events.FIRING_FAILED, extra={**facts, "error": text})
        retry = self._reactor.definition.on_error
        has_room = len(self._retries) < self._runtime.settings.dead_letter_limit
        again = [name for name in failed if has_room and _may_retry(retry, firing.attempt, results[name])]
        final = [name for name in failed if name not in again]
        if final:
            self._dead_letter(firing, _join_errors(results, final), final)
        if isinstance(retry, Retry) and again:
            self._start_retry(
                retry, msgspec.structs.replace(firing, retry_graphs=tuple(again), attempt=firing.attempt + 1)
            )

    @property
    def _reactor_name(self) -> str:
        return self._reactor.definition.name

    def _bound_graphs(self, names: Iterable[str]) -> list[CompiledGraph]:
        return [self._firing_loop.graphs[name] for name in names if name in self._firing_loop.graphs]

    # -- trying again

    def _start_retry(self, retry: Retry, firing: PendingFiring) -> None:
        self._firing_loop.pause_queue(+1)
        task = self._runtime.tasks.start(f"reactor {self._reactor_name}: retry", self._retry(retry, firing))
        self._retries[task] = firing
        task.add_done_callback(self._end_retry)

    def _end_retry(self, task: "asyncio.Task[Any]") -> None:
        self._retries.pop(task, None)
        self._firing_loop.pause_queue(-1)

    async def _retry(self, retry: Retry, firing: PendingFiring) -> None:
        await self._clock.sleep(retry.delay_after(firing.attempt - 1, self._runtime.rng))
        this = asyncio.current_task()
        assert this is not None
        self._retries.pop(this, None)  # it is the wheel's from here on
        self._firing_loop.refire(firing)

    @property
    def awaiting_retry(self) -> list[PendingFiring]:
        """Firings that wait for their next try, oldest first."""
        return list(self._retries.values())

    def with_current_graphs(self, firing: PendingFiring) -> PendingFiring | None:
        """Return another try with its graphs as they are bound by now; those that are gone become a dead letter."""
        if gone := [name for name in firing.retry_graphs if name not in self._firing_loop.graphs]:
            last = msgspec.structs.replace(firing, attempt=firing.attempt - 1)
            self._dead_letter(last, f"{gone} unbound before the next try", gone)
        graphs = self._bound_graphs(firing.retry_graphs)
        return msgspec.structs.replace(firing, graphs=graphs) if graphs else None

    async def stop(self) -> None:
        """Give up pending retries, and send home who waits for a firing."""
        for task in tuple(self._retries):
            await cancel_and_wait(task)
            if not self._reactor.is_durable:
                self._reactor.count_drop("unloaded")
        message = f"reactor '{self._reactor_name}' was unloaded"
        self._notify_waiters(RequestError(message, code="reactor_not_loaded", status=404, reactor=self._reactor_name))

    # -- dead letters

    def _dead_letter(self, firing: PendingFiring, error: str, failed: list[str]) -> None:
        names = zip(self._reactor.definition.accumulator_names, firing.inputs.snapshot, strict=True)
        inputs = {name: value for name, value in names if value is not None}
        self.dead_letters.put("firing", error, (firing, failed), inputs=inputs, attempts=firing.attempt)
        logger.warning(events.FIRING_DEAD_LETTERED, extra={"reactor": self._reactor_name, "error": error})

    async def replay(self, dead_letter_id: str) -> Firing:
        """Run the graphs of a dead firing again on its own snapshot; cache and flags stay as they are."""
        found = self.dead_letters.find(dead_letter_id)
        if found is None:
            raise RequestError(f"no dead letter '{dead_letter_id}'", code="unknown_dead_letter", status=404)
        letter, (due, failed) = found
        if gone := sorted(set(failed) - set(self._firing_loop.graphs)):
            message = f"dead letter '{dead_letter_id}' is for graphs that are no longer bound: {gone}"
            raise RequestError(message, code="graph_not_bound", status=409, graphs=gone)
        graphs, attempt = self._bound_graphs(failed), letter.attempts + 1
        again = msgspec.structs.replace(due, graphs=graphs, manual=True, attempt=attempt)
        title = f"reactor {self._reactor_name}: replay"
        started, results = await self._runtime.tasks.run_shielded(title, self._firing_loop.rerun_graphs(again))
        errors = [str(result.error) for result in results.values() if result.error]
        if errors:
            self.dead_letters.record_failed_replay(dead_letter_id, "; ".join(errors))
        else:
            self.dead_letters.remove(dead_letter_id)
        return self.log.to_firing(self._log_firing(again, started, results))

    # -- watching

    @property
    def has_waiters(self) -> bool:
        """Whether somebody waits for the next firing."""
        return any(not watcher.done() for watcher in self._waiters)

    def add_waiter(self) -> "asyncio.Future[None]":
        """Return what is done after the next firing that is logged whole; whoever awaits it watches from now on."""
        watcher: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters = [one for one in self._waiters if not one.done()]
        self._waiters.append(watcher)
        return watcher

    def _notify_waiters(self, error: RequestError | None = None) -> None:
        watchers, self._waiters = self._waiters, []
        for watcher in watchers:
            if watcher.done():
                continue
            if error is None:
                watcher.set_result(None)
            else:
                watcher.set_exception(error)


def _may_retry(policy: Any, attempts: int, result: GraphResult) -> bool:
    """Return whether a graph that failed may be tried again."""
    return isinstance(policy, Retry) and result.error is not None and policy.allows(attempts, result.error.cause)


def _join_errors(results: dict[str, GraphResult], names: list[str]) -> str:
    return "; ".join(str(results[name].error) for name in names)
