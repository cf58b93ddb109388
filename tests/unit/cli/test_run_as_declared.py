"""`tidemill run` and `workflow.run()` run the declared version, at the executors that its tasks name."""

import json
import logging
import os
from pathlib import Path

import pytest

import tidemill as tm
from tests.unit.cli.command_line import run
from tidemill.packages.loading.reader import import_module

Monkey = pytest.MonkeyPatch
Captured = pytest.CaptureFixture[str]

PLACED = """
import os

import tidemill as tm

placed = tm.Workflow("placed", schedule=tm.Every("1s"))


@placed.task(pool="database", executor="subprocess")
def elsewhere() -> int:
    return os.getpid()


@placed.task(executor="kubernetes")
def far_away(elsewhere: int) -> int:
    return os.getpid()


bomb = tm.Workflow("bomb")


@bomb.task(executor="subprocess")
def explode() -> None:
    os._exit(3)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with workflows whose tasks say where they run."""
    path = tmp_path / "placed_flow.py"
    path.write_text(PLACED)
    return path


@pytest.mark.parametrize("executor", ["in_process", "subprocess"])
def test_the_version_is_that_of_the_declaration(
    file: Path, executor: str, tmp_path: Path, monkeypatch: Monkey, capsys: Captured
) -> None:
    """W-8: so that any other node can continue the run; pools have no limit, and known executors are used."""
    store = f"sqlite:///{tmp_path / 'tidemill.db'}"
    arguments = ["--store", store, "--executor", executor, "-o", "json"]
    assert run(monkeypatch, "run", f"{file}:placed", *arguments) == 0
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    ran = {name: task["output"] == os.getpid() for name, task in found["tasks"].items()}
    assert ran == {"elsewhere": False, "far_away": executor == "in_process"}
    assert f"there is no executor 'kubernetes' here: 'far_away' runs at '{executor}'" in captured.err
    assert run(monkeypatch, "runs", "list", "--store", store, "-o", "json") == 0
    (kept,) = json.loads(capsys.readouterr().out)  # and no schedule has made another one
    assert kept["version"] == import_module(str(file)).placed.wired().spec.version


def test_a_task_in_a_process_of_its_own_ends_only_that(file: Path, monkeypatch: Monkey, capsys: Captured) -> None:
    """W-14: here too."""
    assert run(monkeypatch, "run", f"{file}:bomb", "-o", "json") == 1
    assert "exit code 3" in json.loads(capsys.readouterr().out)["tasks"]["explode"]["error"]["message"]


def test_a_script_is_warned_of_missing_executors(caplog: pytest.LogCaptureFixture) -> None:
    """A misspelt one is no reason to fail in a script, and none to keep quiet."""
    flow = tm.Workflow("flow")

    @flow.task(executor="subproces")
    def here() -> int:
        return os.getpid()

    with caplog.at_level(logging.WARNING, logger="tidemill.workflow"):
        assert flow.run().outputs == {"here": os.getpid()}
    (record,) = caplog.records
    assert "there is no executor 'subproces' here (did you mean 'subprocess'?)" in record.getMessage()


async def test_a_node_still_refuses_an_executor_that_there_is_not() -> None:
    """What is a makeshift in a script would be a mistake on a node."""
    flow = tm.Workflow("flow")

    @flow.task(executor="slurm")
    def here() -> None: ...

    with pytest.raises(tm.DefinitionError, match="there is no executor 'slurm'"):
        async with tm.testing.node(load=[flow]):
            pass
