"""A node with the live examples, in a process of its own, for browser tests."""

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

EXAMPLES = Path(__file__).parents[2] / "examples"


@dataclass(slots=True)
class DemoNode:
    """A running `tidemill dev`."""

    url: str
    process: "subprocess.Popen[str]"

    def stop(self) -> None:
        """Stop it as an operator does."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=20)


@contextmanager
def demo_node(folder: Path, packages: Path = EXAMPLES, port: int = 0) -> Iterator[DemoNode]:
    """Run packages, with the store in a folder; kill the process in the end if it still runs."""
    store = f"sqlite:///{folder}/demo.db"
    command = [sys.executable, "-m", "tidemill", "dev", str(packages), "--store", store, "--port", str(port)]
    command += ["--pool", "warehouse=1"]
    log = (folder / "dev.log").open("a")
    with log, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process:
        assert process.stdout is not None
        try:
            found = re.search(r"http://\S+", process.stdout.readline())
            assert found is not None, (folder / "dev.log").read_text()
            # It prints what happens as long as it runs, and a full pipe would stop it.
            threading.Thread(target=process.stdout.read, daemon=True).start()
            yield DemoNode(found.group(), process)
        finally:
            process.kill()


def wait_for_reactor(api: httpx.Client, name: str) -> None:
    """Wait until the node has loaded the package of a reactor: it answers before that."""
    stream = {"accept": "text/event-stream"}
    with api.stream("GET", "/events", params={"types": "reactor.loaded"}, headers=stream, timeout=20) as events:
        if api.get(f"/reactors/{name}").is_success:
            return
        next(line for line in events.iter_lines() if line.startswith("data:"))
