"""The guard of installed modules: which names it knows, and that it leaves nothing behind."""

import re
import sys
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest

from tidemill.kernel.import_guard import DEPENDENCIES, guarding_imports, import_file

NOT_INSTALLED = {"ray"}
"""Extras that are not among the pinned requirements; their modules are guarded all the same."""


def test_every_dependency_is_guarded() -> None:
    """A neighbour of that name would be imported in its place."""
    wanted = {re.split(r"[<>=;\[ ]", one)[0] for one in requires("tidemill") or ()} - NOT_INSTALLED
    modules = {
        module: {owner.replace("_", "-") for owner in owners} for module, owners in packages_distributions().items()
    }
    for distribution in wanted:
        names = {module for module, owners in modules.items() if distribution in owners and module.isidentifier()}
        assert names, distribution
        assert {one for one in names if not one.startswith("_")} <= DEPENDENCIES


def test_the_folder_is_searched_for_other_names_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only names that would break Tidemill are guarded: a neighbour may replace any other installed module."""
    (tmp_path / "hypothesis_of_mine.py").write_text("VALUE = 1\n")
    (tmp_path / "sched.py").write_text("VALUE = 2\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "sched", raising=False)
    before = list(sys.meta_path)
    with guarding_imports(str(tmp_path)):
        import sched

        import hypothesis_of_mine  # type: ignore[import-not-found]
    assert hypothesis_of_mine.VALUE == 1
    assert not hasattr(sched, "VALUE")
    assert sys.meta_path == before
    del sys.modules["hypothesis_of_mine"], sys.modules["sched"]


def test_a_file_that_fails_leaves_no_module(tmp_path: Path) -> None:
    """So that it can be imported again."""
    file = tmp_path / "failing_flow.py"
    file.write_text("raise ValueError('no')\n")
    with pytest.raises(ValueError, match="no"):
        import_file("failing_flow", str(file))
    assert "failing_flow" not in sys.modules
