"""Workflows and runs as commands see them, on a server or on a store."""

from collections.abc import AsyncIterator, Collection, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from tidemill.workflows.states import RunState

if TYPE_CHECKING:
    from tidemill.cli.run_view import RunView
    from tidemill.engine.workflows.client.values import ClearResult, RunSnapshot
    from tidemill.workflows.records import RunRow
    from tidemill.workflows.result import RunResult


class NumberedLine(NamedTuple):
    """A line of the log of a task, with the try that wrote it."""

    element: int | None
    """The element of a mapped task."""
    number: int
    at: datetime
    message: str
    level: str
    stream: str
    fields: Mapping[str, Any]


class WorkflowService(Protocol):
    """The workflows and runs of one tenant."""

    async def find_runs(self, workflow: str | None, states: Collection[RunState], limit: int) -> "list[RunRow]":
        """Return the newest runs, oldest first."""

    async def resolve_run_id(self, part: str) -> str:
        """Return the id of a run from its id, or from a beginning or end of it that only one run has."""

    async def read_view(self, run: str) -> "RunView":
        """Return a run with everything that is stored about it."""

    async def load_result(self, run: str) -> "RunResult":
        """Return the state of a run and its tasks."""

    async def why(self, run: str, task: str) -> list[str]:
        """Return why a task has not run, or how it ended."""

    async def cancel(self, run: str, reason: str) -> None:
        """Cancel a run."""

    async def clear(
        self, run: str, tasks: Collection[str] | None, *, preview: bool = False, latest: bool = False
    ) -> "ClearResult":
        """Rerun tasks and all tasks after them; None for all that failed."""

    async def note(self, run: str, text: str, task: str | None = None) -> None:
        """Write a note on a run, or on one of its tasks."""

    def logs(self, run: str, task: str, *, follow: bool) -> AsyncIterator[NumberedLine]:
        """Yield the log of a task, or of an element; with `follow` until it has ended."""

    def watch(self, run: str, *, events: bool) -> "AsyncIterator[RunSnapshot]":
        """Yield a snapshot whenever a run changes; ends with the run."""

    async def cancel_backfill(self, id: str) -> int:
        """Start no more runs of a backfill, and cancel its active ones; return how many these were."""
