"""Package folders for tests of nodes, probed without a child process."""

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tidemill.graphs.snapshot import KeptValue
from tidemill.kernel.errors import DefinitionError
from tidemill.kernel.namespaces import Namespace, PackageTree
from tidemill.packages.format.manifest import Manifest
from tidemill.packages.loading.copies import FOLDER_PREFIX
from tidemill.packages.loading.inspector import PackageInspector
from tidemill.packages.loading.metadata import PackageMetadata


def package(folder: Path, code: str, version: str = "1.0.0", *, manifest: str = "", **modules: str) -> Path:
    """Write a package into a folder, called like that, with a module of the same name and perhaps some inside it."""
    name = folder.name
    (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "package.toml").write_text(f'[package]\nname = "{name}"\nversion = "{version}"\n{manifest}')
    for module, text in {"__init__": code, **modules}.items():
        (folder / name / f"{module}.py").write_text(text)
    return folder


async def examined(folder: Path, manifest: Manifest, kept: Sequence[KeptValue] = (), **_: Any) -> PackageMetadata:
    """Stand in for the probe: import the package in this process, which takes a hundredth of the time."""
    namespace = Namespace(PackageTree(str(folder), str(folder), manifest.top_level_names))
    try:
        answer = PackageInspector(namespace, manifest).inspect(kept)
    finally:
        namespace.close()
    if answer.metadata is None:
        raise DefinitionError(answer.problems, f"package '{manifest.name}'")
    return answer.metadata


def without_child_processes(patch: pytest.MonkeyPatch) -> None:
    """Let packages be tried in this process."""
    patch.setattr("tidemill.packages.loading.preparer.run_probe", examined)


def marked_modules(*tops: str) -> list[str]:
    """Return the modules of packages that this process has imported."""
    return sorted(name for name in sys.modules if "@" in name and name.partition("@")[0] in tops)


def copies() -> list[str]:
    """Return the copies of packages that are there."""
    return sorted(one.name for one in Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}*/*") if one.is_dir())
