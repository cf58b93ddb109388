"""A real Ray cluster on this machine: a head and further nodes, each a group of processes that a test can kill."""

import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

START_TIMEOUT = 60.0
"""Seconds that a node has to start: 3 to 10 on a busy machine."""

_STARTED = re.compile("Ray runtime started")
_ADDRESS = re.compile(r"--address='([^']+)'")
"""What a head prints last: the address for other nodes."""
_FAST_DETECTION = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_failure_threshold": "3",
}
"""A dead node is noticed within seconds; Ray's defaults take half a minute."""


class RayNode:
    """One node of a cluster: `ray start --block`, and the processes that it starts."""

    def __init__(self, arguments: list[str], environment: Mapping[str, str], log: Path) -> None:
        self._log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats", *arguments],
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_until_printed(self, pattern: re.Pattern[str]) -> re.Match[str]:
        """Wait until the node has printed a pattern, and return where it did."""
        deadline = time.monotonic() + START_TIMEOUT
        while (found := pattern.search(text := self._log.read_text(errors="replace"))) is None:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"a node of Ray did not start: {text}")
            time.sleep(0.05)  # noqa: TID251 - another process does not set events
        return found

    def processes(self) -> set[int]:
        """Return the ids of all processes that the node has started and that still run, attempts among them."""
        return _descendants(self._process.pid)

    def kill(self) -> None:
        """Kill every process of the node, as if the power of its machine failed."""
        for pid in {self._process.pid, *self.processes()}:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()

    def kill_process(self, name: str) -> None:
        """Kill the process of the node that has this name, such as "raylet"."""
        for pid in self.processes():
            if name in _command(pid).split("\0")[0]:
                os.kill(pid, signal.SIGKILL)


class RayCluster:
    """A cluster with a token of its own. It listens on all addresses of the machine: Ray cannot be kept from that."""

    def __init__(self, folder: Path, cpus: int = 4, **settings: str) -> None:
        self._folder = folder
        self._cpus = cpus
        self.environment = {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            **_FAST_DETECTION,
            **settings,
        }
        self._port, self._client_port = _find_free_port(), _find_free_port()
        self._logs = 0
        self.nodes: list[RayNode] = []
        self.address = self.client_address = ""

    def start_head(self) -> RayNode:
        """Start the head, on the same port each time, with the custom resource "near"."""
        arguments = ["--head", f"--port={self._port}", "--include-dashboard=false", '--resources={"near": 1}']
        arguments += [f"--ray-client-server-port={self._client_port}", *self._common(self._cpus)]
        head = self._start(arguments)
        self.address = head.wait_until_printed(_ADDRESS)[1]
        self.client_address = f"ray://{self.address.split(':')[0]}:{self._client_port}"
        return head

    def add_node(self, cpus: int = 1, resources: str = "{}") -> RayNode:
        """Start another node of the cluster."""
        node = self._start([f"--address={self.address}", f"--resources={resources}", *self._common(cpus)])
        node.wait_until_printed(_STARTED)
        return node

    def _common(self, cpus: int) -> list[str]:
        return [
            f"--num-cpus={cpus}",
            "--object-store-memory=80000000",
            "--include-log-monitor=false",
            f"--temp-dir={self._folder}",
        ]

    def _start(self, arguments: list[str]) -> RayNode:
        self._logs += 1
        node = RayNode(arguments, self.environment, self._folder / f"start-{self._logs}.log")
        self.nodes.append(node)
        return node

    def close(self) -> None:
        """Kill every process of the cluster."""
        for node in self.nodes:
            node.kill()


@contextmanager
def running_cluster(cpus: int = 4, **settings: str) -> Iterator[RayCluster]:
    """A cluster with a head."""
    # Ray makes sockets below its folder, and paths of sockets are short.
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp", ignore_cleanup_errors=True) as folder:
        cluster = RayCluster(Path(folder), cpus, **settings)
        try:
            cluster.start_head()
            yield cluster
        finally:
            cluster.close()


@contextmanager
def token_of(cluster: RayCluster) -> Iterator[None]:
    """Put the token of a cluster into the environment, from which gateways inherit it."""
    before = {name: os.environ.get(name) for name in cluster.environment}
    os.environ.update(cluster.environment)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)


def _find_free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def _descendants(root: int) -> set[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (parent := _parent(entry)) is not None:
            children.setdefault(parent, []).append(int(entry.name))
    found: set[int] = set()
    unseen = [root]
    while unseen:
        unseen += (new := children.get(unseen.pop(), []))
        found.update(new)
    return found


def _parent(entry: Path) -> int | None:
    try:
        return int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError):
        return None


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""
