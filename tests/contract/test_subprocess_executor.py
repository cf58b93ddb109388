"""The contract of the subprocess executor: processes can be killed, print, and end in ways of their own."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

import msgspec
import pytest

from tests.contract.executor_harness import TIMEOUT, ExecutorHarness, open_harness, until
from tidemill.engine.workflows.executors.attempt_output import HEAD_LIMIT, TAIL_LIMIT
from tidemill.engine.workflows.executors.interface import SingleInput
from tidemill.engine.workflows.executors.subprocess import Subprocess
from tidemill.kernel.errors import OperationError
from tidemill.telemetry.log_records import LOG_LINE_LIMIT
from tidemill.workflows.attempt_results import Cancelled, Failed, Lost, Succeeded
from tidemill.workflows.workflow import Workflow


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[ExecutorHarness]:
    """The executor, opened."""
    async with open_harness("subprocess", tmp_path) as harness:
        yield harness


def is_gone(pid: int) -> bool:
    """Return whether a process has ended, reaped or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def pids(harness: ExecutorHarness) -> list[int]:
    """Return the process ids that a task has written."""
    return [int(one) for one in Path(harness.files()["pids"]).read_text(encoding="utf-8").split()]


async def fork_server(harness: ExecutorHarness) -> int:
    """Return the pid of the fork server."""
    request = await harness.start("has_a_child")
    server = pids(harness)[2]
    await harness.executor.cancel(request.key, "enough")
    await harness.listener.wait_for_ending(request.key)
    return server


# -- printing


async def test_printed_lines_are_logged(harness: ExecutorHarness) -> None:
    """Bytes that are not text are replaced, and a line without an end counts."""
    await harness.run("prints")
    assert harness.listener.messages("stdout") == ["one", "two"]
    assert harness.listener.messages("stderr") == ["three", "\ufffd\ufffd"]


async def test_a_long_line_is_cut(harness: ExecutorHarness) -> None:
    await harness.run("prints_a_long_line")
    long, short = harness.listener.messages("stdout")
    assert long == "b" * LOG_LINE_LIMIT + " [... cut]"
    assert short == "short"


async def test_the_beginning_and_the_end_of_a_long_output_are_kept(harness: ExecutorHarness) -> None:
    """At most 10 MiB: the first 8, the last one, and a line in between."""
    blocks = 512  # 32 MiB
    await harness.run("prints_much", workflow="loose", params={"blocks": blocks})
    lines = harness.listener.messages("stdout")
    assert lines[-1] == "the end"
    assert HEAD_LIMIT <= harness.listener.bytes <= HEAD_LIMIT + TAIL_LIMIT + 3 * LOG_LINE_LIMIT
    (note,) = harness.listener.messages()
    left_out = int(note.split()[1])
    assert left_out + harness.listener.bytes - len(note) + len(lines) == blocks * 65536 + len("the end\n")


async def test_stdin_is_empty(harness: ExecutorHarness) -> None:
    assert await harness.value("stdin") == ""


# -- ending


async def test_an_exit_without_a_result_is_a_failure(harness: ExecutorHarness) -> None:
    """W-16: with its exit code."""
    failure = await harness.failure("exits")
    assert (failure.exit, failure.outcome, failure.may_retry) == (3, "failed", True)
    assert str(failure.error) == "ProcessExit: the process ended with exit code 3 before it returned"


@pytest.mark.parametrize(
    ("task", "sent", "words"),
    [
        ("is_killed", signal.SIGKILL, "was killed by SIGKILL, perhaps out of memory, before it returned"),
        ("crashes", signal.SIGSEGV, "was killed by SIGSEGV before it returned"),
    ],
)
async def test_the_error_of_a_killed_process_names_the_signal(
    harness: ExecutorHarness, task: str, sent: int, words: str
) -> None:
    """W-16."""
    failure = await harness.failure(task)
    assert (failure.exit, failure.outcome) == (-sent, "failed")
    assert words in failure.error.message


@pytest.mark.parametrize("task", ["writes_garbage", "announces_too_much"])
async def test_garbage_in_the_control_socket_fails_only_its_attempt(harness: ExecutorHarness, task: str) -> None:
    failure = await harness.failure(task)
    assert failure.error.type == "GarbageFromProcess"
    assert await harness.value("noop") is None


async def test_a_result_that_is_too_big_is_a_failure(harness: ExecutorHarness) -> None:
    failure = await harness.failure("returns_too_much")
    assert not failure.may_retry
    assert "67,108,864 are allowed" in failure.error.message


async def test_values_larger_than_a_socket_buffer_are_sent(harness: ExecutorHarness) -> None:
    """Both ways; and a message that arrives in parts is not taken for a disconnect."""
    value = await harness.value("returns_much")
    assert len(value) == 5_000_000
    assert (
        await harness.value("measures", inputs={"returns_much": SingleInput(msgspec.msgpack.encode(value))})
        == 5_000_000
    )


async def test_a_process_that_dies_before_it_has_read_its_request(harness: ExecutorHarness) -> None:
    """W-16: a request that cannot be sent completely is not an error of its own."""
    server = await fork_server(harness)
    os.kill(server, signal.SIGSTOP)
    value = msgspec.msgpack.encode(b"x" * 5_000_000)
    request = harness.request("measures", inputs={"returns_much": SingleInput(value)})
    await harness.executor.submit(request)
    os.kill(server, signal.SIGKILL)
    assert isinstance(await harness.listener.wait_for_ending(request.key), Lost)


RUN_CHILD = """
import os, socket, sys
from types import SimpleNamespace
from tidemill.engine.workflows.executors.forkserver import child

node, control = socket.socketpair()
node.sendall((1).to_bytes(4, "big") + b"x")
node.close()
os.setpgid(0, 0)
call = SimpleNamespace(is_async=False, run=lambda *_: print("it ran"))
setup = child.ChildSetup(os.open(os.devnull, os.O_RDWR), ())
child.run_child(call, (control.fileno(), os.dup(1), os.dup(2)), setup, child.STANDARD_FDS, os.getpid())
"""


def test_a_child_whose_node_disconnected_before_its_start_does_nothing() -> None:
    """Executors: dies with its supervisor, also while it starts."""
    ended = subprocess.run([sys.executable, "-c", RUN_CHILD], capture_output=True, text=True, check=False)
    assert "BrokenPipeError" in ended.stderr.splitlines()[-1]
    assert ended.stdout == ""


async def test_a_timeout_kills_grandchildren_too(harness: ExecutorHarness) -> None:
    """Tasks: timeout kills the process group."""
    request = await harness.start("has_a_child", timeout=60.0)
    child, grandchild, _ = pids(harness)
    await harness.advance(60.0)
    ending = await harness.listener.wait_for_ending(request.key)
    assert isinstance(ending, Failed)
    assert (ending.outcome, ending.exit) == ("timeout", -signal.SIGTERM)
    await until(lambda: is_gone(child) and is_gone(grandchild))


async def test_a_process_that_ignores_sigterm_is_killed_after_the_grace_period(tmp_path: Path) -> None:
    """In real time: a process does not follow the node's clock."""
    async with open_harness("subprocess", tmp_path, grace=0.5) as harness:
        request, before = await harness.start("ignores_signals"), time.monotonic()
        await harness.executor.cancel(request.key, "not wanted")
        harness.clock.advance_to(3600.0)
        assert await harness.listener.wait_for_ending(request.key) == Cancelled("not wanted")
        assert time.monotonic() - before >= 0.5


async def test_nothing_that_a_task_started_outlives_it(harness: ExecutorHarness) -> None:
    params = harness.files()
    assert await harness.value("leaves_a_child", workflow="loose", params=params) == "done"
    await until(lambda: is_gone(pids(harness)[0]))


@pytest.mark.parametrize(("task", "value"), [("leaves_a_thread", "done"), ("leaves_a_stubborn_task", "left")])
async def test_leftover_tasks_and_threads_do_not_delay_the_result(
    harness: ExecutorHarness, task: str, value: str
) -> None:
    """Tasks: the function has returned; tasks and threads that it left behind get a short time."""
    assert await harness.value(task) == value


async def test_a_child_inherits_only_its_own_descriptors(harness: ExecutorHarness) -> None:
    """One socket to the node, and nothing else; also while other attempts run."""
    await harness.start("blocks")
    found = await harness.value("descriptors")
    kinds = [one.partition(":")[0] for one in found if not one.startswith("/proc")]
    assert kinds == ["socket"]


async def test_closing_leaves_no_process_behind(tmp_path: Path) -> None:
    harness = ExecutorHarness("subprocess", tmp_path)
    await harness.executor.open()
    await harness.start("has_a_child")
    await harness.start("ignores_signals", "other")
    family = pids(harness)
    await harness.executor.close(0.05)
    assert is_gone(family[0])
    assert is_gone(family[2])
    await until(lambda: is_gone(family[1]))


async def test_an_executor_that_was_never_opened_can_be_closed(tmp_path: Path) -> None:
    """A node that fails to open closes all its parts."""
    await ExecutorHarness("subprocess", tmp_path).executor.close(0.0)


# -- fork servers


async def test_the_death_of_a_fork_server_loses_only_its_attempts(harness: ExecutorHarness) -> None:
    """W-11: a positive signal; the next request gets a new one."""
    request = await harness.start("has_a_child")
    child, grandchild, server = pids(harness)
    os.kill(server, signal.SIGKILL)
    ending = await harness.listener.wait_for_ending(request.key)
    assert isinstance(ending, Lost)
    await until(lambda: is_gone(child) and is_gone(grandchild))
    assert await harness.value("noop") is None
    assert harness.executor.free_slots() == 8


async def test_a_process_without_a_socket_dies_with_its_fork_server(harness: ExecutorHarness) -> None:
    """Executors: the node knows its process group from the delayed Spawned message."""
    request = await harness.start("closes_everything")
    child, server = pids(harness)
    assert isinstance(harness.executor, Subprocess)
    ((client,),) = harness.executor._pool._servers.values()
    await until(lambda: client._process_groups)
    os.kill(server, signal.SIGKILL)
    assert isinstance(await harness.listener.wait_for_ending(request.key), Lost)
    await until(lambda: is_gone(child))


async def test_a_warm_fork_server_starts_attempts_without_waiting(harness: ExecutorHarness) -> None:
    """W-2: only if their start is recorded, and only while their code is imported."""
    request = harness.request("noop", has_begun=True)
    assert not harness.executor.starts_now(request.version_key)
    with pytest.raises(OperationError, match="cannot accept run1/noop#1 without waiting"):
        harness.executor.submit_now(request)
    assert await harness.value("noop") is None
    assert harness.executor.starts_now(request.version_key)
    harness.executor.submit_now(request)
    harness.executor.submit_now(request)  # which starts nothing: the attempt is known
    assert harness.executor.running() == {request.key}
    assert isinstance(await harness.listener.wait_for_ending(request.key), Succeeded)
    with pytest.raises(OperationError, match="without waiting"):
        harness.executor.submit_now(harness.request("noop"))
    assert not harness.executor.starts_now(request.version_key._replace(version="unknown"))


async def test_an_attempt_is_lost_if_its_fork_server_dies_before_it_forks(harness: ExecutorHarness) -> None:
    """W-11: although it is recorded as running."""
    server = await fork_server(harness)
    os.kill(server, signal.SIGSTOP)
    request = harness.request("noop", has_begun=True)
    harness.executor.submit_now(request)
    os.kill(server, signal.SIGKILL)
    assert isinstance(await harness.listener.wait_for_ending(request.key), Lost)
    assert not harness.executor.starts_now(request.version_key)
    assert harness.executor.free_slots() == 8


async def test_one_fork_server_serves_all(harness: ExecutorHarness) -> None:
    """The module is imported once."""
    servers = set()
    for name in ("it", "other"):
        request = await harness.start("has_a_child", name)
        servers.add(int(Path(harness.files(name)["pids"]).read_text(encoding="utf-8").split()[2]))
        await harness.executor.cancel(request.key, "enough")
        await harness.listener.wait_for_ending(request.key)
    assert len(servers) == 1


CODE = """
import tidemill as tm
from tidemill.workflows.workflow import Workflow
{extra}
changing = Workflow("changing")

@changing.task
def one() -> int:
    return {value}
"""


class ChangingModule:
    """A module that a test rewrites and loads again."""

    def __init__(self, harness: ExecutorHarness, folder: Path) -> None:
        self._bench = harness
        self._file = folder / "changing_flow.py"

    def write(self, value: int, extra: str = "") -> Workflow:
        """Write it and load it here."""
        self._file.write_text(CODE.format(value=value, extra=extra), encoding="utf-8")
        os.utime(self._file, (value, value))  # so that no two have the same time
        sys.modules.pop("changing_flow", None)
        workflow: Workflow = import_module("changing_flow").changing
        self._bench.workflows["changing"] = workflow
        return workflow


@pytest.fixture
def changing(harness: ExecutorHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ChangingModule:
    """A module on the import path."""
    return make_changing_module(harness, tmp_path, monkeypatch)


def make_changing_module(harness: ExecutorHarness, folder: Path, monkeypatch: pytest.MonkeyPatch) -> ChangingModule:
    """Return a module in a folder that is put on the import path."""
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return ChangingModule(harness, folder)


async def test_a_changed_module_gets_a_new_fork_server(harness: ExecutorHarness, changing: ChangingModule) -> None:
    """W-19: and runs pinned to the old version still find it."""
    old = changing.write(1)
    assert await harness.value("one", workflow="changing", params={}) == 1
    changing.write(2)
    assert await harness.value("one", workflow="changing", params={}) == 2
    harness.workflows["changing"] = old
    assert await harness.value("one", workflow="changing", params={}) == 1


async def test_a_version_that_no_longer_exists_is_rejected(harness: ExecutorHarness, changing: ChangingModule) -> None:
    """W-19: other code never runs in its place."""
    old = changing.write(1)
    old.wired()
    changing.write(2)
    harness.workflows["changing"] = old
    with pytest.raises(OperationError, match="not the requested version"):
        await harness.executor.submit(harness.request("one", workflow="changing", params={}))
    assert harness.executor.free_slots() == 8


async def test_a_module_that_cannot_be_imported_elsewhere_is_rejected(
    harness: ExecutorHarness, changing: ChangingModule
) -> None:
    changing.write(1)
    changing.write(1, extra="import sys\nif 'pytest' not in sys.modules: raise RuntimeError('not here')")
    with pytest.raises(OperationError, match="RuntimeError: not here"):
        await harness.executor.submit(harness.request("one", workflow="changing", params={}))


async def test_an_import_that_does_not_end_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next attempt, of another module, runs."""
    endless = "import sys, threading\nif 'pytest' not in sys.modules: threading.Event().wait()"
    async with open_harness("subprocess", tmp_path, import_timeout=3.0) as harness:
        make_changing_module(harness, tmp_path, monkeypatch).write(1, extra=endless)
        with pytest.raises(OperationError, match=r"it took longer than 3 s"):
            await harness.executor.submit(harness.request("one", workflow="changing", params={}))
        assert harness.executor.running() == set()
        assert await harness.value("noop") is None


async def test_an_import_takes_real_time(harness: ExecutorHarness, changing: ChangingModule) -> None:
    """A clock that is moved by hours does not time an import out."""
    changing.write(1, extra="import sys, time\nif 'pytest' not in sys.modules: time.sleep(0.2)")
    async with asyncio.TaskGroup() as group:
        submitted = group.create_task(harness.executor.submit(harness.request("one", workflow="changing", params={})))
        while not submitted.done():
            harness.clock.advance_to(harness.clock.monotonic() + 3600.0)
            await asyncio.sleep(0.005)


async def test_a_fork_server_that_does_not_end_is_killed(harness: ExecutorHarness, changing: ChangingModule) -> None:
    """Closing does not wait for author code: here for a thread that Python waits for at its exit."""
    stays = "threading.Thread(target=threading.Event().wait).start()"
    changing.write(1, extra=f"import sys, threading\nif 'pytest' not in sys.modules: {stays}")
    assert await harness.value("one", workflow="changing", params={}) == 1
    async with asyncio.timeout(TIMEOUT):
        await harness.executor.close(1.0)


async def test_processes_start_and_end_without_the_threads_of_the_loop(tmp_path: Path) -> None:
    """W-5: author code may use all of them."""
    release, pool = threading.Event(), ThreadPoolExecutor(1)
    pool.submit(release.wait)
    asyncio.get_running_loop().set_default_executor(pool)
    try:
        async with asyncio.timeout(TIMEOUT), open_harness("subprocess", tmp_path) as harness:
            assert await harness.value("noop") is None
    finally:
        release.set()


async def test_a_flood_from_outside_the_group_ends_with_its_attempt(harness: ExecutorHarness) -> None:
    """W-4: a process that has left the group writes without end; that must not block the node."""
    async with asyncio.timeout(TIMEOUT):
        assert await harness.value("leaves_a_flood", workflow="loose", params=harness.files()) == "done"
    await until(lambda: is_gone(pids(harness)[0]))  # its pipe has no reader any more


async def test_without_descriptors_nothing_is_started(
    harness: ExecutorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The submission raises, and the next one runs."""
    assert await harness.value("noop") is None

    def fail() -> None:
        raise OSError(24, "Too many open files")

    before = len(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as broken:
        broken.setattr(os, "pipe", fail)
        with pytest.raises(OperationError, match="Too many open files"):
            await harness.executor.submit(harness.request("noop"))
    assert len(os.listdir("/proc/self/fd")) == before
    assert harness.executor.free_slots() == 8
    assert await harness.value("noop") is None


async def test_a_large_request_reaches_its_process(harness: ExecutorHarness) -> None:
    params = {"who": "x" * 20_000_000, "count": 1}
    ending = await harness.run("anything", workflow="loose", params=params)
    assert isinstance(ending, Succeeded)
    assert len(msgspec.msgpack.decode(ending.value)) == 20_000_006


async def test_a_started_run_has_only_its_id_in_another_process(harness: ExecutorHarness) -> None:
    """API: its handle needs the node."""
    failure = await harness.failure("waits_for_a_started_run")
    assert failure.error.type == "AttributeError"
    assert "a started run has only an id, no 'wait'" in failure.error.message


async def test_a_process_that_waits_for_a_reply_dies_with_its_node(harness: ExecutorHarness) -> None:
    """W-12: no signal of the socket comes while it waits, and it ends all the same."""
    await harness.executor.submit(harness.request("pushes_in_vain"))
    await until(lambda: harness.calls)
    pid = msgspec.msgpack.decode(harness.calls[0].event)
    assert not is_gone(pid)
    assert isinstance(harness.executor, Subprocess)
    for attempt in harness.executor._attempts:
        attempt.close_control()
    await until(lambda: is_gone(pid))
