"""Workflows, schedules, triggers, backfills and nodes, directly on a store."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.command_line import REPORT, run


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """A store with one run of a workflow; the commands know it from the environment."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    file, address = tmp_path / "report_flow.py", f"sqlite:///{tmp_path / 'tidemill.db'}"
    file.write_text(REPORT)
    assert run(monkeypatch, "run", str(file), "--day", "2026-01-01", "--store", address, "-q") == 0
    monkeypatch.setenv("TIDEMILL_STORE", address)
    capsys.readouterr()
    return address


def answered(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    """Run a command, and return what it answers as JSON."""
    capsys.readouterr()
    assert run(monkeypatch, *arguments, "-o", "json") == 0
    return json.loads(capsys.readouterr().out)


def test_the_nodes_of_a_store_are_listed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """W-9: none is running, and the command itself is none."""
    assert answered(monkeypatch, capsys, "node", "list") == []
    assert run(monkeypatch, "node", "list") == 0
    assert capsys.readouterr().out == "no nodes\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("schedule", "list"),
        ("schedule", "preview", "daily_report"),
        ("trigger", "list"),
        ("trigger", "pause", "new_files"),
    ],
)
def test_what_needs_loaded_workflows_says_so(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A store alone does not have the declarations: an empty list would be wrong."""
    assert run(monkeypatch, *arguments) == 2
    assert "this works with a running server" in capsys.readouterr().err


def test_a_workflow_is_shown_with_what_it_has(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A table of fields for people, everything for programs; a store has no declarations, and says so."""
    shown = answered(monkeypatch, capsys, "workflow", "show", "daily_report")
    assert [one["name"] for one in shown["tasks"]] == ["extract", "clean", "publish"]
    assert (shown["loaded"], shown["params"], len(shown["versions"])) == (False, None, 1)
    assert run(monkeypatch, "workflow", "show", "daily_report") == 0
    printed = capsys.readouterr().out
    assert "tasks: extract, clean, publish\n" in printed
    assert "last run state: success\n" in printed
    assert run(monkeypatch, "workflow", "list") == 0
    assert "last run (" in capsys.readouterr().out
    assert run(monkeypatch, "workflow", "show", "daily_reprt") == 2
    assert "did you mean 'daily_report'?" in capsys.readouterr().err
