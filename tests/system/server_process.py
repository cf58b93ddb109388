"""A `tidemill server` in a process of its own, for tests."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, NamedTuple


class ServerProcess(NamedTuple):
    """A running server."""

    url: str
    process: subprocess.Popen[str]

    def stop(self) -> int:
        """Stop it with SIGTERM; return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=20)


@contextmanager
def server_process(store: str, *options: str, stderr: IO[str] | None = None) -> Iterator[ServerProcess]:
    """Run a server on a free port of loopback; kill it in the end if it still runs."""
    command = [sys.executable, "-m", "tidemill", "server", "--store", store, "--port", "0", "-o", "json", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True) as process:
        assert process.stdout is not None
        try:
            yield ServerProcess(json.loads(process.stdout.readline())["url"], process)
        finally:
            process.kill()
