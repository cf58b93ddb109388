"""A Python file that is a package by itself: named like the file, without a manifest of its own."""

import stat
from pathlib import Path

from tidemill.kernel.errors import DefinitionError, Location, OperationError, RequestError
from tidemill.packages.archive import STANDARD, Contents
from tidemill.packages.entries import Limits, invalid, too_large
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
    files = {path.name: _read(path, limits.file_size), MANIFEST: manifest}
    return Contents(title=str(path), manifest=read_manifest(manifest), files=files)


def _read(path: Path, limit: int) -> bytes:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise invalid(str(path), "it is not a plain file")
        with path.open("rb") as file:
            content = file.read(limit + 1)
    except FileNotFoundError as error:
        raise RequestError(f"there is no file {path}", code="no_file", status=404) from error
    except OSError as error:
        raise OperationError(f"{path} could not be read: {error}") from error
    if len(content) > limit:
        raise too_large(str(path), f"it has more than the {limit:,} bytes that are allowed")
    return content
