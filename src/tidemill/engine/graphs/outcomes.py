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

from tidemill.engine.graphs.dead_letters import DeadLetterBox
from tidemill.engine.graphs.environment import Environment
from tidemill.engine.graphs.firing import Due
from tidemill.engine.graphs.firing_log import FiringLog, Record
from tidemill.engine.graphs.housing import Housing
from tidemill.engine.service import stop
from tidemill.graphs.compiler import Compiled
from tidemill.graphs.result import SKIPPED, Firing, GraphResult
from tidemill.kernel.backoff import Retry
from tidemill.kernel.errors import RequestError
from tidemill.telemetry import events

logger = logging.getLogger(__name__)


class Turning(Protocol):
    """The wheel, as the outcomes of its firings see it."""

    graphs: dict[str, Compiled]

    def hold(self, change: int) -> None:
        """Begin (+1) or end (-1) holding the queue for a retry."""

    async def call_again(self, due: Due) -> tuple[float, dict[str, GraphResult]]:
        """Call the graphs of a firing once more, in turn with other firings; return when it began, and the results."""

    def fire_again(self, due: Due) -> None:
        """Fire once more, before anything else and as soon as the reactor's health allows."""


class Outcomes:
    """The firing log, dead letters and pending retries of one reactor."""

    def __init__(self, reactor: Housing, wheel: Turning, environment: Environment) -> None:
        self._reactor = reactor
        self._wheel = wheel
        self._environment = environment
        self._clock = environment.clock
        definition = reactor.definition
        self.log = FiringLog(definition.name, definition.names, self._clock)
        archive = environment.keeper.archive(reactor.tenant, "reactor", definition.name, reactor.codec_for)
        limit = environment.settings.dead_letter_limit
        self.letters = DeadLetterBox(definition.name, self._clock, limit, reactor.drop, archive)
        self.failures = 0
        self.told: Callable[[Record], None] | None = None
        """Who is told of each firing, once, whatever came of it."""
        self._watchers: list[asyncio.Future[None]] = []
        self._retries: dict[asyncio.Task[Any], Due] = {}

    # -- after a firing

    def finish(self, due: Due, started: float, results: dict[str, GraphResult]) -> Record:
        """Log a firing, then see to what follows from its outcome."""
        record = self._note(due, started, results)
        failed = [name for name, result in results.items() if result.error is not None]
        self._feed_windows(due.graphs, results)
        if failed:
            self._after_failure(due, results, failed)
        if self.told is not None and due.attempt == 1:
            self.told(record)
        self._reactor.after_firing(ok=not failed)
        return record

    def _note(self, due: Due, started: float, results: dict[str, GraphResult]) -> Record:
        ended, degraded = self._clock.monotonic(), self._reactor.is_degraded
        facts = (due.manual, degraded, due.attempt, self.log.wall_offset())
        record = Record(due.series, due.number, started, ended, due.taken.snapshot, results, *facts)
        self.log.add(record)
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
        text = _text(results, failed)
        facts = {"reactor": self._name, "firing": self.log.firing_id(due.series, due.number), "graphs": failed}
        logger.warning(events.FIRING_FAILED, extra={**facts, "error": text})
        retry = self._reactor.definition.on_error
        has_room = len(self._retries) < self._environment.settings.dead_letter_limit
        again = [name for name in failed if has_room and _allows(retry, due.attempt, results[name])]
        final = [name for name in failed if name not in again]
        if final:
            self._dead_letter(due, _text(results, final), final)
        if isinstance(retry, Retry) and again:
            self._start_retry(retry, msgspec.structs.replace(due, only=tuple(again), attempt=due.attempt + 1))

    @property
    def _name(self) -> str:
        return self._reactor.definition.name

    def _named(self, names: Iterable[str]) -> list[Compiled]:
        return [self._wheel.graphs[name] for name in names if name in self._wheel.graphs]

    # -- trying again

    def _start_retry(self, retry: Retry, due: Due) -> None:
        self._wheel.hold(+1)
        task = self._environment.tasks.start(f"reactor {self._name}: retry", self._retry(retry, due))
        self._retries[task] = due
        task.add_done_callback(self._end_retry)

    def _end_retry(self, task: "asyncio.Task[Any]") -> None:
        self._retries.pop(task, None)
        self._wheel.hold(-1)

    async def _retry(self, retry: Retry, due: Due) -> None:
        await self._clock.sleep(retry.delay_after(due.attempt - 1, self._environment.chance))
        this = asyncio.current_task()
        assert this is not None
        self._retries.pop(this, None)  # it is the wheel's from here on
        self._wheel.fire_again(due)

    @property
    def awaiting_retry(self) -> list[Due]:
        """Firings that wait for their next try, oldest first."""
        return list(self._retries.values())

    def renewed(self, due: Due) -> Due | None:
        """Return another try with its graphs as they are bound by now; those that are gone become a dead letter."""
        if gone := [name for name in due.only if name not in self._wheel.graphs]:
            last = msgspec.structs.replace(due, attempt=due.attempt - 1)
            self._dead_letter(last, f"{gone} unbound before the next try", gone)
        graphs = self._named(due.only)
        return msgspec.structs.replace(due, graphs=graphs) if graphs else None

    async def stop(self) -> None:
        """Give up pending retries, and send home who waits for a firing."""
        for task in tuple(self._retries):
            await stop(task)
            if not self._reactor.is_kept:
                self._reactor.drop("unloaded")
        message = f"reactor '{self._name}' was unloaded"
        self._tell_watchers(RequestError(message, code="reactor_not_loaded", status=404, reactor=self._name))

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
        if gone := sorted(set(failed) - set(self._wheel.graphs)):
            message = f"dead letter '{letter_id}' is for graphs that are no longer bound: {gone}"
            raise RequestError(message, code="graph_not_bound", status=409, graphs=gone)
        graphs, attempt = self._named(failed), letter.attempts + 1
        again = msgspec.structs.replace(due, graphs=graphs, manual=True, attempt=attempt)
        title = f"reactor {self._name}: replay"
        started, results = await self._environment.tasks.see_through(title, self._wheel.call_again(again))
        errors = [str(result.error) for result in results.values() if result.error]
        if errors:
            self.letters.failed_again(letter_id, "; ".join(errors))
        else:
            self.letters.remove(letter_id)
        return self.log.view(self._note(again, started, results))

    # -- watching

    @property
    def is_watched(self) -> bool:
        """Whether somebody waits for the next firing."""
        return any(not watcher.done() for watcher in self._watchers)

    def watch(self) -> "asyncio.Future[None]":
        """Return what is done after the next firing that is logged whole; whoever awaits it watches from now on."""
        watcher: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watchers = [one for one in self._watchers if not one.done()]
        self._watchers.append(watcher)
        return watcher

    def _tell_watchers(self, error: RequestError | None = None) -> None:
        watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            if watcher.done():
                continue
            if error is None:
                watcher.set_result(None)
            else:
                watcher.set_exception(error)


def _allows(policy: Any, attempts: int, result: GraphResult) -> bool:
    """Return whether a graph that failed may be tried again."""
    return isinstance(policy, Retry) and result.error is not None and policy.allows(attempts, result.error.cause)


def _text(results: dict[str, GraphResult], names: list[str]) -> str:
    return "; ".join(str(results[name].error) for name in names)
