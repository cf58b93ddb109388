"""Packages that do their worst while they are imported: each is reported as its problem, and nothing stays."""

import asyncio
import os
import select
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import settings

import tidemill as tm
from tests.contract.executor_harness import until
from tests.processes import alive_with
from tests.system.dev_session import start_of_python
from tests.unit.packages.package_samples import folder_of
from tidemill.kernel.clock import SystemClock, VirtualClock
from tidemill.packages.format.manifest import read_manifest
from tidemill.packages.loading.inspector import ProbeReply
from tidemill.packages.loading.metadata import PackageMetadata
from tidemill.packages.loading.probe import ProbeError, ProbeLimits, run_probe
from tidemill.testing.probes import PackageProbe

MANIFEST = b'[package]\nname = "shop"\nversion = "1.0.0"\n'
SOUND = "import tidemill as tm\nflow = tm.Workflow('flow')\n@flow.task\ndef one() -> int: return 1\n"

WAITS = "import time\ntime.sleep(600)"  # without a core of its own, which the tests beside this one need

STANDARD = ProbeLimits()
SHORT = ProbeLimits(wall=1.5)
MANY = 500 if settings().max_examples >= 10_000 else 15  # probes; with `soak` a leak by chance has its chance


async def tried(folder: Path, code: str, limits: ProbeLimits = STANDARD) -> PackageMetadata:
    """Return what the probe finds in one module."""
    folder_of(folder, {"package.toml": MANIFEST, "shop.py": code.encode()})
    return await run_probe(folder, read_manifest(MANIFEST), limits=limits, clock=SystemClock())


async def told(folder: Path, code: str, limits: ProbeLimits = STANDARD) -> str:
    """Return the only problem that the probe finds in one module."""
    with pytest.raises(ProbeError) as raised:
        await tried(folder, code, limits)
    (problem,) = raised.value.problems
    return str(problem)


def descriptors() -> list[str]:
    """Return the open descriptors of this process."""
    return sorted(os.listdir("/proc/self/fd"))


def children() -> set[str]:
    """Return the children of this process, zombies too."""
    found: set[str] = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError):  # a thread that has just ended
            found.update((task / "children").read_text().split())
    return found


def wait_for(file: Path) -> None:
    """Wait until a file is there."""
    while not file.exists():
        select.select([], [], [], 0.01)


@pytest.fixture(autouse=True)
def _nothing_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """After every test: no descriptor more, no child, no process, no file, and no thread of a probe."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    before, had = descriptors(), children()
    yield
    for thread in threading.enumerate():
        if thread.name.startswith("tidemill probe"):
            thread.join(5)
            assert not thread.is_alive()
    for _ in range(200):  # the watcher of a folder closes its descriptors a moment later, on a thread of its own
        if descriptors() == before:
            break
        select.select([], [], [], 0.01)
    assert descriptors() == before
    assert children() <= had
    assert not alive_with(str(scratch).encode())
    assert os.listdir(scratch) == []


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("import os\nprint('bye')\nos._exit(0)", "importing it ended the process, with exit code 0, before it was"),
        ("import os\nos._exit(3)", "importing it ended the process, with exit code 3, before it was complete"),
        ("import ctypes\nprint('bye')\nctypes.string_at(0)", "shop.py:3: importing it crashed with SIGSEGV; the last"),
        ("import os\nos.abort()", "shop.py:2: importing it crashed with SIGABRT"),
        ("import os\nos.kill(os.getpid(), 9)", "importing it was killed with SIGKILL, by itself or for lack of memory"),
        ("import os\nos.closerange(0, 100)", "importing it broke the probe: it closed descriptors that it did not"),
        (f"{SOUND}import os\nos.closerange(0, 100)", "importing it broke the probe: it closed descriptors"),
        ("x = bytes(3_000_000_000)", "shop.py:1: importing 'shop' failed: it needs more than 1 GiB of address space"),
        (
            "x = []\nwhile True: x.append(bytes(10_000_000))",
            "shop.py:2: importing 'shop' failed: it needs more",
        ),
        ("open('big', 'wb').write(bytes(17_000_000))", "shop.py:1: importing 'shop' failed: OSError: [Errno 27]"),
        ("x = [open('/dev/null') for _ in range(999)]", "shop.py:1: importing 'shop' failed: OSError: [Errno 24]"),
        ("raise ValueError('x' * 10_000_000)", "shop.py:1: importing 'shop' failed: ValueError: xxx"),
    ],
)
async def test_an_end_of_any_kind_is_reported(tmp_path: Path, code: str, problem: str) -> None:
    """P-7, F71: exits, crashes, and more than the limits allow; exit code 0 is no success."""
    said = await told(tmp_path / "staged", code)
    assert said.startswith(problem)
    assert len(said) < 3_000
    if "bye" in code:
        assert said.endswith("; the last that it printed:\n    bye")


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("x = 1\nwhile True: pass", 2),
        ("import time\nprint('bye')\ntime.sleep(1000)", 3),
        ("import time\nwhile True:\n try: time.sleep(1000)\n except BaseException: pass", 3),
        ("import threading\nl = threading.Lock()\nl.acquire()\nl.acquire()", 4),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)", None),
        ("import signal, time\nsignal.signal(signal.SIGABRT, signal.SIG_IGN)\nwhile True: time.sleep(9)", None),
    ],
)
async def test_a_hanging_import_is_ended_and_told_with_its_line(tmp_path: Path, code: str, line: int | None) -> None:
    """P-7, F70, behaviour 98: also one that catches everything, one that is stopped, one that ignores signals."""
    said = await told(tmp_path, code, SHORT)
    place = "" if line is None else f"shop.py:{line}: "
    assert said.startswith(f"{place}importing it took longer than 1.5 s, and was ended: do no work at import")
    assert said.endswith("\n    bye") == ("bye" in code)


async def test_processor_time_is_limited(tmp_path: Path) -> None:
    """P-7: long before the wall time is over."""
    said = await told(tmp_path, "x = 1\nwhile True: pass", ProbeLimits(wall=30, cpu=1))
    assert said.startswith(
        "shop.py:2: importing it used more than 1 s of processor time, and was ended: do no work at import"
    )


async def test_endless_printing_neither_blocks_nor_fills_memory(tmp_path: Path) -> None:
    """P-7: it is ended and told; the first 64 KiB and the very last are kept, the rest is counted."""
    code = "import os\nos.write(1, b'first\\n')\nwhile True: os.write(1, b'x' * 65536)"
    folder_of(tmp_path, {"package.toml": MANIFEST, "shop.py": code.encode()})
    with pytest.raises(ProbeError) as raised:
        await run_probe(tmp_path, read_manifest(MANIFEST), clock=SystemClock())
    assert "shop.py:3: importing it printed more than 1,048,576 bytes: print little at import" in str(raised.value)
    assert raised.value.output.startswith("first\nxxx")
    assert 65_536 < len(raised.value.output) < 80_000
    left_out = int(raised.value.output.partition("[... ")[2].partition(" bytes")[0])
    assert left_out > 900_000


async def test_printing_that_ignores_its_end_is_ended(tmp_path: Path) -> None:
    """P-7: also if it catches what it is asked with."""
    code = "import signal\nsignal.signal(signal.SIGABRT, signal.SIG_IGN)\nwhile True: print('x' * 999)"
    said = await told(tmp_path, code, ProbeLimits(wall=600))
    assert said.startswith("importing it printed more than 1,048,576 bytes")
    assert len(said) < 3_000


async def test_a_sound_package_may_print_much_but_not_without_end(tmp_path: Path) -> None:
    """P-7: more than a pipe holds, and it is not in the way; a byte too many is too much, though it has answered."""
    limits = ProbeLimits(printed=500_000)
    assert (await tried(tmp_path, f"{SOUND}print('x' * 499_999)\n", limits)).workflows[0].name == "flow"
    said = await told(tmp_path, f"{SOUND}import sys\nsys.stderr.write('x' * 500_001)\n", limits)
    assert "importing it printed more than 500,000 bytes: print little at import, and log in tasks" in said


async def test_what_is_printed_cannot_move_a_cursor(tmp_path: Path) -> None:
    """P-10: the last lines only, none too long, without control characters."""
    code = "for n in range(9): print(n, '\\x1b[2J' + 'y' * 500)\nimport os; os.write(1, b'\\xff\\n'); os._exit(1)"
    lines = (await told(tmp_path, code)).splitlines()[1:]
    assert len(lines) == 5
    assert lines[0].startswith("    5 ·[2Jyyy")
    assert max(map(len, lines)) == 204
    assert lines[-1] == "    \N{REPLACEMENT CHARACTER}"


GARBAGE = """
import os
for n in range(100):
    try: os.write(n, b"{}")
    except OSError: pass
"""


@pytest.mark.parametrize("garbage", ["rubbish", "\\x00" * 40, "\\xff" * 100_000])
async def test_garbage_in_every_descriptor_is_found_out(tmp_path: Path, garbage: str) -> None:
    """P-7: the answer counts only with its nonce, and whole."""
    said = await told(tmp_path, SOUND + GARBAGE.format(garbage))
    assert said.startswith("importing it broke the probe: it wrote to descriptors that it did not open")


async def test_a_forged_answer_without_the_nonce_counts_for_nothing(tmp_path: Path) -> None:
    """P-7: however well it is formed, and whatever the exit code."""
    forged = bytes(32) + msgspec.msgpack.encode(
        ProbeReply(metadata=PackageMetadata(name="shop", version="1.0.0", modules=()))
    )
    code = f"import os\nfor n in range(3, 100):\n try: os.write(n, {forged!r})\n except OSError: pass\nos._exit(0)"
    assert "it wrote to descriptors that it did not open" in await told(tmp_path, code)


async def test_an_endless_answer_is_not_kept(tmp_path: Path) -> None:
    """P-7: the parent takes no more than its limit."""
    code = "import os\nn = max(map(int, os.listdir('/proc/self/fd')))\nfor n in range(3, 50):\n"
    code += " try:\n  while True: os.write(n, bytes(65536))\n except OSError: pass"
    assert "took longer than 1.5 s" in await told(tmp_path, code, SHORT)


async def test_a_package_that_declares_too_much_is_reported(tmp_path: Path) -> None:
    """P-7: the parent's memory is limited too."""
    said = await told(tmp_path, SOUND, ProbeLimits(answer=100))
    assert said == "it declares more than 100 bytes, or wrote to descriptors that it did not open"


FORK = "import os, time\nif os.fork() == 0:\n{}    time.sleep(1000)\n"


@pytest.mark.parametrize(
    "code",
    [
        FORK.format(""),
        FORK.format("    os.setsid()\n"),
        FORK.format("    os.setsid()\n    if os.fork(): os._exit(0)\n"),
        "import os\nos.fork()\n",
        "import subprocess\nsubprocess.Popen(['sleep', '1000'], start_new_session=True)\n",
    ],
)
async def test_processes_that_are_left_behind_are_found_and_killed(tmp_path: Path, code: str) -> None:
    """P-7, F71: also those that left the group, and copies of the probe itself; the answer alone is not enough."""
    said = await told(tmp_path, code + SOUND)
    assert said == "importing it started processes and left 1 of them running: start none before a task runs"


async def test_children_of_a_child_that_dies_are_killed_too(tmp_path: Path) -> None:
    """P-7: they hold its descriptors, and nothing waits for them."""
    said = await told(tmp_path, f"{FORK.format('')}os._exit(4)")
    assert said.startswith("importing it ended the process, with exit code 4")
    many = "import os\nfor _ in range(5): os.fork()\nwhile True: pass"
    assert "took longer than 1.5 s" in await told(tmp_path, many, SHORT)


async def test_a_process_that_was_waited_for_and_threads_do_no_harm(tmp_path: Path) -> None:
    """P-7: nothing of the package runs after the answer, not even at exit."""
    code = "import subprocess, threading, time, atexit, os\nsubprocess.run(['true'])\natexit.register(os._exit, 5)\n"
    code += "threading.Thread(target=time.sleep, args=(1000,)).start()\n"
    assert (await tried(tmp_path, code + SOUND)).workflows[0].name == "flow"


async def test_who_is_cancelled_leaves_nothing_behind(tmp_path: Path) -> None:
    """P-7: the child is killed before the cancellation goes on; the virtual clock never gets to the limit."""
    mark = tmp_path / "begun"
    code = f"import time\nopen({str(mark)!r}, 'w').close()\ntime.sleep(1000)"
    folder_of(tmp_path / "staged", {"package.toml": MANIFEST, "shop.py": code.encode()})
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        trying = run_probe(tmp_path / "staged", read_manifest(MANIFEST), clock=VirtualClock())
        task = group.create_task(trying, name="probe")
        await asyncio.to_thread(wait_for, mark)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_probes_side_by_side_keep_to_themselves(tmp_path: Path) -> None:
    """P-12: a package that hangs delays no other."""
    clock = SystemClock()
    async with asyncio.TaskGroup() as group:
        slow = group.create_task(told(tmp_path / "slow", WAITS, ProbeLimits(wall=4)), name="slow")
        quick = [group.create_task(tried(tmp_path / str(n), SOUND), name=f"quick {n}") for n in range(3)]
        begun = clock.monotonic()
        for one in quick:
            assert (await one).workflows
        assert clock.monotonic() - begun < 4
        assert not slow.done()
    assert "took longer than 4 s" in slow.result()


async def test_many_probes_leave_nothing_and_take_no_time(tmp_path: Path) -> None:
    """P-7: no descriptor, child or thread more; the quickest takes half a second, or not much more than a start."""
    clock, taken = SystemClock(), []
    threads = threading.active_count()
    for _ in range(MANY):
        begun = clock.monotonic()
        await tried(tmp_path, SOUND)
        taken.append(clock.monotonic() - begun)
    assert min(taken) < max(0.5, 3 * min(start_of_python() for _ in range(3)))
    assert threading.active_count() <= threads + 1


# -- seen from a node

HOSTILE = {
    "hangs": WAITS,
    "exits": "import os\nos._exit(0)",
    "crashes": "import ctypes\nctypes.string_at(0)",
    "prints": "while True: print('x' * 1000)",
}
SAID = {
    "hangs": "took longer than",
    "exits": "ended the process, with exit code 0",
    "crashes": "crashed with SIGSEGV",
    "prints": "printed more than 1,048,576 bytes",
}


def hostile(folder: Path, name: str, code: str) -> Path:
    """Write a package that consists of one module."""
    manifest = f'[package]\nname = "{name}"\nversion = "1.0.0"\n'.encode()
    return folder_of(folder / name, {"package.toml": manifest, f"{name}.py": code.encode()})


def impatient(**options: Any) -> tm.Node:
    """Return a node that gives packages little time."""
    node = tm.Node(**options)
    PackageProbe.of(node).set_probe_limits(ProbeLimits(wall=3.0))
    return node


async def ran(node: tm.Node) -> bool:
    """Return whether the sound package does what it should."""
    run = await node.start("flow")
    return (await run.wait(10)).outputs == {"one": 1}


async def test_a_hostile_package_is_its_own_problem(tmp_path: Path) -> None:
    """P-7, cloacina.md 98: `node.load` says what is wrong with it, and everything else goes on."""
    paths = {name: hostile(tmp_path, name, code) for name, code in HOSTILE.items()}
    async with impatient() as node:
        await node.load(hostile(tmp_path, "sound", SOUND))
        loads = [node.load(path) for path in paths.values()]
        refused = dict(zip(paths, await asyncio.gather(*loads, return_exceptions=True), strict=True))
        for name, error in refused.items():
            assert isinstance(error, tm.DefinitionError), error
            assert SAID[name] in str(error)
        assert node.registry.packages() == ["sound"]
        assert await ran(node)


async def test_hostile_packages_in_a_folder_harm_no_other(tmp_path: Path) -> None:
    """P-7, P-10, P-12: the status shows each, what is sound is loaded meanwhile, and a correction is enough."""
    folder = tmp_path / "packages"
    for name, code in {**HOSTILE, "sound": SOUND}.items():
        hostile(folder, name, code)
    async with impatient(settings={"packages": str(folder)}) as node:
        await until(lambda: sorted(one.state for one in node.packages()) == [*["failed"] * 4, "loaded"])
        found = {one.name: one for one in node.packages()}
        assert found["sound"].state == "loaded"
        assert await ran(node)
        for name, said in SAID.items():
            assert any(said in str(problem) for problem in found[name].problems), found[name]
        hostile(folder, "hangs", SOUND.replace("'flow'", "'repaired'"))
        await until(lambda: "hangs" in node.registry.packages())
        assert node.registry.workflows() == ["flow", "repaired"]
