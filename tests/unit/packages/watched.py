"""Queries of a folder source, for tests."""

from tidemill.packages.reconcile.folder import FolderSource

FLOW = "import tidemill as tm\n\nflow = tm.Workflow('flow')\n"


def manifest(name: str, version: str = "1.0.0") -> bytes:
    """Return the manifest of a package whose module is called 'market'."""
    return f'[package]\nname = "{name}"\nversion = "{version}"\nmodules = ["market"]\n'.encode()


async def names(source: FolderSource) -> dict[str, str | None]:
    """Return the names and versions that are wanted."""
    found = await source.desired_packages()
    assert {key.tenant for key in found} <= {"acme"}
    assert all(key == one.key for key, one in found.items())
    return {key.name: one.version for key, one in found.items()}


async def digests(source: FolderSource) -> dict[str, str]:
    """Return the digests of what is wanted."""
    return {key.name: one.digest for key, one in (await source.desired_packages()).items()}
