"""`tidemill server` as a service: a manager starts it, may write to one folder alone, and learns of its state."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
import pytest

STATE_REPORTS = {"READY=1", "STOPPING=1"}
CONFINED = Path(__file__).with_name("confined.sh")
UNPRIVILEGED = ["unshare", "--user", "--map-root-user", "--mount"]


def confinement(folder: Path) -> list[str]:
    """Return the beginning of a command that may write to a folder alone; nothing where the system offers no such."""
    prefix = ["unshare", "--mount"] if os.geteuid() == 0 else UNPRIVILEGED
    confined = [*prefix, "sh", str(CONFINED), str(folder)]
    with contextlib.suppress(FileNotFoundError):
        if subprocess.run([*confined, "true"], check=False, capture_output=True).returncode == 0:
            return confined
    return []


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """The folder that the service may write to."""
    (tmp_path / "state").mkdir()
    return tmp_path / "state"


@pytest.fixture
def environment(tmp_path: Path, state: Path) -> Mapping[str, str]:
    """What a service manager gives to a service: no HOME, no locale, no terminal."""
    return {
        "PATH": os.environ["PATH"],
        "NOTIFY_SOCKET": str(tmp_path / "notify"),
        "WATCHDOG_USEC": "200000",
        "TMPDIR": str(state),
        "TIDEMILL_STORE": f"sqlite:///{state}/tidemill.db",
    }


@pytest.fixture
def manager(environment: Mapping[str, str]) -> Iterator[socket.socket]:
    """The socket on which a service manager listens."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(environment["NOTIFY_SOCKET"])
        listener.settimeout(30)
        yield listener


def next_state(manager: socket.socket) -> str:
    """Return the next state that the service reports; it feeds the watchdog meanwhile."""
    while (report := manager.recv(100).decode()) not in STATE_REPORTS:
        assert report == "WATCHDOG=1"
    return report


@contextlib.contextmanager
def service(environment: Mapping[str, str], state: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Run a command of Tidemill as a confined service, in the root folder."""
    command = [*confinement(state), sys.executable, "-m", "tidemill", *words, "-o", "json"]
    with subprocess.Popen(command, env=environment, cwd="/", stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def first_line(process: subprocess.Popen[str]) -> dict[str, str]:
    """Return the first line of a service, which is JSON."""
    assert process.stdout is not None
    found: dict[str, str] = json.loads(process.stdout.readline())
    return found


def test_a_server_is_ready_when_it_answers_and_reports_that_it_stops(
    environment: Mapping[str, str], state: Path, manager: socket.socket
) -> None:
    """S-Ops: Type=notify; a unit that needs the server starts when it answers, and SIGTERM drains it."""
    with service(environment, state, "server", "--port", "0") as process:
        url = first_line(process)["url"]
        assert next_state(manager) == "READY=1"
        assert httpx.get(f"{url}/health/ready").json()["status"] == "ready"
        while manager.recv(100) != b"WATCHDOG=1":  # also while it runs
            pass
        begun = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert next_state(manager) == "STOPPING=1"
        assert process.wait(timeout=20) == 0
        assert time.monotonic() - begun < 15  # half of TimeoutStopSec


def test_a_worker_reports_the_same(environment: Mapping[str, str], state: Path, manager: socket.socket) -> None:
    """It drains, however long that takes."""
    with service(environment, state, "worker") as process:
        assert first_line(process)["worker"]
        assert next_state(manager) == "READY=1"
        process.send_signal(signal.SIGTERM)
        assert next_state(manager) == "STOPPING=1"
        assert process.wait(timeout=20) == 0


def until_ready(url: str) -> None:
    """Wait until all packages have been tried."""
    deadline = time.monotonic() + 20
    while not httpx.get(f"{url}/health/ready").is_success:
        assert time.monotonic() < deadline
        time.sleep(0.05)  # noqa: TID251 - nothing tells a program outside


def test_a_confined_server_loads_packages_and_runs_their_tasks(
    environment: Mapping[str, str], state: Path, manager: socket.socket, tmp_path: Path
) -> None:
    """S-Ops: probe, copies, processes of tasks and the database need no other folder."""
    tidemill = [sys.executable, "-m", "tidemill"]
    subprocess.run([*tidemill, "package", "new", "hello"], cwd=tmp_path, check=True, capture_output=True)
    subprocess.run([*tidemill, "db", "upgrade"], env=environment, check=True, capture_output=True)
    subprocess.run(
        [*tidemill, "package", "upload", tmp_path / "hello"], env=environment, check=True, capture_output=True
    )
    with service(environment, state, "server", "--port", "0", "--no-auth", "--executor", "subprocess") as process:
        url = first_line(process)["url"]
        assert next_state(manager) == "READY=1"
        until_ready(url)
        ran = subprocess.run([*tidemill, "--server", url, "run", "hello_report"], text=True, capture_output=True)
        assert ran.returncode == 0, ran.stderr
        assert re.search("hello_report .*succeeded", ran.stdout + ran.stderr)


def test_a_server_that_can_write_nowhere_says_so(environment: Mapping[str, str], state: Path, tmp_path: Path) -> None:
    """A read-only container without a folder at /tmp; the remedy is in the message."""
    if not (confined := confinement(state)):
        return  # what cannot be confined here can write to /tmp
    command = [*confined, sys.executable, "-m", "tidemill", "server", "--port", "0"]
    variables = {name: environment[name] for name in ("PATH", "TIDEMILL_STORE")}
    refused = subprocess.run(command, env=variables, cwd="/", capture_output=True, text=True, timeout=30, check=False)
    assert refused.returncode == 2
    assert "mount one at /tmp, or set TMPDIR" in refused.stderr
