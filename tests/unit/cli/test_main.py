"""The command line as a whole: start and help."""

import signal
import subprocess
import sys
from itertools import pairwise

import pytest

from tests.unit.cli.command_line import run

SLOW = """
import sys, time

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


@pytest.mark.parametrize("command", [["run"], ["dev"], ["workflows", "check"]])
def test_paragraphs_of_help_fill_their_lines(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They break where the terminal does: a line is followed by a word for which it had no room."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERMINAL_WIDTH", "80")
    assert run(monkeypatch, *command, "--help") == 0
    lines = [line.strip() for line in capsys.readouterr().out.partition("╭")[0].splitlines()]
    for line, after in pairwise(lines):
        assert not line or not after or len(f"{line} {after.split()[0]}") > 78
