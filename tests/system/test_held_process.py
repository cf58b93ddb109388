"""A held process, as an actor of Ray holds one, without Ray around it."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

from tidemill.engine.ray.process_actor import LOG_TAIL_LIMIT, HeldProcess

HOLD = "from tidemill.engine.ray.process_actor import HeldProcess; HeldProcess({}, {{}}); input()"


async def test_the_end_of_a_process_is_kept() -> None:
    program = "import os, sys; print('x' * 9999, os.environ['COLOUR']); sys.exit(4)"
    held = HeldProcess(["-c", program], {"COLOUR": "blue"})
    end = await held.wait_end()
    assert (end["exit"], end["is_stopped"]) == (4, False)
    assert end["log_tail"].endswith("xx blue\n")
    assert len(end["log_tail"]) == LOG_TAIL_LIMIT
    assert await held.wait_end() == end


async def test_a_stopped_process_has_time_to_end_in_order() -> None:
    program = "import signal, time; signal.signal(15, lambda *_: exit(7)); print('ready', flush=True); time.sleep(60)"
    held = HeldProcess(["-c", program], {})
    await ready(held)
    await held.stop(20.0)
    end = await held.wait_end()
    assert (end["exit"], end["is_stopped"]) == (7, True)
    await held.stop(20.0)


async def test_a_process_that_does_not_stop_is_killed_with_its_children() -> None:
    child = "import time; time.sleep(60)"
    program = (
        "import signal, subprocess, sys, time; signal.signal(15, signal.SIG_IGN); "
        f"child = subprocess.Popen([sys.executable, '-c', {child!r}]); print('ready', child.pid, flush=True); "
        "time.sleep(60)"
    )
    held = HeldProcess(["-c", program], {})
    pid = int((await ready(held)).split()[1])
    await held.stop(0.1)
    assert (await held.wait_end())["exit"] == -signal.SIGKILL
    await until_gone(pid)


async def test_a_process_dies_with_the_process_that_holds_it(tmp_path: Path) -> None:
    """Ray ends its workers by SIGKILL: none of this code runs then."""
    file = tmp_path / "pid"
    program = f"import os, pathlib, time; pathlib.Path({str(file)!r}).write_text(str(os.getpid())); time.sleep(60)"
    worker = subprocess.Popen(  # noqa: ASYNC220 - it takes a millisecond
        [sys.executable, "-c", HOLD.format(["-c", program])],
        stdin=subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(20):
            while not (file.exists() and file.read_text()):  # noqa: ASYNC110 - another process does not set events
                await asyncio.sleep(0.01)
    finally:
        worker.kill()
        worker.communicate()
    await until_gone(int(file.read_text()))


async def ready(held: HeldProcess) -> str:
    """Wait until the process has printed its first line."""
    async with asyncio.timeout(20):
        while not (text := held.read_log_tail()):  # noqa: ASYNC110 - another process does not set events
            await asyncio.sleep(0.01)
    return text


async def until_gone(pid: int) -> None:
    """Wait until a process is gone, or only its parent has not noticed."""
    async with asyncio.timeout(20):
        while is_alive(pid):  # noqa: ASYNC110 - another process does not set events
            await asyncio.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
