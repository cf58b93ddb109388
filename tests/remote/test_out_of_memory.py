"""A child that the kernel kills for lack of memory, while its container goes on."""

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.remote import killing_flow
from tidemill.attempt.attempt import Attempt
from tidemill.attempt.connection import LeaseTimer, ServerConnection
from tidemill.attempt.process import OomWatch, find_memory_events
from tidemill.engine.workflows.executors.code import locate_code
from tidemill.engine.workflows.executors.forkserver.protocol import RESULT_DECODER
from tidemill.engine.workflows.executors.interface import AttemptRequest
from tidemill.engine.workflows.executors.remote.orders import InstalledCode, Order
from tidemill.engine.workflows.executors.remote.unit_results import REPORTED
from tidemill.workflows.attempt_results import Failed, Succeeded
from tidemill.workflows.records import AttemptKey, TaskError

KILLED = Failed(error=TaskError("ProcessExit", "killed"), exit=-signal.SIGKILL)


class _Server(ServerConnection):
    """Answers every call, and keeps the result."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:1", "token", LeaseTimer())
        self.result: Failed | None = None

    async def post(self, path: str, body: dict[str, Any] | None, kind: type[Any], timeout: float) -> Any:
        if path == "/start":
            return {"order": make_order().encode()}
        if path == "/result":
            assert body is not None
            self.result = RESULT_DECODER.decode(body["result"]).failed
        return {"seconds": 90.0}


def make_order() -> Order:
    """Return an order of the task that dies."""
    location = locate_code(killing_flow.greedy)
    request = AttemptRequest(
        key=AttemptKey("run", "grow", -1, 1),
        tenant="public",
        workflow="greedy",
        version=killing_flow.greedy.wired().spec.version,
        executor="kubernetes",
        number=1,
        deferrals=0,
        params=b"",
        inputs={},
    )
    code = InstalledCode(module=location.module, file=location.file, path=location.path)
    return Order(request=request, code=code, lease=90.0, heartbeat_interval=15.0)


@pytest.mark.parametrize(("is_counted", "outcome"), [(True, "oom"), (False, "failed")])
async def test_a_child_that_is_killed_is_out_of_memory_if_the_kernel_has_counted_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_counted: bool, outcome: str
) -> None:
    """W-16: without `memory.oom.group`, the kernel kills the child alone, and the cluster says nothing."""
    events = tmp_path / "memory.events"
    events.write_text("low 0\noom 0\noom_kill 0\n")
    if is_counted:
        monkeypatch.setenv("MEMORY_EVENTS", str(events))
    async with _Server() as server:
        assert await Attempt(server, tmp_path / "code", events).run() == REPORTED
    assert server.result is not None
    assert (server.result.outcome, server.result.exit) == (outcome, -signal.SIGKILL)


def test_only_a_kill_that_happened_meanwhile_counts(tmp_path: Path) -> None:
    events = tmp_path / "memory.events"
    events.write_text("oom_kill 3\n")
    watch = OomWatch(events)
    assert watch.judge(KILLED) is KILLED
    events.write_text("oom_kill 4\n")
    assert watch.judge(Succeeded(b"")) == Succeeded(b"")
    raised = Failed(error=TaskError("ValueError", "x"))
    assert watch.judge(raised) is raised
    judged = watch.judge(KILLED)
    assert isinstance(judged, Failed)
    assert judged.outcome == "oom"
    assert OomWatch(None).judge(KILLED) is KILLED


def test_the_counter_is_that_of_the_own_control_group(tmp_path: Path) -> None:
    """In a container the group is the root of what it sees; on a machine it is below."""
    own, root = tmp_path / "cgroup", tmp_path / "fs"
    (root / "ray" / "worker").mkdir(parents=True)
    for folder in (root, root / "ray" / "worker"):
        (folder / "memory.events").touch()
    own.write_text("1:cpu:/x\n0::/\n")
    assert find_memory_events(own, root) == root / "memory.events"
    own.write_text("0::/ray/worker\n")
    assert find_memory_events(own, root) == root / "ray" / "worker" / "memory.events"
    own.write_text("0::/gone\n")
    assert find_memory_events(own, root) is None
    own.write_text("4:memory:/x\n")
    assert find_memory_events(own, root) is find_memory_events(tmp_path / "none", root) is None
