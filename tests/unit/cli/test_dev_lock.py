"""One `tidemill dev` at a time on a store."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tidemill.cli.dev_lock import hold_store_lock
from tidemill.kernel.errors import RequestError

HOLDER = """
import os, sys
from tidemill.cli.dev_lock import hold_store_lock
with hold_store_lock(sys.argv[1]):
    is_parent = "fork" in sys.argv and os.fork() > 0
    if not is_parent:
        print(os.getpid(), flush=True)  # the child, if there is one: it has closed the lock when it prints
    sys.stdin.read()
"""


def holder(store: str, *options: str) -> tuple[subprocess.Popen[str], int]:
    """Start a process that holds the lock of a store; return it, and the number that it has printed."""
    arguments = [sys.executable, "-c", HOLDER, store, *options]
    process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], 30)[0]
    return process, int(process.stdout.readline())


def let_go(process: subprocess.Popen[str]) -> None:
    """Kill a process, and close what leads to it."""
    process.kill()
    process.wait(10)
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        pipe.close()


def test_a_second_one_is_refused_with_the_process_of_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It names the process, and the store relative to the current folder, for any spelling of its address."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path)
    process, pid = holder(f"sqlite:///{tmp_path}/dev.db")
    try:
        for store in ("sqlite:///dev.db", f"sqlite:///{tmp_path}/link/dev.db"):
            with pytest.raises(RequestError) as refused, hold_store_lock(store):
                pass
            assert str(refused.value).startswith(f"process {pid} already runs `tidemill dev` on dev.db")
            assert (refused.value.code, refused.value.facts["pid"]) == ("already_running", str(pid))
    finally:
        let_go(process)


def test_the_lock_ends_with_its_process_and_a_file_that_is_left_is_no_obstacle(tmp_path: Path) -> None:
    """After `kill -9` too: the next one takes the file, and says who it is."""
    store = f"sqlite:///{tmp_path / 'dev.db'}"
    process, pid = holder(store)
    let_go(process)
    file = tmp_path / "dev.db.lock"
    assert file.read_text() == f"{pid}\n"
    with hold_store_lock(store):
        assert file.read_text() == f"{os.getpid()}\n"
        with pytest.raises(RequestError, match=f"process {os.getpid()} already runs"), hold_store_lock(store):
            pass
    with hold_store_lock(store):
        pass


def test_what_a_process_forked_does_not_hold_its_lock(tmp_path: Path) -> None:
    """A worker that a task has started may outlive a killed process."""
    store = f"sqlite:///{tmp_path / 'dev.db'}"
    process, child = holder(store, "fork")
    with pytest.raises(RequestError), hold_store_lock(store):
        pass
    process.kill()
    process.wait(10)
    try:
        os.kill(child, 0)  # it lives
        with hold_store_lock(store):
            pass
    finally:
        os.kill(child, signal.SIGKILL)
        let_go(process)


@pytest.mark.parametrize("store", ["postgresql://me@nowhere/none", "sqlite:///", "sqlite:///{folder}/none/dev.db"])
def test_where_no_lock_can_be_it_is_left_to_the_store(store: str, tmp_path: Path) -> None:
    """What is wrong with an address is said by who opens it; databases on servers have no file."""
    with hold_store_lock(store.format(folder=tmp_path)):
        assert os.listdir(tmp_path) == []
