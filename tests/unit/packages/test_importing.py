"""Importing a file or a module by name: it may change the process, and its importer continues."""

import os
import sys
from pathlib import Path

import pytest

from tidemill.kernel.errors import DefinitionError, RequestError
from tidemill.packages.loading.reader import import_module


@pytest.fixture(autouse=True)
def _own_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [str(tmp_path), *sys.path])


@pytest.mark.parametrize("place", ["{name}.py", "{name}"])
def test_a_file_that_moves_the_process_is_imported(tmp_path: Path, place: str) -> None:
    """A process that runs a script has it so, and the tasks of the script may rely on it."""
    name = f"moving_{len(place)}"
    (tmp_path / f"{name}.py").write_text("import os\nos.chdir('/')\nVALUE = 1\n")
    before = list(sys.path)
    assert import_module(place.format(name=name)).VALUE == 1
    assert os.getcwd() == "/"
    assert sys.path == before


@pytest.mark.parametrize("place", ["{name}.py", "{name}"])
def test_a_file_that_changes_where_modules_are_found_takes_nothing_away(tmp_path: Path, place: str) -> None:
    """What it adds is for itself, and stays."""
    name = f"emptying_{len(place)}"
    (tmp_path / f"{name}.py").write_text("import sys\nsys.path[:] = ['/added']\nVALUE = 1\n")
    before = list(sys.path)
    assert import_module(place.format(name=name)).VALUE == 1
    assert sys.path == ["/added", *before]


def test_a_file_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    """Whatever it has taken away itself; and a file that it misses is not the one that was named."""
    (tmp_path / "failing.py").write_text("import sys\ndel sys.modules[__name__]\nsys.path.clear()\n1 / 0\n")
    (tmp_path / "missing.py").write_text("VALUE = 1\nopen('nowhere.txt')\n")
    before = list(sys.path)
    with pytest.raises(DefinitionError, match=r"failing.py:4: importing it failed: ZeroDivisionError"):
        import_module("failing.py")
    with pytest.raises(DefinitionError, match=r"missing.py:2: importing it failed: FileNotFoundError: .*nowhere.txt"):
        import_module("missing.py")
    with pytest.raises(RequestError, match=r"^there is no file other.py$"):
        import_module("other.py")
    assert sys.path == before
    assert not {"failing", "missing"} & sys.modules.keys()
