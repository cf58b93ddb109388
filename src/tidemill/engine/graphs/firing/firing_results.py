"""The results of firings: log, feeds, dead letters, and retries.

A failed firing is retried as its reactor's policy says: only with the graphs that failed, under the same id, with one
log entry per attempt. When no attempt is left, the exact snapshot becomes a dead letter.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec

from tidemill.engine.graphs.dead_letters import DeadLetterQueue
from tidemill.engine.graphs.firing.firing_log import FiringLog, FiringRecord
from tidemill.engine.graphs.firing.firing_output import FiringOutput
from tidemill.engine.graphs.firing.graph_caller import PendingFiring
from tidemill.engine.graphs.host import FiringHost
from tidemill.engine.graphs.runtime import GraphRuntime
from tidemill.graphs.compiler import CompiledGraph
from tidemill.graphs.keys import Key
from tidemill.graphs.result import SKIPPED, Firing, GraphResult
from tidemill.kernel.backoff import Retry
from tidemill.kernel.errors import RequestError
from tidemill.telemetry import events

logger = logging.getLogger(__name__)


class FiringOutcome(NamedTuple):
    """The log record of a firing, and the names of the graphs that failed and that are to be retried."""

    record: FiringRecord
    failed: list[str]
    retry_graphs: tuple[str, ...]


class FiringResults:
    """The firing log and dead letters of one reactor."""

    def __init__(self, reactor: FiringHost, runtime: GraphRuntime, dropped: Counter[str]) -> None:
        self._reactor = reactor
        self._clock = runtime.clock
        definition = reactor.definition
        self._name = definition.name
        output = FiringOutput(self._clock, runtime.mask, is_kept=runtime.settings.capture_output)
        self.log = FiringLog(definition.declared_name, definition.accumulator_names, self._clock, output)
        store = runtime.durability.dead_letter_store(reactor.tenant, "reactor", definition.name, reactor.codec_for)
        limit = runtime.settings.dead_letter_limit
        on_added = partial(runtime.publish_dead_letter, reactor.tenant)
        self.dead_letters = DeadLetterQueue(definition.declared_name, self._clock, limit, dropped, store, on_added)
        self.failures = 0
        self.firing_observer: Callable[[FiringRecord], None] | None = None
        """Called for each attempt of a firing, failed ones included, and for each replay."""

    # -- after a firing

    def finish(
        self,
        firing: PendingFiring,
        started: float,
        results: dict[str, GraphResult],
        *,
        degraded: bool,
        can_retry: Callable[[], bool] = lambda: True,
    ) -> FiringOutcome:
        """Log a firing and feed accumulators; dead-letter the graphs that failed and are not to be retried."""
        failed = [name for name, result in results.items() if result.error is not None]
        record = self._log_firing(firing, started, results, degraded=degraded)
        for graph in firing.graphs:
            if graph.window_feeds:
                self._feed_windows(graph, results[graph.name], firing.key)
        for graph in firing.graphs:
            if graph.feeds:
                self._push_feeds(graph, results[graph.name])
        retry_graphs = self._handle_failure(firing, results, failed, can_retry=can_retry()) if failed else ()
        if self.firing_observer is not None:
            self.firing_observer(record)
        return FiringOutcome(record, failed, retry_graphs)

    def _log_firing(
        self, firing: PendingFiring, started: float, results: dict[str, GraphResult], *, degraded: bool
    ) -> FiringRecord:
        facts = (firing.manual, degraded, firing.attempt, self.log.wall_offset(), firing.key)
        ended = self._clock.monotonic()
        record = FiringRecord(firing.series, firing.number, started, ended, firing.inputs.snapshot, results, *facts)
        self.log.add(record)
        return record

    def _feed_windows(self, graph: CompiledGraph, result: GraphResult, key: Key | None) -> None:
        for position, window in graph.window_feeds if result.ok else ():
            if (value := result.values[position]) is not SKIPPED:
                self._reactor.window_feed(window, key)(value)

    def _push_feeds(self, graph: CompiledGraph, result: GraphResult) -> None:
        for feed in graph.feeds if result.ok else ():
            value = result.values[feed.position]
            if value is not SKIPPED and value is not None:
                self._reactor.push_feed(graph.name, feed.accumulator, value)

    def _handle_failure(
        self, firing: PendingFiring, results: dict[str, GraphResult], failed: list[str], *, can_retry: bool
    ) -> tuple[str, ...]:
        """Return the graphs to retry; the other failed ones become a dead letter."""
        self.failures += firing.attempt == 1
        facts = {
            "reactor": self._name,
            "firing": self.log.firing_id(firing.series, firing.number),
            "graphs": failed,
            "error": _join_errors(results, failed),
        }
        logger.warning(events.FIRING_FAILED, extra=facts)
        policy = self._reactor.definition.on_error
        retried = [name for name in failed if can_retry and _may_retry(policy, firing.attempt, results[name])]
        final = [name for name in failed if name not in retried]
        if final:
            self._dead_letter(firing, _join_errors(results, final), final)
        return tuple(retried)

    # -- dead letters and replays

    def _dead_letter(self, firing: PendingFiring, error: str, failed: list[str]) -> None:
        names = zip(self._reactor.definition.accumulator_names, firing.inputs.snapshot, strict=True)
        inputs = {name: value for name, value in names if value is not None}
        firing_id = self.log.firing_id(firing.series, firing.number)
        content = {"inputs": inputs, "attempts": firing.attempt, "firing_id": firing_id, "key": firing.key}
        detail = msgspec.structs.replace(firing, graphs=[]), failed  # a replay takes the graphs of its own time
        self.dead_letters.put("firing", error, detail, **content)
        logger.warning(events.FIRING_DEAD_LETTERED, extra={"reactor": self._name, "error": error})

    def prepare_retry(self, firing: PendingFiring, graphs: Mapping[str, CompiledGraph]) -> PendingFiring | None:
        """Return a retry with the graphs bound now; graphs that were unbound meanwhile become a dead letter."""
        if unbound := [name for name in firing.retry_graphs if name not in graphs]:
            last = msgspec.structs.replace(firing, attempt=firing.attempt - 1)
            self._dead_letter(last, f"{unbound} unbound before the next try", unbound)
        bound = [graphs[name] for name in firing.retry_graphs if name in graphs]
        return msgspec.structs.replace(firing, graphs=bound) if bound else None

    def prepare_replay(self, dead_letter_id: str, graphs: Mapping[str, CompiledGraph]) -> PendingFiring:
        """Return the firing of a dead letter with the graphs that failed, or raise RequestError."""
        entry = self.dead_letters.find(dead_letter_id)
        if entry is None:
            raise RequestError(f"no dead letter '{dead_letter_id}'", code="dead_letter_not_found", status=404)
        dead_letter, (firing, failed) = entry
        if unbound := sorted(set(failed) - set(graphs)):
            message = f"dead letter '{dead_letter_id}' is for graphs that are no longer bound: {unbound}"
            raise RequestError(message, code="graph_not_bound", status=409, graphs=unbound)
        bound, attempt = [graphs[name] for name in failed], dead_letter.attempts + 1
        replay: PendingFiring = msgspec.structs.replace(firing, graphs=bound, manual=True, attempt=attempt)
        return replay

    def finish_replay(
        self,
        dead_letter_id: str,
        firing: PendingFiring,
        started: float,
        results: dict[str, GraphResult],
        *,
        degraded: bool,
    ) -> Firing:
        """Log a replay; remove the dead letter if it succeeded."""
        record = self._log_firing(firing, started, results, degraded=degraded)
        for graph in firing.graphs:
            self._push_feeds(graph, results[graph.name])
        if self.firing_observer is not None:
            self.firing_observer(record)
        errors = [str(result.error) for result in results.values() if result.error]
        if errors:
            self.dead_letters.record_failed_replay(dead_letter_id, "; ".join(errors))
        else:
            self.dead_letters.remove(dead_letter_id)
        return self.log.to_firing(record)


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


def _may_retry(policy: Any, attempts: int, result: GraphResult) -> bool:
    """Return whether a failed graph may be retried."""
    return isinstance(policy, Retry) and result.error is not None and policy.allows(attempts, result.error.cause)


def _join_errors(results: dict[str, GraphResult], names: list[str]) -> str:
    return "; ".join(str(results[name].error) for name in names)
