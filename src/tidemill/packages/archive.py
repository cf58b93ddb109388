"""Packages as folders and as `.tidemill` archives: read, built and unpacked."""

import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from tidemill.kernel.errors import OperationError, RequestError
from tidemill.packages.container import pack, unpack_bytes
from tidemill.packages.entries import (
    SIGNATURE,
    Limits,
    check_belonging,
    check_modules,
    check_names,
    invalid,
    is_left_out,
    too_large,
)
from tidemill.packages.manifest import MANIFEST, Manifest, read_manifest

SUFFIX = ".tidemill"
STANDARD = Limits()


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """What a folder or an archive holds, checked."""

    title: str
    """Where it was read from, as it was named."""

    manifest: Manifest
    files: Mapping[str, bytes]
    """By path, with '/': the manifest, the modules and their data, in order; not the signature."""

    signature: bytes | None = None
    raw: bytes | None = None
    """The archive itself, if it is one."""

    @property
    def size(self) -> int:
        """Return how many bytes the files have."""
        return sum(map(len, self.files.values()))

    @property
    def digest(self) -> str:
        """Return the SHA-256, in hex, of the archive that it is, or that a folder would be."""
        return hashlib.sha256(self.packed() if self.raw is None else self.raw).hexdigest()

    def packed(self) -> bytes:
        """Return the archive of all this."""
        signature = {} if self.signature is None else {SIGNATURE: self.signature}
        return pack({**self.files, **signature})


def read_package_at(path: Path, limits: Limits = STANDARD) -> Contents:
    """Return what a folder or an archive holds; nothing is imported, and nothing written."""
    if path.suffix != SUFFIX and path.is_file() and (path.parent / MANIFEST).exists():
        message = f"{path} is a file of a package: name its folder, {path.parent}"
        raise RequestError(message, code="no_file", status=404)
    return read_folder(path, limits) if path.is_dir() else read_archive(path, limits)


# -- archives


def read_archive(path: Path, limits: Limits = STANDARD) -> Contents:
    """Return what an archive holds; RequestError or DefinitionError if it is not one that may be unpacked."""
    return parse_archive(read_file(path, path.name, limits.archive_size, is_strict=False), str(path), limits)


def parse_archive(raw: bytes, title: str, limits: Limits = STANDARD) -> Contents:
    """Return what the bytes of an archive hold."""
    return _contents(unpack_bytes(raw, title, limits), title, raw)


def unpack(archive: Path, folder: Path, limits: Limits = STANDARD) -> Contents:
    """Unpack an archive into a folder that is empty or not there yet; if anything is wrong, nothing stays in it."""
    contents = read_archive(archive, limits)
    if folder.is_symlink() or (folder.exists() and (not folder.is_dir() or any(folder.iterdir()))):
        message = f"{folder} is not empty: a package is unpacked into a folder of its own"
        raise RequestError(message, code="file_exists", status=409)
    is_new = not folder.exists()
    files = dict(contents.files) if contents.signature is None else {**contents.files, SIGNATURE: contents.signature}
    try:
        write_files(folder, files)
    except OSError as error:
        with suppress(OSError):  # what went wrong first is what is told
            _empty(folder, is_new=is_new)
        raise OperationError(f"{archive} could not be unpacked: {error}") from error
    return contents


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files into a folder that has none of them yet; OSError if that fails half-way."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        _create(folder / name, content)


def _create(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "wb") as file:
        file.write(content)


def _empty(folder: Path, *, is_new: bool) -> None:
    """Take away what was unpacked so far; the folder was empty before."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    if is_new and folder.is_dir():
        folder.rmdir()


def build(folder: Path, target: Path, limits: Limits = STANDARD) -> Contents:
    """Make the archive of a folder; the same files give the same bytes, whoever builds it, when and where."""
    contents = read_folder(folder, limits)
    if any(target.resolve().is_relative_to((folder / top).resolve()) for top in contents.manifest.tops):
        raise invalid(str(target), f"it would lie inside the package that it is made of, {folder}")
    write_archive(contents, target)
    return contents


def write_archive(contents: Contents, target: Path) -> None:
    """Write an archive: others see all of it or nothing."""
    try:
        replace_file(target, contents.packed())
    except OSError as error:
        raise OperationError(f"{target} could not be written: {error}") from error


def replace_file(target: Path, content: bytes) -> None:
    """Write a file beside its place, and put it there when it is whole."""
    number, name = tempfile.mkstemp(prefix=f".{target.name[:100]}.", dir=target.parent)
    try:
        with os.fdopen(number, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


# -- folders


def read_folder(folder: Path, limits: Limits = STANDARD) -> Contents:
    """Return what belongs to the package in a folder: its manifest, its modules and their data, its signature."""
    title = str(folder)
    if not folder.is_dir():
        raise RequestError(f"there is no folder {folder}", code="no_file", status=404)
    if not os.path.lexists(folder / MANIFEST):
        raise invalid(title, f"there is no {MANIFEST}", MANIFEST)
    manifest = read_manifest(read_file(folder / MANIFEST, MANIFEST, limits.file_size), str(folder / MANIFEST))
    try:
        names = [MANIFEST, *_belonging(folder, manifest, title, limits)]
    except OSError as error:
        raise OperationError(f"{folder} could not be read: {error}") from error
    if len(names) > limits.entries:
        raise too_large(title, f"it has more than {limits.entries:,} files")
    check_names(title, names, limits)
    files: dict[str, bytes] = {}
    left = limits.total_size
    for name in names:
        files[name] = read_file(folder / name, name, min(limits.file_size, left))
        left -= len(files[name])
    return _contents(files, title, None)


def _belonging(folder: Path, manifest: Manifest, title: str, limits: Limits) -> Iterator[str]:
    for name in (SIGNATURE, *(f"{top}.py" for top in manifest.tops)):
        if os.path.lexists(folder / name):
            yield name
    for top in manifest.tops:
        if os.path.lexists(folder / top):
            yield from _below(folder, top, title, limits)


def _below(folder: Path, inside: str, title: str, limits: Limits) -> Iterator[str]:
    if (folder / inside).is_symlink():
        raise invalid(title, f"{inside!r} is a symbolic link; put the files themselves there", inside)
    if inside.count("/") >= limits.depth:
        raise invalid(title, f"{inside[:300]!r} lies more than {limits.depth} folders deep", inside)
    for one in sorted((folder / inside).iterdir()):
        name = f"{inside}/{one.name}"
        if is_left_out(one.name):
            continue
        if one.is_dir() and not one.is_symlink():
            yield from _below(folder, name, title, limits)
        else:
            yield name


def read_file(path: Path, name: str, limit: int, *, is_strict: bool = True) -> bytes:
    """Return the content of a plain file, if it is not too much; links are followed unless `is_strict`."""
    try:
        mode = path.lstat().st_mode if is_strict else path.stat().st_mode
        if not stat.S_ISREG(mode):
            what = "a symbolic link; put the file itself there" if stat.S_ISLNK(mode) else "not a plain file"
            raise invalid(str(path), f"{name!r} is {what}", name)
        with path.open("rb") as file:
            content = file.read(limit + 1)
    except FileNotFoundError as error:
        raise RequestError(f"there is no file {path}", code="no_file", status=404) from error
    except OSError as error:
        raise OperationError(f"{path} could not be read: {error}") from error
    if len(content) > limit:
        raise too_large(str(path), f"{name!r} has more than the {limit:,} bytes that are allowed", name)
    return content


def _contents(files: dict[str, bytes], title: str, raw: bytes | None) -> Contents:
    if MANIFEST not in files:
        raise invalid(title, f"there is no {MANIFEST}", MANIFEST)
    manifest = read_manifest(files[MANIFEST], str(Path(title, MANIFEST)))
    check_belonging(title, files, manifest)
    check_modules(title, files, manifest)
    signature = files.pop(SIGNATURE, None)
    return Contents(title=title, manifest=manifest, files=dict(sorted(files.items())), signature=signature, raw=raw)
