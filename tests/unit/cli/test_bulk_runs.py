"""`tidemill runs cancel` and `retry` on many runs: selected, previewed, confirmed."""

import asyncio
import json
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

import tidemill as tm
from tests.unit.cli.command_line import run
from tidemill.workflows.states import RunState

Monkey = pytest.MonkeyPatch
Captured = pytest.CaptureFixture[str]


def flow(name: str, *, fails: bool) -> tm.Workflow:
    """Return a workflow whose runs fail, or wait for an hour."""
    workflow = tm.Workflow(name)

    @workflow.task
    async def work(ctx: tm.Context) -> None:
        if fails:
            raise ValueError("no")
        ctx.defer(for_="1h")

    return workflow


@pytest.fixture
def store(tmp_path: Path, monkeypatch: Monkey) -> str:
    """A store with two failed runs of `etl`, one active run of `etl2`, and no node."""
    address = f"sqlite:///{tmp_path / 'tidemill.db'}"
    monkeypatch.setenv("TIDEMILL_STORE", address)
    asyncio.run(fill(address))
    return address


async def fill(address: str) -> None:
    """Start the runs."""
    async with tm.testing.node(address, load=[flow("etl", fails=True), flow("etl2", fails=False)]) as node:
        for name in ("etl", "etl", "etl2"):
            await node.start(name)
        await node.settle()


def listed(monkeypatch: Monkey, capsys: Captured) -> list[tuple[str, str]]:
    """Return workflow and state of every run, oldest first."""
    assert run(monkeypatch, "runs", "list", "-o", "json") == 0
    runs: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return [(one["workflow"], one["state"]) for one in reversed(runs)]


BEFORE = [("etl", "failed"), ("etl", "failed"), ("etl2", "running")]


def test_a_preview_shows_the_runs_and_changes_nothing(store: str, monkeypatch: Monkey, capsys: Captured) -> None:
    for command, said in [
        (["retry", "--workflow", "etl"], "would retry 2 runs of workflow 'etl'"),
        (["retry", "--state", "failed"], "would retry 2 runs"),
        (["cancel", "--workflow", "etl2"], "would cancel 1 run of workflow 'etl2'"),
        (["cancel", "--state", "running", "--workflow", "etl2"], "would cancel 1 run of workflow 'etl2'"),
    ]:
        assert run(monkeypatch, "runs", *command, "--preview") == 0
        assert capsys.readouterr().out.splitlines()[-1] == said
    assert listed(monkeypatch, capsys) == BEFORE


def test_many_runs_are_changed_with_yes(store: str, monkeypatch: Monkey, capsys: Captured) -> None:
    """Those that match, and no others."""
    assert run(monkeypatch, "runs", "retry", "--workflow", "etl", "--state", "failed", "--yes") == 0
    assert capsys.readouterr().out == "will run again: 2 runs\n"
    assert listed(monkeypatch, capsys) == [("etl", "queued"), ("etl", "queued"), ("etl2", "running")]
    assert run(monkeypatch, "runs", "cancel", "--state", "queued", "--yes", "-o", "json") == 0
    done = json.loads(capsys.readouterr().out)
    assert (done["action"], done["preview"], [one["workflow"] for one in done["runs"]]) == (
        "cancel",
        False,
        ["etl"] * 2,
    )
    assert listed(monkeypatch, capsys) == [("etl", "cancelled"), ("etl", "cancelled"), ("etl2", "running")]


def test_without_a_terminal_nothing_is_changed_unless_yes_is_given(
    store: str, monkeypatch: Monkey, capsys: Captured
) -> None:
    """A script must say so: no one could answer."""
    monkeypatch.setattr(sys, "stdin", StringIO("y\n"))
    assert run(monkeypatch, "runs", "cancel", "--workflow", "etl2") == 2
    said = capsys.readouterr().err
    assert said == "this would cancel 1 run of workflow 'etl2': add --yes to do it, or --preview to list them\n"
    assert listed(monkeypatch, capsys) == BEFORE


@pytest.mark.parametrize(("answer", "code", "state"), [("y\n", 0, "cancelled"), ("n\n", 1, "running")])
def test_a_terminal_is_asked(
    store: str, monkeypatch: Monkey, capsys: Captured, answer: str, code: int, state: str
) -> None:
    terminal = StringIO(answer)
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", terminal)
    assert run(monkeypatch, "runs", "cancel", "--workflow", "etl2") == code
    assert "Really cancel 1 run of workflow 'etl2'? [y/N]" in capsys.readouterr().out
    assert listed(monkeypatch, capsys)[-1] == ("etl2", state)


def test_a_run_that_cannot_be_changed_is_named(store: str, monkeypatch: Monkey, capsys: Captured) -> None:
    """The others are changed; the exit code says that one was not."""
    assert run(monkeypatch, "runs", "retry", "--state", "running", "--yes") == 1
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "will run again: 0 runs"
    assert said[1].endswith("of workflow 'etl2' is running, and none of its tasks has failed")


def test_no_run_matches(store: str, monkeypatch: Monkey, capsys: Captured) -> None:
    assert run(monkeypatch, "runs", "cancel", "--workflow", "unknown") == 0
    assert capsys.readouterr().out == "no run matches\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name a run, or select runs with --workflow NAME, --state STATE, or both"),
        (["abc", "--state", "running"], "name a run, or select runs with"),
        (["abc", "--preview"], "leave out the run"),
        (["--state", str(RunState.FAILED)], "runs in state 'failed' have ended"),
    ],
)
def test_a_selection_that_makes_no_sense_is_refused(
    arguments: list[str], message: str, monkeypatch: Monkey, capsys: Captured
) -> None:
    assert run(monkeypatch, "runs", "cancel", *arguments) == 2
    assert message in " ".join(capsys.readouterr().err.replace("│", " ").split())
