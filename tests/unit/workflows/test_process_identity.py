"""Liveness: only a process that cannot come back is dead."""

import os
import signal
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tidemill.engine.workflows import process_identity
from tidemill.engine.workflows.process_identity import HostLiveness, current_owner
from tidemill.storage.workflow_ports import NodeRow

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let /proc not show processes, as hosts may do."""
    read = Path.read_text

    def instead(path: Path, *args: Any, **options: Any) -> str:
        if path.name == "stat":
            raise PermissionError(13, "hidden")
        return read(path, *args, **options)

    monkeypatch.setattr(Path, "read_text", instead)


def unused_pid() -> int:
    """Return the number of a process that is gone."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return pid


@pytest.fixture
def here() -> NodeRow:
    """Return this process as an owner."""
    return current_owner(NOW)


def test_what_can_be_seen(here: NodeRow) -> None:
    """W-12: a process is dead if it is gone or its pid was reused; of other hosts nothing is known."""
    liveness = HostLiveness()
    assert not liveness.is_dead(here)
    assert liveness.is_dead(replace(here, started=here.started + "1"))
    assert liveness.is_dead(replace(here, pid=unused_pid()))
    assert not liveness.is_dead(replace(here, pid=unused_pid(), host="elsewhere"))
    assert not liveness.is_dead(replace(here, pid=unused_pid(), boot="before"))


@pytest.mark.usefixtures("hidden")
def test_one_that_lives_where_it_is_not_shown(here: NodeRow) -> None:
    """W-12: without a start time a process is not known to be dead; a missing one is."""
    liveness = HostLiveness()
    assert not liveness.is_dead(replace(here, started="4711"))
    assert liveness.is_dead(replace(here, pid=unused_pid()))


def test_one_that_could_not_tell_when_it_began(here: NodeRow) -> None:
    """W-12: it may be the one that is seen now."""
    liveness = HostLiveness()
    assert not liveness.is_dead(replace(here, started="unknown"))
    assert liveness.is_dead(replace(here, started="unknown", pid=unused_pid()))


def test_only_a_process_that_is_seen_to_run_is_running() -> None:
    """W-11: on this host and boot, with this start time, and not stopped; of this process itself nothing is known."""
    liveness = HostLiveness()
    with subprocess.Popen(["sleep", "60"]) as child:
        try:
            owner = replace(current_owner(NOW), pid=child.pid, started=process_identity._process_start_time(child.pid))
            assert liveness.is_running(owner)
            assert not liveness.is_running(replace(owner, started=owner.started + "1"))
            assert not liveness.is_running(replace(owner, host="elsewhere"))
            assert not liveness.is_running(replace(owner, boot="before"))
            child.send_signal(signal.SIGSTOP)
            os.waitpid(child.pid, os.WUNTRACED)
            assert not liveness.is_running(owner)
            assert not liveness.is_dead(owner)
        finally:
            child.kill()
    assert not liveness.is_running(owner)
    assert not liveness.is_running(current_owner(NOW))
