"""The parent's side: contestants run in processes of their own and take turns."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.measure import console
from benchmarks.peers.environments import FOLDER, ROOT, InstallError, prepare, version_of

LINES_OF_LOG = 5


class ContestantError(Exception):
    """A contestant ended, or did other work than it was to do."""


class Contestant:
    """A process that does work on demand."""

    def __init__(self, name: str, python: str, module: str, arguments: Sequence[str]) -> None:
        self._name = name
        self._command = [python, "-m", f"benchmarks.peers.{module}_peer", *arguments]
        self._log = FOLDER / f"{name}.log"
        self.works: frozenset[str] = frozenset()
        """What it can do."""

    def __enter__(self) -> "Contestant":
        FOLDER.mkdir(parents=True, exist_ok=True)
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
            )
        self.works = frozenset(self._answer()["works"])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def do(self, work: str, count: int) -> dict[str, float]:
        """Let it do a piece of work; return its figures."""
        assert self._process.stdin is not None, "it is a pipe"
        with suppress(BrokenPipeError):  # it has ended: there is no answer, and that is reported
            self._process.stdin.write(json.dumps({"work": work, "count": count}) + "\n")
            self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None, "it is a pipe"
        line = self._process.stdout.readline()
        if not line:
            self._end()
            said = "\n".join(self._log.read_text().splitlines()[-LINES_OF_LOG:])
            raise ContestantError(f"{self._name} has ended:\n{said}")
        found: dict[str, Any] = json.loads(line)
        return found

    def _end(self) -> None:
        """End the input, and so the process."""
        if self._process.returncode is None:
            self._process.communicate()


@contextmanager
def running(programs: Mapping[str, tuple[str, ...]], peers: Mapping[str, Path]) -> Iterator[dict[str, Contestant]]:
    """Run programs, each a module with arguments: peers in their environments, the others in this one.

    A peer that does not start here is left out.
    """
    found = {}
    with ExitStack() as stack:
        for name, (module, *arguments) in programs.items():
            contestant = Contestant(name, str(peers.get(name, sys.executable)), module, arguments)
            try:
                found[name] = stack.enter_context(contestant)
            except ContestantError as error:
                if name not in peers:
                    raise
                console.print(f"  [yellow]{name} does not start here, and is left out: {error}[/]")
        yield found


def prepare_peers(names: Sequence[str]) -> tuple[dict[str, Path], dict[str, str]]:
    """Make the environments of peers; return their Pythons, and the reasons of those that cannot be installed."""
    found, missing = {}, {}
    for name in names:
        console.print(f"Preparing {name} {version_of(name)}")
        try:
            found[name] = prepare(name)
        except InstallError as error:
            missing[name] = str(error)
            console.print(f"  [yellow]{name} cannot be installed here, and is left out: {error}[/]")
    return found, missing
