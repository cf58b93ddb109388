"""Packages for tests: folders, and zip files made by hand."""

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

MANIFEST = b'[package]\nname = "market"\nversion = "1.2.0"\nmodules = ["market"]\n'
FILES = {
    "package.toml": MANIFEST,
    "market/__init__.py": b"VALUE = 1\n",
    "market/graphs.py": b"",
    "market/data/prices.csv": b"a,b\n1,2\n",
}


def zipped(files: Mapping[str, bytes] | list[tuple[str, bytes]], method: int = zipfile.ZIP_STORED) -> bytes:
    """Return a zip file as the standard library writes it; a list may have a name twice."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", method) as archive:
        for name, content in files.items() if isinstance(files, Mapping) else files:
            archive.writestr(zipfile.ZipInfo(name), content, method)
    return held.getvalue()


def with_entry(name: str, content: bytes = b"x", *, mode: int = 0o100644) -> bytes:
    """Return a sound archive with one more entry, of that mode."""
    held = io.BytesIO(zipped(FILES))
    with zipfile.ZipFile(held, "a") as archive:
        info = zipfile.ZipInfo("placeholder")
        info.filename = name  # as it is: the constructor would correct it
        info.external_attr = mode << 16
        archive.writestr(info, content)
    return held.getvalue()


def folder_of(folder: Path, files: Mapping[str, bytes] = FILES) -> Path:
    """Write a package as a folder."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def listing(folder: Path) -> list[str]:
    """Return everything below a folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
