"""`tidemill doctor` on a store with runs that have not ended."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.command_line import REPORT, run

Monkey = pytest.MonkeyPatch
Captured = pytest.CaptureFixture[str]


@pytest.fixture
def path(tmp_path: Path, monkeypatch: Monkey, capsys: Captured) -> Path:
    """A store with a run that failed and was queued again, and one that has ended."""
    file, path = tmp_path / "report_flow.py", tmp_path / "tidemill.db"
    file.write_text(REPORT)
    monkeypatch.setenv("TIDEMILL_STORE", f"sqlite:///{path}")
    for rows in ("2", "15"):
        run(monkeypatch, "run", str(file), "--day", "2026-01-01", "--rows", rows, "-q", "--store", f"sqlite:///{path}")
    capsys.readouterr()
    run(monkeypatch, "runs", "list", "-o", "json")
    failed = json.loads(capsys.readouterr().out)[0]["id"]
    assert run(monkeypatch, "runs", "retry", failed) == 0
    capsys.readouterr()
    return path


def change(path: Path, *statements: str) -> None:
    """Damage a store on purpose."""
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def findings(monkeypatch: Monkey, capsys: Captured, code: int) -> list[dict[str, Any]]:
    """Return what the doctor finds."""
    assert run(monkeypatch, "doctor", "-o", "json") == code
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["findings"]
    return found


@pytest.mark.usefixtures("path")
def test_runs_that_wait_are_no_reason_for_concern(monkeypatch: Monkey, capsys: Captured) -> None:
    """They are counted, and their histories read; and it says that no node is there to continue them."""
    assert run(monkeypatch, "doctor") == 0
    out = capsys.readouterr().out
    assert "0 dead letters, 1 active run: nothing wrong" in out
    assert "note: 1 run has not ended, and no node is running on this store. Start one" in out


@pytest.mark.parametrize(
    ("statement", "sentence"),
    [
        ("UPDATE runs SET state = 'running'", "its history tells that it is queued, and it is running"),
        ("UPDATE task_runs SET state = 'scheduled' WHERE task = 'publish'", "that task 'publish' is none, and it is"),
        (
            """UPDATE run_events SET events = replace(events, '"none","upstream_failed"', '"none","skipped"')""",
            "a move from upstream_failed to none",
        ),
        ("DELETE FROM workflow_versions", "which it is pinned to, is not stored"),
        ("UPDATE workflow_versions SET spec = x'c1'", "which it is pinned to, cannot be read: JSON is malformed"),
        (
            "UPDATE task_runs SET state = 'running', claimed_by = NULL WHERE task = 'publish'",
            "task 'publish' is running, and has no owner",
        ),
        (
            "UPDATE task_runs SET state = 'queued', claimed_by = 'gone', lease_until = 0 WHERE task = 'publish'",
            "task 'publish' is queued at 'gone', which has not been heard of for",
        ),
    ],
)
def test_what_was_changed_behind_our_back_is_found(
    path: Path, statement: str, sentence: str, monkeypatch: Monkey, capsys: Captured
) -> None:
    """Each with what to do about it."""
    change(path, statement)
    found = [one["sentence"] for one in findings(monkeypatch, capsys, 1) if one["severity"] == "wrong"]
    assert any(sentence in one for one in found), found


def test_a_run_that_continues_without_tasks_is_found(path: Path, monkeypatch: Monkey, capsys: Captured) -> None:
    """W-10: no node is there to end it."""
    change(
        path,
        "UPDATE runs SET state = 'running' WHERE state = 'queued'",
        "UPDATE task_runs SET state = 'success', ended_at = 0",
    )
    found = [one["sentence"] for one in findings(monkeypatch, capsys, 1)]
    assert any("all its tasks have ended, the last one" in one for one in found), found


@pytest.mark.usefixtures("path")
def test_why_says_that_no_node_is_running(monkeypatch: Monkey, capsys: Captured) -> None:
    """W-17: the first thing to know about a run that waits."""
    assert run(monkeypatch, "runs", "list", "--state", "queued", "-o", "json") == 0
    queued = json.loads(capsys.readouterr().out)[0]["id"]
    assert run(monkeypatch, "runs", "why", queued, "publish") == 0
    assert "no node is running on this store: start one" in capsys.readouterr().out


def test_a_worker_is_no_node_that_continues_runs(path: Path, monkeypatch: Monkey, capsys: Captured) -> None:
    """W-11: it plans nothing; and a task that waits for one is explained as such."""
    change(
        path,
        "INSERT INTO owners (id, host, boot, pid, started, at, kind) VALUES ('w', 'elsewhere', '', 1, '', 0, 'worker')",
        "UPDATE task_runs SET state = 'scheduled', executor = 'worker', since = 0 WHERE task = 'publish'",
    )
    found = [one["sentence"] for one in findings(monkeypatch, capsys, 1)]
    assert any("no node is running on this store" in one for one in found), found
    assert any("and no worker has claimed it. Perhaps" in one and "has its labels" in one for one in found), found
