"""Shows the activity of `tidemill dev`: runs, task logs, firing counts, and problems.

It is read while it happens. So events that come in bursts are counted, and a repeated event is printed once and then
as a number.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from tidemill.cli.dev_attempts import AttemptReports
from tidemill.cli.dev_problems import ProblemReports, split_attempt
from tidemill.cli.dev_restart import RestartReport
from tidemill.cli.dev_unfinished import UnfinishedReports
from tidemill.cli.dev_view import DevView
from tidemill.cli.formatting import (
    format_count,
    format_elapsed,
    format_with_fields,
    one_line,
    relative_path,
    state_style,
)
from tidemill.cli.run_summary import outcome_verb, result_text
from tidemill.cli.run_view import RUN_ID_LENGTH
from tidemill.kernel.clock import Clock
from tidemill.kernel.errors import TidemillError
from tidemill.node import Node
from tidemill.telemetry import events
from tidemill.telemetry.logs import extra_fields
from tidemill.workflows.result import RunResult
from tidemill.workflows.states import TaskState

RUN_REPORT_INTERVAL = 0.2  # seconds between two reports of runs
SINGLE_REPORTS_LIMIT = 3  # runs of one workflow that are reported one by one per interval
SUMMARY_INTERVAL = 10.0  # seconds between two summaries of firings and repeated problems
LISTED_REACTORS_LIMIT = 5  # of more reactors, only the number is shown


class DevActivity:
    """Turns log records and reactor states into lines of the view."""

    def __init__(self, node: Node, view: DevView, clock: Clock, store: str = "") -> None:
        self._node = node
        self._view = view
        self._clock = clock
        self._restart = RestartReport(node, view)
        self._workflows: dict[str, str] = {}
        """The workflows of the active runs."""
        self._started: list[str] = []
        self._ended: list[str] = []
        self._attempts = AttemptReports(view, self._workflow_of)
        self._problems = ProblemReports(node, view, self._run_name)
        self._unfinished = UnfinishedReports(view, store)
        self._fire_counts: dict[str, tuple[int, int]] = {}
        self._min_level = logging.WARNING
        self._held: list[logging.LogRecord] | None = None
        """Records that wait until the packages are shown; None while none is held back."""

    def hold_back(self) -> None:
        """Print nothing before `release`: the table of packages comes first."""
        self._held = []

    def release(self) -> None:
        """Print what was held back, and everything that follows."""
        held, self._held = self._held or [], None
        for record in held:
            self.handle_record(record)

    def mute_warnings(self) -> None:
        """Print only errors from now on: the node is closing, and interrupted work is expected."""
        self._min_level = logging.ERROR

    async def read_unfinished_runs(self) -> None:
        """Read which runs an earlier process has not finished; call this before anything is loaded."""
        self._workflows |= await self._restart.read_unfinished_runs()

    async def run(self) -> None:
        """Report until cancelled."""
        self.release()
        last_summary = self._clock.monotonic()
        while True:
            await self._clock.sleep(RUN_REPORT_INTERVAL)
            await self.report_runs()
            if self._clock.monotonic() - last_summary >= SUMMARY_INTERVAL:
                last_summary = self._clock.monotonic()
                self._restart.report_missing()
                self._report_firings()
                self._problems.report_repeated()

    # -- log records

    def handle_record(self, record: logging.LogRecord) -> None:
        """Collect a record for the next report, or print it."""
        if self._held is not None:
            self._held.append(record)
            return
        fields = vars(record)
        run, workflow = str(fields.get("run", "")), str(fields.get("workflow", ""))
        if record.name == "tidemill.task":
            self._report_task_log(record)
        elif record.msg == events.RUN_STARTED and run:
            self._workflows[run] = workflow
            self._started.append(run)
        elif record.msg == events.RUN_ENDED and run:
            self._workflows.setdefault(run, workflow)
            self._ended.append(run)
        elif any(one.handles(record) for one in (self._attempts, self._restart, self._unfinished)):
            return
        elif record.levelno >= self._min_level:
            self._problems.report(record)

    def _report_task_log(self, record: logging.LogRecord) -> None:
        attempt = str(vars(record).get("attempt", ""))
        run, _ = split_attempt(attempt)
        if run in self._started:  # report the start of the run before its first line
            self._started.remove(run)
            self._report_start(run)
        level = "" if record.levelno <= logging.INFO else f"{record.levelname.lower()}: "
        fields = {name: value for name, value in extra_fields(record).items() if name != "attempt"}
        self._view.print_event(
            f"| {level}{format_with_fields(record.getMessage(), fields)}", self._attempt_name(attempt)
        )

    def _attempt_name(self, attempt: str) -> str:
        run, name = split_attempt(attempt)
        return f"{self._run_name(run)}.{name}"

    def _run_name(self, run: str) -> str:
        return self._workflows.get(run, f"run {run[-RUN_ID_LENGTH:]}")

    # -- runs

    async def _workflow_of(self, run: str) -> str:
        """Return the workflow of a run, even of one that an earlier process started; "" if it cannot be read."""
        if run not in self._workflows:
            with suppress(TidemillError):
                return (await self._node.run_handle(run).state()).workflow
        return self._workflows.get(run, "")

    async def report_runs(self) -> None:
        """Print what happened to runs since the last report: starts, retries, lost attempts or code, and ends."""
        self._restart.report()
        self._unfinished.report()
        ended, self._ended = self._ended, []
        ended_runs = set(ended)
        started, self._started = [run for run in self._started if run not in ended_runs], []
        counts = Counter(self._workflows[run] for run in [*started, *ended])
        for run in started:
            if counts[self._workflows[run]] <= SINGLE_REPORTS_LIMIT:
                self._report_start(run)
        await self._attempts.report()
        for run in ended:
            if counts[self._workflows[run]] <= SINGLE_REPORTS_LIMIT:
                await self._report_end(run)
        for name in sorted(name for name, number in counts.items() if number > SINGLE_REPORTS_LIMIT):
            self._report_run_counts(name, started, ended)
        for run in ended:
            self._workflows.pop(run, None)

    def _report_start(self, run: str) -> None:
        self._view.print_event(f"run {run[-RUN_ID_LENGTH:]} started", self._workflows[run])

    async def _report_end(self, run: str) -> None:
        name = self._workflows[run]
        try:
            result = await self._node.run_handle(run).state()
        except TidemillError as error:  # the report is optional
            self._view.print_event(f"run {run[-RUN_ID_LENGTH:]} has ended, and cannot be read: {error}", name, "yellow")
            return
        elapsed = format_elapsed(result.started_at or result.created_at, result.ended_at)
        reason = "" if result.ok or result.reason in ("", result.state) else f": {one_line(result.reason)}"
        style = state_style(result.state)
        self._view.print_event(
            f"run {run[-RUN_ID_LENGTH:]} {outcome_verb(result.state)} after {elapsed}{reason}",
            name,
            style,
            self._failure_lines(result),
        )

    def _failure_lines(self, result: RunResult) -> Iterator[str]:
        """Yield a line for each failed task, with the location in the author's code."""
        for name, task in result.tasks.items():
            if task.state is TaskState.FAILED:
                location = relative_path(task.error.place) if task.error is not None else ""
                yield f"{f'{location}: ' if location else ''}{name}: {result_text(task)}"

    def _report_run_counts(self, name: str, started: list[str], ended: list[str]) -> None:
        counts = {
            "started": sum(self._workflows[run] == name for run in started),
            "ended": sum(self._workflows[run] == name for run in ended),
        }
        parts = [f"{format_count(number, 'run')} {verb}" for verb, number in counts.items() if number]
        self._view.print_event(", ".join(parts), name)

    # -- reactors

    def _report_firings(self) -> None:
        """Print in one line how often each reactor fired, the busiest first."""
        states = {name: self._node.reactor(name).state() for name in self._node.registry.reactors()}
        counts = {}
        for name, state in states.items():
            fires, failures = self._fire_counts.get(name, (0, 0))
            if fires > state.fires:  # the reactor was loaded again
                fires = failures = 0
            counts[name] = state.fires - fires, state.failures - failures
        self._fire_counts = {name: (state.fires, state.failures) for name, state in states.items()}
        busiest = sorted((name for name, (fired, _) in counts.items() if fired), key=lambda name: -counts[name][0])
        if busiest:
            parts = [_firings_text(name, *counts[name]) for name in busiest[:LISTED_REACTORS_LIMIT]]
            others = len(busiest) - len(parts)
            text = ", ".join([*parts, f"and {format_count(others, 'other')}"] if others else parts)
            self._view.print_event(f"firings in {SUMMARY_INTERVAL:.0f} s: {text}", style="dim")


def _firings_text(name: str, fired: int, failed: int) -> str:
    return f"{name} {fired:,}" + (f" ({failed:,} failed)" if failed else "")


LOGGER_LEVELS = {
    "tidemill": logging.WARNING,
    "tidemill.engine.graphs.checkpoints.restore": logging.INFO,
    "tidemill.engine.workflows.leader.coordinator": logging.INFO,
    "tidemill.engine.workflows.leader.unfinished_runs": logging.INFO,
    "tidemill.engine.workflows.leader.failures": logging.INFO,
    "tidemill.task": logging.INFO,
}
"""The minimum level of each logger: most loggers matter only from warnings on."""

RecordHandler = Callable[[logging.LogRecord], None]


class _LogForwarder(logging.Handler):
    """Passes log records from any thread to the event loop; what blocks the loop is reported at once."""

    def __init__(self, loop: asyncio.AbstractEventLoop, handle_record: RecordHandler) -> None:
        super().__init__()
        self._loop = loop
        self._handle_record = handle_record

    def emit(self, record: logging.LogRecord) -> None:
        if record.msg == events.LOOP_BLOCKED:
            self._handle_record(record)
            return
        with suppress(RuntimeError):  # the loop is closed: a thread outlived it
            self._loop.call_soon_threadsafe(self._handle_record, record)


@contextmanager
def forwarding_logs(loop: asyncio.AbstractEventLoop, handle_record: RecordHandler) -> Iterator[None]:
    """Pass log records to a function within the context."""
    forwarder = _LogForwarder(loop, handle_record)
    logger = logging.getLogger("tidemill")
    previous_levels = {name: logging.getLogger(name).level for name in LOGGER_LEVELS}
    for name, level in LOGGER_LEVELS.items():
        logging.getLogger(name).setLevel(level)
    logger.addHandler(forwarder)
    try:
        yield
    finally:
        logger.removeHandler(forwarder)
        for name, level in previous_levels.items():
            logging.getLogger(name).setLevel(level)
