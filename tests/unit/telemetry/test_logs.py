"""Logs: fields beside the event, readable even where logging is not configured."""

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime

import pytest

from tidemill.telemetry.logs import write_logs

WARNING = """
import logging, sys
from tidemill import Workflow
{set_up}
fields = {{"attempt": "r/t#1", "reason": "its node is gone"}}
logging.getLogger("tidemill.engine.anything").warning("task.lost", extra=fields)
logging.getLogger("tidemill.engine.anything").info("not shown")
"""


@pytest.mark.parametrize(
    ("set_up", "written"),
    [
        ("", "WARNING task.lost: attempt=r/t#1, reason='its node is gone'\n"),
        ("logging.basicConfig()", "WARNING:tidemill.engine.anything:task.lost\n"),
        ("logging.getLogger('tidemill').addHandler(logging.NullHandler())", ""),
        ("logging.getLogger('tidemill.engine').addHandler(logging.StreamHandler())", "task.lost\n"),
        ("logging.lastResort = None", ""),
        ("sys.stderr = None", ""),
    ],
)
def test_a_warning_has_its_fields_if_logging_is_not_configured(set_up: str, written: str) -> None:
    """docs, Running, Logs: as soon as there is another handler, this one writes nothing."""
    program = WARNING.format(set_up=set_up)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=True)
    assert done.stderr == written


@pytest.fixture
def level() -> Iterator[None]:
    """Restore the level of the logs."""
    before = logging.getLogger().level
    yield
    logging.getLogger().setLevel(before)


@pytest.mark.usefixtures("level")
def test_json_logs_are_one_object_per_line(capsys: pytest.CaptureFixture[str]) -> None:
    """docs, Running, Logs: the event, its fields beside it, and a traceback in the same line."""
    logger = logging.getLogger("tidemill.engine.anything")
    handler = write_logs("json")
    try:
        logger.debug("not asked for")
        logger.info("run.started", extra={"run": "r1", "params": {"day": 3}, "node": Ellipsis})
        try:
            raise ValueError("two\nlines")
        except ValueError:
            logger.exception("a %s failed", "listener")
    finally:
        logging.getLogger().removeHandler(handler)
    started, failed = map(json.loads, capsys.readouterr().err.splitlines())
    assert datetime.fromisoformat(started.pop("at")).tzinfo is not None
    fields = {"run_id": "r1", "params": {"day": 3}, "node": "Ellipsis"}
    assert started == {"level": "info", "logger": "tidemill.engine.anything", "event": "run.started", **fields}
    assert (failed["level"], failed["event"]) == ("error", "a listener failed")
    assert failed["traceback"].endswith("ValueError: two\nlines")
    logger.warning("not written as JSON")
    assert not capsys.readouterr().err.startswith("{")
