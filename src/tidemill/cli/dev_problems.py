"""Shows the problems of `tidemill dev`: one line each, and a number for those that are repeated.

Problems are log records of all parts of a node. A record has a message and some fields, and none of the fields is
certain to be there.
"""

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from tidemill.cli.dev_view import DevView
from tidemill.cli.formatting import format_count, format_with_fields, one_line, relative_path
from tidemill.kernel.author_errors import describe
from tidemill.kernel.errors import RequestError, TidemillError
from tidemill.node import Node
from tidemill.telemetry import events
from tidemill.telemetry.logs import extra_fields

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
IGNORED_EVENTS = frozenset([events.PACKAGE_FAILED, events.FIRING_DEAD_LETTERED, events.SOURCE_LOST])
"""The view shows failed packages itself; dead-lettered firings and lost sources have been reported by other events."""

_SENTENCES = {
    events.PACKAGE_SOURCE_FAILED: "the packages cannot be read, and those that are loaded keep running",
    events.PACKAGE_SOURCE_RECOVERED: "the packages can be read again",
    events.COMPONENT_CRASHED: "stopped, and will be started again",
    events.COMPONENT_RESTARTED: "started again",
    events.SCHEDULE_SLOTS_DROPPED: "some missed slots get no run, see `catchup` and `limit` of the schedule",
    events.LOOP_BLOCKED: "blocks the event loop, so that everything else here waits: make it a plain `def`, await a "
    "library that does not block, or give it executor='subprocess'",
    events.EVENT_DEAD_LETTERED: "an event cannot be processed, and is kept as a dead letter",
}
"""What some events mean; the others are named after what they mean."""


class ProblemReports:
    """Prints each problem once, and then how often it was repeated."""

    def __init__(self, node: Node, view: DevView, run_name: Callable[[str], str]) -> None:
        self._node = node
        self._view = view
        self._run_name = run_name
        self._counts: Counter[tuple[str, str]] = Counter()
        """How often each problem occurred since it was last printed."""

    def report(self, record: logging.LogRecord) -> None:
        """Print the problem of a record, or count it if it was printed lately."""
        if record.msg in IGNORED_EVENTS:
            return
        fields = vars(record)
        subject, reason = self._subject(fields), _reason(record)
        problem = (subject, reason or str(record.msg))
        is_printed = problem in self._counts
        self._counts[problem] += fields.get("new_events", 1)  # one record may be about several events
        if is_printed:
            return
        style = "bold red" if record.levelno >= logging.ERROR else "yellow"
        location = self._location(record)
        text = f"{_event_text(record)}: {reason}" if reason else f"{_event_text(record)}{_other_fields(record)}"
        self._view.print_event(f"{text}{f' ({location})' if location else ''}", subject, style, _traceback(record))

    def report_repeated(self) -> None:
        """Print how often problems were repeated since they were printed."""
        for (subject, reason), number in self._counts.items():
            if number > 1:
                self._view.print_event(f"{format_count(number - 1, 'time')} more: {reason}", subject, "yellow")
        self._counts.clear()

    def _subject(self, fields: Mapping[str, Any]) -> str:
        """Return the name of the component that a record is about; "" if it concerns the node."""
        if subject := next((str(fields[name]) for name in SUBJECT_FIELDS if fields.get(name)), ""):
            return subject
        run, task = fields.get("run"), fields.get("task")
        if fields.get("attempt"):
            run, task = split_attempt(str(fields["attempt"]))
        return ".".join(filter(None, [run and self._run_name(str(run)), task and str(task)]))

    def _location(self, record: logging.LogRecord) -> str:
        if record.msg == events.FIRING_FAILED:
            return self._firing_error_location(vars(record))
        return relative_path(str(vars(record).get("place", "")))

    def _firing_error_location(self, fields: Mapping[str, Any]) -> str:
        """Return where in a package the node of a failed firing raised; "" if that is no longer known."""
        try:
            firings = self._node.reactor(str(fields.get("reactor"))).firings()
        except RequestError:  # the reactor has been unloaded
            return ""
        results = next((one.results for one in firings if one.id == fields.get("firing")), {})
        errors = [one.error for one in results.values() if one.error is not None]
        return self._view.error_location(errors[0].cause) if errors else ""


def split_attempt(attempt: str) -> tuple[str, str]:
    """Return the run of an attempt, and its task or element: "clean[7]"."""
    run, _, name = attempt.partition("/")
    return run, name.rpartition("#")[0]


def _event_text(record: logging.LogRecord) -> str:
    return _SENTENCES.get(str(record.msg)) or record.getMessage().replace(".", " ").replace("_", " ")


def _other_fields(record: logging.LogRecord) -> str:
    """Return the fields that no other part of the line shows, such as a number."""
    shown = {*SUBJECT_FIELDS, *REASON_FIELDS, "attempt", "run", "task", "place", "firing", "tenant", "node"}
    return format_with_fields("", {name: value for name, value in extra_fields(record).items() if name not in shown})


def _reason(record: logging.LogRecord) -> str:
    fields = vars(record)
    if reason := next((str(fields[name]) for name in REASON_FIELDS if fields.get(name)), ""):
        return one_line(reason)
    error = record.exc_info[1] if record.exc_info else None
    return "" if error is None else one_line(describe(error))


def _traceback(record: logging.LogRecord) -> list[str]:
    """Return the traceback of an error that nothing in Tidemill expected; the others are explained by their text."""
    error = record.exc_info[1] if record.exc_info else None
    if record.exc_info is None or error is None or isinstance(error, TidemillError | OSError):
        return []
    return [logging.Formatter().formatException(record.exc_info)]
