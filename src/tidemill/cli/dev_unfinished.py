"""Shows the unfinished runs of `tidemill dev` whose code has changed: they continue with it, or wait for a command."""

import logging
from typing import NamedTuple

from tidemill.cli.dev_view import DevView
from tidemill.cli.formatting import format_count
from tidemill.cli.run_view import RUN_ID_LENGTH
from tidemill.telemetry import events


class WaitingRun(NamedTuple):
    """A run that waits for code that is gone."""

    id: str
    has_newer_code: bool
    lost_tasks: list[str]
    """The tasks that have ended, and that the newer code does not have."""


class UnfinishedReports:
    """Turns log records about runs whose code has changed into one line per workflow."""

    def __init__(self, view: DevView, store: str) -> None:
        self._view = view
        self._store_option = f" --store {store}" if store else ""
        self._waiting: dict[str, list[WaitingRun]] = {}
        """By workflow: the runs that were found waiting since the last report."""

    def handles(self, record: logging.LogRecord) -> bool:
        """Collect or print a record; return False if it is not about such a run."""
        fields = vars(record)
        run, workflow = str(fields.get("run") or ""), str(fields.get("workflow") or "")
        if record.msg == events.RUN_CODE_MISSING and run:
            waiting = WaitingRun(run, bool(fields.get("newest")), list(fields.get("lost_tasks") or ()))
            self._waiting.setdefault(workflow, []).append(waiting)
            return True
        if record.msg == events.RUN_UPGRADED and run:
            self._view.print_event(f"run {run[-RUN_ID_LENGTH:]} continues with the changed code", workflow)
            return True
        return False

    def report(self) -> None:
        """Print the runs that wait for code that is gone, with the command that continues them."""
        waiting, self._waiting = self._waiting, {}
        for workflow, runs in waiting.items():
            self._view.print_event(self._sentence(workflow, runs), workflow, "yellow")

    def _sentence(self, workflow: str, runs: list[WaitingRun]) -> str:
        waits, selected, them = (
            f"{format_count(len(runs), 'run')} wait",
            f"--workflow {workflow} --state running",
            "them",
        )
        if len(runs) == 1:
            waits, selected, them = f"run {runs[0].id[-RUN_ID_LENGTH:]} waits", runs[0].id, "it"
        waits = f"{waits} for code that is gone"
        if not all(run.has_newer_code for run in runs):
            return f"{waits}: undo the change, or `tidemill runs cancel {selected}{self._store_option}` ends {them}"
        lost = sorted({task for run in runs for task in run.lost_tasks})
        without = f" without {', '.join(map(repr, lost))}, which no longer exists" if lost else ""
        retry = f"`tidemill runs retry {selected} --latest{self._store_option}`"
        return f"{waits}: {retry} continues {them} with the changed code{without}"
