"""The filters of lists of runs, and the cursors of their pages."""

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta

from tidemill.api.errors import require_offset
from tidemill.api.fields import Positional, WireName
from tidemill.api.paging import PageRequest, decode_cursor, encode_cursor
from tidemill.storage.run_lists import EARLIEST, LATEST, RunPage, RunPosition
from tidemill.workflows.states import RunState

WorkflowName = Annotated[str | None, Meta(description="Only runs of this workflow."), Positional()]
States = Annotated[list[RunState] | None, Meta(description="Repeat it for several states."), Positional()]
Since = Annotated[datetime | None, Meta(description="Runs created at this time or later."), WireName("from")]
Until = Annotated[datetime | None, Meta(description="Runs created at this time or earlier."), WireName("to")]
Text = Annotated[
    str, Meta(description="A part of the id, the workflow or the note, or of a text in the params."), WireName("q")
]
Tag = Annotated[str, Meta(description="Only runs of workflows with this tag.")]
Cause = Annotated[
    str,
    Meta(
        description="What started the run: manual, schedule, trigger, firing, backfill, task or handler; or its name, "
        "that of a trigger, a reactor, or the workflow of a task.",
        examples=["schedule"],
    ),
]
Key = Annotated[
    str, Meta(description="The key of a run: that of its schedule, what `dedup` says it is about, or its backfill.")
]

StartedBy = Annotated[str, Meta(description="Only runs that this firing started, or a task of this run, by its id.")]
Unresolved = Annotated[
    bool,
    Meta(
        description="Only failed runs that need a person: not retried, cleared or dismissed since, and without a later "
        "success about the same, such as that of the next slot of a schedule."
    ),
]


def created_between(since: datetime | None, until: datetime | None) -> dict[str, Any]:
    """Return the range of times, for `list_runs` of the service; InvalidRequestError for one without a zone."""
    return {"since": require_offset("from", since) or EARLIEST, "until": require_offset("to", until) or LATEST}


def page_range(page: PageRequest) -> dict[str, Any]:
    """Return the position and the length of a page, with one more run to see whether it is the last."""
    return {"after": decode_position(page.cursor), "limit": page.limit + 1}


def next_position(page: RunPage, limit: int) -> str | None:
    """Return the cursor after the first `limit` runs of a page; None if it has no more."""
    last = page.runs[limit - 1] if len(page.runs) > limit else None
    return None if last is None else encode_cursor((last.created_at, last.id))


def decode_position(cursor: str | None) -> RunPosition | None:
    """Return the position of a cursor of a list of runs; None without one."""
    if cursor is None:
        return None
    created_at, run = decode_cursor(cursor, tuple[Annotated[datetime, Meta(tz=True)], str])
    return RunPosition(created_at, run)
