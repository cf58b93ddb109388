"""Logs: facts beside the event, and readable also where nobody has set up logging."""

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime

import pytest

from tidemill.telemetry.failure_streaks import FAILURES_PER_REMINDER, FailureStreaks
from tidemill.telemetry.logs import write_json_logs

WARNING = """
import logging, sys
from tidemill import Workflow
{set_up}
facts = {{"attempt": "r/t#1", "reason": "its node is gone"}}
logging.getLogger("tidemill.engine.anything").warning("task.lost", extra=facts)
logging.getLogger("tidemill.engine.anything").info("not shown")
"""


@pytest.mark.parametrize(
    ("set_up", "told"),
    [
        ("", "WARNING task.lost: attempt=r/t#1, reason='its node is gone'\n"),
        ("logging.basicConfig()", "WARNING:tidemill.engine.anything:task.lost\n"),
        ("logging.getLogger('tidemill').addHandler(logging.NullHandler())", ""),
        ("logging.getLogger('tidemill.engine').addHandler(logging.StreamHandler())", "task.lost\n"),
        ("logging.lastResort = None", ""),
        ("sys.stderr = None", ""),
    ],
)
def test_without_any_set_up_a_warning_has_its_facts(set_up: str, told: str) -> None:
    """docs, Running, Logs: as soon as anybody listens, nothing is written beside."""
    program = WARNING.format(set_up=set_up)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=True)
    assert done.stderr == told


def test_a_streak_is_told_when_it_begins_now_and_then_and_when_its_kind_changes() -> None:
    """docs, Workflows, Triggers: what fails every second must not fill the logs."""
    streaks = FailureStreaks()
    told = [
        number
        for number in range(1, 3 * FAILURES_PER_REMINDER)
        if streaks.record_failure("a", "ValueError") is not None
    ]
    assert told == [1, FAILURES_PER_REMINDER, 2 * FAILURES_PER_REMINDER]
    assert streaks.record_failure("a", "KeyError") == streaks.record_failure("b", "KeyError") == 1
    assert (streaks.reset("a"), streaks.reset("a")) == (1, 0)
    assert streaks.record_failure("a", "KeyError") == 1


@pytest.fixture
def level() -> Iterator[None]:
    """Leave the level of the logs as it was."""
    logger = logging.getLogger("tidemill")
    before = logger.level
    yield
    logger.setLevel(before)


@pytest.mark.usefixtures("level")
def test_json_logs_are_one_object_per_line(capsys: pytest.CaptureFixture[str]) -> None:
    """docs, Running, Logs: the event, its facts beside it, and a traceback in the same line."""
    logger = logging.getLogger("tidemill.engine.anything")
    handler = write_json_logs()
    try:
        logger.debug("not asked for")
        logger.info("run.started", extra={"run": "r1", "params": {"day": 3}, "node": Ellipsis})
        try:
            raise ValueError("two\nlines")
        except ValueError:
            logger.exception("a %s failed", "listener")
    finally:
        logging.getLogger("tidemill").removeHandler(handler)
    started, failed = map(json.loads, capsys.readouterr().err.splitlines())
    assert datetime.fromisoformat(started.pop("at")).tzinfo is not None
    facts = {"run": "r1", "params": {"day": 3}, "node": "Ellipsis"}
    assert started == {"level": "info", "logger": "tidemill.engine.anything", "event": "run.started", **facts}
    assert (failed["level"], failed["event"]) == ("error", "a listener failed")
    assert failed["traceback"].endswith("ValueError: two\nlines")
    logger.warning("nobody writes it")
    assert not capsys.readouterr().err.startswith("{")
