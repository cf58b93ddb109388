"""What `tidemill dev` shows of what goes on: runs, what tasks say, how often reactors fire, and what goes wrong.

It is meant to be read while it happens. So what comes in bursts is counted, and what repeats itself is told once and
then as a number.
"""

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from tidemill.cli.dev_view import DevView
from tidemill.cli.summary import came_of, ending
from tidemill.cli.words import between, count, one_line, seen, with_fields
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import RequestError, TidemillError
from tidemill.node import Node
from tidemill.telemetry import events
from tidemill.telemetry.logs import facts_of
from tidemill.workflows.result import RunResult
from tidemill.workflows.states import RunState, TaskState

TICK = 0.2  # seconds for which news of runs are gathered
MANY = 3  # news of one workflow within a tick that are told one by one
ROUND = 10.0  # seconds after which firings, and what repeated itself, are counted out
SHORT = 8  # characters of a run's id, the last, that are shown: enough to name it

SUBJECTS = ("package", "workflow", "reactor", "accumulator", "component_name", "trigger", "graph", "phase", "stream")
REASONS = ("reason", "error")
TOLD_ELSEWHERE = frozenset([events.PACKAGE_FAILED, events.FIRING_DEAD])
"""Of packages the view says more, and a firing that ends as a dead letter has failed before."""

_STYLES = {RunState.SUCCESS: "green", RunState.FAILED: "bold red", RunState.CANCELLED: "yellow"}


class Activity:
    """Hears what the node logs, asks how things stand, and tells it."""

    def __init__(self, node: Node, view: DevView, clock: Clock) -> None:
        self._node = node
        self._view = view
        self._clock = clock
        self._workflows: dict[str, str] = {}
        """Of the runs that have begun and not ended."""
        self._started: list[str] = []
        self._ended: list[str] = []
        self._lost: dict[tuple[str, str, str], list[str]] = {}
        """What was lost since the last tick: by run, task and reason, as it is named in the run."""
        self._told: Counter[tuple[str, str]] = Counter()
        """How often each trouble has come up since it was told."""
        self._fires: dict[str, tuple[int, int]] = {}
        self._loudness = logging.WARNING

    def end(self) -> None:
        """Tell only of errors from now on: the node ends, and what is cut off by that is nobody's fault."""
        self._loudness = logging.ERROR

    async def run(self) -> None:
        """Tell until cancelled."""
        since = self._clock.monotonic()
        while True:
            await self._clock.sleep(TICK)
            await self._tell_lost()
            await self._tell_runs()
            if self._clock.monotonic() - since >= ROUND:
                since = self._clock.monotonic()
                self._tell_firings()
                self._tell_repeated()

    # -- what is logged

    def hear(self, record: logging.LogRecord) -> None:
        """Take note of a record, or tell it."""
        facts = vars(record)
        if record.name == "tidemill.task":
            self._tell_task(record)
        elif record.msg == events.RUN_STARTED:
            self._workflows[facts["run"]] = facts["workflow"]
            self._started.append(facts["run"])
        elif record.msg == events.RUN_ENDED:
            self._workflows.setdefault(facts["run"], facts["workflow"])
            self._ended.append(facts["run"])
        elif record.msg == events.TASK_LOST and "attempt" in facts:
            run, name = _run_and_task(facts["attempt"])
            self._lost.setdefault((run, name.partition("[")[0], facts["reason"]), []).append(name)
        elif record.levelno >= self._loudness and record.msg not in TOLD_ELSEWHERE:
            self._tell_trouble(record)

    def _tell_task(self, record: logging.LogRecord) -> None:
        attempt = str(vars(record).get("attempt", ""))
        run, _ = _run_and_task(attempt)
        if run in self._started:  # first things first
            self._started.remove(run)
            self._tell_start(run)
        level = "" if record.levelno <= logging.INFO else f"{record.levelname.lower()}: "
        said = {name: value for name, value in facts_of(record).items() if name != "attempt"}
        self._view.say(f"| {level}{with_fields(record.getMessage(), said)}", self._attempt_name(attempt))

    def _attempt_name(self, attempt: str) -> str:
        run, name = _run_and_task(attempt)
        return f"{self._run_name(run)}.{name}"

    def _run_name(self, run: str) -> str:
        return self._workflows.get(run, f"run {run[-SHORT:]}")

    def _subject(self, facts: dict[str, Any]) -> str:
        """Return what a record is about, as it is named elsewhere."""
        if found := next((str(facts[name]) for name in SUBJECTS if facts.get(name)), ""):
            return found
        if facts.get("attempt"):
            return self._attempt_name(str(facts["attempt"]))
        names = [self._run_name(facts["run"])] * bool(facts.get("run")) + [str(facts.get("task") or "")]
        return ".".join(filter(None, names))

    def _tell_trouble(self, record: logging.LogRecord) -> None:
        facts = vars(record)
        subject = self._subject(facts)
        reason = next((one_line(str(facts[name])) for name in REASONS if facts.get(name)), "")
        self._told[subject, reason or record.msg] += 1
        if self._told[subject, reason or record.msg] > 1:
            return
        event = record.getMessage().replace(".", " ").replace("_", " ")
        style = "bold red" if record.levelno >= logging.ERROR else "yellow"
        trace = [logging.Formatter().formatException(record.exc_info)] if record.exc_info else []
        is_firing = record.msg == events.FIRING_FAILED
        place = self._firing_site(facts) if is_firing else seen(str(facts.get("place", "")))
        text = f"{event}: {reason}" if reason else event
        self._view.say(f"{text}{f' ({place})' if place else ''}", subject, style, trace)

    def _firing_site(self, facts: dict[str, Any]) -> str:
        """Return where in a package the node raised that let a firing fail, as long as that is known."""
        try:
            firings = self._node.reactor(facts["reactor"]).firings()
        except RequestError:  # it is gone by now
            return ""
        results = next((one.results for one in firings if one.id == facts["firing"]), {})
        errors = [one.error for one in results.values() if one.error is not None]
        return self._view.site(errors[0].cause) if errors else ""

    def _tell_repeated(self) -> None:
        for (subject, reason), number in self._told.items():
            if number > 1:
                self._view.say(f"{count(number - 1, 'time')} more: {reason}", subject, "yellow")
        self._told.clear()

    # -- runs

    async def _tell_lost(self) -> None:
        lost, self._lost = self._lost, {}
        for (run, task, reason), names in lost.items():
            one, many = f"task {names[0]}", f"{count(len(names), 'element')} of task {task}"
            what = f"{one} of run {run[-SHORT:]} was" if len(names) == 1 else f"{many} of run {run[-SHORT:]} were"
            self._view.say(f"{what} lost: {one_line(reason)}", await self._workflow_of(run), "yellow")

    async def _workflow_of(self, run: str) -> str:
        """Return the workflow of a run, also of one that began in an earlier life; "" if that cannot be told."""
        if run not in self._workflows:
            with suppress(TidemillError):
                return (await self._node.run_handle(run).state()).workflow
        return self._workflows.get(run, "")

    async def _tell_runs(self) -> None:
        ended, self._ended = self._ended, []
        over = set(ended)
        started, self._started = [run for run in self._started if run not in over], []
        counts = Counter(self._workflows[run] for run in [*started, *ended])
        for run in started:
            if counts[self._workflows[run]] <= MANY:
                self._tell_start(run)
        for run in ended:
            if counts[self._workflows[run]] <= MANY:
                await self._tell_end(run)
        for name in sorted(name for name, number in counts.items() if number > MANY):
            self._tell_many(name, started, ended)
        for run in ended:
            self._workflows.pop(run, None)

    def _tell_start(self, run: str) -> None:
        self._view.say(f"run {run[-SHORT:]} has begun", self._workflows[run])

    async def _tell_end(self, run: str) -> None:
        name = self._workflows[run]
        try:
            result = await self._node.run_handle(run).state()
        except TidemillError as error:  # it is only to be told
            self._view.say(f"run {run[-SHORT:]} has ended, and cannot be read: {error}", name, "yellow")
            return
        took = between(result.started_at or result.created_at, result.ended_at)
        why = "" if result.ok or result.reason in ("", result.state) else f": {one_line(result.reason)}"
        style = _STYLES.get(result.state, "")
        self._view.say(
            f"run {run[-SHORT:]} {ending(result.state)} after {took}{why}", name, style, self._failures(result)
        )

    def _failures(self, result: RunResult) -> Iterator[str]:
        """Yield what failed in a run, with the place in the author's code."""
        for name, task in result.tasks.items():
            if task.state is TaskState.FAILED:
                place = seen(task.error.place) if task.error is not None else ""
                yield f"{f'{place}: ' if place else ''}{name}: {came_of(task)}"

    def _tell_many(self, name: str, started: list[str], ended: list[str]) -> None:
        begun = sum(self._workflows[run] == name for run in started)
        over = sum(self._workflows[run] == name for run in ended)
        parts = [_counted(begun, "begun")] * bool(begun) + [_counted(over, "ended")] * bool(over)
        self._view.say(", ".join(parts), name)

    # -- reactors

    def _tell_firings(self) -> None:
        names = self._node.registry.reactors()
        self._fires = {name: one for name, one in self._fires.items() if name in names}
        for name in names:
            state = self._node.reactor(name).state()
            fires, failures = self._fires.get(name, (0, 0))
            if fires > state.fires:  # it was made anew
                fires = failures = 0
            self._fires[name] = state.fires, state.failures
            if state.fires > fires:
                failed = f", {state.failures - failures:,} of them failed" if state.failures > failures else ""
                self._view.say(f"{count(state.fires - fires, 'firing')} in {ROUND:.0f} s{failed}", name, "dim")


def _run_and_task(attempt: str) -> tuple[str, str]:
    """Return the run of an attempt, and its task or element: "clean[7]"."""
    run, _, name = attempt.partition("/")
    return run, name.rpartition("#")[0]


def _counted(runs: int, what: str) -> str:
    """Return how many runs have done something: "1 run has begun"."""
    return f"{count(runs, 'run')} {'has' if runs == 1 else 'have'} {what}"
