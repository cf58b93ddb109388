"""`tidemill dev`, killed in the middle of a run and restarted with fixed code: no run is stuck in silence."""

import re
import shlex
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.system.dev_session import DevSession
from tests.system.test_dev import until

FLOW = """import tidemill as tm

flow = tm.Workflow("flow", schedule=tm.Every("1s", catchup="none"), max_active_runs=1)


@flow.task
def read() -> int:
    return 1


@flow.task(retry=tm.Retry(3, delay="1h"))
def note(read: int) -> int:
    {body}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file whose workflow was fixed after its process had been killed; a run of it waits for a retry."""
    folder = tmp_path / "flows"
    folder.mkdir()
    path = folder / "flow.py"
    path.write_text(FLOW.format(body="raise ValueError('a mistake')"))
    with DevSession(folder, tmp_path / "scratch") as dev:
        until(lambda: is_waiting_for_retry(folder / ".tidemill" / "dev.db"))
        dev.end(signal.SIGKILL)
    path.write_text(FLOW.format(body="return read + 1"))
    return path


def is_waiting_for_retry(store: Path) -> bool:
    """Return whether a task in a store has failed, and waits for its next try."""
    try:
        with closing(sqlite3.connect(store)) as connection:
            rows = connection.execute("SELECT 1 FROM task_runs WHERE state = 'up_for_retry'").fetchall()
    except sqlite3.OperationalError:  # it is being created
        return False
    return bool(rows)


def test_a_begun_run_continues_with_the_fixed_code(file: Path, tmp_path: Path) -> None:
    """W-19, `dev`: an upgrade is the default; what queued behind the run follows."""
    with DevSession(file.parent, tmp_path / "scratch") as dev:
        _, line = dev.wait_for("continues with the changed code")
        run = re.search(r"run (\w+) continues", line)
        assert run is not None
        dev.wait_for(f"run {run[1]}", "succeeded")
        dev.wait_for("run", "succeeded")


def test_a_pinned_run_is_named_with_the_command_that_goes_on(file: Path, tmp_path: Path) -> None:
    """W-19: in one line, and the command works as it is printed."""
    with DevSession(file.parent, tmp_path / "scratch", "--unfinished", "pin") as dev:
        _, line = dev.wait_for("waits for code that is gone")
        command = re.search(r"`tidemill (runs retry [^`]*)`", line)
        assert command is not None
        subprocess.run([sys.executable, "-m", "tidemill", *shlex.split(command[1])], check=True, cwd=file.parent)
        dev.wait_for("run", "succeeded")
