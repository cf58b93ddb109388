"""Versions of a package, as their author uploads them one after the other."""

from pathlib import Path

import httpx

from tidemill.packages.format.archive import read_path

MODULE = '''"""A workflow that counts barrels."""

import tidemill as tm

{name} = tm.Workflow("{name}")


@{name}.task
def count() -> int:
    return 3
'''


def upload(api: httpx.Client, folder: Path, name: str, *versions: str) -> None:
    """Upload versions of a package in this order."""
    (folder / f"{name}.py").write_text(MODULE.format(name=name))
    for version in versions:
        (folder / "package.toml").write_text(f'[package]\nname = "{name}"\nversion = "{version}"\n')
        archive = read_path(folder).to_archive()
        binary = {"content-type": "application/octet-stream"}
        api.put(f"/packages/{name}", content=archive, headers=binary).raise_for_status()
