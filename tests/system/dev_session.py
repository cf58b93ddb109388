"""`tidemill dev` in a process of its own: its output with times, and its files."""

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.system import hasty_dev

FLOW = """import tidemill as tm

flow = tm.Workflow("flow", schedule=tm.Every("200ms", catchup="none"))


@flow.task
def note() -> None:
    with open({file!r}, "a") as file:
        file.write("{value}\\n")
"""


def start_of_python() -> float:
    """Return how long a process takes that only imports Tidemill, on this machine, now."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", "import tidemill"], check=True)
    return time.monotonic() - began


class DevSession:
    """A `tidemill dev` on a folder; all its other files are below `scratch`."""

    def __init__(
        self, folder: Path, scratch: Path, *options: str, is_hasty: bool = False, port: str | None = "0"
    ) -> None:
        """Start it, for a folder or a file; a hasty one has shorter limits than the default."""
        scratch.mkdir(exist_ok=True)
        self.scratch = scratch
        unset = {"COLUMNS", "TIDEMILL_STORE", "TIDEMILL_PACKAGES"}
        environment = {name: value for name, value in os.environ.items() if name not in unset}
        program = [hasty_dev.__file__] if is_hasty else ["-m", "tidemill"]
        self.program = subprocess.Popen(
            [sys.executable, *program, "dev", str(folder), *options, *(("--port", port) if port else ())],
            cwd=folder if folder.is_dir() else folder.parent,
            env=environment | {"TMPDIR": str(scratch), "PYTHONUTF8": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines: list[str] = []
        self._news: queue.SimpleQueue[tuple[float, str]] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.program.stdout is not None
        for line in self.program.stdout:
            self._news.put((time.monotonic(), line.rstrip("\n")))

    def wait_for(self, *texts: str, patience: float = 40.0) -> tuple[float, str]:
        """Return the next line that contains all these texts, and its time."""
        deadline = time.monotonic() + patience
        while (left := deadline - time.monotonic()) > 0:
            with suppress(queue.Empty):
                at, line = self._news.get(timeout=left)
                self.lines.append(line)
                if all(text in line for text in texts):
                    return at, line
        raise AssertionError(f"nothing with {texts} in:\n" + "\n".join(self.lines))

    def end(self, number: int = signal.SIGINT, patience: float = 20.0) -> int:
        """Send a signal and return the exit code."""
        self.program.send_signal(number)
        code = self.program.wait(patience)
        self._reader.join(5)
        while not self._news.empty():
            self.lines.append(self._news.get()[1])
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.program.poll() is None:
            self.program.kill()
            self.program.wait()
        self._reader.join(5)
        assert self.program.stdout is not None
        self.program.stdout.close()
