"""Handlers on the command line: `tidemill run`, `runs show`, `workflow list`, on a store and in a separate process."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.command_line import run

Monkey = pytest.MonkeyPatch
Captured = pytest.CaptureFixture[str]

ALERTS = """
import tidemill as tm


def alert(report: tm.RunReport, ctx: tm.Context) -> str:
    ctx.log.info("%s", report)
    return report.failures[0].error.type


def page(report: tm.RunReport) -> None:
    raise ConnectionError("no network")
"""
FAILING = """
import tidemill as tm
from alerts_of_failing import alert, page

failing = tm.Workflow("failing")
failing.on_failure(alert)
failing.on_failure(retry=0)(page)


@failing.task
def load() -> None:
    raise ValueError("no rows")
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with a workflow whose handlers are in another one."""
    (tmp_path / "alerts_of_failing.py").write_text(ALERTS)
    path = tmp_path / "failing_flow.py"
    path.write_text(FAILING)
    return path


def told(monkeypatch: Monkey, capsys: Captured, *arguments: str) -> Any:
    """Return what a command gives to programs."""
    capsys.readouterr()
    assert run(monkeypatch, *arguments, "-o", "json") == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("executor", ["in_process", "subprocess"])
def test_a_run_in_the_shell_calls_its_handlers(
    file: Path, executor: str, tmp_path: Path, monkeypatch: Monkey, capsys: Captured
) -> None:
    """The only workflow of a file is that of the author; the shell waits for its handlers, and says which failed."""
    store = f"sqlite:///{tmp_path / 'tidemill.db'}"
    assert run(monkeypatch, "run", str(file), "--executor", executor, "--store", store) == 1
    monkeypatch.setenv("TIDEMILL_STORE", store)
    assert "task 'page' failed: ConnectionError: no network" in capsys.readouterr().err
    called, failed = told(monkeypatch, capsys, "runs", "list")
    assert (called["workflow"], called["origin"], called["parent"]) == ("failing.on_failure", "handler", failed["id"])
    assert run(monkeypatch, "runs", "show", failed["id"]) == 0
    line = f"on_failure: alert success, page failed  (run {called['id']})"
    assert line in capsys.readouterr().out.splitlines()
    shown = told(monkeypatch, capsys, "runs", "show", failed["id"])
    assert (shown["state"], shown["handlers"][0]["tasks"]) == ("failed", {"alert": "success", "page": "failed"})
    handler = told(monkeypatch, capsys, "runs", "show", called["id"])
    assert handler["tasks"]["alert"]["output"] == "ValueError"


def test_lists_of_workflows_leave_handlers_out(
    file: Path, tmp_path: Path, monkeypatch: Monkey, capsys: Captured
) -> None:
    store = f"sqlite:///{tmp_path / 'tidemill.db'}"
    assert run(monkeypatch, "run", str(file), "--store", store) == 1
    monkeypatch.setenv("TIDEMILL_STORE", store)
    assert [one["name"] for one in told(monkeypatch, capsys, "workflow", "list")] == ["failing"]
    listed = told(monkeypatch, capsys, "workflow", "list", "--handlers")
    assert [(one["name"], one["handles"]) for one in listed] == [("failing", None), ("failing.on_failure", "failing")]
    assert told(monkeypatch, capsys, "workflow", "show", "failing")["handlers"] == ["failing.on_failure"]
    checked = told(monkeypatch, capsys, "workflow", "check", str(file))
    assert checked["workflows"] == ["failing"]


def test_a_problem_of_a_handler_is_shown_once(file: Path, monkeypatch: Monkey, capsys: Captured) -> None:
    """It belongs to the workflow and to that of its handlers."""
    file.write_text(FAILING + "\n\n@failing.on_success\ndef thank(who: str) -> None: ...\n")
    assert run(monkeypatch, "workflow", "check", str(file)) == 1
    (problem,) = capsys.readouterr().out.splitlines()
    assert problem.startswith(f"{file}:15: ")
    assert "a handler takes the report, annotated `report: tm.RunReport`" in problem
