"""`tidemill run` on a real terminal: what is seen while it goes, and Ctrl-C."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.system.terminals import CTRL_C, Terminal

FLOW = """
import asyncio
import time
from pathlib import Path

import tidemill as tm

flow = tm.Workflow("flow")


@flow.task
def numbers() -> list[int]:
    print("said aloud")
    return list(range(5))


@flow.task(each="numbers")
def wait_for_it(numbers: int, ctx: tm.Context) -> int:
    ctx.log.info("element %d waits", numbers)
    while numbers == 4 and not Path("go").exists():
        time.sleep(0.01)
    return numbers


@flow.task
def a_task_whose_name_is_longer_than_a_third_of_the_line(wait_for_it: list[int]) -> int:
    return sum(wait_for_it)


endless = tm.Workflow("endless")


@endless.task
async def polite() -> None:
    await asyncio.sleep(1000)


@endless.task
def after(polite: None) -> None: ...


rude = tm.Workflow("rude")


@rude.task
async def blocks_the_loop() -> None:
    Path("blocked").touch()
    while True:
        time.sleep(0.01)


stuck = tm.Workflow("stuck")


@stuck.task
def on_a_thread() -> None:
    Path("stuck").touch()
    time.sleep(1000)


single = tm.Workflow("single", max_active_runs=1)


@single.task
def on_its_own() -> None:
    while not Path("go").exists():
        time.sleep(0.01)


many = tm.Workflow("many")

for _number in range(40):

    def _task(ctx: tm.Context) -> None:
        while not Path("go").exists():
            time.sleep(0.01)

    _task.__name__ = _task.__qualname__ = f"task_{_number}"
    many.task(_task)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a file of workflows."""
    (tmp_path / "flows.py").write_text(FLOW)
    return tmp_path


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    """Terminals that are closed at the end."""
    opened: list[Terminal] = []
    yield opened
    for one in opened:
        one.close()


def test_each_task_has_a_line_while_it_runs(folder: Path, terminals: list[Terminal]) -> None:
    """State, elements done of all, what it said last; then the table takes its place."""
    terminals.append(terminal := Terminal(["run", "flows.py:flow"], folder))
    picture = re.compile(
        r"^said aloud\n"
        r"flow  1 of 3 tasks  .*\n"
        r"✓ numbers .*\n"
        r".* running 4/5 .* waits\n"
        r"· a_task_whose",
        re.MULTILINE,
    )
    screen = terminal.wait_for(lambda screen: picture.search(screen) is not None)
    assert max(map(len, screen.splitlines())) <= 80
    (folder / "go").touch()
    assert terminal.end() == 0
    lines = terminal.screen.splitlines()
    assert not any(line.startswith("flow  ") for line in lines)
    assert sum(line.startswith("│") and "success" in line for line in lines) == 3
    assert lines[-1].startswith("flow succeeded after ")


def test_a_short_line_has_room_for_names(folder: Path, terminals: list[Terminal]) -> None:
    """What matters less is left out, while it runs and afterwards."""
    terminals.append(terminal := Terminal(["run", "flows.py:many"], folder, columns=40))
    terminal.wait_for(lambda screen: any(line.split()[1:] == ["task_0", "running"] for line in screen.splitlines()))
    assert max(map(len, terminal.screen.splitlines())) <= 40
    (folder / "go").touch()
    assert terminal.end() == 0
    rows = [line for line in terminal.screen.splitlines() if line.startswith("│ task_")]
    assert [row.split("│")[1].strip() for row in rows] == [f"task_{number}" for number in range(40)]
    assert max(map(len, rows)) <= 40


def test_of_more_tasks_than_lines_the_rest_is_counted(folder: Path, terminals: list[Terminal]) -> None:
    """What runs is seen; what is left out is counted."""
    terminals.append(terminal := Terminal(["run", "flows.py:many", "--concurrency", "3"], folder, rows=12))
    screen = terminal.wait_for(lambda screen: screen.count(" running ") == 3 and screen.rstrip().endswith(" to come"))
    lines = screen.rstrip().splitlines()
    assert lines[0].startswith("many  0 of 40 tasks")
    assert lines[-1] == f"  {40 - (len(lines) - 2)} more to come"
    assert len(lines) <= 11
    (folder / "go").touch()
    assert terminal.end() == 0


def test_ctrl_c_cancels_the_run(folder: Path, terminals: list[Terminal]) -> None:
    """The summary says so, the store knows it, and the exit code is that of an interrupt."""
    arguments = ["run", "flows.py:endless", "--store", "sqlite:///tidemill.db"]
    terminals.append(terminal := Terminal(arguments, folder))
    terminal.wait_for(lambda screen: "polite running" in screen)
    terminal.press(CTRL_C)
    assert terminal.end() == 130
    lines = terminal.screen.splitlines()
    assert not any(line.startswith("endless  ") for line in lines), terminal.screen
    assert sum(line.startswith("│") and "cancelled" in line for line in lines) == 2
    assert lines[-1].startswith("endless was cancelled after ")
    with closing(sqlite3.connect(folder / "tidemill.db")) as connection:
        assert connection.execute("SELECT state, reason FROM runs").fetchall() == [("cancelled", "interrupted")]


def test_ctrl_c_twice_stops_at_once(folder: Path, terminals: list[Terminal]) -> None:
    """Even code that blocks the loop, where nothing else can be heard."""
    terminals.append(terminal := Terminal(["run", "flows.py:rude"], folder))
    terminal.wait_for(lambda _: (folder / "blocked").exists())
    terminal.press(CTRL_C)
    terminal.wait_for(lambda screen: "cancelling; Ctrl-C again stops at once" in screen)
    terminal.press(CTRL_C)
    assert terminal.end() == 130
    assert terminal.screen.rstrip().endswith("stopped without waiting for running tasks")


def test_what_cannot_be_stopped_is_named_while_it_is_waited_for(folder: Path, terminals: list[Terminal]) -> None:
    """A thread cannot be killed: a user who waits for it sees for what, for how long, and how not to."""
    terminals.append(terminal := Terminal(["run", "flows.py:stuck"], folder))
    terminal.wait_for(lambda _: (folder / "stuck").exists())
    terminal.press(CTRL_C)
    said = "waiting up to 5.0s for 'on_a_thread', which cannot be stopped; Ctrl-C again stops"
    terminal.wait_for(lambda screen: said in " ".join(screen.split()))
    terminal.press(CTRL_C)
    assert terminal.end() == 130


def test_a_run_that_may_not_begin_says_why(folder: Path, terminals: list[Terminal]) -> None:
    """W-17: a run that waits for another one is no reason to look at a screen on which nothing happens."""
    for _ in range(2):
        arguments = ["run", "flows.py:single", "--store", "sqlite:///tidemill.db"]
        terminals.append(terminal := Terminal(arguments, folder))
        terminal.wait_for(lambda screen: "on_its_own running" in screen or "waiting:" in screen)
    said = "waiting: the run is queued: 1 other run of 'single' is running, at most 1 may"
    terminal.wait_for(lambda screen: said in " ".join(screen.split()))
    terminal.press(CTRL_C)
    assert terminal.end() == 130
    (folder / "go").touch()
    assert terminals[0].end() == 0


def test_a_paused_workflow_is_not_run(folder: Path, terminals: list[Terminal]) -> None:
    """131: it is refused, with what to do, and not queued."""
    (folder / "go").touch()
    for arguments, code in [
        (["run", "flows.py:flow"], 0),
        (["workflow", "pause", "flow"], 0),
        (["run", "flows.py:flow"], 2),
    ]:
        terminals.append(terminal := Terminal([*arguments, "--store", "sqlite:///tidemill.db"], folder))
        assert terminal.end() == code
    assert "workflow 'flow' is paused" in terminal.screen
    assert "running" not in terminal.screen
