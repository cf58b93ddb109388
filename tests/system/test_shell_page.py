"""The page about the shell shows what the commands print: they are run, and compared but for times and ids."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.sources import ROOT

PAGE = (ROOT / "docs" / "how-to" / "run-a-workflow-from-the-shell.md").read_text(encoding="utf-8")
FILE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SESSION = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
VARIABLE = [
    (re.compile(r"\b01m[0-9a-z]{21}\b"), "ID"),
    (re.compile(r"version [0-9a-f]{8}\b"), "version V"),
    (re.compile(r"\b(\d{4}-)?\d\d-\d\d \d\d:\d\d:\d\d\b|\b\d\d:\d\d:\d\d\b"), "TIME"),
    (re.compile(r"\b[0-9.]+(ms|s)\b"), "LENGTH"),
    (re.compile(r"[━─]+"), "-"),
    (re.compile(r" +"), " "),
]


def commands() -> Iterator[tuple[str, str]]:
    """Yield each command of the page, and what it prints."""
    for session in SESSION.findall(PAGE):
        for part in re.split(r"^\$ ", session, flags=re.MULTILINE)[1:]:
            command, _, printed = part.partition("\n")
            yield command, printed


def plain(text: str, short: str) -> str:
    """Return a text without what differs from run to run."""
    for pattern, word in VARIABLE:
        text = pattern.sub(word, text)
    return text.replace(short, "SHORT").strip()


def test_the_page_shows_what_is_printed(tmp_path: Path) -> None:
    """Q-3: the commands follow one another, in one folder, with the page's own file."""
    (file,) = FILE.findall(PAGE)
    (tmp_path / "report.py").write_text(file)
    environment = {**os.environ, "COLUMNS": "80", "PYTHONUTF8": "1", "TZ": "UTC"}
    environment.pop("TIDEMILL_STORE", None)
    named = "tayadenf"  # the run that the page speaks of
    short = named
    for command, expected in commands():
        words = shlex.split(command.replace(named, short))
        if words[0] == "export":
            name, _, value = words[1].partition("=")
            environment[name] = value
            continue
        done = subprocess.run(
            [sys.executable, "-m", *words],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
        if words[1:3] == ["runs", "list"]:
            short = re.findall(r"│ (\w{8}) │", done.stdout)[-1]
        printed = done.stdout.replace(f"{tmp_path}{os.sep}", "")
        assert plain(printed, short) == plain(expected, named), command
