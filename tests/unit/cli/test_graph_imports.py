"""Workflows that call a graph of another file or package by name, from the shell (api.md: across packages)."""

import json
import sys
from pathlib import Path

import pytest

from tests.unit.cli.command_line import run

Monkey = pytest.MonkeyPatch
Captured = pytest.CaptureFixture[str]

NIGHTLY = """
import tidemill as tm

nightly = tm.Workflow("nightly", schedule=tm.Cron("0 2 * * *"))


@nightly.task
def rows() -> list[int]:
    return [1, 2, 3]


nightly.call("scoring", name="score")


@nightly.task
def tell(score: dict[str, int]) -> str:
    return f"{score['total']} points"
"""
SCORING = """
import tidemill as tm

scoring = tm.Graph("scoring")


@scoring.node
def total(rows: list[int]) -> int:
    from weights import WEIGHT

    return WEIGHT * sum(rows)
"""
BUSY = """

@tm.polling(every="10ms")
async def tick() -> int:
    raise AssertionError("it runs")


ticks = tm.Reactor("ticks", [tick])
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: Monkey) -> Path:
    """A folder with a workflow, and a package that brings the graph which it calls."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nightly.py").write_text(NIGHTLY)
    package = tmp_path / "packages" / "scoring"
    package.mkdir(parents=True)
    modules = 'modules = ["scoring", "weights"]'
    (package / "package.toml").write_text(f'[package]\nname = "scoring"\nversion = "1.0.0"\n{modules}\n')
    (package / "scoring.py").write_text(SCORING + BUSY)
    (package / "weights.py").write_text("WEIGHT = 2\n")
    return tmp_path


def test_a_check_leaves_it_open_and_names_it(place: Path, monkeypatch: Monkey, capsys: Captured) -> None:
    """As the probe of packages does; what else is wrong is still found."""
    assert run(monkeypatch, "workflow", "check", "nightly.py") == 0
    assert capsys.readouterr().out.splitlines() == [
        "1 workflow and 0 triggers: no problems found",
        "'nightly.score' calls graph 'scoring', which is not in the file: the node must have it loaded",
    ]
    (place / "nightly.py").write_text(NIGHTLY.replace("def tell(score:", "def tell(scores:"))
    assert run(monkeypatch, "workflow", "check", "nightly.py") == 1
    assert "parameter 'scores' of task 'tell' names no task" in capsys.readouterr().out


@pytest.mark.parametrize("path", ["packages/scoring", "packages/scoring/scoring.py"])
def test_it_runs_with_what_brings_the_graph(place: Path, path: str, monkeypatch: Monkey, capsys: Captured) -> None:
    """A folder of a package, or a file, which finds its neighbours as the workflow's own does; no reactor begins."""
    before = list(sys.path), [name for name in sys.modules if "@" in name]
    assert run(monkeypatch, "run", "nightly.py", "--load", path, "-o", "json", "-q") == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["tasks"]["tell"]["output"] == "12 points"
    assert captured.err == ""
    assert (sys.path, [name for name in sys.modules if "@" in name]) == before


def test_a_missing_graph_is_reported_with_the_option(place: Path, monkeypatch: Monkey, capsys: Captured) -> None:
    """With everything else that is wrong, and with a name that is almost right."""
    assert run(monkeypatch, "run", "nightly.py") == 2
    error = capsys.readouterr().err
    assert "nightly.py:12: task 'score' calls graph 'scoring', which is not loaded: " in error
    assert error.endswith("name the file or package that declares it, with --load PATH\n")
    file = place / "packages" / "scoring" / "scoring.py"
    file.write_text(SCORING.replace('"scoring"', '"scorings"'))
    arguments = ["--from", "2026-01-01", "--to", "2026-01-02", "--store", "sqlite:///none.db", "--load", str(file)]
    assert run(monkeypatch, "backfill", "start", "nightly.py", *arguments) == 2
    assert "which is not loaded (did you mean 'scorings'?)" in capsys.readouterr().err


def test_a_backfill_is_of_the_version_that_a_node_with_both_has(
    place: Path, monkeypatch: Monkey, capsys: Captured
) -> None:
    """W-19: a node that runs it has loaded both, as packages."""
    store = "sqlite:///runs.db"
    assert run(monkeypatch, "db", "upgrade", "--store", store) == 0
    arguments = ["--from", "2026-01-01", "--to", "2026-01-01", "--store", store, "--load", "packages/scoring"]
    assert run(monkeypatch, "backfill", "start", "nightly.py", *arguments) == 0
    assert run(monkeypatch, "run", "nightly.py", "--load", "packages/scoring/scoring.py", "--store", store, "-q") == 0
    capsys.readouterr()
    assert run(monkeypatch, "workflow", "show", "nightly", "--store", store, "-o", "json") == 0
    assert len(json.loads(capsys.readouterr().out)["versions"]) == 1


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("nowhere", "--load: there is no file nowhere"),
        ("packages", "packages: there is no package.toml"),
        ("notes.txt", "--load: notes.txt is neither a Python file nor the folder of a package"),
        ("broken.py", "broken.py:1: importing 'broken' failed: ZeroDivisionError"),
    ],
)
def test_what_cannot_be_loaded_is_refused(
    place: Path, path: str, said: str, monkeypatch: Monkey, capsys: Captured
) -> None:
    """Before anything runs."""
    (place / "notes.txt").write_text("")
    (place / "broken.py").write_text("1 / 0\n")
    assert run(monkeypatch, "run", "nightly.py", "--load", path) == 2
    assert said in capsys.readouterr().err


def test_two_that_bring_one_name_are_refused(place: Path, monkeypatch: Monkey, capsys: Captured) -> None:
    """The name is ambiguous."""
    (place / "scoring.py").write_text(SCORING)
    assert run(monkeypatch, "run", "nightly.py", "--load", "packages/scoring", "--load", "scoring.py") == 2
    assert "two graphs are named 'scoring'" in capsys.readouterr().err


@pytest.mark.parametrize("by_task", [True, False])
def test_a_process_of_its_own_has_no_graphs_of_others(
    place: Path, by_task: bool, monkeypatch: Monkey, capsys: Captured
) -> None:
    """reference/packages.md: it is refused before the run begins, not in the middle of it."""
    options = [] if by_task else ["--executor", "subprocess"]
    if by_task:
        text = NIGHTLY.replace("@nightly.task\ndef rows", '@nightly.task(executor="subprocess")\ndef rows')
        (place / "nightly.py").write_text(text)
    assert run(monkeypatch, "run", "nightly.py", "--load", "packages/scoring", *options) == 2
    assert "which the executor 'subprocess' cannot do: run it in_process" in capsys.readouterr().err
