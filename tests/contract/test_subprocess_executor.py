"""What only processes can promise: they can be killed, they print, and they die in ways of their own."""

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

from tests.contract.executor_bench import PATIENCE, Bench, bench_of, until
from tidemill.engine.workflows.executors.attempt_output import HEAD_LIMIT, LOG_LINE_LIMIT, TAIL_LIMIT
from tidemill.engine.workflows.executors.forkserver import pool as fork_pool
from tidemill.engine.workflows.executors.interface import SingleInput
from tidemill.engine.workflows.executors.subprocess import Subprocess
from tidemill.kernel.errors import OperationError
from tidemill.workflows.attempt_results import Cancelled, Failed, Lost, Succeeded
from tidemill.workflows.workflow import Workflow


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    """The executor, open."""
    async with bench_of("subprocess", tmp_path) as bench:
        yield bench


def is_gone(pid: int) -> bool:
    """Return whether a process has ended, reaped or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def pids(bench: Bench) -> list[int]:
    """Return the processes that a task told of."""
    return [int(one) for one in Path(bench.files()["pids"]).read_text(encoding="utf-8").split()]


async def fork_server(bench: Bench) -> int:
    """Return the process that forks, once it has."""
    order = await bench.start("has_a_child")
    server = pids(bench)[2]
    await bench.executor.cancel(order.key, "enough")
    await bench.ledger.ending(order.key)
    return server


# -- printing


async def test_what_is_printed_is_logged_line_by_line(bench: Bench) -> None:
    """Bytes that are no text are replaced, and a line that is not ended counts."""
    await bench.run("prints")
    assert bench.ledger.said("stdout") == ["one", "two"]
    assert bench.ledger.said("stderr") == ["three", "\ufffd\ufffd"]


async def test_a_long_line_is_cut(bench: Bench) -> None:
    await bench.run("prints_a_long_line")
    long, short = bench.ledger.said("stdout")
    assert long == "b" * LOG_LINE_LIMIT + " [... cut]"
    assert short == "short"


async def test_much_output_is_kept_at_both_ends(bench: Bench) -> None:
    """At most 10 MiB: the first 8, the last one, and a line in between."""
    blocks = 512  # 32 MiB
    await bench.run("prints_much", workflow="loose", params={"blocks": blocks})
    lines = bench.ledger.said("stdout")
    assert lines[-1] == "the end"
    assert HEAD_LIMIT <= bench.ledger.bytes <= HEAD_LIMIT + TAIL_LIMIT + 3 * LOG_LINE_LIMIT
    (note,) = bench.ledger.said()
    left_out = int(note.split()[1])
    assert left_out + bench.ledger.bytes - len(note) + len(lines) == blocks * 65536 + len("the end\n")


async def test_stdin_is_empty(bench: Bench) -> None:
    assert await bench.value("stdin") == ""


# -- ending


async def test_an_exit_without_a_result_is_a_failure(bench: Bench) -> None:
    """W-16: with its exit code."""
    failure = await bench.failure("exits")
    assert (failure.exit, failure.outcome, failure.may_retry) == (3, "failed", True)
    assert str(failure.error) == "ProcessExit: the process ended with exit code 3 before it returned"


@pytest.mark.parametrize(
    ("task", "sent", "words"),
    [
        ("is_killed", signal.SIGKILL, "was killed by SIGKILL, perhaps out of memory, before it returned"),
        ("crashes", signal.SIGSEGV, "was killed by SIGSEGV before it returned"),
    ],
)
async def test_a_process_that_is_killed_says_by_what(bench: Bench, task: str, sent: int, words: str) -> None:
    """W-16."""
    failure = await bench.failure(task)
    assert (failure.exit, failure.outcome) == (-sent, "failed")
    assert words in failure.error.message


@pytest.mark.parametrize("task", ["writes_garbage", "announces_too_much"])
async def test_garbage_does_not_hurt_the_node(bench: Bench, task: str) -> None:
    failure = await bench.failure(task)
    assert failure.error.type == "GarbageFromProcess"
    assert await bench.value("noop") is None


async def test_a_result_that_is_too_big_is_a_failure(bench: Bench) -> None:
    failure = await bench.failure("returns_too_much")
    assert not failure.may_retry
    assert "too big" in failure.error.message


async def test_values_that_no_socket_holds_at_once_come_through(bench: Bench) -> None:
    """Both ways; and what is sent bit by bit is no sign that the node is gone."""
    value = await bench.value("returns_much")
    assert len(value) == 5_000_000
    assert (
        await bench.value("measures", inputs={"returns_much": SingleInput(msgspec.msgpack.encode(value))}) == 5_000_000
    )


async def test_a_process_that_dies_before_it_has_read_its_order(bench: Bench) -> None:
    """W-16: an order that cannot be sent to its end is no error of its own."""
    server = await fork_server(bench)
    os.kill(server, signal.SIGSTOP)
    value = msgspec.msgpack.encode(b"x" * 5_000_000)
    order = bench.order("measures", inputs={"returns_much": SingleInput(value)})
    await bench.executor.submit(order)
    os.kill(server, signal.SIGKILL)
    assert isinstance(await bench.ledger.ending(order.key), Lost)


ATTEND = """
import os, socket, sys
from types import SimpleNamespace
from tidemill.engine.workflows.executors.forkserver import child

node, control = socket.socketpair()
node.sendall((1).to_bytes(4, "big") + b"x")
node.close()
os.setpgid(0, 0)
call = SimpleNamespace(is_async=False, run=lambda *_: print("it ran"))
inheritance = child.ChildSetup(os.open(os.devnull, os.O_RDWR), ())
child.run_child(call, (control.fileno(), os.dup(1), os.dup(2)), inheritance, child.STANDARD_FDS, os.getpid())
"""


def test_a_process_does_nothing_whose_node_went_before_it_began() -> None:
    """Executors: dies with its supervisor, also in the moment in which it begins."""
    ended = subprocess.run([sys.executable, "-c", ATTEND], capture_output=True, text=True, check=False)
    assert "BrokenPipeError" in ended.stderr.splitlines()[-1]
    assert ended.stdout == ""


async def test_a_timeout_takes_grandchildren_too(bench: Bench) -> None:
    """Tasks: timeout kills the process group."""
    order = await bench.start("has_a_child", timeout=60.0)
    child, grandchild, _ = pids(bench)
    await bench.forward(60.0)
    ending = await bench.ledger.ending(order.key)
    assert isinstance(ending, Failed)
    assert (ending.outcome, ending.exit) == ("timeout", -signal.SIGTERM)
    await until(lambda: is_gone(child) and is_gone(grandchild))


async def test_what_ignores_sigterm_is_killed_after_the_grace(tmp_path: Path) -> None:
    """In real time: a process needs that to clean up, however far a test moves the clock."""
    async with bench_of("subprocess", tmp_path, grace=0.5) as bench:
        order, before = await bench.start("ignores_signals"), time.monotonic()
        await bench.executor.cancel(order.key, "not wanted")
        bench.clock.advance_to(3600.0)
        assert await bench.ledger.ending(order.key) == Cancelled("not wanted")
        assert time.monotonic() - before >= 0.5


async def test_nothing_that_a_task_started_outlives_it(bench: Bench) -> None:
    params = bench.files()
    assert await bench.value("leaves_a_child", workflow="loose", params=params) == "done"
    await until(lambda: is_gone(pids(bench)[0]))


@pytest.mark.parametrize(("task", "value"), [("leaves_a_thread", "done"), ("leaves_a_stubborn_task", "left")])
async def test_what_code_leaves_on_its_loop_does_not_keep_it(bench: Bench, task: str, value: str) -> None:
    """Tasks: it has returned; what it left behind is given a short while."""
    assert await bench.value(task) == value


async def test_a_child_inherits_nothing_that_is_not_its_own(bench: Bench) -> None:
    """One socket to the node, and no more; also while others run."""
    await bench.start("blocks")
    found = await bench.value("descriptors")
    kinds = [one.partition(":")[0] for one in found if not one.startswith("/proc")]
    assert kinds == ["socket"]


async def test_closing_leaves_no_process_behind(tmp_path: Path) -> None:
    bench = Bench("subprocess", tmp_path)
    await bench.executor.open()
    await bench.start("has_a_child")
    await bench.start("ignores_signals", "other")
    family = pids(bench)
    await bench.executor.close(0.05)
    assert is_gone(family[0])
    assert is_gone(family[2])
    await until(lambda: is_gone(family[1]))


async def test_what_was_never_opened_can_be_closed(tmp_path: Path) -> None:
    """A node that fails to open closes everything that it has."""
    await Bench("subprocess", tmp_path).executor.close(0.0)


# -- fork servers


async def test_the_death_of_a_fork_server_loses_its_attempts_and_no_more(bench: Bench) -> None:
    """W-11: a positive signal; the next order gets a new one."""
    order = await bench.start("has_a_child")
    child, grandchild, server = pids(bench)
    os.kill(server, signal.SIGKILL)
    ending = await bench.ledger.ending(order.key)
    assert isinstance(ending, Lost)
    await until(lambda: is_gone(child) and is_gone(grandchild))
    assert await bench.value("noop") is None
    assert bench.executor.free_slots() == 8


async def test_a_process_without_a_socket_dies_with_its_fork_server(bench: Bench) -> None:
    """Executors: the node has been told which it is, although nobody waited for that."""
    order = await bench.start("closes_everything")
    child, server = pids(bench)
    assert isinstance(bench.executor, Subprocess)
    ((link,),) = bench.executor._pool._servers.values()
    await until(lambda: link._process_groups)
    os.kill(server, signal.SIGKILL)
    assert isinstance(await bench.ledger.ending(order.key), Lost)
    await until(lambda: is_gone(child))


async def test_one_fork_server_serves_all(bench: Bench) -> None:
    """The module is imported once."""
    servers = set()
    for name in ("it", "other"):
        order = await bench.start("has_a_child", name)
        servers.add(int(Path(bench.files(name)["pids"]).read_text(encoding="utf-8").split()[2]))
        await bench.executor.cancel(order.key, "enough")
        await bench.ledger.ending(order.key)
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


class Changing:
    """A module that is written again and again."""

    def __init__(self, bench: Bench, folder: Path) -> None:
        self._bench = bench
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
def changing(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Changing:
    """A module of its own, on the path."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return Changing(bench, tmp_path)


async def test_a_module_that_changed_gets_a_fresh_fork_server(bench: Bench, changing: Changing) -> None:
    """W-19: and what is pinned to the old version still finds it."""
    old = changing.write(1)
    assert await bench.value("one", workflow="changing", params={}) == 1
    changing.write(2)
    assert await bench.value("one", workflow="changing", params={}) == 2
    bench.workflows["changing"] = old
    assert await bench.value("one", workflow="changing", params={}) == 1


async def test_a_version_that_is_nowhere_is_refused(bench: Bench, changing: Changing) -> None:
    """W-19: other code is never run in its place."""
    old = changing.write(1)
    old.wired()
    changing.write(2)
    bench.workflows["changing"] = old
    with pytest.raises(OperationError, match="is wanted"):
        await bench.executor.submit(bench.order("one", workflow="changing", params={}))
    assert bench.executor.free_slots() == 8


async def test_a_module_that_cannot_be_imported_elsewhere_is_refused(bench: Bench, changing: Changing) -> None:
    changing.write(1)
    changing.write(1, extra="import sys\nif 'pytest' not in sys.modules: raise RuntimeError('not here')")
    with pytest.raises(OperationError, match="RuntimeError: not here"):
        await bench.executor.submit(bench.order("one", workflow="changing", params={}))


async def test_an_import_that_does_not_end_is_given_up(
    bench: Bench, changing: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for ever, and nothing is left behind."""
    monkeypatch.setattr(fork_pool, "IMPORT_TIMEOUT", 0.5)
    endless = "import sys, threading\nif 'pytest' not in sys.modules: threading.Event().wait()"
    changing.write(1, extra=endless)
    with pytest.raises(OperationError, match=r"it took longer than 0.5 s"):
        await bench.executor.submit(bench.order("one", workflow="changing", params={}))
    monkeypatch.undo()
    assert await bench.value("noop") is None


async def test_an_import_takes_real_time(bench: Bench, changing: Changing) -> None:
    """A clock that is moved by hours makes no import late."""
    changing.write(1, extra="import sys, time\nif 'pytest' not in sys.modules: time.sleep(0.2)")
    async with asyncio.TaskGroup() as group:
        submitted = group.create_task(bench.executor.submit(bench.order("one", workflow="changing", params={})))
        while not submitted.done():
            bench.clock.advance_to(bench.clock.monotonic() + 3600.0)
            await asyncio.sleep(0.005)


async def test_a_fork_server_that_does_not_end_is_killed(bench: Bench, changing: Changing) -> None:
    """Closing does not wait for author code: here a thread of its module, for which Python would wait."""
    stays = "threading.Thread(target=threading.Event().wait).start()"
    changing.write(1, extra=f"import sys, threading\nif 'pytest' not in sys.modules: {stays}")
    assert await bench.value("one", workflow="changing", params={}) == 1
    async with asyncio.timeout(PATIENCE):
        await bench.executor._pool.close()


async def test_processes_begin_and_end_without_the_threads_of_the_loop(tmp_path: Path) -> None:
    """W-5: author code may have taken all of them."""
    release, pool = threading.Event(), ThreadPoolExecutor(1)
    pool.submit(release.wait)
    asyncio.get_running_loop().set_default_executor(pool)
    try:
        async with asyncio.timeout(PATIENCE), bench_of("subprocess", tmp_path) as bench:
            assert await bench.value("noop") is None
    finally:
        release.set()


async def test_a_flood_from_outside_the_group_ends_with_its_attempt(bench: Bench) -> None:
    """W-4: what has left the group goes on writing for ever; that must not hold up the node."""
    async with asyncio.timeout(PATIENCE):
        assert await bench.value("leaves_a_flood", workflow="loose", params=bench.files()) == "done"
    await until(lambda: is_gone(pids(bench)[0]))  # nobody reads it any more


async def test_without_descriptors_nothing_is_begun(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be run raises; the next one runs."""
    assert await bench.value("noop") is None

    def fail() -> None:
        raise OSError(24, "Too many open files")

    before = len(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as broken:
        broken.setattr(os, "pipe", fail)
        with pytest.raises(OperationError, match="Too many open files"):
            await bench.executor.submit(bench.order("noop"))
    assert len(os.listdir("/proc/self/fd")) == before
    assert bench.executor.free_slots() == 8
    assert await bench.value("noop") is None


async def test_a_large_order_reaches_its_process(bench: Bench) -> None:
    params = {"who": "x" * 20_000_000, "count": 1}
    ending = await bench.run("anything", workflow="loose", params=params)
    assert isinstance(ending, Succeeded)
    assert len(msgspec.msgpack.decode(ending.value)) == 20_000_006


async def test_a_push_needs_the_node(bench: Bench) -> None:
    """API: `ctx.push` goes over the server from elsewhere."""
    assert isinstance(bench.executor, Subprocess)
    failure = await bench.failure("pushes")
    assert (failure.error.type, "needs a server" in failure.error.message) == ("OperationError", True)
