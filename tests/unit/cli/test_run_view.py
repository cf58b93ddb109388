"""Views of stored runs: error locations, logs, times and values."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.cli.command_line import in_zone, run

Monkey = pytest.MonkeyPatch
Captured = pytest.CaptureFixture[str]

FLOW = """
import msgspec
import tidemill as tm


class Good(msgspec.Struct):
    total: int


class Bad(msgspec.Struct):
    worst: int


flow = tm.Workflow("{name}", schedule=tm.Every("4s"))


@flow.task
def rows(ctx: tm.Context) -> list[int]:
    ctx.log.info("extracting", rows=3, table="new orders")
    return [1, 2]


@flow.task(each="rows")
def judge(rows: int) -> Good | Bad:
    return Good(rows) if rows == 1 else Bad(rows)


@flow.task
def both(rows: list[int]) -> list[Good | Bad]:
    return [Good(1), Bad(2)]


@flow.task
def one(rows: list[int]) -> Good | Bad:
    return Good(len(rows))


@flow.task
def takes(one: Good) -> str:
    return "x" * 3000


@flow.task
def ignores(one: Bad) -> None: ...


@flow.task(after=takes)
def fails() -> int:
    raise ValueError("no luck")
"""


@pytest.fixture
def elsewhere() -> Iterator[None]:
    """A machine that hangs somewhere else."""
    with in_zone("America/New_York"):
        yield


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with one workflow."""
    path = tmp_path / "viewed_flow.py"
    path.write_text(FLOW.replace("{name}", "viewed"))
    return path


@pytest.fixture
def ran(file: Path, tmp_path: Path, monkeypatch: Monkey, capsys: Captured) -> str:
    """What `tidemill run` says of a run, which the store has that the settings name; as JSON."""
    address = f"sqlite:///{tmp_path / 'tidemill.db'}"
    assert run(monkeypatch, "run", str(file), "-o", "json", "--store", address) == 1
    monkeypatch.setenv("TIDEMILL_STORE", address)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    return capsys.readouterr().out


def said(monkeypatch: Monkey, capsys: Captured, *arguments: str) -> str:
    """Return what a command prints."""
    assert run(monkeypatch, *arguments) == 0
    return capsys.readouterr().out


def test_a_stored_failure_has_its_place_and_its_traceback(ran: str, monkeypatch: Monkey, capsys: Captured) -> None:
    """For a reader on the next day."""
    found = json.loads(ran)["id"]
    printed = said(monkeypatch, capsys, "runs", "show", found)
    line = FLOW.split("raise ValueError")[0].count("\n") + 1
    assert f": ValueError: no luck (viewed_flow.py:{line})\n" in printed
    assert printed.endswith('fails\n    raise ValueError("no luck")\nValueError: no luck\n')
    assert f"ValueError: no luck ({Path.cwd()}/viewed_flow.py:{line})" in said(
        monkeypatch, capsys, "runs", "why", found, "fails"
    )


def test_fields_are_behind_the_message(ran: str, file: Path, monkeypatch: Monkey, capsys: Captured) -> None:
    """While it runs, and afterwards."""
    lines = "extracting  rows=3 table='new orders'\n"
    assert said(monkeypatch, capsys, "runs", "logs", json.loads(ran)["id"], "rows").endswith(lines)
    assert run(monkeypatch, "run", str(file)) == 1
    assert f"| {lines}" in capsys.readouterr().err


def test_values_of_unions_are_the_same_everywhere(ran: str, monkeypatch: Monkey, capsys: Captured) -> None:
    """The name under which a variant is stored is internal; `run` and the stored run show the same."""
    result = json.loads(ran)
    expected = {"rows": [1, 2], "judge": [{"total": 1}, {"worst": 2}], "both": [{"total": 1}, {"worst": 2}]}
    assert result["outputs"] == expected | {"one": {"total": 2}, "takes": "x" * 3000}
    stored = json.loads(said(monkeypatch, capsys, "runs", "show", result["id"], "-o", "json"))
    assert {name: stored["tasks"][name]["output"] for name in result["outputs"]} == result["outputs"]
    printed = said(monkeypatch, capsys, "runs", "show", result["id"])
    assert " [Good(total=1), Bad(worst=2)] " in printed
    assert " Good(total=2) " in printed


def test_nothing_is_cut_in_a_pipe(ran: str, monkeypatch: Monkey, capsys: Captured) -> None:
    """A file has no width that could be enlarged later."""
    found = json.loads(ran)["id"]
    assert "x" * 3000 in said(monkeypatch, capsys, "runs", "show", found)
    monkeypatch.setenv("COLUMNS", "80")
    assert "x" * 3000 not in (printed := said(monkeypatch, capsys, "runs", "show", found))
    assert max(map(len, printed.splitlines()[3:12])) <= 80


@pytest.mark.usefixtures("elsewhere", "ran")
def test_times_are_of_one_zone_which_is_named(file: Path, monkeypatch: Monkey, capsys: Captured) -> None:
    """Slots, too, and with the seconds that tell them apart."""
    monkeypatch.setenv("COLUMNS", "120")
    backfill = ["backfill", "start", str(file), "--from", "2026-01-01T01:00:00Z", "--to", "2026-01-01T01:00:04Z"]
    lines = said(monkeypatch, capsys, *backfill).splitlines()
    assert lines[0] == "2025-12-31 20:00:00 EST (2026-01-01 01:00:00 UTC)"
    assert lines[1] == "2025-12-31 20:00:04 EST (2026-01-01 01:00:04 UTC)"
    listed = said(monkeypatch, capsys, "runs", "list")
    assert " slot (EST) " in listed.splitlines()[1]
    assert " 2025-12-31 20:00:00 " in listed
    assert " 2025-12-31 20:00:04 " in listed
    found = json.loads(said(monkeypatch, capsys, "runs", "list", "-o", "json"))[0]["id"]
    assert " for 2025-12-31 20:00:04 EST," in said(monkeypatch, capsys, "runs", "show", found)


@pytest.mark.parametrize("length", [60, 70, 200])
def test_the_id_of_a_run_is_never_cut(length: int, file: Path, monkeypatch: Monkey, capsys: Captured) -> None:
    """However long the name of its workflow is."""
    file.write_text(FLOW.replace("{name}", "n" * length))
    address = f"sqlite:///{file.parent / 'tidemill.db'}"
    assert run(monkeypatch, "run", str(file), "-o", "json", "--store", address) == 1
    found = json.loads(capsys.readouterr().out)["id"]
    monkeypatch.setenv("COLUMNS", "80")
    printed = said(monkeypatch, capsys, "runs", "list", "--store", address)
    assert f" {found[-8:]} " in printed
    assert printed.count("n" * 10) >= length // 12
    assert " failed " in printed
    assert max(map(len, printed.splitlines())) <= 80


@pytest.mark.usefixtures("ran")
def test_a_limit_beyond_all_measure_is_refused(monkeypatch: Monkey, capsys: Captured) -> None:
    """And not a traceback."""
    assert run(monkeypatch, "runs", "list", "--limit", "9" * 20) == 2
    assert "is not in the range" in capsys.readouterr().err


def test_one_element_cannot_be_cleared(ran: str, monkeypatch: Monkey, capsys: Captured) -> None:
    """Which is said with what can be."""
    for arguments in (
        ["clear", json.loads(ran)["id"], "judge[1]"],
        ["retry", json.loads(ran)["id"], "--from", "judge[1]"],
    ):
        assert run(monkeypatch, "runs", *arguments) == 2
        assert "(that is one element: this command takes a mapped task as a whole, 'judge')" in capsys.readouterr().err
