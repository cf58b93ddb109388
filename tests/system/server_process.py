"""A `tidemill server` in a process of its own, for tests."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO, NamedTuple

import httpx


class ServerProcess(NamedTuple):
    """A running server."""

    url: str
    process: subprocess.Popen[str]

    def wait_until_ready(self) -> None:
        """Return when its packages have been tried."""
        while httpx.get(f"{self.url}/health/ready").status_code != 200:
            pass

    def stop(self) -> int:
        """Stop it with SIGTERM; return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=20)


@contextmanager
def server_process(
    store: str,
    *options: str,
    stderr: IO[str] | None = None,
    launcher: Sequence[str] = (),
    module: str = "tidemill",
) -> Iterator[ServerProcess]:
    """Run a server on a free port of loopback, by a launcher if there is one; kill it in the end if it still runs."""
    command = [sys.executable, "-m", module, "server", "--store", store, "--port", "0", "-o", "json", *options]
    with subprocess.Popen([*launcher, *command], stdout=subprocess.PIPE, stderr=stderr, text=True) as process:
        assert process.stdout is not None
        try:
            yield ServerProcess(json.loads(process.stdout.readline())["url"], process)
        finally:
            process.kill()
