"""`tidemill dev` in a process of its own: hot reload as a developer meets it."""

import os
import re
import select
import shutil
import signal
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest

from tests.system.dev_session import FLOW, DevSession, start_of_python
from tests.system.terminals import CTRL_C, Terminal
from tests.system.test_hostile_packages import alive_with
from tidemill.kernel.errors import OperationError
from tidemill.server.serving import LOOPBACK, bind

PLAIN = 'import tidemill as tm\n\nflow = tm.Workflow("flow")\n\n\n@flow.task\ndef one() -> int:\n    return {value}\n'
TIME = re.compile(r"^\d\d:\d\d:\d\d  ")
SAVES = 6
MOMENT = 0.005  # seconds between two looks


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder."""
    made = tmp_path / "flows"
    made.mkdir()
    return made


def until(holds: Callable[[], bool], patience: float = 40.0) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + patience
    while not holds():
        assert time.monotonic() < deadline
        select.select([], [], [], MOMENT)


def test_a_save_is_live_within_half_a_second(folder: Path, tmp_path: Path) -> None:
    """P-6: from the write to the line that says so. Half of it is the start of a process, which is as fast as it is."""
    file = folder / "flow.py"
    file.write_text(PLAIN.format(value=0))
    with DevSession(folder, tmp_path / "scratch") as dev:
        dev.wait_for("flow", "loaded")
        took = []
        for number in range(1, SAVES + 1):
            began = time.monotonic()
            file.write_text(PLAIN.format(value=number))
            at, line = dev.wait_for("reloaded")
            took.append(at - began)
            assert re.search(r"flow  reloaded in [\d,]+ ms: workflow flow$", line)
        print(f"save to live: median {statistics.median(took) * 1000:.0f} ms, best {min(took) * 1000:.0f} ms")
        assert min(took) < max(0.5, 3 * min(start_of_python() for _ in range(3)))


def test_what_is_wrong_is_reported_and_the_last_good_version_goes_on(folder: Path, tmp_path: Path) -> None:
    """P-10: file and line as they can be clicked on; runs go on with the old code, and a fix recovers."""
    file, notes = folder / "beat.py", tmp_path / "notes"

    def has(value: str, number: int) -> bool:
        return notes.exists() and notes.read_text().splitlines().count(value) >= number

    file.write_text(FLOW.format(file=str(notes), value="old"))
    with DevSession(folder, tmp_path / "scratch") as dev:
        dev.wait_for("beat", "loaded")
        until(lambda: has("old", 1))
        file.write_text(FLOW.format(file=str(notes), value="bad") + "\nthis is no Python\n")
        dev.wait_for("beat  cannot be loaded; the last good version is still running")
        dev.wait_for("beat.py:11: importing 'beat' failed: SyntaxError")
        seen = notes.read_text().splitlines().count("old")
        until(lambda: has("old", seen + 2))
        file.write_text(FLOW.format(file=str(notes), value="new"))
        dev.wait_for("beat  reloaded in")
        until(lambda: has("new", 1))
        dev.wait_for("flow  run ", "succeeded after")
        assert dev.end() == 0
    assert not has("bad", 1)
    assert alive_with(str(tmp_path / "scratch").encode()) == []


def test_what_a_package_does_at_import_is_reported_as_its_own(folder: Path, tmp_path: Path) -> None:
    """P-7, P-10: an exit, an endless wait, endless output; and a sound package beside them is loaded at once."""
    (folder / "exits.py").write_text("import sys\nimport tidemill\nsys.exit(3)\n")
    (folder / "hangs.py").write_text("import time\nimport tidemill\ntime.sleep(600)\n")
    (folder / "prints.py").write_text("import tidemill\nwhile True:\n    print('again')\n")
    (folder / "sound.py").write_text(PLAIN.format(value=1))
    with DevSession(folder, tmp_path / "scratch", is_hasty=True) as dev:
        dev.wait_for("sound", "loaded")
        for wanted in (
            ["exits.py:3: importing 'exits' failed: it ended the program, with SystemExit(3)"],
            ["hangs.py:", "importing it", "was ended: do no work at import"],
            ["prints.py:", "importing it printed more than 1,048,576 bytes", "; the last that it printed:"],
        ):
            seen = [line for line in dev.lines if all(text in line for text in wanted)]
            assert seen or dev.wait_for(*wanted)
        assert dev.end() == 0
    shown = sum(line.strip() == "again" for line in dev.lines)
    assert shown in (4, 5)  # the last few of them; where the process was ended, the very last may be half a line


def test_a_package_cannot_make_it_mute(folder: Path, tmp_path: Path) -> None:
    """P-5, P-10: what a package does to the whole process at import is put back and told, and others go on."""
    meddling = "import io, os, sys\nsys.stdout = io.StringIO()\nos.chdir('/')\n"
    (folder / "sound.py").write_text(PLAIN.format(value=1))
    with DevSession(folder, tmp_path / "scratch") as dev:
        dev.wait_for("sound", "loaded")
        (folder / "meddling.py").write_text(meddling + PLAIN.format(value=1).replace('"flow"', '"other"'))
        dev.wait_for("meddling", "importing it replaced sys.stdout, moved the process to /; this was reverted")
        dev.wait_for("meddling  loaded in")
        (folder / "sound.py").write_text(PLAIN.format(value=2))
        dev.wait_for("sound  reloaded in")
        assert dev.end() == 0


def test_what_the_machine_kept_from_loading_is_tried_again_and_told_once(folder: Path, tmp_path: Path) -> None:
    """P-12, P-10: it need not be saved again; control characters in what it says reach no terminal."""
    tries, library = tmp_path / "tries", tmp_path / "library"
    code = f"import os\nopen({str(tries)!r}, 'a').write('x')\nif not os.path.exists({str(library)!r}):\n"
    code += "    raise OSError(f'\\x1b[2J {os.getpid()} is busy\\nfake: late  loaded')\n"
    (folder / "late.py").write_text(code + PLAIN.format(value=1))
    with DevSession(folder, tmp_path / "scratch") as dev:
        dev.wait_for("late  cannot be loaded; retry in 1.0s")
        dev.wait_for("late.py:4: importing 'late' failed: OSError: ·[2J ")
        assert re.fullmatch(r" {10,}fake: late  loaded", dev.wait_for("fake")[1])
        until(lambda: tries.stat().st_size >= 2)
        library.write_text("")
        dev.wait_for("late  loaded in", "workflow flow")
        assert dev.end() == 0
    assert sum("cannot be loaded" in line for line in dev.lines) == 1
    assert not any("\x1b" in line for line in dev.lines)


def test_an_endless_loop_that_is_fixed_is_not_waited_for(folder: Path, tmp_path: Path) -> None:
    """P-12: the save that corrects it gives up the one before."""
    scratch = tmp_path / "scratch"
    (folder / "other.py").write_text(PLAIN.format(value=1))
    with DevSession(folder, scratch) as dev:
        dev.wait_for("other", "loaded")
        file = folder / "loops.py"
        file.write_text("import tidemill\nwhile True:\n    pass\n")
        until(lambda: list(scratch.glob("tidemill-packages-*/loops-*")) != [])
        began = time.monotonic()
        file.write_text(PLAIN.format(value=2).replace('"flow"', '"repaired"'))
        at, _ = dev.wait_for("loops  loaded in")
        assert at - began < 5.0
        assert not [line for line in dev.lines if "cannot be loaded" in line]


def test_packages_come_and_go_with_their_files(folder: Path, tmp_path: Path) -> None:
    """P-6: a file, and a folder with a manifest; the table at the start has what was there."""
    package = folder / "market"
    package.mkdir()
    (package / "package.toml").write_text('[package]\nname = "market"\nversion = "1.2.0"\n')
    (package / "market.py").write_text(PLAIN.format(value=1))
    with DevSession(folder, tmp_path / "scratch") as dev:
        dev.wait_for("market", "1.2.0", "flow", "loaded")
        (folder / "late.py").write_text(PLAIN.format(value=1).replace('"flow"', '"late"'))
        dev.wait_for("late  loaded in", "workflow late")
        (package / "market.py").write_text(PLAIN.format(value=1) + "import nowhere\n")
        dev.wait_for("market  cannot be loaded; the last good version is still running")
        dev.wait_for("market/market.py:9: importing 'market' failed: ModuleNotFoundError")
        shutil.rmtree(package)
        dev.wait_for("market  unloaded: market is gone")
        (folder / "late.py").write_text("this is no Python\n")
        dev.wait_for("late  cannot be loaded; the last good version is still running")
        dev.wait_for("late.py:1: importing 'late' failed: SyntaxError")
        (folder / "late.py").write_text("# empty\n")
        dev.wait_for("late  unloaded: late.py no longer imports tidemill")
        (folder / "late.py").write_text(PLAIN.format(value=1).replace('"flow"', '"late"'))
        dev.wait_for("late  loaded in", "workflow late")
        (folder / "late.py").unlink()
        dev.wait_for("late  unloaded: late.py is gone")
        assert dev.end(signal.SIGTERM) == 143
        assert all(TIME.match(line) for line in dev.lines if "loaded in" in line)
        assert not any("\x1b" in line for line in dev.lines)
    assert os.listdir(tmp_path / "scratch") == []
    assert sorted(os.listdir(folder)) == [".tidemill"]
    assert "*" in (folder / ".tidemill" / ".gitignore").read_text()


def test_every_piece_of_news_is_one_line(folder: Path, tmp_path: Path) -> None:
    """P-10: a folder that is moved away, a file that is deleted, a store that is locked: no traceback."""
    file, database = folder / "beat.py", tmp_path / "dev.db"
    code = FLOW.format(file=os.devnull, value="x")
    file.write_text(code)
    with DevSession(folder, tmp_path / "scratch", "--store", f"sqlite:///{database}", is_hasty=True) as dev:
        dev.wait_for("flow  run", "succeeded")
        folder.rename(tmp_path / "away")
        dev.wait_for("the packages cannot be read, and those that are loaded keep running: there is no folder")
        (tmp_path / "away").rename(folder)
        dev.wait_for("the packages can be read again")
        file.unlink()
        dev.wait_for("beat  unloaded")
        file.write_text(code)
        dev.wait_for("beat  loaded in")  # a run before may still have been told: the store is needed until now
        dev.wait_for("flow  run", "succeeded")
        with closing(sqlite3.connect(database, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            dev.wait_for("leadership renewal failed: SQLite database", "another process is writing to it")
        dev.wait_for("flow  run", "succeeded")
        dev.end()
    screen = dev.lines.index(next(line for line in dev.lines if "change a file:" in line))
    assert [line for line in dev.lines[screen + 1 :] if not TIME.match(line)] == []


def test_a_single_file_that_is_deleted_is_reported_in_one_line(folder: Path, tmp_path: Path) -> None:
    """P-10: what is loaded keeps running, and the file is loaded again when it is back."""
    file = folder / "beat.py"
    file.write_text(PLAIN.format(value=1))
    with DevSession(file, tmp_path / "scratch") as dev:
        dev.wait_for("beat", "loaded")
        file.unlink()
        dev.wait_for("the packages cannot be read, and those that are loaded keep running: there is no file")
        file.write_text(PLAIN.format(value=2))
        dev.wait_for("beat  reloaded in")
        dev.end()
    assert not any("Traceback" in line for line in dev.lines)


def test_one_that_waits_and_one_that_is_taken_back_are_told(folder: Path, tmp_path: Path) -> None:
    """P-5, P-10: whom it waits for; and a bad change that is taken back leaves things as they were."""
    needing = 'import tidemill as tm\n\ngraph = tm.Graph("graph", reactor="ticks")\n'
    needing += "\n\n@graph.node\ndef double(tick: int) -> int:\n    return 2 * tick\n"
    bringing = "import tidemill as tm\n\n\n@tm.passthrough\ndef tick(event: int) -> int:\n    return event\n"
    bringing += '\n\nticks = tm.Reactor("ticks", [tick])\n'
    (folder / "needs.py").write_text(needing)
    with DevSession(folder, tmp_path / "scratch") as dev:
        dev.wait_for("needs", "waiting for reactor 'ticks'")
        (folder / "brings.py").write_text(bringing)
        dev.wait_for("needs  loaded in", "graph graph")
        (folder / "brings.py").write_text(bringing + "1 / 0\n")
        dev.wait_for("brings.py:10: importing 'brings' failed: ZeroDivisionError")
        (folder / "brings.py").write_text(bringing)
        dev.wait_for("brings  matches the loaded version again")
        (folder / "brings.py").unlink()
        dev.wait_for("brings  cannot be unloaded")
        assert dev.end() == 0


def test_many_runs_at_once_are_counted(folder: Path, tmp_path: Path) -> None:
    """A workflow that is started by every firing does not fill the screen."""
    (folder / "many.py").write_text(
        "import tidemill as tm\n\n\n"
        '@tm.polling(every="5ms")\nasync def tick() -> int:\n    return 1\n\n\n'
        'ticks = tm.Reactor("ticks", [tick])\n'
        'flow = tm.Workflow("flow", triggers=[tm.on_firing("ticks")])\n\n\n'
        "@flow.task\ndef one() -> int:\n    return 1\n"
    )
    with DevSession(folder, tmp_path / "scratch") as dev:
        dev.wait_for("flow  ", "runs ended")


def test_a_run_and_a_firing_that_fail_are_told_with_their_place(folder: Path, tmp_path: Path) -> None:
    """P-10: what fails while it runs says where, once a round, and is counted if it repeats itself."""
    (folder / "trouble.py").write_text(
        "import tidemill as tm\n\n"
        'flow = tm.Workflow("flow", schedule=tm.Every("1s", catchup="none"))\n\n\n'
        "@flow.task\ndef bad() -> int:\n    return 1 // 0\n\n\n"
        '@tm.polling(every="50ms")\nasync def number() -> int:\n    return 1\n\n\n'
        'numbers = tm.Reactor("numbers", [number])\ngraph = tm.Graph("graph", reactor=numbers)\n\n\n'
        "@graph.node\ndef worse(number: int) -> int:\n    return number // 0\n"
    )
    with DevSession(folder, tmp_path / "scratch", is_hasty=True) as dev:
        dev.wait_for("numbers  firing failed: node 'worse' failed: ZeroDivisionError", "(trouble.py:22)")
        dev.wait_for("flow  run ", "failed after")
        dev.wait_for("trouble.py:8: bad: ZeroDivisionError")
        dev.wait_for("firings in 2 s: numbers ", " failed)", patience=20)
        rounds = sum("firings in 2 s: numbers " in line for line in dev.lines)
        assert sum("firing failed" in line for line in dev.lines) <= rounds + 1


HOG = """import threading, pathlib
import tidemill as tm

flow = tm.Workflow("flow", schedule=tm.Every("1s"))


@flow.task
async def hog() -> None:
    while not pathlib.Path({gate!r}).exists():
        threading.Event().wait(0.02)
"""


def test_what_blocks_the_loop_is_told_while_it_does(folder: Path, tmp_path: Path) -> None:
    """D11: with its line, before the task awaits or ends."""
    gate = tmp_path / "gate"
    (folder / "flow.py").write_text(HOG.format(gate=str(gate)))
    with DevSession(folder, tmp_path / "scratch") as dev:
        _, line = dev.wait_for("blocks the event loop")
        assert re.search(r"  flow\.hog  blocks the event loop, .* \(flow\.py:(9|10)\)$", line), line
        gate.touch()
        dev.wait_for("it blocked the event loop of its node for")


def test_ctrl_c_on_a_terminal_ends_it_and_leaves_nothing(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while a package is tried that never ends: no process, and no folder but that of the store."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    (folder / "flow.py").write_text(PLAIN.format(value=1))
    terminal = Terminal(["dev"], folder)
    try:
        terminal.wait_for(lambda screen: "flow" in screen and "loaded" in screen)
        (folder / "loops.py").write_text("import tidemill\nwhile True:\n    pass\n")
        until(lambda: list(scratch.glob("tidemill-packages-*/loops-*")) != [])
        terminal.press(CTRL_C)
        assert terminal.end(10) == 0
        assert "stopping" in terminal.screen
        assert "Traceback" not in terminal.screen
    finally:
        terminal.close()
    assert alive_with(str(scratch).encode()) == []
    assert os.listdir(scratch) == []


def test_what_cannot_be_run_is_refused_in_a_line(tmp_path: Path) -> None:
    """Exit code 2, as of all commands that could not do what they were asked."""
    with DevSession(tmp_path, tmp_path / "scratch", "--pool", "few") as dev:
        assert dev.program.wait(20) == 2
    assert not (tmp_path / ".tidemill").exists()


def fired(line: str) -> int:
    """Return how many firings of the market were counted out; in the first round it may just have been loaded."""
    return int(re.sub(r"\D", "", re.split(r", \D", line.partition("market ")[2])[0]))


def test_the_examples_live_by_themselves(tmp_path: Path) -> None:
    """`make demo`: without anybody doing anything, reactors fire and runs end. Exchange rates may fail: theirs do."""
    examples = Path(__file__).parents[2] / "examples"
    store = f"sqlite:///{tmp_path / 'demo.db'}"
    with DevSession(examples, tmp_path / "scratch", "--store", store, "--pool", "warehouse=1", is_hasty=True) as dev:
        for name in ("back_office", "market_maker", "nightly_report", "sensors"):
            assert "loaded" in dev.wait_for(f"│ {name}")[1]
        assert any(fired(dev.wait_for("firings in 2 s: market ")[1]) > 20 for _ in range(5))
        dev.wait_for("nightly_report", "succeeded")
        assert dev.end() == 0
    expected = ("exchange_rates", "task fetch of run", "task confirm of run")
    assert not [line for line in dev.lines if "failed" in line and not any(one in line for one in expected)]
    assert not (examples / ".tidemill").exists()


@pytest.mark.parametrize("lines", [0, 1, 3])
def test_an_output_without_a_reader_ends_it(folder: Path, tmp_path: Path, lines: int) -> None:
    """`tidemill dev | head` comes to its end, whenever the pipe is closed, and leaves nothing behind."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    (folder / "beat.py").write_text(FLOW.format(file=str(tmp_path / "notes"), value="beat"))
    with subprocess.Popen(
        [sys.executable, "-m", "tidemill", "dev", str(folder)],
        env=os.environ | {"TMPDIR": str(scratch), "PYTHONUTF8": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as program:
        assert program.stdout is not None
        try:
            for _ in range(lines):
                assert program.stdout.readline()
            program.stdout.close()
            program.wait(15)
        finally:
            program.kill()
    assert alive_with(str(scratch).encode()) == []
    assert os.listdir(scratch) == []


def test_the_port_is_8080_if_it_is_free(folder: Path, tmp_path: Path) -> None:
    """D26: bookmarks and open pages survive a restart; here a listener has the port, and the output says so."""
    with ExitStack() as stack:
        is_held = False
        with suppress(OperationError):  # another test may have it, and may release it any moment
            stack.enter_context(bind(LOOPBACK, 8080)).listen()
            is_held = True
        dev = stack.enter_context(DevSession(folder, tmp_path / "scratch", port=None))
        link = dev.wait_for("Tidemill is ready at")[1]
        if is_held or not link.endswith(":8080"):
            assert not link.endswith(":8080")
            dev.wait_for("another program has port 8080, so this node has a free one; --port sets it")
        assert dev.end() == 0
