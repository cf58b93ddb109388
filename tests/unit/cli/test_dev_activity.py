"""The activity of `tidemill dev`: every piece of news is one line, whatever a log record holds."""

import io
import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidemill as tm
from tidemill.cli.dev_activity import DevActivity
from tidemill.cli.dev_problems import IGNORED_EVENTS, REASON_FIELDS, SUBJECT_FIELDS
from tidemill.cli.dev_view import DevView
from tidemill.kernel.clock import SystemClock
from tidemill.kernel.errors import StoreError
from tidemill.telemetry import events

EVENTS = sorted(value for name, value in vars(events).items() if name.isupper())
FIELDS = [
    *SUBJECT_FIELDS,
    *REASON_FIELDS,
    "run",
    "task",
    "attempt",
    "place",
    "firing",
    "failures",
    "state",
    "delay",
    "cached",
]
COLLECTED = [
    events.RUN_STARTED,
    events.RUN_ENDED,
    events.RUN_CODE_MISSING,
    events.TASK_LOST,
    events.TASK_RETRY_SCHEDULED,
    events.CHECKPOINT_RESTORED,
]
VALUES = st.one_of(
    st.none(), st.integers(), st.text(max_size=20), st.sampled_from(["01abc/task#1", "01abc", "a\nb", "/x/y.py:3"])
)


@contextmanager
def collecting_lines() -> Iterator[list[str]]:
    """Collect the lines that are printed in the context."""
    lines: list[str] = []
    with redirect_stdout(io.StringIO()) as output:
        yield lines
    lines += output.getvalue().splitlines()


def activity() -> DevActivity:
    """Return the activity of a node that has loaded nothing."""
    node = tm.Node()
    return DevActivity(node, DevView(node, Path.cwd(), SystemClock(), lambda: None), SystemClock())


def record(event: str, fields: Mapping[str, Any], level: int = logging.WARNING, **more: Any) -> logging.LogRecord:
    """Return a record as a logger of the engine would make it."""
    return logging.makeLogRecord({"name": "tidemill.engine", "levelno": level, "msg": event, **fields, **more})


@given(st.sampled_from(EVENTS), st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=6))
def test_every_event_is_at_most_one_line(event: str, fields: dict[str, Any]) -> None:
    """P-10: no event has to have a certain field."""
    with collecting_lines() as lines:
        activity().handle_record(record(event, fields))
    is_collected = event in COLLECTED
    assert len(lines) == 1 or (len(lines) == 0 and (is_collected or event in IGNORED_EVENTS))


@given(st.lists(st.tuples(st.sampled_from(EVENTS), st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=6))))
async def test_what_was_collected_is_reported(news: list[tuple[str, dict[str, Any]]]) -> None:
    """The reports follow at the next interval, also for runs that nothing is known of."""
    shown = activity()
    with collecting_lines():
        for event, fields in news:
            shown.handle_record(record(event, fields))
        await shown.report_runs()
    with collecting_lines() as lines:
        await shown.report_runs()
    assert lines == []


def test_what_happens_before_the_packages_are_shown_follows_them() -> None:
    """In its order, and with nothing lost."""
    shown = activity()
    shown.hold_back()
    with collecting_lines() as before:
        for reason in ("first", "second"):
            shown.handle_record(record(events.COMPONENT_CRASHED, {"component_name": "feed", "reason": reason}))
    with collecting_lines() as lines:
        shown.release()
    assert before == []
    assert [line.partition("  ")[2] for line in lines] == [
        "feed  stopped, and will be started again: first",
        "feed  stopped, and will be started again: second",
    ]


def test_a_source_that_cannot_be_read_is_reported_in_words() -> None:
    with collecting_lines() as lines:
        activity().handle_record(record(events.PACKAGE_SOURCE_FAILED, {"reason": "no folder"}))
    assert lines[0].endswith("the packages cannot be read, and those that are loaded keep running: no folder")


def test_a_number_without_a_reason_is_shown() -> None:
    with collecting_lines() as lines:
        activity().handle_record(record(events.SCHEDULE_SLOTS_DROPPED, {"workflow": "flow", "slots": 9}))
    assert lines[0].endswith("flow  some missed slots get no run, see `catchup` and `limit` of the schedule  slots=9")


@pytest.mark.parametrize(("error", "lines"), [(StoreError("it is locked"), 1), (KeyError("run"), 5)])
def test_only_an_unexpected_error_has_a_traceback(error: Exception, lines: int) -> None:
    """A store that is locked for seconds is explained by its error."""
    try:
        raise error
    except type(error):
        info = sys.exc_info()
    with collecting_lines() as shown:
        activity().handle_record(record(events.RUN_ORPHANED, {"run": "01abc"}, exc_info=info))
    assert len(shown) == lines
    assert type(error).__name__ in shown[0]


async def test_runs_that_wait_for_code_that_is_gone_are_one_line_with_the_command() -> None:
    """P-10: one run by its id, several by their workflow, and what would be lost."""
    node = tm.Node()
    view = DevView(node, Path.cwd(), SystemClock(), lambda: None)
    shown = DevActivity(node, view, SystemClock(), "sqlite:///x.db")
    one = {"workflow": "etl", "version": "v1", "newest": "v2", "lost_tasks": []}
    with collecting_lines() as lines:
        for workflow, runs in {"etl": ["0123456789"], "load": ["a", "b"]}.items():
            for run in runs:
                shown.handle_record(record(events.RUN_CODE_MISSING, one | {"run": run, "workflow": workflow}))
        await shown.report_runs()
        shown.handle_record(record(events.RUN_CODE_MISSING, one | {"run": "c", "lost_tasks": ["read"]}))
        await shown.report_runs()
        shown.handle_record(record(events.RUN_CODE_MISSING, one | {"run": "d", "newest": None}))
        await shown.report_runs()
        shown.handle_record(record(events.RUN_UPGRADED, {"run": "0123456789", "workflow": "etl"}, logging.INFO))
    assert [line.partition("  ")[2] for line in lines] == [
        "etl  run 23456789 waits for code that is gone: `tidemill runs retry 0123456789 --latest --store "
        "sqlite:///x.db` continues it with the changed code",
        "load  2 runs wait for code that is gone: `tidemill runs retry --workflow load --state running --latest "
        "--store sqlite:///x.db` continues them with the changed code",
        "etl  run c waits for code that is gone: `tidemill runs retry c --latest --store sqlite:///x.db` continues it "
        "with the changed code without 'read', which no longer exists",
        "etl  run d waits for code that is gone: undo the change, or `tidemill runs cancel d --store sqlite:///x.db` "
        "ends it",
        "etl  run 23456789 continues with the changed code",
    ]
