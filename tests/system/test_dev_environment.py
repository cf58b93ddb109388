"""`tidemill dev` and what is around it: another one, the developer's environment, an earlier life that was killed."""

import re
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.system.dev_session import DevSession
from tests.system.test_dev import PLAIN, TIME, until

NEEDY = """import json
import os

import tidemill as tm

KEY = os.environ["SHOP_KEY"]
with open("prices.json") as file:
    PRICES = json.load(file)
flow = tm.Workflow("flow")


@flow.task
def one() -> str:
    return KEY
"""
MAPPED = """import time

import tidemill as tm

flow = tm.Workflow("flow", schedule=tm.Every("1s", catchup="none"), max_active_runs=1)


@flow.task
def items() -> list[int]:
    return list(range(5))


@flow.task(each="items")
def check(items: int) -> int:
    time.sleep({seconds})
    return items
"""
POLLING = """import tidemill as tm


@tm.polling(every="50ms")
async def quote() -> float:
    return float("nothing")


@tm.passthrough
def other(event: int) -> int:
    return event


reactor = tm.Reactor("desk", [quote, other])
"""
RESTARTED = """import os

import tidemill as tm


@tm.trigger(every="100ms")
async def once() -> tm.Fire | None:
    if os.path.exists("fired"):
        return None
    open("fired", "w").close()
    return tm.Fire()


flow = tm.Workflow("flow", triggers=[once])


@flow.task
def wait(ctx: tm.Context) -> None:
    ctx.log.info("waiting")
    ctx.defer(poll=lambda: os.path.exists("go"), every="100ms")
    ctx.log.info("done")


@tm.polling(every="100ms")
async def quote() -> float:
    return 1.0


desk = tm.Reactor("desk", [quote])
judge = tm.Graph("judge", reactor=desk)


@judge.node
def twice(quote: float) -> float:
    return 2 * quote
"""
RETRIED = """import tidemill as tm

flow = tm.Workflow("flow", schedule=tm.Every("1s"))


@flow.task(retry=tm.Retry(3, delay="20ms", jitter=0.0))
def read(ctx: tm.Context) -> None:
    if ctx.attempt == 1: raise ConnectionError("no route")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder."""
    made = tmp_path / "flows"
    made.mkdir()
    return made


def test_a_second_one_is_refused_at_once_and_names_the_first(folder: Path, tmp_path: Path) -> None:
    """Two would act twice on every decision, and overwrite each other's snapshots."""
    (folder / "flow.py").write_text(PLAIN.format(value=1))
    with DevSession(folder, tmp_path / "scratch") as first:
        first.wait_for("flow", "loaded")
        with DevSession(folder, tmp_path / "other") as second:
            second.wait_for(f"process {first.program.pid} already runs `tidemill dev` on .tidemill/dev.db")
            assert second.program.wait(10) == 2
            assert not [line for line in second.lines if "runs the packages in" in line]
        with DevSession(folder, tmp_path / "other", "--store", f"sqlite:///{tmp_path / 'else.db'}") as elsewhere:
            elsewhere.wait_for("flow", "loaded")
            assert elsewhere.end() == 0
        first.end(signal.SIGKILL)
        with DevSession(folder, tmp_path / "other") as next_one:
            next_one.wait_for("flow", "loaded")
            assert next_one.end() == 0


def test_what_a_module_reads_at_import_is_there(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """P-7, P-10: the environment and the working folder, as with `tidemill run`; what is missing is reported."""
    monkeypatch.setenv("SHOP_KEY", "secret")
    (folder / "flow.py").write_text(NEEDY)
    (folder / "prices.json").write_text("{}")
    with DevSession(folder, tmp_path / "scratch") as dev:
        dev.wait_for("flow", "loaded")
        (folder / "flow.py").write_text(NEEDY.replace("SHOP_KEY", "NOWHERE"))
        assert dev.wait_for("flow.py:6: importing 'flow' failed: KeyError")[1].endswith("KeyError: 'NOWHERE'")
        (folder / "flow.py").write_text(NEEDY.replace("return KEY", "return KEY + KEY"))
        dev.wait_for("flow  reloaded in")
        assert dev.end() == 0


def test_a_single_file_is_named_itself_and_told_about_its_neighbours(folder: Path, tmp_path: Path) -> None:
    """P-10: it has no package.toml to look into; and a neighbour is not to be installed."""
    (folder / "empty.py").write_text("import tidemill\n")
    (folder / "user.py").write_text("import lib\nimport tidemill\n")
    (folder / "lib.py").write_text("")
    with DevSession(folder, tmp_path / "scratch") as dev:
        dev.wait_for("empty.py:1: nothing is declared in it: no reactor, graph, trigger or workflow")
        _, line = dev.wait_for("user.py:1: importing 'user' failed: ", "cannot import its neighbours")
        assert 'modules = ["user", "lib"]' in line
        assert dev.end() == 0
    assert not [line for line in dev.lines if "package.toml:" in line]


def running(store: Path) -> int:
    """Return how many attempts of a store are running."""
    with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as database:
        ((count,),) = database.execute("SELECT count(*) FROM task_runs WHERE state = 'running' AND task = 'check'")
    return int(count)


def test_what_was_lost_is_reported_in_a_line_behind_the_banner(folder: Path, tmp_path: Path) -> None:
    """W-12: which task of which run, how many elements, and why; they run again."""
    (folder / "flow.py").write_text(MAPPED.format(seconds=30))
    with DevSession(folder, tmp_path / "scratch") as dev:
        name = re.sub(r".*run (\w+) started.*", r"\1", dev.wait_for("flow  run ", "started")[1])
        until(lambda: running(folder / ".tidemill" / "dev.db") == 5)
        dev.end(signal.SIGKILL)
    with DevSession(folder, tmp_path / "scratch") as dev:
        _, line = dev.wait_for("lost")
        assert f"flow  5 elements of task check of run {name} were lost: the process that ran it, " in line
        assert "runs the packages in" in dev.lines[1]
        assert all(TIME.match(one) for one in dev.lines if "lost" in one)
        dev.end(signal.SIGKILL)


def test_a_restart_says_what_was_restored_and_which_runs_continue(folder: Path, tmp_path: Path) -> None:
    """W-16, G-23: and a run keeps the name of its workflow in front of what it logs."""
    (folder / "desk.py").write_text(RESTARTED)
    with DevSession(folder, tmp_path / "scratch", is_hasty=True) as dev:
        name = re.sub(r".*run (\w+) started.*", r"\1", dev.wait_for("flow  run ", "started")[1])
        dev.wait_for("firings in 2 s: desk ")
        assert dev.end() == 0
    with DevSession(folder, tmp_path / "scratch") as dev:
        dev.wait_for("flow  continues run", name)
        (folder / "go").touch()
        dev.wait_for("flow  run", name, "succeeded")
        assert dev.end() == 0
    shown = [line[10:] for line in dev.lines]
    assert "desk  restored from the store: 1 cached value" in shown
    assert "flow.wait  | done" in shown


def test_retries_are_told_with_their_errors(folder: Path, tmp_path: Path) -> None:
    """W-9: where it failed, and when it is tried again."""
    (folder / "flow.py").write_text(RETRIED)
    with DevSession(folder, tmp_path / "scratch") as dev:
        _, line = dev.wait_for("flow  task read of run ", "failed: ConnectionError: no route")
        assert line.endswith("(flow.py:8); retry in 20ms")
        dev.wait_for("flow  run ", "succeeded")
        assert dev.end() == 0


def test_the_first_screen_does_not_wait_for_a_package_that_hangs(folder: Path, tmp_path: Path) -> None:
    """P-12: nor does what can be done with the others."""
    (folder / "flow.py").write_text(RETRIED)
    (folder / "hangs.py").write_text("import time\nimport tidemill\ntime.sleep(600)\n")
    with DevSession(folder, tmp_path / "scratch") as dev:
        dev.wait_for("│ hangs", "preparing")
        dev.wait_for("start a run:    tidemill run flow.py:flow --store sqlite:///.tidemill/dev.db")
        assert not any("hangs  cannot be loaded" in line for line in dev.lines)
        assert dev.end() == 0


def test_an_empty_folder_says_how_to_begin(folder: Path, tmp_path: Path) -> None:
    """What it says works, and is followed by what to do next."""
    with DevSession(folder, tmp_path / "scratch") as dev:
        dev.wait_for("there is no package yet")
        dev.wait_for('ctx.log.info("hello")')
        assert "          write a package:    tidemill package new hello" in dev.lines
        start = next(number for number, line in enumerate(dev.lines) if "save a file:     hello.py" in line)
        (folder / "hello.py").write_text("\n".join(line[10:] for line in dev.lines[start + 1 :]) + "\n")
        dev.wait_for("hello  loaded in")
        dev.wait_for("start a run:    tidemill run hello.py:hello")
        assert dev.end() == 0


def test_a_poll_that_fails_is_reported_once_with_its_location(folder: Path, tmp_path: Path) -> None:
    """P-10: as a node that fails is."""
    (folder / "desk.py").write_text(POLLING)
    with DevSession(folder, tmp_path / "scratch", is_hasty=True) as dev:
        _, line = dev.wait_for("quote  accumulator poll failed: ValueError(")
        assert line.endswith("(desk.py:6)")
        assert dev.end() == 0
    assert sum("poll failed" in line for line in dev.lines) == 1


def test_what_is_not_restored_is_reported_with_its_owner(folder: Path, tmp_path: Path) -> None:
    """P-10: the reactor stands before the line, also before the one that counts how often it came again."""
    code = POLLING.replace('float("nothing")', "1.0")
    (folder / "desk.py").write_text(code)
    with DevSession(folder, tmp_path / "scratch", is_hasty=True) as dev:
        dev.wait_for("firings in 2 s: desk ", patience=60)
        assert dev.end() == 0
    (folder / "desk.py").write_text(code.replace("float", "list[int]").replace("1.0", "[1]"))
    with DevSession(folder, tmp_path / "scratch", is_hasty=True) as dev:
        _, line = dev.wait_for("checkpoint partially restored: ")
        assert re.search(r"^\d\d:\d\d:\d\d  desk  checkpoint partially restored: a boundary of 'quote'", line)
        assert dev.end() == 0
