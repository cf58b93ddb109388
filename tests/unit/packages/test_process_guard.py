"""Side effects of an import on the whole process are reverted and logged."""

import io
import logging
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import tidemill as tm
from tests.service.package_folders import package
from tidemill.kernel.copied_stream import CopiedStream
from tidemill.packages.loading.process_guard import limiting_output, reverting_process_state

FLOW = "import tidemill as tm\n\nflow = tm.Workflow('flow')\n\n\n@flow.task\ndef one() -> int:\n    return 1\n"


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Return which package was said to have changed what."""
    records = [vars(record) for record in caplog.records if record.msg == "package.import_side_effects_reverted"]
    return [(one["package"], one["reason"].partition("; this was reverted")[0]) for one in records]


def replace_stdout() -> None:
    """Do what some scripts do to be quiet."""
    sys.stdout = io.StringIO()


def replace_path() -> None:
    """Put another list in the place of the one that everybody has."""
    sys.path = ["/elsewhere"]


CHANGES: dict[str, Callable[[], object]] = {
    "importing it replaced sys.stdout": replace_stdout,
    "importing it replaced sys.stderr": lambda: delattr(sys, "stderr"),
    "importing it changed sys.path": lambda: sys.path.insert(0, "/elsewhere"),
    "importing it changed sys.path ": replace_path,
    "importing it moved the process to /": lambda: os.chdir("/"),
}


@pytest.mark.parametrize("said", CHANGES)
def test_shared_process_state_is_restored(
    said: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """P-5: whatever was done to it, and also if the import has failed."""
    monkeypatch.setattr("sys.stdout", io.StringIO())
    before = sys.stdout, sys.stderr, sys.path, list(sys.path), os.getcwd()
    for error in (None, ValueError("at import")):
        caplog.clear()
        try:
            with reverting_process_state("market"), limiting_output(100):
                CHANGES[said]()
                if error is not None:
                    raise error
        except ValueError as raised:
            assert raised is error  # noqa: PT017, whether it is raised at all is seen below
        assert (sys.stdout, sys.stderr, sys.path, list(sys.path), os.getcwd()) == before
        assert sys.path is before[2]
        assert told(caplog) == [("market", said.strip())]


def test_an_import_without_side_effects_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Not even where another one goes on at the same time: the stand-ins for streams are ours."""
    begun, ended = threading.Event(), threading.Event()

    def other() -> None:
        with reverting_process_state("other"), limiting_output(100):
            begun.set()
            ended.wait(10)

    before = sys.stdout, sys.stderr
    thread = threading.Thread(target=other)
    with reverting_process_state("market"), limiting_output(100):
        thread.start()
        assert begun.wait(10)
    assert told(caplog) == []
    ended.set()
    thread.join()
    assert told(caplog) == []
    assert (sys.stdout, sys.stderr) == before


def test_of_several_imports_all_are_named(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """P-12: who begins later does not take for his own what another has changed; what is printed stays bounded."""
    monkeypatch.setattr("sys.stdout", stream := io.StringIO())
    before, begun, ended = os.getcwd(), threading.Event(), threading.Event()

    def other() -> None:
        with reverting_process_state("other"), limiting_output(3):
            begun.set()
            ended.wait(10)
            print("lost")

    thread = threading.Thread(target=other)
    with reverting_process_state("market"), limiting_output(100):
        os.chdir("/")
        replace_stdout()
        thread.start()
        assert begun.wait(10)
    assert os.getcwd() == before
    ended.set()
    thread.join()
    assert os.getcwd() == before
    assert sys.stdout is stream
    assert stream.getvalue().startswith("los\n[...")
    assert told(caplog) == [("market, other", "importing it replaced sys.stdout, moved the process to /")]


def test_a_folder_that_is_gone_is_no_trouble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Since the import, before it, and the one that it went to."""
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    with reverting_process_state("market"):
        (tmp_path / "gone").rmdir()
    with reverting_process_state("market"):
        os.chdir(tmp_path)
    assert told(caplog) == []
    with reverting_process_state("market"):
        (tmp_path / "gone").mkdir()
        os.chdir(tmp_path / "gone")
        (tmp_path / "gone").rmdir()
    assert os.getcwd() == str(tmp_path)
    assert told(caplog) == [("market", "importing it moved the process to a folder that is gone")]


async def test_a_node_is_as_it_was_after_a_package(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """P-5: and the package works."""
    caplog.set_level(logging.WARNING)
    code = "import io, os, sys\nos.chdir('/')\nsys.stdout = io.StringIO()\nsys.path.append('/elsewhere')\n"
    before = sys.stdout, list(sys.path), os.getcwd()
    async with tm.Node(load=[package(tmp_path / "shop", code + FLOW)]) as node:
        assert isinstance(sys.stdout, CopiedStream)
        assert (sys.stdout.wrapped, list(sys.path), os.getcwd()) == before
        assert (await (await node.start("flow")).wait(10)).outputs == {"one": 1}
    assert told(caplog) == [
        ("shop", "importing it replaced sys.stdout, changed sys.path, moved the process to /"),
    ]
