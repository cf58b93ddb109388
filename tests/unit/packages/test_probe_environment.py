"""The environment of a probe, and the advice for what a package misses there (P-7, P-10)."""

import os
import sys
from pathlib import Path

import pytest

from tests.unit.packages.package_samples import folder_of
from tidemill.kernel.clock import SystemClock
from tidemill.packages.format.manifest import read_manifest
from tidemill.packages.loading.inspector import PROBE_MARK_VARIABLE
from tidemill.packages.loading.probe import ProbeError, run_probe
from tidemill.packages.loading.probe_environment import ProbeEnvironment, local_origin

MANIFEST = b'[package]\nname = "shop"\nversion = "1.0.0"\n'
FLOW = b'import tidemill as tm\nflow = tm.Workflow("flow")\n\n@flow.task\ndef one() -> int:\n    return 1\n'
BESIDE = "beside_the_node"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a file, a variable of the environment, and a module on the path."""
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "prices.json").write_text("{}")
    (folder / f"{BESIDE}.py").write_text("")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("SHOP_KEY", "secret \udcff")  # as bytes that are no UTF-8 arrive
    monkeypatch.syspath_prepend(str(folder))
    return folder


async def tried(tmp_path: Path, code: bytes, surroundings: ProbeEnvironment) -> str:
    """Return what is wrong with a package of this code; nothing if it is sound."""
    folder = folder_of(tmp_path / "shop", {"package.toml": MANIFEST, "shop.py": code + FLOW})
    try:
        await run_probe(folder, read_manifest(MANIFEST), environment=surroundings, clock=SystemClock())
    except ProbeError as error:
        return error.problems[0].message
    return ""


NEEDS = {
    "variable": b'import os\nassert os.fsencode(os.environ["SHOP_KEY"]) == b"secret \\xff"\n',
    "file": b'open("prices.json").close()\n',
    "module": f"import {BESIDE}\n".encode(),
}


@pytest.mark.parametrize("need", NEEDS)
async def test_the_developers_own_code_finds_what_it_will_find_when_it_runs(
    need: str, here: Path, tmp_path: Path
) -> None:
    """So that `tidemill dev` and `tidemill run` agree."""
    assert await tried(tmp_path, NEEDS[need], ProbeEnvironment.inherit_all()) == ""


MISSED = {
    "variable": "KeyError: 'SHOP_KEY'; the environment has SHOP_KEY, but packages are probed without it",
    "file": "'prices.json'; it is in {here}, but packages are probed in an empty folder: put it into the package",
    "module": f"No module named '{BESIDE}'; install it where packages are loaded",
}


@pytest.mark.parametrize("need", NEEDS)
async def test_untrusted_code_sees_nothing_and_gets_advice(need: str, here: Path, tmp_path: Path) -> None:
    """P-7: no secret is shown to it; what it misses only because it is tried is reported as that."""
    said = await tried(tmp_path, NEEDS[need], ProbeEnvironment.isolated())
    assert said.startswith("importing 'shop' failed: ")
    assert MISSED[need].format(here=here) in said


@pytest.mark.parametrize(
    "code",
    [
        b'import os\nos.environ["NOWHERE_SET"]\n',
        b'open("nowhere.json")\n',
        b"SHOP_KEY\n",
        b'raise ValueError("out of order")\n',
    ],
)
async def test_no_advice_for_what_is_missing_everywhere(code: bytes, here: Path, tmp_path: Path) -> None:
    """A variable that is not set, a file that is nowhere, a name that happens to be that of a variable."""
    assert "tried" not in await tried(tmp_path, code, ProbeEnvironment.isolated())


async def test_only_names_of_variables_are_passed_on(here: Path) -> None:
    """P-7: what is sent to the child has no values, unless the code is the developer's own."""
    bare = ProbeEnvironment.isolated()
    assert "SHOP_KEY" in bare.hidden_variables
    assert bare.inherited is None
    assert "secret" not in repr(bare)


async def test_what_it_starts_is_still_found_and_ended(here: Path, tmp_path: Path) -> None:
    """P-7: the mark by which processes are found is no part of what is given."""
    code = f"import os\nassert len(os.environ[{PROBE_MARK_VARIABLE!r}]) == 32\n".encode()
    code += b'import subprocess\nsubprocess.Popen(["sleep", "60"], start_new_session=True)\n'
    assert "left 1 of them running" in await tried(tmp_path, code, ProbeEnvironment.inherit_all())


@pytest.mark.parametrize("is_shared", [True, False])
async def test_a_module_next_to_the_package_is_named(
    is_shared: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is in the author's folder and not in the package, also if that folder is on the path."""
    origin = folder_of(tmp_path / "origin", {"lib.py": b"", "shop.py": b""})
    monkeypatch.syspath_prepend(str(origin))
    made = ProbeEnvironment.inherit_all if is_shared else ProbeEnvironment.isolated
    said = await tried(tmp_path, b"import lib.more\n", made(str(origin)))
    assert 'it is in the folder, but not in the package: add "lib" to modules in package.toml' in said
    said = await tried(tmp_path, b"import lib\n", made(str(origin / "shop.py")))
    assert "a Python file that is a package by itself cannot import its neighbours" in said
    assert 'modules = ["shop", "lib"]' in said


def test_only_folders_and_python_files_are_origins(tmp_path: Path) -> None:
    """An archive has no neighbours, and what is published lies nowhere."""
    (tmp_path / "flow.py").write_text("")
    (tmp_path / "shop.tidemill").write_text("")
    assert local_origin(str(tmp_path)) == str(tmp_path)
    assert local_origin(str(tmp_path / "flow.py")) == str(tmp_path / "flow.py")
    assert [local_origin(str(tmp_path / name)) for name in ("shop.tidemill", "gone.py")] == ["", ""]


def test_an_isolated_environment_changes_nothing(here: Path) -> None:
    """Where a package is loaded it is examined as it is."""
    before = dict(os.environ), list(sys.path), os.getcwd()
    ProbeEnvironment.isolated().apply(PROBE_MARK_VARIABLE)
    assert (dict(os.environ), list(sys.path), os.getcwd()) == before
