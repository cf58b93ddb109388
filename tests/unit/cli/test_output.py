"""Output on a narrow terminal, without a terminal, and in other encodings."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Column
from rich.text import Text

from tidemill.cli.output import build_table, can_redraw, print_error, print_progress, print_text, show_json

NAME = "a_task_with_quite_a_name"


def drawn(width: int, *, name: str = NAME) -> str:
    """Return a table in so many columns."""
    columns = list(map(Column, ["task", "state", "tries", "result"]))
    rows = [[Text(name), Text("upstream_failed"), Text("1"), Text("because " * 10)]]
    table = build_table(columns, rows, width, droppable=["tries", "result"], truncated="result")
    console = Console(width=width, file=io.StringIO())
    with console.capture() as captured:
        console.print(table)
    return captured.get()


@pytest.mark.parametrize(
    ("width", "titles"),
    [
        (45, ["task", "state"]),
        (60, ["task", "state", "result"]),
        (80, ["task", "state", "tries", "result"]),
        (1000, ["task", "state", "tries", "result"]),
    ],
)
def test_what_matters_less_is_left_out_first(width: int, titles: list[str]) -> None:
    """So that a name can be read, and copied, wherever that is possible."""
    printed = drawn(width)
    assert [title for title in ["task", "state", "tries", "result"] if title in printed.splitlines()[1]] == titles
    assert "upstream_failed" in printed
    assert max(map(len, printed.splitlines())) <= width
    assert ("because " * 10 in printed) == (width == 1000)


def test_a_name_without_room_is_folded_and_not_cut() -> None:
    """Nothing of it is lost."""
    lines = drawn(40, name="x" * 30).splitlines()
    assert sum(line.count("x") for line in lines) == 30
    assert max(map(len, lines)) <= 40


@pytest.mark.parametrize("width", [40, 60, 80])
def test_only_what_may_be_folded_is(width: int) -> None:
    """Several columns share what room there is; all others stay complete."""
    columns = list(map(Column, ["id", "takes", "returns", "last"]))
    rows = [[Text("12345678"), Text("word, " * 20), Text("x" * 50), Text("state")], [Text("1"), *[Text("a")] * 3]]
    table = build_table(columns, rows, width, droppable=["last"], folded=["takes", "returns"])
    console = Console(width=width, file=io.StringIO())
    with console.capture() as captured:
        console.print(table)
    lines = captured.get().splitlines()
    assert max(map(len, lines)) <= width
    assert "│ 12345678 │" in captured.get()
    assert (captured.get().count("word,"), captured.get().count("x")) == (20, 50)
    assert ("state" in captured.get()) == (width > 60)


def test_a_dumb_terminal_cannot_redraw(monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets a line per event, as a file does."""
    number, other_end = os.openpty()
    with open(number, "wb"), open(other_end, "w") as terminal:
        for kind, expected in [("dumb", False), ("xterm", True)]:
            monkeypatch.setenv("TERM", kind)
            assert can_redraw(terminal) is expected


def test_colours_for_a_file_do_not_make_it_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The logs of CI show colours, but no line is redrawn in them."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert not can_redraw(io.StringIO())


def test_values_are_printed_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    """A name between colons is no emoji, and a tab stays one; only what moves the cursor back is left out."""
    show_json({":bug:": "a\tb"})
    print_text(":bug:\ta\rb")
    print_progress(":bug:\ta\rb")
    print_error(":bug: [red]")
    printed = capsys.readouterr()
    assert printed.out == '{\n  ":bug:": "a\\tb"\n}\n:bug:\tab\n'
    assert printed.err == ":bug:\tab\n:bug: [red]\n"


def test_a_pipe_gets_complete_lines_in_any_encoding(tmp_path: Path) -> None:
    """Nothing is broken at 80 columns, and a sign that the encoding lacks is no traceback."""
    name = "a_very_long_name_" * 5
    (tmp_path / "signs.py").write_text(
        f"import tidemill as tm\nflow = tm.Workflow('{name}')\n@flow.task\ndef {name}() -> str:\n    return '✓ é'\n",
        encoding="utf-8",
    )
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    environment.pop("COLUMNS", None)
    command = [sys.executable, "-m", "tidemill", "run", "signs.py"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)
    assert any(name in line and "? ?" in line for line in done.stdout.splitlines())
    assert done.stdout.splitlines()[-1].startswith(f"{name} succeeded after ")
