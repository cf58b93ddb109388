"""The command line as a whole: start, help and completion."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer

from tests.unit.cli.command_line import run
from tidemill.cli.lazy_commands import find_command
from tidemill.cli.main import COMMANDS as LAZY_COMMANDS
from tidemill.cli.main import RENAMED, SECTIONS, app

SLOW = """
import signal, sys, time

signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background of a shell ignores it

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "tidemill.cli.main":
            print("importing", flush=True)
            time.sleep(60)

sys.meta_path.insert(0, Slow())
from tidemill.__main__ import main
main()
"""


def test_ctrl_c_while_it_begins_is_no_traceback() -> None:
    """Nothing has been done that would have to be undone."""
    with subprocess.Popen([sys.executable, "-c", SLOW], stdout=-1, stderr=-1, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "importing\n"
        program.send_signal(signal.SIGINT)
        _, said = program.communicate(timeout=30)
    assert (program.returncode, said) == (-signal.SIGINT, "")


@pytest.mark.parametrize("command", [["run"], ["demo"], ["dev"], ["workflow", "check"]])
def test_paragraphs_of_help_fill_their_lines(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They break where the terminal does: a line is followed by a word that did not fit into it."""
    monkeypatch.setenv("COLUMNS", "80")
    assert run(monkeypatch, *command, "--help") == 0
    lines = [line.rstrip() for line in capsys.readouterr().out.partition("Arguments:")[0].splitlines()]
    for line, after in pairwise(lines):
        assert not line or not after or len(f"{line} {after.split()[0]}") > 78


def commands(command: Any, *names: str) -> Iterator[tuple[str, ...]]:
    """Yield the words of every command and group."""
    yield names
    for name in command.list_commands(None) if hasattr(command, "list_commands") else ():
        yield from commands(command.get_command(None, name), *names, name)


COMMANDS = list(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_h_is_short_for_help(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """For every command and group."""
    assert run(monkeypatch, *words, "--help") == 0
    printed = capsys.readouterr().out
    assert "-h, --help" in printed
    assert "..." not in printed.partition("Commands:")[2]  # the summaries are shown in full
    assert not re.search(
        r"<=|>=|<\w+ range>|\[default: \(", printed
    )  # ranges are in words, defaults without parentheses
    assert run(monkeypatch, *words, "-h") == 0
    assert capsys.readouterr().out == printed


def test_h_shows_the_params_of_a_workflow_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `tidemill run FILE --help`."""
    file = tmp_path / "short_flow.py"
    file.write_text("import tidemill as tm\nclass P(tm.Params):\n    day: str\nflow = tm.Workflow('flow', params=P)\n")
    assert run(monkeypatch, "run", str(file), "-h") == 0
    assert "--day str" in capsys.readouterr().out.partition("Params of flow:")[2]


@pytest.mark.parametrize("name", LAZY_COMMANDS)
def test_the_list_of_commands_has_a_line_for_each(name: str) -> None:
    """It is written without importing the commands, so it repeats the help of the groups."""
    listed = LAZY_COMMANDS[name]
    assert len(f"  accumulator   {listed.help}") <= 80
    assert listed.function is not None or listed.load(name).help == listed.help


def test_the_help_has_five_sections(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Each command is in one of them."""
    monkeypatch.setenv("COLUMNS", "80")
    assert run(monkeypatch, "--help") == 0
    lines = capsys.readouterr().out.partition("Options:")[2].splitlines()
    assert [line[:-1] for line in lines if line.endswith(":") and not line.startswith(" ")] == list(SECTIONS)
    assert len(SECTIONS) == 5
    assert sum(map(len, SECTIONS.values())) == len(LAZY_COMMANDS)


@pytest.mark.parametrize(("old", "new"), RENAMED.items())
def test_an_old_spelling_says_the_new_one(
    old: str, new: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As soon as there is the new command; until then there is the old one."""
    root = typer.main.get_command(app)
    if find_command(root, new) is None:
        assert find_command(root, old) is not None
        return
    for words in ([], ["some.py", "--key", "start"], ["--from", "2026-01-01"]):
        if words or find_command(root, old) is None:
            assert run(monkeypatch, *old.split(), *words) == 2
            assert f"Error: `tidemill {old}` is now `tidemill {new}`" in capsys.readouterr().err


def test_an_old_noun_keeps_its_verb(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The new spelling can be copied."""
    assert run(monkeypatch, "dead-letters", "show", "some-id") == 2
    assert "`tidemill dead-letters show` is now `tidemill dead-letter show`" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["workflows", "list"], "Did you mean 'workflow'?"),
        (["rnu", "report"], "Did you mean 'run'"),
        (["backfill", "cancl", "x"], "Did you mean 'cancel'?"),
        (["runs", "lst"], "Did you mean 'list'"),
    ],
)
def test_a_misspelt_command_names_the_nearest(
    words: list[str], hint: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the same group."""
    assert run(monkeypatch, *words) == 2
    assert hint in capsys.readouterr().err


def test_nouns_are_in_the_singular() -> None:
    """One rule of spelling; `run NAME` starts a workflow, so `runs` is the noun. Streams and files have no verb."""
    root = typer.main.get_command(app)
    nouns = [name for name in LAZY_COMMANDS if hasattr(find_command(root, name), "list_commands")]
    assert [name for name in nouns if name.endswith("s")] == ["runs"]


def test_the_help_of_all_imports_no_command() -> None:
    """It takes as long with fifty commands as with five."""
    program = "import sys\nfrom tidemill.cli.main import app\napp(['--help'], standalone_mode=False)\n"
    program += "print([name for name in sys.modules if name.startswith('tidemill.cli.commands')], file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stderr == "[]\n"


HELP = """
import json, sys
from tidemill.cli.main import main

for words in json.loads(sys.argv[1]):
    sys.argv = ["tidemill", *words, "--help"]
    try:
        main()
    except SystemExit as end:
        assert not end.code
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""

LIGHT = (
    "tidemill.access",
    "tidemill.annotations.declared",
    "tidemill.api",
    "tidemill.cli",
    "tidemill.graphs.health",
    "tidemill.graphs.key_forms",
    "tidemill.graphs.outcomes",
    "tidemill.graphs.state",
    "tidemill.graphs.views",
    "tidemill.kernel",
    "tidemill.packages.states",
    "tidemill.storage.tables.database",
    "tidemill.storage.tables",
    "tidemill.telemetry.log_records",
    "tidemill.graphs.health",
    "tidemill.workflows.cluster_options",
    "tidemill.workflows.step_records",
    "tidemill.workflows.task_options",
    "tidemill.storage.node_kinds",
    "tidemill.storage.store_size",
    "tidemill.telemetry.process_usage",
    "tidemill.workflows.slots",
    "tidemill.workflows.step_records",
    "tidemill.workflows.waits",
    "tidemill.storage.run_lists",
    "tidemill.workflows.cluster_options",
    "tidemill.workflows.lookup",
    "tidemill.workflows.plan",
    "tidemill.workflows.records",
    "tidemill.workflows.result",
    "tidemill.workflows.rules",
    "tidemill.workflows.spec",
    "tidemill.workflows.cluster_options",
    "tidemill.workflows.states",
    "tidemill.workflows.task_options",
)


def test_help_imports_no_engine() -> None:
    """Help answers in 150 ms; engines, databases, Rich and cryptography take several times as long to import."""
    given = msgspec.json.encode(COMMANDS).decode()
    program = subprocess.run([sys.executable, "-c", HELP, given], capture_output=True, text=True, timeout=60)
    assert program.returncode == 0, program.stderr
    names = set(msgspec.json.decode(program.stderr, type=list[str]))
    assert "tidemill.cli.commands.runs" in names
    heavy = {"asyncio", "cel", "cronsim", "cryptography", "importlib.metadata", "rich", "sqlite3", "watchfiles"}
    assert heavy & names == set()
    ours = {name for name in names if name.startswith("tidemill.") and not name.startswith(LIGHT)}
    assert ours <= {
        "tidemill.annotations",
        "tidemill.graphs",
        "tidemill.packages",
        "tidemill.storage",
        "tidemill.telemetry",
        "tidemill.workflows",
    }


BASH = """
eval "$(tidemill completion bash)"
COMP_WORDS=(tidemill runs l)
COMP_CWORD=2
_tidemill_completion tidemill
echo "${COMPREPLY[@]}"
"""


def test_a_shell_completes_commands() -> None:
    """The script of `tidemill completion bash`, in bash."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    printed = subprocess.run(["bash", "-c", BASH], env={**os.environ, "PATH": path}, capture_output=True, text=True)
    assert (printed.stdout, printed.stderr) == ("list logs\n", "")


@pytest.mark.parametrize(
    ("shell", "line", "request_"),
    [
        ("zsh", "compdef _tidemill_completion tidemill", {"_TYPER_COMPLETE_ARGS": "tidemill runs ca"}),
        (
            "fish",
            "complete --command tidemill",
            {"_TYPER_COMPLETE_ARGS": "tidemill runs ca", "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
        ),
    ],
)
def test_scripts_of_other_shells_are_answered(
    shell: str,
    line: str,
    request_: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each registers the command, and asks it through an environment variable."""
    assert run(monkeypatch, "completion", shell) == 0
    script = capsys.readouterr().out
    assert line in script
    assert f"_TIDEMILL_COMPLETE=complete_{shell}" in script
    for name, value in {**request_, "_TIDEMILL_COMPLETE": f"complete_{shell}"}.items():
        monkeypatch.setenv(name, value)
    assert run(monkeypatch) == 0
    assert "cancel" in capsys.readouterr().out
