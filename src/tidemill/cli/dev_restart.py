"""Shows what a restarted `tidemill dev` continues: the restored state of reactors, and the unfinished runs."""

import logging
from contextlib import suppress

from tidemill.cli.dev_view import DevView
from tidemill.cli.formatting import format_count
from tidemill.cli.run_view import RUN_ID_LENGTH
from tidemill.kernel.errors import TidemillError
from tidemill.node import Node
from tidemill.telemetry import events
from tidemill.workflows.states import RunState

RUN_LIMIT = 100  # unfinished runs that are read at the start
LISTED_RUNS_LIMIT = 3  # of more runs of one workflow, only the number is shown


class RestartReport:
    """Collects what an earlier process left, and prints it when it is in use again."""

    def __init__(self, node: Node, view: DevView) -> None:
        self._node = node
        self._view = view
        self._restored: dict[str, str] = {}
        """What was restored of each reactor, in words; the last time, if it was loaded several times."""
        self._reported: set[tuple[str, str]] = set()
        """What was printed of it: a load that is tried again restores the same again."""
        self._unfinished: dict[str, list[str]] = {}
        """Runs that an earlier process has not finished, by workflow, until they are reported."""

    async def read_unfinished_runs(self) -> dict[str, str]:
        """Return the runs that an earlier process has not finished, each with its workflow."""
        workflows: dict[str, str] = {}
        for state in (RunState.RUNNING, RunState.QUEUED):
            with suppress(TidemillError):  # the report is optional, and the node logs a store that fails
                for handle in reversed(await self._node.runs(state=state, limit=RUN_LIMIT)):
                    workflows[handle.id] = "" if handle.listed is None else handle.listed.workflow
        for run, workflow in workflows.items():
            self._unfinished.setdefault(workflow, []).append(run)
        return workflows

    def handles(self, record: logging.LogRecord) -> bool:
        """Collect a record about a restored reactor; return False if it is about something else."""
        fields = vars(record)
        if record.msg == events.RUN_CODE_MISSING:
            self._drop_run(str(fields.get("workflow", "")), str(fields.get("run", "")))
        if record.msg != events.CHECKPOINT_RESTORED:
            return False
        counts = (fields.get(name) for name in ("cached", "queued", "firings"))
        cached, queued, firings = (one if isinstance(one, int) else 0 for one in counts)
        parts = [format_count(cached, "cached value")] if cached else []
        parts += [f"{queued:,} in the queue"] if queued else []
        parts += [format_count(firings, "unfinished firing")] if firings else []
        if parts:
            self._restored[str(fields.get("reactor", ""))] = ", ".join(parts)
        return True

    def _drop_run(self, workflow: str, run: str) -> None:
        """Do not report a run that waits for code that is gone: it has its own line."""
        runs = [one for one in self._unfinished.pop(workflow, []) if one != run]
        if runs:
            self._unfinished[workflow] = runs

    def report(self) -> None:
        """Print the reactors that were restored, and the workflows that were loaded and continue their runs."""
        restored, self._restored = self._restored, {}
        for reactor, text in sorted(restored.items() - self._reported):
            self._reported.add((reactor, text))
            self._view.print_event(f"restored from the store: {text}", reactor)
        for workflow in sorted(self._unfinished.keys() & set(self._node.registry.workflows())):
            runs = _name_runs(self._unfinished.pop(workflow))
            self._view.print_event(f"continues {runs}, unfinished since the last stop", workflow)

    def report_missing(self) -> None:
        """Print the runs whose workflows are still not loaded, once."""
        unfinished, self._unfinished = self._unfinished, {}
        for workflow, runs in sorted(unfinished.items()):
            text = f"{_name_runs(runs)}: unfinished since the last stop, and the workflow is not loaded"
            self._view.print_event(text, workflow, "yellow")


def _name_runs(runs: list[str]) -> str:
    if len(runs) > LISTED_RUNS_LIMIT:
        return format_count(len(runs), "run")
    return f"run {', '.join(run[-RUN_ID_LENGTH:] for run in runs)}"
