"""Shows attempts of `tidemill dev` that did not succeed and are followed by others: failed ones, and lost ones."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from tidemill.cli.dev_problems import split_attempt
from tidemill.cli.dev_view import DevView
from tidemill.cli.formatting import format_count, format_short_duration, one_line, relative_path
from tidemill.cli.run_view import RUN_ID_LENGTH
from tidemill.telemetry import events

LISTED_RUNS_LIMIT = 3  # of more runs with the same trouble, only the number is shown


_VERBS = {events.TASK_LOST: "lost", events.TASK_RETRY_SCHEDULED: "failed"}


class _Trouble(NamedTuple):
    """What happened to attempts of one task."""

    workflow: str
    task: str
    verb: str
    reason: str
    place: str


class _Attempt(NamedTuple):
    """One attempt, and the seconds until the next one; None if that is due at once."""

    run: str
    name: str
    delay: float | None


class AttemptReports:
    """Collects attempts that are repeated, and prints one line for each task and reason."""

    def __init__(self, view: DevView, workflow_of: Callable[[str], Awaitable[str]]) -> None:
        self._view = view
        self._workflow_of = workflow_of
        self._records: list[logging.LogRecord] = []

    def handles(self, record: logging.LogRecord) -> bool:
        """Collect a record about an attempt; return False if it is about something else."""
        is_handled = record.msg in _VERBS and bool(vars(record).get("attempt"))
        if is_handled:
            self._records.append(record)
        return is_handled

    async def report(self) -> None:
        """Print what was collected since the last report."""
        records, self._records = self._records, []
        troubles: dict[_Trouble, list[_Attempt]] = {}
        for record in records:
            fields = vars(record)
            run, name = split_attempt(str(fields["attempt"]))
            reason, place, delay = (fields.get(one) for one in ("reason", "place", "delay"))
            task, verb = name.partition("[")[0], _VERBS[record.msg]
            trouble = _Trouble(await self._workflow_of(run), task, verb, str(reason or ""), str(place or ""))
            seconds = float(delay) if isinstance(delay, int | float) else None
            troubles.setdefault(trouble, []).append(_Attempt(run, name, seconds))
        for trouble, attempts in troubles.items():
            self._report_trouble(trouble, attempts)

    def _report_trouble(self, trouble: _Trouble, attempts: Sequence[_Attempt]) -> None:
        by_run: dict[str, list[_Attempt]] = {}
        for one in attempts:
            by_run.setdefault(one.run, []).append(one)
        if len(by_run) > LISTED_RUNS_LIMIT:
            text = f"{format_count(len(attempts), 'attempt')} of task {trouble.task} in {len(by_run):,} runs"
            self._print(trouble, text, attempts)
            return
        for run, ones in by_run.items():
            names = sorted({one.name for one in ones})
            subject = f"task {names[0]}" if len(names) == 1 else f"{len(names):,} elements of task {trouble.task}"
            self._print(trouble, f"{subject} of run {run[-RUN_ID_LENGTH:]}", ones)

    def _print(self, trouble: _Trouble, subject: str, attempts: Sequence[_Attempt]) -> None:
        is_one = len({(one.run, one.name) for one in attempts}) == 1
        verb = trouble.verb if trouble.verb == "failed" else f"{'was' if is_one else 'were'} {trouble.verb}"
        times = f" {len(attempts)} times" if is_one and len(attempts) > 1 else ""
        place = f" ({relative_path(trouble.place)})" if trouble.place else ""
        delay = attempts[-1].delay
        retry = "" if delay is None else f"; retry in {format_short_duration(delay)}"
        text = f"{subject} {verb}{times}: {one_line(trouble.reason)}{place}{retry}"
        self._view.print_event(text, trouble.workflow, "yellow")
