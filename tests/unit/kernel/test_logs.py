"""Logs: facts beside the event, and readable also where nobody has set up logging."""

import subprocess
import sys

import pytest

from tidemill.telemetry.streaks import REMINDER, Streaks

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
    streaks = Streaks()
    told = [number for number in range(1, 3 * REMINDER) if streaks.fail("a", "ValueError") is not None]
    assert told == [1, REMINDER, 2 * REMINDER]
    assert streaks.fail("a", "KeyError") == streaks.fail("b", "KeyError") == 1
    assert (streaks.end("a"), streaks.end("a")) == (1, 0)
    assert streaks.fail("a", "KeyError") == 1
