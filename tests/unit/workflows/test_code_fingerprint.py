"""W-19: a version covers the definitions that its tasks use, not only their functions."""

import itertools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tidemill as tm
from tidemill.kernel.namespaces import Namespace, PackageTree

FLOW = """
import os
import tidemill as tm
from market import prices
from market import rounding as rounds
from market.limits import LIMIT as limit
from .names import *
import market.deep.down

VERSION = 1
HOME = os.environ.get("REACH", "")
UNUSED = 1

flow = tm.Workflow("flow")


def outer(value: int) -> int:
    def inner() -> int:
        return value + VERSION

    return inner()


def unused() -> int:
    return 1


class Thing:
    factor = 2

    def times(self, value: int) -> int:
        return value * self.factor


@flow.task
def one() -> int:
    # a comment
    return Thing().times(outer(1)) + prices.price() + min(rounds.digits(), limit) + starred() + len(HOME)


@flow.task
def two(one: int) -> int:
    return one + market.deep.down.value()
"""

PRICES = """
from market import flow

BASE = 10
OTHER = 1


def price() -> int:
    return BASE if flow else 0
"""

ROUNDING = """
try:
    from market.limits import DIGITS
except ImportError:
    DIGITS = 1


def digits() -> int:
    return DIGITS
"""

NAMES = """
def starred() -> int:
    return hidden


hidden = 3
"""

DOWN = """
if 1 > 0:
    FLOOR = 0
else:
    FLOOR = 1


def value() -> int:
    return FLOOR
"""

FILES = {
    "__init__.py": "",
    "flow.py": FLOW,
    "prices.py": PRICES,
    "rounding.py": ROUNDING,
    "limits.py": "LIMIT: int = 5\nDIGITS = 2\nUNUSED = 1\n",
    "names.py": NAMES,
    "deep/__init__.py": "",
    "deep/down.py": DOWN,
    "beside.py": "VALUE = 1\n",
}

_folders = itertools.count()


def version(tmp_path: Path, **changes: tuple[str, str]) -> str:
    """Return the version of the workflow with changes in some files: a text and its replacement."""
    place = tmp_path / str(next(_folders))
    for name, text in FILES.items():
        before, after = changes.get(name.partition(".")[0].replace("/", "_"), ("", ""))
        assert before in text
        (place / "market" / name).parent.mkdir(parents=True, exist_ok=True)
        (place / "market" / name).write_text(text.replace(before, after) if before else text)
    namespace = Namespace(PackageTree(str(place), str(place), ("market",)))
    try:
        workflow = namespace.import_module("market.flow").flow
        assert isinstance(workflow, tm.Workflow)
        return workflow.wired().spec.version
    finally:
        namespace.close()


@pytest.mark.parametrize(
    ("file", "before", "after"),
    [
        ("flow", "return Thing()", "return 1 + Thing()"),
        ("flow", "VERSION = 1", "VERSION = 2"),
        ("flow", "value + VERSION", "value - VERSION"),
        ("flow", "factor = 2", "factor = 3"),
        ("prices", "BASE = 10", "BASE = 11"),
        ("prices", "else 0", "else 1"),
        ("rounding", "return DIGITS", "return DIGITS + 1"),
        ("limits", "int = 5", "int = 6"),
        ("limits", "DIGITS = 2", "DIGITS = 3"),
        ("names", "return hidden", "return hidden + 1"),
        ("names", "hidden = 3", "hidden = 4"),
        ("deep_down", "FLOOR = 0", "FLOOR = 2"),
        ("deep_down", "return FLOOR", "return FLOOR + 1"),
    ],
)
def test_a_version_changes_with_what_its_tasks_use(tmp_path: Path, file: str, before: str, after: str) -> None:
    """Functions, constants and classes, wherever in the package; however they are imported."""
    assert version(tmp_path, **{file: (before, after)}) != version(tmp_path)


@pytest.mark.parametrize(
    ("file", "before", "after"),
    [
        ("flow", "    # a comment\n", "\n"),
        ("flow", "UNUSED = 1", "UNUSED = 2"),
        ("flow", "def unused() -> int:\n    return 1", "def unused() -> int:\n    return 2"),
        ("flow", "value + VERSION", "(value\n            + VERSION)"),
        ("prices", "OTHER = 1", "OTHER = 2"),
        ("limits", "UNUSED = 1", "UNUSED = 2"),
        ("beside", "VALUE = 1", "VALUE = 2"),
    ],
)
def test_a_version_stays_with_what_only_stands_beside_it(tmp_path: Path, file: str, before: str, after: str) -> None:
    """Comments, layout, and definitions that no task uses."""
    assert version(tmp_path, **{file: (before, after)}) == version(tmp_path)


def test_a_version_is_the_same_wherever_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text counts, not the value of a name in this process."""
    here = version(tmp_path)
    monkeypatch.setenv("REACH", "elsewhere")
    assert version(tmp_path) == here
    print_it = "from market.flow import flow; print(flow.wired().spec.version)"
    place = next(tmp_path.iterdir())
    found = subprocess.run(
        [sys.executable, "-c", print_it], cwd=place, env=os.environ | {"PYTHONHASHSEED": "7"}, capture_output=True
    )
    assert found.stdout.decode().strip() == here


def test_code_without_a_module_has_a_version() -> None:
    """Such as generated code: it has no source, but its names come from a module."""
    flow = tm.Workflow("flow")
    made: dict[str, Any] = {}
    exec("def one() -> int:\n    return 1", {}, made)
    for function in (made["one"], generated):
        function.__module__ = None
        flow.task(function)
    flow.check()
    assert flow.run().outputs == {"one": 1, "generated": 1}


def generated() -> int:
    """Return what a task may."""
    return len(FLOW[:1])


def test_code_without_a_source_has_a_version(tmp_path: Path) -> None:
    """Such as code typed into a shell: then only the task functions count."""
    typed = 'import tidemill as tm\nflow = tm.Workflow("flow")\n@flow.task\ndef one() -> int:\n    return helper()\n'
    typed += "def helper() -> int:\n    return 1\nprint(flow.wired().spec.version)\n"
    found = subprocess.run([sys.executable, "-c", typed], cwd=tmp_path, capture_output=True, check=True)
    assert found.stdout.strip()
