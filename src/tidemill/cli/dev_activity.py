"""What `tidemill dev` shows of what goes on: runs, what tasks say, how often reactors fire, and what goes wrong.

It is meant to be read while it happens. So what comes in bursts is counted, and what repeats itself is told once and
then as a number.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from tidemill.cli.dev_view import DevView
from tidemill.cli.formatting import format_count, format_elapsed, format_with_fields, one_line, relative_path
from tidemill.cli.run_summary import outcome_verb, result_text
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import RequestError, TidemillError
from tidemill.node import Node
from tidemill.telemetry import events
from tidemill.telemetry.logs import extra_fields
from tidemill.workflows.result import RunResult
from tidemill.workflows.states import RunState, TaskState

RUN_REPORT_INTERVAL = 0.2  # seconds for which news of runs are gathered
SINGLE_REPORTS_LIMIT = 3  # news of one workflow within a tick that are told one by one
SUMMARY_INTERVAL = 10.0  # seconds after which firings, and what repeated itself, are counted out
RUN_ID_LENGTH = 8  # characters of a run's id, the last, that are shown: enough to name it

SUBJECT_FIELDS = (
    "package",
    "workflow",
    "reactor",
    "accumulator",
    "component_name",
    "trigger",
    "graph",
    "phase",
    "stream",
)
REASON_FIELDS = ("reason", "error")
IGNORED_EVENTS = frozenset([events.PACKAGE_FAILED, events.FIRING_DEAD_LETTERED])
"""Of packages the view says more, and a firing that ends as a dead letter has failed before."""

_STYLES = {RunState.SUCCESS: "green", RunState.FAILED: "bold red", RunState.CANCELLED: "yellow"}


class DevActivity:
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
        self._problem_counts: Counter[tuple[str, str]] = Counter()
        """How often each trouble has come up since it was told."""
        self._fire_counts: dict[str, tuple[int, int]] = {}
        self._min_level = logging.WARNING

    def mute_warnings(self) -> None:
        """Tell only of errors from now on: the node ends, and what is cut off by that is nobody's fault."""
        self._min_level = logging.ERROR

    async def run(self) -> None:
        """Tell until cancelled."""
        since = self._clock.monotonic()
        while True:
            await self._clock.sleep(RUN_REPORT_INTERVAL)
            await self._report_lost()
            await self._report_runs()
            if self._clock.monotonic() - since >= SUMMARY_INTERVAL:
                since = self._clock.monotonic()
                self._report_firings()
                self._report_repeated()

    # -- what is logged

    def handle_record(self, record: logging.LogRecord) -> None:
        """Take note of a record, or tell it."""
        facts = vars(record)
        if record.name == "tidemill.task":
            self._report_task_log(record)
        elif record.msg == events.RUN_STARTED:
            self._workflows[facts["run"]] = facts["workflow"]
            self._started.append(facts["run"])
        elif record.msg == events.RUN_ENDED:
            self._workflows.setdefault(facts["run"], facts["workflow"])
            self._ended.append(facts["run"])
        elif record.msg == events.TASK_LOST and "attempt" in facts:
            run, name = _run_and_task(facts["attempt"])
            self._lost.setdefault((run, name.partition("[")[0], facts["reason"]), []).append(name)
        elif record.levelno >= self._min_level and record.msg not in IGNORED_EVENTS:
            self._report_problem(record)

    def _report_task_log(self, record: logging.LogRecord) -> None:
        attempt = str(vars(record).get("attempt", ""))
        run, _ = _run_and_task(attempt)
        if run in self._started:  # first things first
            self._started.remove(run)
            self._report_start(run)
        level = "" if record.levelno <= logging.INFO else f"{record.levelname.lower()}: "
        said = {name: value for name, value in extra_fields(record).items() if name != "attempt"}
        self._view.print_event(f"| {level}{format_with_fields(record.getMessage(), said)}", self._attempt_name(attempt))

    def _attempt_name(self, attempt: str) -> str:
        run, name = _run_and_task(attempt)
        return f"{self._run_name(run)}.{name}"

    def _run_name(self, run: str) -> str:
        return self._workflows.get(run, f"run {run[-RUN_ID_LENGTH:]}")

    def _subject(self, facts: dict[str, Any]) -> str:
        """Return what a record is about, as it is named elsewhere."""
        if found := next((str(facts[name]) for name in SUBJECT_FIELDS if facts.get(name)), ""):
            return found
        if facts.get("attempt"):
            return self._attempt_name(str(facts["attempt"]))
        names = [self._run_name(facts["run"])] * bool(facts.get("run")) + [str(facts.get("task") or "")]
        return ".".join(filter(None, names))

    def _report_problem(self, record: logging.LogRecord) -> None:
        facts = vars(record)
        subject = self._subject(facts)
        reason = next((one_line(str(facts[name])) for name in REASON_FIELDS if facts.get(name)), "")
        self._problem_counts[subject, reason or record.msg] += 1
        if self._problem_counts[subject, reason or record.msg] > 1:
            return
        event = record.getMessage().replace(".", " ").replace("_", " ")
        style = "bold red" if record.levelno >= logging.ERROR else "yellow"
        trace = [logging.Formatter().formatException(record.exc_info)] if record.exc_info else []
        is_firing = record.msg == events.FIRING_FAILED
        place = self._firing_error_location(facts) if is_firing else relative_path(str(facts.get("place", "")))
        text = f"{event}: {reason}" if reason else event
        self._view.print_event(f"{text}{f' ({place})' if place else ''}", subject, style, trace)

    def _firing_error_location(self, facts: dict[str, Any]) -> str:
        """Return where in a package the node raised that let a firing fail, as long as that is known."""
        try:
            firings = self._node.reactor(facts["reactor"]).firings()
        except RequestError:  # it is gone by now
            return ""
        results = next((one.results for one in firings if one.id == facts["firing"]), {})
        errors = [one.error for one in results.values() if one.error is not None]
        return self._view.error_location(errors[0].cause) if errors else ""

    def _report_repeated(self) -> None:
        for (subject, reason), number in self._problem_counts.items():
            if number > 1:
                self._view.print_event(f"{format_count(number - 1, 'time')} more: {reason}", subject, "yellow")
        self._problem_counts.clear()

    # -- runs

    async def _report_lost(self) -> None:
        lost, self._lost = self._lost, {}
        for (run, task, reason), names in lost.items():
            one, many = f"task {names[0]}", f"{format_count(len(names), 'element')} of task {task}"
            what = (
                f"{one} of run {run[-RUN_ID_LENGTH:]} was"
                if len(names) == 1
                else f"{many} of run {run[-RUN_ID_LENGTH:]} were"
            )
            self._view.print_event(f"{what} lost: {one_line(reason)}", await self._workflow_of(run), "yellow")

    async def _workflow_of(self, run: str) -> str:
        """Return the workflow of a run, also of one that began in an earlier life; "" if that cannot be told."""
        if run not in self._workflows:
            with suppress(TidemillError):
                return (await self._node.run_handle(run).state()).workflow
        return self._workflows.get(run, "")

    async def _report_runs(self) -> None:
        ended, self._ended = self._ended, []
        over = set(ended)
        started, self._started = [run for run in self._started if run not in over], []
        counts = Counter(self._workflows[run] for run in [*started, *ended])
        for run in started:
            if counts[self._workflows[run]] <= SINGLE_REPORTS_LIMIT:
                self._report_start(run)
        for run in ended:
            if counts[self._workflows[run]] <= SINGLE_REPORTS_LIMIT:
                await self._report_end(run)
        for name in sorted(name for name, number in counts.items() if number > SINGLE_REPORTS_LIMIT):
            self._report_run_counts(name, started, ended)
        for run in ended:
            self._workflows.pop(run, None)

    def _report_start(self, run: str) -> None:
        self._view.print_event(f"run {run[-RUN_ID_LENGTH:]} has begun", self._workflows[run])

    async def _report_end(self, run: str) -> None:
        name = self._workflows[run]
        try:
            result = await self._node.run_handle(run).state()
        except TidemillError as error:  # it is only to be told
            self._view.print_event(f"run {run[-RUN_ID_LENGTH:]} has ended, and cannot be read: {error}", name, "yellow")
            return
        took = format_elapsed(result.started_at or result.created_at, result.ended_at)
        why = "" if result.ok or result.reason in ("", result.state) else f": {one_line(result.reason)}"
        style = _STYLES.get(result.state, "")
        self._view.print_event(
            f"run {run[-RUN_ID_LENGTH:]} {outcome_verb(result.state)} after {took}{why}",
            name,
            style,
            self._failure_lines(result),
        )

    def _failure_lines(self, result: RunResult) -> Iterator[str]:
        """Yield what failed in a run, with the place in the author's code."""
        for name, task in result.tasks.items():
            if task.state is TaskState.FAILED:
                place = relative_path(task.error.place) if task.error is not None else ""
                yield f"{f'{place}: ' if place else ''}{name}: {result_text(task)}"

    def _report_run_counts(self, name: str, started: list[str], ended: list[str]) -> None:
        begun = sum(self._workflows[run] == name for run in started)
        over = sum(self._workflows[run] == name for run in ended)
        parts = [_format_run_count(begun, "begun")] * bool(begun) + [_format_run_count(over, "ended")] * bool(over)
        self._view.print_event(", ".join(parts), name)

    # -- reactors

    def _report_firings(self) -> None:
        names = self._node.registry.reactors()
        self._fire_counts = {name: one for name, one in self._fire_counts.items() if name in names}
        for name in names:
            state = self._node.reactor(name).state()
            fires, failures = self._fire_counts.get(name, (0, 0))
            if fires > state.fires:  # it was made anew
                fires = failures = 0
            self._fire_counts[name] = state.fires, state.failures
            if state.fires > fires:
                failed = f", {state.failures - failures:,} of them failed" if state.failures > failures else ""
                self._view.print_event(
                    f"{format_count(state.fires - fires, 'firing')} in {SUMMARY_INTERVAL:.0f} s{failed}", name, "dim"
                )


def _run_and_task(attempt: str) -> tuple[str, str]:
    """Return the run of an attempt, and its task or element: "clean[7]"."""
    run, _, name = attempt.partition("/")
    return run, name.rpartition("#")[0]


def _format_run_count(runs: int, what: str) -> str:
    """Return how many runs have done something: "1 run has begun"."""
    return f"{format_count(runs, 'run')} {'has' if runs == 1 else 'have'} {what}"


LOGGER_LEVELS = {
    "tidemill": logging.WARNING,
    "tidemill.engine.workflows.leader.coordinator": logging.INFO,
    "tidemill.task": logging.INFO,
}
"""How loud each logger has to be to be heard: elsewhere only warnings matter to people."""

RecordHandler = Callable[[logging.LogRecord], None]


class _LogForwarder(logging.Handler):
    """Brings records to the loop, whatever thread they come from."""

    def __init__(self, loop: asyncio.AbstractEventLoop, handle_record: RecordHandler) -> None:
        super().__init__()
        self._loop = loop
        self._handle_record = handle_record

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(RuntimeError):  # the loop is closed: a thread that nobody waited for has the last word
            self._loop.call_soon_threadsafe(self._handle_record, record)


@contextmanager
def forwarding_logs(loop: asyncio.AbstractEventLoop, handle_record: RecordHandler) -> Iterator[None]:
    """Hear what is logged for a while."""
    listener = _LogForwarder(loop, handle_record)
    ours = logging.getLogger("tidemill")
    before = {name: logging.getLogger(name).level for name in LOGGER_LEVELS}
    for name, level in LOGGER_LEVELS.items():
        logging.getLogger(name).setLevel(level)
    ours.addHandler(listener)
    try:
        yield
    finally:
        ours.removeHandler(listener)
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)
