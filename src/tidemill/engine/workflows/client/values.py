"""The values that the workflow client takes and returns."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from tidemill.engine.workflows.client.log_lines import LogLine
from tidemill.telemetry.log_records import LogRecord as LogRecord  # for commands, which know no executor
from tidemill.workflows.records import EventRow, RunRecord


class WatchedRun(NamedTuple):
    """A run at one moment, and what is new since the last snapshot."""

    record: RunRecord
    log_lines: list[LogLine]
    events: list[EventRow]
    """The new events, if they were requested."""


class ElementPage(NamedTuple):
    """Some elements of a mapped task."""

    record: RunRecord
    """The run, with these elements alone."""
    total: int
    """The number of all that match."""


class ClearResult(msgspec.Struct, frozen=True, kw_only=True):
    """The tasks that clearing a run reruns."""

    names: list[str]
    reused: list[str]
    """The tasks whose results are kept."""
    elements: Mapping[str, tuple[int, int]]
    """By mapped task: how many of its elements rerun, and how many it has."""
    version: str
    """The workflow version that the run continues with."""
    missing_tasks: list[str]
    """Tasks of the run that this version does not have."""
    note: str | None
    """A note for a run that stays pinned to a version that is not the newest."""
    live_nodes: int
    """The number of nodes that may be running on the store."""
