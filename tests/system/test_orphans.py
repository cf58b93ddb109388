"""When a node is killed, so is everything that it runs: nothing goes on that cannot be stopped."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest

from tests.architecture.sources import ROOT
from tests.system.killing import let_pass

LIMIT = 1.0  # seconds


@pytest.fixture
def family(tmp_path: Path) -> "Iterator[tuple[subprocess.Popen[str], list[int]]]":
    """A node with live children: a child, its own child, the fork server."""
    program = [sys.executable, "-m", "tests.system.living_node", str(tmp_path)]
    with subprocess.Popen(program, cwd=ROOT, stdout=subprocess.PIPE, text=True) as node:
        assert node.stdout is not None
        yield node, [int(one) for one in node.stdout.readline().split()]
        node.kill()


def are_gone(pids: list[int]) -> bool:
    """Return whether processes have ended; one that only waits to be reaped has."""
    return all(state_of(pid) in "ZX" for pid in pids)


def state_of(pid: int) -> str:
    """Return the letter for the state of a process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


def wait_until_gone(pids: list[int], limit: float = LIMIT) -> None:
    """Wait for the end of processes."""
    deadline = monotonic() + limit
    while not are_gone(pids):
        assert monotonic() < deadline, [(pid, state_of(pid)) for pid in pids]
        let_pass(0.005)


def test_kill_9_of_the_node_takes_its_children(family: "tuple[subprocess.Popen[str], list[int]]") -> None:
    """Executors: dies with its supervisor, grandchildren and fork server included."""
    node, pids = family
    assert len(pids) == 3
    assert not are_gone(pids)
    node.kill()
    wait_until_gone(pids)


def test_kill_9_of_node_and_fork_server_takes_their_children(
    family: "tuple[subprocess.Popen[str], list[int]]",
) -> None:
    """Executors: also if the fork server cannot do it any more."""
    node, pids = family
    os.kill(pids[2], signal.SIGSTOP)
    node.kill()
    wait_until_gone(pids[:2])
    os.kill(pids[2], signal.SIGCONT)
    wait_until_gone(pids)


def test_an_interrupted_node_takes_its_children(family: "tuple[subprocess.Popen[str], list[int]]") -> None:
    """Executors: whatever way it ends."""
    node, pids = family
    node.send_signal(signal.SIGTERM)
    wait_until_gone(pids)
