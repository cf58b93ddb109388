"""A Python file that is a package by itself: named like the file, without a manifest of its own."""

from pathlib import Path

from tidemill.kernel.errors import DefinitionError, Location
from tidemill.packages.archive import STANDARD, Contents, read_file
from tidemill.packages.entries import Limits
from tidemill.packages.manifest import MANIFEST, package_name, read_manifest

VERSION = "0.0.0"
"""Of a package that has none: it is told apart by its digest."""


def contents_of_file(path: Path, limits: Limits = STANDARD) -> Contents:
    """Return the package that a Python file is; nothing is imported."""
    try:
        name = package_name(path.stem)
    except ValueError as error:
        message = f"the file cannot be a package: {error}; rename it"
        raise DefinitionError.of("package", message, Location(str(path), 1)) from error
    manifest = f'[package]\nname = "{name}"\nversion = "{VERSION}"\n'.encode()
    files = {path.name: read_file(path, path.name, limits.file_size, is_strict=False), MANIFEST: manifest}
    return Contents(title=str(path), manifest=read_manifest(manifest), files=files)
