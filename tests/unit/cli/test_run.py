"""`tidemill run` as a person, a script and a CI job would use it."""

import json
import logging
import signal
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.command_line import FREE, REPORT, run
from tidemill.cli.interrupts import Interrupts
from tidemill.cli.run_summary import plain_value

Monkey = pytest.MonkeyPatch
Captured = pytest.CaptureFixture[str]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with one workflow that has params."""
    path = tmp_path / "report_flow.py"
    path.write_text(REPORT)
    return path


def outputs(captured: Captured) -> dict[str, Any]:
    """Return what the tasks returned, from the JSON that was printed."""
    return {name: task["output"] for name, task in json.loads(captured.readouterr().out)["tasks"].items()}


@pytest.mark.parametrize("name", ["", ":report", ":daily_report"])
def test_a_workflow_runs_by_either_name(file: Path, name: str, monkeypatch: Monkey, capsys: Captured) -> None:
    """By its own name, by its variable, or without a name if there is only one."""
    assert run(monkeypatch, "run", f"{file}{name}", "--day", "2026-01-31") == 0
    printed = capsys.readouterr().out
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in printed.splitlines() if line.startswith("│")]
    assert [row[:3] for row in rows] == [
        ["extract", "success", "1"],
        ["clean", "success 3/3", "1"],
        ["publish", "success", "1"],
    ]
    assert [row[4] for row in rows] == ["[0, 1, 2]", "[0, 10, 20]", "30 on 31.01.2026 False []"]
    assert "daily_report succeeded after " in printed.splitlines()[-1]


def test_every_field_of_the_params_is_an_option(file: Path, monkeypatch: Monkey, capsys: Captured) -> None:
    """Values are read as the field wants them; flags need no value, lists are named several times."""
    arguments = ["--day=2026-01-31", "--rows", "1", "--full-scan", "--tags", "a", "--tags", "b", "-o", "json"]
    assert run(monkeypatch, "run", str(file), *arguments) == 0
    assert outputs(capsys)["publish"] == "0 on 31.01.2026 True ['a', 'b']"
    for tags in ("x", '["x"]'):
        arguments = ["-p", "day=2026-01-31", "--no-full-scan", "--tags", tags, "-o", "json"]
        assert run(monkeypatch, "run", str(file), *arguments) == 0
        assert outputs(capsys)["publish"] == "30 on 31.01.2026 False ['x']"


def test_without_declared_params_any_option_is_one(tmp_path: Path, monkeypatch: Monkey, capsys: Captured) -> None:
    """What looks like JSON is that; a param named like an option of the command comes with -p."""
    path = tmp_path / "free_flow.py"
    path.write_text(FREE)
    given = ["--number", "-5", "--word=a b", "--flag", "-p", "store=1.5"]
    assert run(monkeypatch, "run", f"{path}:free", *given, "-o", "json", "-q") == 0
    assert outputs(capsys) == {"tell": [-5, "a b", True, 1.5]}


TENANT = """
import tidemill as tm

class Owned(tm.Params):
    tenant: str

owned = tm.Workflow("owned", params=Owned)

@owned.task
def tell(params: Owned) -> str:
    return params.tenant
"""


def test_a_param_may_be_called_tenant(tmp_path: Path, monkeypatch: Monkey, capsys: Captured) -> None:
    """The command has no tenant of its own to be taken for."""
    path = tmp_path / "owned_flow.py"
    path.write_text(TENANT)
    assert run(monkeypatch, "run", str(path), "--tenant", "acme", "-o", "json", "-q") == 0
    assert outputs(capsys) == {"tell": "acme"}


def test_help_shows_the_params_of_the_workflow(file: Path, monkeypatch: Monkey, capsys: Captured) -> None:
    """With their types and defaults, beside the command's own options."""
    assert run(monkeypatch, "run", str(file), "--help") == 0
    printed = capsys.readouterr().out
    _, _, params = printed.partition("Params of daily_report")
    assert "--executor" in printed
    words = [line.split() for line in params.splitlines()[1:5]]
    assert words[0] == ["--day", "date", "[required]"]
    assert words[1] == ["--rows", "int", "[default:", "3]"]
    assert words[2][:3] == ["--full-scan", "/", "--no-full-scan"]
    assert words[3] == ["--tags", "list[str]", "[default:", "[]]"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["{file}", "--dya", "2026-01-01"], "there is no param or option --dya (did you mean '--day'?)"),
        (["{file}", "--day", "1.1.", "--rows", "many"], "'rows' takes int"),
        (["{file}", "--excutor", "subprocess"], "did you mean '--executor'?"),
        (["{file}", "--day"], "--day needs a value"),
        (["{file}", "--day", "1.1."], "'day' takes date: Invalid RFC3339 encoded date; for example 2026-01-31"),
        (["{file}", "--day", "2026-01-01", "--rows", "1", "--rows", "2"], "--rows is given twice: it takes one int"),
        (["{file}", "2026-01-01"], "params are given as --name value"),
        (["{file}"], "'day' (date) is missing"),
        (["{file}:daily"], "has no workflow 'daily'"),
        (["{file}", "--day", "2026-01-01", "--executor", "rocket"], "there is no executor 'rocket'"),
        (["{file}", "--day", "2026-01-01", "--store", "nowhere://"], "an address looks like"),
        (["nowhere.py"], "there is no file nowhere.py"),
        (["json"], "json declares no workflow"),
        (["nowhere_at_all"], "there is neither a file nor a module nowhere_at_all"),
        (["/etc/hostname"], "/etc/hostname is not a Python file"),
        (["."], ". is a folder"),
    ],
)
def test_what_cannot_run_is_one_line_and_exit_code_2(
    file: Path, arguments: list[str], complaint: str, monkeypatch: Monkey, capsys: Captured
) -> None:
    """Nothing was run, and the exit code says so."""
    assert run(monkeypatch, "run", *(argument.format(file=file) for argument in arguments)) == 2
    captured = capsys.readouterr()
    assert complaint in captured.err
    assert "Traceback" not in captured.err
    assert captured.out == ""


def test_a_file_that_ends_the_program_is_explained(tmp_path: Path, monkeypatch: Monkey, capsys: Captured) -> None:
    """With the line, and with what to do about it."""
    path = tmp_path / "ending_flow.py"
    path.write_text("import sys\n\nsys.exit(3)\n")
    assert run(monkeypatch, "run", str(path)) == 2
    complaint = capsys.readouterr().err
    assert f"{path}:3: importing it ended the program, with SystemExit(3)" in complaint
    assert 'if __name__ == "__main__":' in complaint


def test_params_named_like_options_of_the_command(tmp_path: Path, monkeypatch: Monkey, capsys: Captured) -> None:
    """The help and the error explain how to pass them."""
    path = tmp_path / "named_flow.py"
    path.write_text(
        "import tidemill as tm\nclass P(tm.Params):\n    store: str\n    help: str = 'none'\n"
        "flow = tm.Workflow('flow', params=P)\n@flow.task\ndef a(params: P) -> str:\n    return params.store\n"
    )
    assert run(monkeypatch, "run", str(path), "--help") == 0
    printed = capsys.readouterr().out.partition("Params of flow")[2]
    assert [line.split()[:2] for line in printed.splitlines()[1:3]] == [
        ["--param", "store=str"],
        ["--param", "help=str"],
    ]
    assert run(monkeypatch, "run", str(path), "--store", "eu") == 2
    assert "pass the param of that name as -p store=eu" in capsys.readouterr().err
    assert run(monkeypatch, "run", str(path), "-p", "store=eu", "-q", "-o", "json") == 0
    assert outputs(capsys) == {"a": "eu"}


def test_the_file_comes_before_its_params(file: Path, monkeypatch: Monkey, capsys: Captured) -> None:
    """Without the file, the params are not known."""
    assert run(monkeypatch, "run", "--day", "2026-01-01", str(file)) == 2
    assert "name the file first" in capsys.readouterr().err


def test_several_workflows_need_a_name(tmp_path: Path, monkeypatch: Monkey, capsys: Captured) -> None:
    """The message has the words to type."""
    path = tmp_path / "free_flow.py"
    path.write_text(FREE)
    assert run(monkeypatch, "run", str(path)) == 2
    assert f"name one: {path}:free" in capsys.readouterr().err


def test_a_failed_run_shows_the_authors_lines(file: Path, monkeypatch: Monkey, capsys: Captured) -> None:
    """Exit code 1; the traceback ends in the author's file, and has none of ours."""
    assert run(monkeypatch, "run", str(file), "--day", "2026-01-01", "--rows", "20") == 1
    printed = capsys.readouterr().out
    assert "│ clean   │ failed 19/20" in printed
    assert "[13] ValueError: no thirteen" in printed
    assert "clean[13] failed:\nTraceback (most recent call last):\n" in printed
    assert f'File "{file}", line 29, in clean' in printed
    assert "tidemill/engine" not in printed
    assert printed.splitlines()[-1].startswith("daily_report failed after ")


def test_quiet_shows_only_the_table(file: Path, monkeypatch: Monkey, capsys: Captured) -> None:
    """Neither progress nor tracebacks."""
    assert run(monkeypatch, "run", str(file), "--day", "2026-01-01", "--rows", "20", "-q") == 1
    captured = capsys.readouterr()
    assert captured.err == ""
    assert "no thirteen" in captured.out
    assert "Traceback" not in captured.out


def test_elsewhere_than_on_a_terminal_each_event_is_a_line(file: Path, monkeypatch: Monkey, capsys: Captured) -> None:
    """Time, task, what happened; and what the task logged, once, under any logging configuration."""
    logging.getLogger().addHandler(handler := logging.StreamHandler())
    try:
        assert run(monkeypatch, "run", str(file), "--day", "2026-01-01") == 0
    finally:
        logging.getLogger().removeHandler(handler)
    lines = [line[len("12:00:00  ") :] for line in capsys.readouterr().err.splitlines()]
    assert lines[:4] == [
        "daily_report  running",
        "extract       running",
        "extract       | reading 2026-01-01",
        "extract       success",
    ]
    assert sorted(lines[4:7]) == ["clean[0]      success", "clean[1]      success", "clean[2]      success"]
    assert lines[7:] == ["publish       running", "publish       success", "daily_report  success"]


def test_what_tasks_print_is_not_in_the_json(file: Path, monkeypatch: Monkey, capsys: Captured) -> None:
    """Standard output is for the result alone."""
    assert run(monkeypatch, "run", str(file), "--day", "2026-01-01", "-o", "json") == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["state"] == "success"
    assert "printed by the task" in captured.err


def test_an_enum_is_shown_with_its_values(tmp_path: Path, monkeypatch: Monkey, capsys: Captured) -> None:
    """And a moment with an example."""
    path = tmp_path / "typed_flow.py"
    path.write_text(
        "from datetime import datetime\nfrom enum import Enum\nfrom typing import Literal\nimport tidemill as tm\n"
        "class Colour(Enum):\n    RED = 'red'\n    BLUE = 'blue'\nclass P(tm.Params):\n"
        "    colour: Colour\n    size: Literal['s', 'xl']\n    at: datetime | None\n    ids: list[int] | None = None\n"
        "flow = tm.Workflow('flow', params=P)\n@flow.task\ndef a(params: P) -> list[int]:\n    return params.ids\n"
    )
    given = ["--colour", "pink", "--size", "m", "--at", "noon"]
    assert run(monkeypatch, "run", str(path), *given) == 2
    complaint = capsys.readouterr().err
    assert "it is one of 'red', 'blue'" in complaint
    assert "it is one of 's', 'xl'" in complaint
    assert "for example 2026-01-31T06:00:00+01:00" in complaint
    given = ["--colour", "red", "--size", "s", "--at", "null", "--ids", "1", "-q", "-o", "json"]
    assert run(monkeypatch, "run", str(path), *given) == 0
    assert outputs(capsys) == {"a": [1]}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (date(2026, 1, 31), "2026-01-31"),
        ({(1, 2): 3}, {"(1, 2)": 3}),
        (float("nan"), None),
        ([1, complex(1, 2)], [1, "(1+2j)"]),
    ],
)
def test_what_json_cannot_hold_is_there_as_text(value: Any, expected: Any) -> None:
    """A result is never a reason to fail after the run."""
    assert plain_value(value) == expected


def test_a_task_may_import_its_neighbours_while_it_runs(tmp_path: Path, monkeypatch: Monkey, capsys: Captured) -> None:
    """As it could in `python FILE`; and afterwards Python looks where it looked before."""
    (tmp_path / "flow_neighbour.py").write_text("WORD = 'found'\n")
    path = tmp_path / "importing_flow.py"
    path.write_text(
        "import tidemill as tm\nflow = tm.Workflow('flow')\n@flow.task\ndef a() -> str:\n"
        "    import flow_neighbour\n    return flow_neighbour.WORD\n"
    )
    assert run(monkeypatch, "run", str(path), "-o", "json", "-q") == 0
    assert outputs(capsys) == {"a": "found"}


def test_a_run_can_be_kept_in_a_store(file: Path, tmp_path: Path, monkeypatch: Monkey, capsys: Captured) -> None:
    """The run is there afterwards, with everything."""
    store = f"sqlite:///{tmp_path / 'tidemill.db'}"
    assert run(monkeypatch, "run", str(file), "--day", "2026-01-01", "--store", store, "-q", "-o", "json") == 0
    found = json.loads(capsys.readouterr().out)["id"]
    assert run(monkeypatch, "runs", "show", found, "--store", store, "-o", "json") == 0
    kept = json.loads(capsys.readouterr().out)
    assert (kept["state"], kept["params"]["day"]) == ("success", "2026-01-01")
    assert kept["tasks"]["clean"]["output"] == [0, 10, 20]


def test_processes_run_the_tasks_if_that_is_wanted(file: Path, monkeypatch: Monkey, capsys: Captured) -> None:
    """What a task prints there is its log."""
    assert run(monkeypatch, "run", str(file), "--day", "2026-01-01", "--executor", "subprocess", "-o", "json") == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["tasks"]["publish"]["output"] == "30 on 01.01.2026 False []"
    assert "extract       | printed by the task" in captured.err


def test_the_first_interrupt_asks_and_leaves_the_old_handlers_in_place() -> None:
    """What was set up before counts again afterwards."""
    before = signal.getsignal(signal.SIGINT)
    asked: list[str] = []
    interrupts = Interrupts(on_second=lambda: None)
    interrupts.on_first(lambda: asked.append("to stop"))
    with interrupts.handling_signals():
        signal.raise_signal(signal.SIGINT)
    assert (asked, interrupts.exit_code) == (["to stop"], 130)
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_that_came_early_is_not_lost() -> None:
    """A signal while the node opens counts as soon as there is something to stop."""
    asked: list[str] = []
    interrupts = Interrupts(on_second=lambda: None)
    with interrupts.handling_signals():
        signal.raise_signal(signal.SIGINT)
        interrupts.on_first(lambda: asked.append("to stop"))
    assert asked == ["to stop"]


READING = """
import tidemill as tm

reading = tm.Workflow("reading")


@reading.task
def read(ctx: tm.Context) -> list[object]:
    return [ctx.variable("region"), ctx.variable("limit"), len(ctx.secret("bank")), len(ctx.secret("PIN"))]
"""


def test_a_run_takes_variables_and_secrets(tmp_path: Path, monkeypatch: Monkey, capsys: Captured) -> None:
    """D8: secrets come from the environment, never from the command line."""
    file = tmp_path / "reading.py"
    file.write_text(READING)
    monkeypatch.setenv("BANK_TOKEN", "hunter22")
    monkeypatch.setenv("PIN", "4711")
    values = ["--variable", "region=eu", "--variable", "limit=3", "--secret-env", "bank=BANK_TOKEN"]
    assert run(monkeypatch, "run", str(file), *values, "--secret-env", "PIN", "-o", "json") == 0
    assert outputs(capsys)["read"] == ["eu", 3, 8, 4]
    assert run(monkeypatch, "run", str(file), "--variable", "region") == 2
    assert "--variable takes NAME=VALUE" in capsys.readouterr().err
    assert run(monkeypatch, "run", str(file), "--secret-env", "bank=MISSING") == 2
    assert "the environment has no variable MISSING" in capsys.readouterr().err
