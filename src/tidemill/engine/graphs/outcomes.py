"""What follows a firing: the log, windows and batches, another try, or a dead letter.

A failed firing is tried again as its reactor's policy says: only with the graphs that failed, under the same id, with
one log entry per attempt. A sequential queue stands still meanwhile; the latest strategy goes on. When no try is left
the exact snapshot becomes a dead letter.
"""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Protocol

from tidemill.engine.graphs.dead_letters import DeadLetterBox
from tidemill.engine.graphs.environment import Environment
from tidemill.engine.graphs.firing import Due
from tidemill.engine.graphs.firing_log import FiringLog, Record
from tidemill.engine.service import stop
from tidemill.graphs.compiler import Compiled
from tidemill.graphs.definition import Reactor
from tidemill.graphs.result import SKIPPED, Firing, GraphResult
from tidemill.kernel.backoff import Retry
from tidemill.kernel.errors import RequestError
from tidemill.kernel.ids import incarnation
from tidemill.telemetry import events

logger = logging.getLogger(__name__)


class Fired(Protocol):
    """The reactor whose firings these are."""

    definition: Reactor
    graphs: dict[str, Compiled]

    def drop(self, reason: str) -> None:
        """Count something that was not delivered."""

    def feed(self, window: str, value: Any) -> None:
        """Append a node's result to a window."""

    def flush_batches(self) -> None:
        """Let batches hand on what they hold."""

    def hold(self, change: int) -> None:
        """Begin (+1) or end (-1) holding the queue for a retry."""

    async def call_again(self, due: Due) -> dict[str, GraphResult]:
        """Call the graphs of a firing once more, in turn with other firings."""

    @property
    def is_degraded(self) -> bool:
        """Whether firings see stale values."""


class Outcomes:
    """The firing log, dead letters and pending retries of one reactor."""

    def __init__(self, reactor: Fired, environment: Environment) -> None:
        self._reactor = reactor
        self._environment = environment
        self._clock = environment.clock
        definition = reactor.definition
        self.log = FiringLog(definition.name, incarnation(), definition.names, self._clock)
        limit = environment.settings.dead_letter_limit
        self.letters = DeadLetterBox(definition.name, self._clock, limit, reactor.drop)
        self.failures = 0
        self._watchers: list[asyncio.Future[None]] = []
        self._retries: set[asyncio.Task[Any]] = set()

    # -- after a firing

    def finish(self, due: Due, started: float, results: dict[str, GraphResult]) -> Record:
        """Log a firing, then see to what follows from its outcome."""
        ended, degraded = self._clock.monotonic(), self._reactor.is_degraded
        snapshot = due.taken.snapshot
        record = Record(due.number, started, ended, snapshot, results, due.manual, degraded, due.attempt)
        self.log.add(record)
        failed = [name for name, result in results.items() if result.error is not None]
        self._feed_windows(due.graphs, results)
        if failed:
            self._after_failure(due, results, failed)
        else:
            self._reactor.flush_batches()
        if self._watchers:
            self._tell_watchers()
        return record

    def _feed_windows(self, graphs: list[Compiled], results: dict[str, GraphResult]) -> None:
        for graph in graphs:
            if graph.feeds and results[graph.name].ok:
                for position, window in graph.feeds:
                    value = results[graph.name].values[position]
                    if value is not SKIPPED:
                        self._reactor.feed(window, value)

    def _after_failure(self, due: Due, results: dict[str, GraphResult], failed: list[str]) -> None:
        self.failures += due.attempt == 1
        errors = [error for name in failed if (error := results[name].error) is not None]
        text = "; ".join(str(error) for error in errors)
        facts = {"reactor": self._name, "firing": self.log.firing_id(due.number), "graphs": failed, "error": text}
        logger.warning(events.FIRING_FAILED, extra=facts)
        retry = self._reactor.definition.on_error
        if isinstance(retry, Retry) and all(retry.allows(due.attempt, error.cause) for error in errors):
            self._start_retry(self._retry(retry, due, failed))
        else:
            self._dead_letter(due, text, failed)

    @property
    def _name(self) -> str:
        return self._reactor.definition.name

    def _named(self, names: list[str]) -> list[Compiled]:
        return [self._reactor.graphs[name] for name in names if name in self._reactor.graphs]

    # -- trying again

    def _start_retry(self, work: Coroutine[Any, Any, None]) -> None:
        self._reactor.hold(+1)
        task = self._environment.tasks.start(f"reactor {self._name}: retry", work)
        self._retries.add(task)
        task.add_done_callback(self._end_retry)

    def _end_retry(self, task: "asyncio.Task[Any]") -> None:
        self._retries.discard(task)
        self._reactor.hold(-1)

    async def _retry(self, retry: Retry, due: Due, failed: list[str]) -> None:
        await self._clock.sleep(retry.delay_after(due.attempt, self._environment.chance))
        again = Due(due.number, due.taken, self._named(failed), due.manual, due.attempt + 1)
        with self._environment.activity:
            started = self._clock.monotonic()
            self.finish(again, started, await self._reactor.call_again(again))

    async def stop(self) -> None:
        """Give up pending retries."""
        for task in tuple(self._retries):
            await stop(task)

    # -- dead letters

    def _dead_letter(self, due: Due, error: str, failed: list[str]) -> None:
        names = zip(self._reactor.definition.names, due.taken.snapshot, strict=True)
        inputs = {name: value for name, value in names if value is not None}
        self.letters.put("firing", error, (due, failed), inputs=inputs, attempts=due.attempt)
        logger.warning(events.FIRING_DEAD, extra={"reactor": self._name, "error": error})

    async def replay(self, letter_id: str) -> Firing:
        """Run the graphs of a dead firing again on its own snapshot; cache and flags stay as they are."""
        found = self.letters.find(letter_id)
        if found is None:
            raise RequestError(f"no dead letter '{letter_id}'", code="unknown_dead_letter", status=404)
        letter, (due, failed) = found
        again = Due(due.number, due.taken, self._named(failed), manual=True, attempt=letter.attempts + 1)
        started = self._clock.monotonic()
        results = await self._reactor.call_again(again)
        ended = self._clock.monotonic()
        record = Record(due.number, started, ended, due.taken.snapshot, results, manual=True, attempt=again.attempt)
        self.log.add(record)
        errors = [str(result.error) for result in results.values() if result.error]
        if errors:
            self.letters.failed_again(letter_id, "; ".join(errors))
        else:
            self.letters.remove(letter_id)
        return self.log.view(record)

    # -- watching

    @property
    def is_watched(self) -> bool:
        """Whether somebody waits for the next firing."""
        return bool(self._watchers)

    async def watch(self) -> None:
        """Return after the next firing that is logged whole."""
        watcher: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watchers.append(watcher)
        try:
            await watcher
        finally:
            if watcher in self._watchers:
                self._watchers.remove(watcher)

    def _tell_watchers(self) -> None:
        watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            if not watcher.done():
                watcher.set_result(None)
