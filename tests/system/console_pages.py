"""Runs the console sessions of a documentation page in real shells, and compares what they print with the page.

The prompt names the terminal: `$` and `(server) $` are two shells. A diff block is an edit of a file. Times, ids and
sizes differ from run to run, and are not compared; a line `...` on the page stands for any lines.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from time import monotonic
from typing import NamedTuple

BLOCK = re.compile(
    r"(?P<excuse>^<!-- not run: \S[^\n]*-->\n\n?)?"  # a session that cannot run says why
    r"^```(?P<language>console|diff)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
PROMPT = re.compile(r"^(?:\((?P<terminal>[a-z]+)\) )?\$ (?P<command>.*)$")
END = re.compile(r"^<<ended (?P<code>\d+)>>$")
SERVICES = ("tidemill server", "tidemill worker")
QUERIES = re.compile(r"\b(?:list|show|why|health)\b")
INTERRUPT = "^C"
PATIENCE = 20.0  # seconds until a query must answer as on the page

VARIABLE = [
    (re.compile(r"\b01m[0-9a-z]{21}\b|\b[0-9a-f]{16}\b|\btm_\w+|\bkey:\w+"), "ID"),
    (re.compile(r"│ [0-9a-z]{8} (?=│)|│ \S+-\d+ +(?=│ \S+ +│ server)"), "│ ID "),
    (re.compile(r"(?<=_readings-)[0-9a-z]+"), "SERIES"),
    (re.compile(r"\b(?:\d{4}-)?\d\d-\d\d \d\d:\d\d:\d\d\b"), "TIME"),
    (re.compile(r"\b[0-9.,]+ ?(?:ms|s|bytes)\b"), "SIZE"),
    (re.compile(r"(?<=version )\d+ to \d+|(?<=needs version )\d+"), "VERSION"),
    (re.compile(r"(?<=│ )[0-9,]+ (?=│ TIME)|(?<=│ TIME │ )[0-9,]+ "), "SIZE "),
    (re.compile(r"[━─]+"), "-"),
    (re.compile(r" +"), " "),
]


class Command(NamedTuple):
    """A command of a page, its terminal, and what the page shows of its output."""

    terminal: str
    text: str
    output: str


class Edit(NamedTuple):
    """An edit of a file: one line becomes another."""

    file: str
    before: str
    after: str


def read_steps(page: Path) -> Iterator[Command | Edit]:
    """Yield the steps of a page in order."""
    for block in BLOCK.finditer(page.read_text(encoding="utf-8")):
        if block["excuse"]:
            continue
        if block["language"] == "diff":
            file, before, after = block["text"].splitlines()
            yield Edit(file.strip("@ "), before.removeprefix("-"), after.removeprefix("+"))
        else:
            yield from _commands(block["text"])


def _commands(session: str) -> Iterator[Command]:
    lines = session.splitlines()
    starts = [number for number, line in enumerate(lines) if PROMPT.match(line)]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        found = PROMPT.match(lines[start])
        assert found
        yield Command(found["terminal"] or "", found["command"], "\n".join(lines[start + 1 : end]))


class Terminal:
    """A shell that takes one command after another."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._shell = subprocess.Popen(
            ["bash", "--norc"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, command: str) -> str:
        """Run a command to its end; return what it printed."""
        self._send(command)
        return "".join(iter(self._line, ""))

    def start(self, command: str, until: str) -> None:
        """Run a command that does not end, until it prints a line."""
        self._send(command)
        while plain(line := self._line()) != plain(until):
            assert line, f"{command} ended"

    def interrupt(self) -> None:
        """Press Ctrl-C, and wait for the end of the command."""
        children = Path(f"/proc/{self._shell.pid}/task/{self._shell.pid}/children").read_text()
        for child in children.split():
            os.kill(int(child), signal.SIGINT)
        while self._line():
            pass

    def close(self) -> None:
        """End the shell, and everything that it has started."""
        os.killpg(self._shell.pid, signal.SIGKILL)
        self._shell.wait()
        for pipe in (self._shell.stdin, self._shell.stdout):
            assert pipe
            pipe.close()

    def _send(self, command: str) -> None:
        assert self._shell.stdin
        self._shell.stdin.write(f"{{ {command}\n}} < /dev/null; printf '\\n<<ended %s>>\\n' $?\n")
        self._shell.stdin.flush()

    def _line(self) -> str:
        """Return the next line; an empty text at the end of the command."""
        assert self._shell.stdout
        line = self._shell.stdout.readline()
        assert line, "the shell has ended"
        return "" if END.match(line) else line


def run_page(page: Path, folder: Path, replaced: Mapping[str, str]) -> None:
    """Take every step of a page in a folder; `replaced` maps addresses on the page to those that exist here."""
    programs = str(Path(sys.executable).parent)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TIDEMILL_")}
    environment = kept | {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": "100",
        "NO_COLOR": "1",
        "PYTHONUTF8": "1",
        "TZ": "UTC",
        "HOME": str(folder),
        "XDG_CONFIG_HOME": str(folder / ".config"),
    }
    terminals: dict[str, Terminal] = {}
    try:
        for step in read_steps(page):
            if isinstance(step, Edit):
                _edit(folder / step.file, step)
                continue
            if step.terminal not in terminals:
                terminals[step.terminal] = Terminal(folder, environment)
            _take(terminals[step.terminal], step, replaced)
    finally:
        for terminal in terminals.values():
            terminal.close()


def _edit(file: Path, edit: Edit) -> None:
    text = file.read_text(encoding="utf-8")
    assert text.count(f"{edit.before}\n") == 1, edit
    file.write_text(text.replace(f"{edit.before}\n", f"{edit.after}\n"), encoding="utf-8")


def _take(terminal: Terminal, step: Command, replaced: Mapping[str, str]) -> None:
    command, expected = step.text, step.output
    for shown, real in replaced.items():
        command, expected = command.replace(shown, real), expected.replace(shown, real)
    if command == INTERRUPT:
        terminal.interrupt()
    elif command.startswith(SERVICES):
        terminal.start(command, until=expected)
    else:
        begun, printed = monotonic(), terminal.run(command)
        while not is_shown(printed, expected) and QUERIES.search(command) and monotonic() - begun < PATIENCE:
            printed = terminal.run(command)
        assert is_shown(printed, expected), (
            f"{command}\nprinted\n{plain(printed)}\nand the page shows\n{plain(expected)}"
        )


def is_shown(printed: str, expected: str) -> bool:
    """Return whether a page shows what was printed; a page that shows nothing leaves it open."""
    pattern = re.escape(plain(expected)).replace(re.escape("..."), ".*")
    return not expected or re.fullmatch(pattern, plain(printed), re.DOTALL) is not None


def plain(text: str) -> str:
    """Return a text without what differs from run to run."""
    for pattern, word in VARIABLE:
        text = pattern.sub(word, text)
    return text.strip()
