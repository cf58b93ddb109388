"""Reads, builds and unpacks packages: folders, `.tidemill` archives and single Python files."""

import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from tidemill.kernel.errors import DefinitionError, Location, OperationError, RequestError
from tidemill.packages.format.manifest import MANIFEST_FILE, Manifest, check_package_name, read_manifest
from tidemill.packages.format.versions import Version
from tidemill.packages.format.zip_format import (
    SIGNATURE_FILE,
    ArchiveLimits,
    build_zip,
    check_entries_belong,
    check_modules_present,
    check_names,
    invalid_package_error,
    is_excluded,
    package_too_large_error,
    read_zip,
)

ARCHIVE_SUFFIX = ".tidemill"
DEFAULT_LIMITS = ArchiveLimits()


class PackageContents(msgspec.Struct, frozen=True, kw_only=True):
    """The validated contents of a package."""

    title: str
    """Where the package was read from, as the caller named it."""

    manifest: Manifest
    files: Mapping[str, bytes]
    """By path, with '/': the manifest, the modules and their data, in order; not the signature."""

    signature: bytes | None = None
    raw: bytes | None = None
    """The bytes of the archive, if it was read from one."""

    @property
    def size(self) -> int:
        """The total size of the files in bytes."""
        return sum(map(len, self.files.values()))

    @property
    def digest(self) -> str:
        """The SHA-256, in hex, of the archive, or of the archive that the files would give."""
        return archive_digest(self.to_archive() if self.raw is None else self.raw)

    def to_archive(self) -> bytes:
        """Return the contents as an archive."""
        signature = {} if self.signature is None else {SIGNATURE_FILE: self.signature}
        return build_zip({**self.files, **signature})


def archive_digest(raw: bytes) -> str:
    """Return the SHA-256, in hex, of an archive: the digest by which the registry knows it."""
    return hashlib.sha256(raw).hexdigest()


def read_path(path: Path, limits: ArchiveLimits = DEFAULT_LIMITS) -> PackageContents:
    """Read a package folder, an archive or a Python file; nothing is imported or written."""
    is_python_file = path.suffix == ".py" and not path.is_dir()
    return read_python_file(path, limits) if is_python_file else read_folder_or_archive(path, limits)


def read_folder_or_archive(path: Path, limits: ArchiveLimits = DEFAULT_LIMITS) -> PackageContents:
    """Read a package folder or an archive; nothing is imported or written."""
    if path.suffix != ARCHIVE_SUFFIX and path.is_file() and (path.parent / MANIFEST_FILE).exists():
        message = f"{path} is a file of a package: name its folder, {path.parent}"
        raise RequestError(message, code="no_file", status=404)
    return read_folder(path, limits) if path.is_dir() else read_archive(path, limits)


# -- archives


def read_archive(path: Path, limits: ArchiveLimits = DEFAULT_LIMITS) -> PackageContents:
    """Read an archive; raise RequestError or DefinitionError if it is invalid."""
    return parse_archive(read_file(path, path.name, limits.archive_size, is_strict=False), str(path), limits)


def parse_archive(raw: bytes, title: str, limits: ArchiveLimits = DEFAULT_LIMITS) -> PackageContents:
    """Parse the bytes of an archive."""
    return _build_contents(read_zip(raw, title, limits), title, raw)


def unpack(archive: Path, folder: Path, limits: ArchiveLimits = DEFAULT_LIMITS) -> PackageContents:
    """Unpack an archive into an empty or new folder; leave nothing behind if that fails."""
    contents = read_archive(archive, limits)
    if folder.is_symlink() or (folder.exists() and (not folder.is_dir() or any(folder.iterdir()))):
        message = f"{folder} is not empty: a package is unpacked into a separate folder"
        raise RequestError(message, code="file_exists", status=409)
    is_new = not folder.exists()
    files = (
        dict(contents.files) if contents.signature is None else {**contents.files, SIGNATURE_FILE: contents.signature}
    )
    try:
        write_files(folder, files)
    except OSError as error:
        with suppress(OSError):  # the first error is the one to report
            _clear_folder(folder, is_new=is_new)
        raise OperationError(f"{archive} could not be unpacked: {error}") from error
    return contents


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files into a folder that has none of them; raise OSError if that fails half-way."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        _write_new_file(folder / name, content)


def _write_new_file(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "wb") as file:
        file.write(content)


def _clear_folder(folder: Path, *, is_new: bool) -> None:
    """Remove what was unpacked so far; the folder was empty before."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    if is_new and folder.is_dir():
        folder.rmdir()


def build(folder: Path, target: Path, limits: ArchiveLimits = DEFAULT_LIMITS) -> PackageContents:
    """Build the archive of a folder; the same files give the same bytes on every machine."""
    contents = read_folder(folder, limits)
    if any(target.resolve().is_relative_to((folder / top).resolve()) for top in contents.manifest.top_level_names):
        raise invalid_package_error(str(target), f"it would lie inside the package that it is made of, {folder}")
    write_archive(contents, target)
    return contents


def write_archive(contents: PackageContents, target: Path) -> None:
    """Write an archive atomically."""
    try:
        write_file_atomically(target, contents.to_archive())
    except OSError as error:
        raise OperationError(f"{target} could not be written: {error}") from error


def write_file_atomically(target: Path, content: bytes) -> None:
    """Write a file under a temporary name, and rename it when it is complete."""
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


def read_folder(folder: Path, limits: ArchiveLimits = DEFAULT_LIMITS) -> PackageContents:
    """Read a package folder: its manifest, its modules with their data files, and its signature."""
    title = str(folder)
    if not folder.is_dir():
        raise RequestError(f"there is no folder {folder}", code="no_file", status=404)
    if not os.path.lexists(folder / MANIFEST_FILE):
        raise invalid_package_error(title, f"there is no {MANIFEST_FILE}", MANIFEST_FILE)
    manifest = read_manifest(
        read_file(folder / MANIFEST_FILE, MANIFEST_FILE, limits.file_size), str(folder / MANIFEST_FILE)
    )
    try:
        names = [MANIFEST_FILE, *_list_package_files(folder, manifest, title, limits)]
    except OSError as error:
        raise OperationError(f"{folder} could not be read: {error}") from error
    if len(names) > limits.entry_count:
        raise package_too_large_error(title, f"it has more than {limits.entry_count:,} files")
    check_names(title, names, limits)
    files: dict[str, bytes] = {}
    left = limits.total_size
    for name in names:
        files[name] = read_file(folder / name, name, min(limits.file_size, left))
        left -= len(files[name])
    return _build_contents(files, title, None)


def _list_package_files(folder: Path, manifest: Manifest, title: str, limits: ArchiveLimits) -> Iterator[str]:
    for name in (SIGNATURE_FILE, *(f"{top}.py" for top in manifest.top_level_names)):
        if os.path.lexists(folder / name):
            yield name
    for top in manifest.top_level_names:
        if os.path.lexists(folder / top):
            yield from _list_files_below(folder, top, title, limits)


def _list_files_below(folder: Path, inside: str, title: str, limits: ArchiveLimits) -> Iterator[str]:
    if (folder / inside).is_symlink():
        raise invalid_package_error(title, f"{inside!r} is a symbolic link; put the files themselves there", inside)
    if inside.count("/") >= limits.depth:
        raise invalid_package_error(title, f"{inside[:300]!r} lies more than {limits.depth} folders deep", inside)
    for one in sorted((folder / inside).iterdir()):
        name = f"{inside}/{one.name}"
        if is_excluded(one.name):
            continue
        if one.is_dir() and not one.is_symlink():
            yield from _list_files_below(folder, name, title, limits)
        else:
            yield name


def read_file(path: Path, name: str, limit: int, *, is_strict: bool = True) -> bytes:
    """Read a regular file up to a size limit; symbolic links are followed unless `is_strict`."""
    try:
        mode = path.lstat().st_mode if is_strict else path.stat().st_mode
        if not stat.S_ISREG(mode):
            what = "a symbolic link; put the file itself there" if stat.S_ISLNK(mode) else "not a plain file"
            raise invalid_package_error(str(path), f"{name!r} is {what}", name)
        with path.open("rb") as file:
            content = file.read(limit + 1)
    except FileNotFoundError as error:
        raise RequestError(f"there is no file {path}", code="no_file", status=404) from error
    except OSError as error:
        raise OperationError(f"{path} could not be read: {error}") from error
    if len(content) > limit:
        raise package_too_large_error(str(path), f"{name!r} has more than the {limit:,} bytes that are allowed", name)
    return content


def _build_contents(files: dict[str, bytes], title: str, raw: bytes | None) -> PackageContents:
    if MANIFEST_FILE not in files:
        raise invalid_package_error(title, f"there is no {MANIFEST_FILE}", MANIFEST_FILE)
    manifest = read_manifest(files[MANIFEST_FILE], str(Path(title, MANIFEST_FILE)))
    check_entries_belong(title, files, manifest)
    check_modules_present(title, files, manifest)
    signature = files.pop(SIGNATURE_FILE, None)
    return PackageContents(
        title=title, manifest=manifest, files=dict(sorted(files.items())), signature=signature, raw=raw
    )


UNVERSIONED = "0.0.0"
"""The version of a package that declares none; its digest identifies it."""


def read_python_file(path: Path, limits: ArchiveLimits = DEFAULT_LIMITS) -> PackageContents:
    """Read a Python file as a separate package; nothing is imported."""
    try:
        name = check_package_name(path.stem)
    except ValueError as error:
        message = f"the file cannot be a package: {error}; rename it"
        raise DefinitionError.single("package", message, Location(str(path), 1)) from error
    text = f'[package]\nname = "{name}"\nversion = "{UNVERSIONED}"\n'.encode()
    files = {path.name: read_file(path, path.name, limits.file_size, is_strict=False), MANIFEST_FILE: text}
    manifest = Manifest(name=name, version=Version.parse(UNVERSIONED), modules=(name,), capabilities=None)
    return PackageContents(title=str(path), manifest=manifest, files=files)
