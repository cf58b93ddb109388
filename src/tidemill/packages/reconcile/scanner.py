"""Scans a folder for packages: their names, and a digest of each that changes when any of its files does.

Nothing is imported. A file is read when it is new or has changed: between two scans only its stamp is compared.

A Python file that imports Tidemill is a package. A file that was a package and no longer does so was emptied or turned
into a plain module; or it was saved by mistake, and importing it would fail. Then it is still a package, with an error.
"""

import ast
import builtins
import hashlib
import os
import stat
import symtable
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from importlib.util import decode_source
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from tidemill.kernel.errors import TidemillError
from tidemill.packages.format.archive import (
    ARCHIVE_SUFFIX,
    PackageContents,
    parse_archive,
    read_archive,
    read_folder,
    read_python_file,
)
from tidemill.packages.format.manifest import MANIFEST_FILE, Manifest, read_manifest
from tidemill.packages.format.zip_format import SIGNATURE_FILE, ArchiveLimits, is_excluded

RECENT_WRITE_NS = 100_000_000  # a file may change twice within one tick of the file system's clock

_EDITOR_SUFFIXES = ("~", ".swp", ".swx", "___jb_tmp___", "___jb_old___")
_VIM_TEST_FILE = "4913"  # Vim creates a file of this name to test whether it can write
_PARSE_ERRORS = (SyntaxError, ValueError, RecursionError, MemoryError)  # the last two: code that is nested too deeply
_DEFINED_NAMES = frozenset(dir(builtins)) | {"__file__", "__path__"}


class FoundPackage(msgspec.Struct, frozen=True, kw_only=True):
    """A package that a scan found, as far as it is known without reading all of it."""

    path: Path
    digest: str
    files: Mapping[str, str]
    """The digests of its files, by name; for an archive, its own digest."""

    read: Callable[[Path], PackageContents]
    name: str | None = None
    """None if the manifest cannot be read; `read` then raises the reason."""

    version: str | None = None

    @property
    def base_name(self) -> str:
        """The name of the folder or file, without its suffix."""
        name = os.path.basename(os.path.abspath(self.path))
        return name if self.read is read_folder else name.removesuffix(self.path.suffix)

    def matches(self, contents: PackageContents) -> bool:
        """Return whether contents are what the scan saw, and not a later version of the files."""
        files = contents.files if contents.raw is None else {self.path.name: contents.raw}
        if contents.signature is not None:
            files = {**files, SIGNATURE_FILE: contents.signature}
        return all(name in files and _sha256(files[name]) == digest for name, digest in self.files.items())


class FolderScan(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one scan of a folder."""

    packages: tuple[FoundPackage, ...] = ()
    folders: tuple[tuple[str, int], ...] = ()
    """The folders to watch, each with its inode number."""

    problem: str | None = None
    """Why the folder cannot be read; None if it can."""

    is_changing: bool = False
    """Whether a package is reported as it was before, because it is still changing."""


class _FileStamp(NamedTuple):
    """Metadata of a file that changes when it is written or replaced."""

    modified_ns: int
    size: int
    inode: int
    mode: int


class _ScannedFile(NamedTuple):
    """A file that was read."""

    stamp: _FileStamp
    digest: str
    parsed: Manifest | bool | None
    """The result of the parser that was passed with the file."""


ParseFile = Callable[[bytes, Path], Manifest | bool | None]


class FolderScanner:
    """Scans one folder or file repeatedly. Paths are plain strings here, for speed."""

    def __init__(self, root: Path, limits: ArchiveLimits) -> None:
        self._root = str(root)
        self._parents = tuple(map(str, root.parents))
        self._limits = limits
        self._files: dict[str, _ScannedFile] = {}
        self._previous_files: dict[str, _ScannedFile] = {}
        self._folders: dict[str, int] = {}
        self._package_files: set[str] = set()
        """The Python files that are or were packages: while it is saved, a file may be empty for a moment."""

    def remember_packages(self, names: Iterable[str]) -> None:
        """Take Python files of these names for packages, even if they are broken now: they were loaded before."""
        self._package_files.update(os.path.join(self._root, f"{name}.py") for name in names)

    def scan(self) -> FolderScan:
        """Return the packages that exist now."""
        self._previous_files, self._files, self._folders = self._files, {}, {}
        packages: tuple[FoundPackage, ...] = ()
        problem = None
        try:
            packages = tuple(self._find_packages())
        except FileNotFoundError:
            problem = f"there is no {'file' if self._root.endswith(('.py', ARCHIVE_SUFFIX)) else 'folder'} {self._root}"
        except OSError as error:
            problem = f"{self._root} could not be read: {error}"
        if not self._folders:
            self._watch_nearest_parent()
        self._previous_files = {}
        return FolderScan(packages=packages, folders=tuple(self._folders.items()), problem=problem)

    def invalidate(self, names: set[str]) -> None:
        """Read the files of these names again at the next scan."""
        self._files = {path: file for path, file in self._files.items() if os.path.basename(path) not in names}

    def invalidate_recent(self) -> None:
        """Read the newest files again at the next scan: two writes in quick succession may leave the same stamp."""
        newest = max((file.stamp.modified_ns for file in self._files.values()), default=0)
        self._files = {
            path: one for path, one in self._files.items() if one.stamp.modified_ns < newest - RECENT_WRITE_NS
        }

    def write_mark(self, path: Path) -> object:
        """Return a value that changes when a file at or below a path is written, even with the same content."""
        own, below = str(path), os.path.join(path, "")
        return {name: file.stamp for name, file in self._files.items() if name == own or name.startswith(below)}

    # -- packages

    def _find_packages(self) -> Iterator[FoundPackage]:
        if not stat.S_ISDIR(os.stat(self._root).st_mode):
            self._add_watched_folder(self._parents[0])
            yield (
                self._found_archive(self._root)
                if self._root.endswith(ARCHIVE_SUFFIX)
                else self._found_python_file(self._root)
            )
            return
        self._add_watched_folder(self._root)
        if os.path.lexists(os.path.join(self._root, MANIFEST_FILE)):
            yield self._found_folder(self._root)
            return
        for name in self._list_folder(self._root):
            with suppress(OSError):  # it was removed since the folder was listed, or is a dangling link
                yield from self._package_in_entry(name, os.path.join(self._root, name))

    def _package_in_entry(self, name: str, path: str) -> Iterator[FoundPackage]:
        if stat.S_ISDIR(os.stat(path).st_mode):
            self._add_watched_folder(path)
            if os.path.lexists(os.path.join(path, MANIFEST_FILE)):
                yield self._found_folder(path)
        elif name.endswith(ARCHIVE_SUFFIX):
            yield self._found_archive(path)
        elif name.endswith(".py") and _is_package_file_name(name) and self._is_package_file(path):
            yield self._found_python_file(path)

    def _is_package_file(self, path: str) -> bool:
        """Return whether a Python file is a package; one that cannot be read is still what it was."""
        parsed = self._scan_python_file(path).parsed
        if parsed:
            self._package_files.add(path)
        return bool(parsed) or (parsed is None and path in self._package_files)

    def _found_folder(self, folder: str) -> FoundPackage:
        found = self._scan_file(os.path.join(folder, MANIFEST_FILE), _parse_manifest)
        if not isinstance(found.parsed, Manifest):
            return _build_found(folder, found.digest, {MANIFEST_FILE: found.digest}, read_folder)
        digests = {MANIFEST_FILE: found.digest}
        for name in self._files_of_package(folder, found.parsed):
            with suppress(OSError):  # removed meanwhile; else reading the package reports the error
                digests[name] = self._scan_file(os.path.join(folder, name)).digest
        return _build_found(folder, _combined_digest(digests), digests, read_folder, found.parsed)

    def _found_archive(self, path: str) -> FoundPackage:
        found = self._scan_file(path, self._manifest_in_archive, is_strict=False)
        return _build_found(path, found.digest, {os.path.basename(path): found.digest}, read_archive, found.parsed)

    def _found_python_file(self, path: str) -> FoundPackage:
        found = self._scan_python_file(path)
        return _build_found(path, found.digest, {os.path.basename(path): found.digest}, read_python_file, found.parsed)

    def _scan_python_file(self, path: str) -> _ScannedFile:
        recognize = partial(_recognize_python_file, was_package=path in self._package_files)
        return self._scan_file(path, recognize, is_strict=False)

    def _manifest_in_archive(self, content: bytes, path: Path) -> Manifest | None:
        try:
            return parse_archive(content, str(path), self._limits).manifest
        except TidemillError:
            return None

    # -- files

    def _files_of_package(self, folder: str, manifest: Manifest) -> Iterator[str]:
        """Yield the files of a package but its manifest; if it has too many, enough for the limit to be noticed."""
        yield SIGNATURE_FILE
        yield from (f"{top}.py" for top in manifest.top_level_names)
        left = self._limits.entry_count
        waiting = list(manifest.top_level_names)
        while waiting and left > 0:
            inside = waiting.pop()
            below = os.path.join(folder, inside)
            if os.path.islink(below) or not os.path.isdir(below):
                continue
            self._add_watched_folder(below)
            for name in self._list_folder(below):
                left -= 1
                path = os.path.join(below, name)
                if os.path.isdir(path) and not os.path.islink(path):
                    waiting.append(f"{inside}/{name}")
                else:
                    yield f"{inside}/{name}"

    def _list_folder(self, folder: str) -> list[str]:
        try:
            return sorted(name for name in os.listdir(folder) if not is_ignored(name))
        except OSError:
            if folder == self._root:
                raise
            return []  # a package that cannot be read must not hide the others

    def _scan_file(self, path: str, parse: ParseFile | None = None, *, is_strict: bool = True) -> _ScannedFile:
        """Return the digest of a file, which is read if its stamp changed; raise FileNotFoundError if it is gone."""
        status = os.stat(path, follow_symlinks=not is_strict)
        stamp = _FileStamp(status.st_mtime_ns, status.st_size, status.st_ino, status.st_mode)
        file = self._files.get(path) or self._previous_files.get(path)
        if file is None or file.stamp != stamp:
            file = self._read_file(Path(path), stamp, parse)
        self._files[path] = file
        return file

    def _read_file(self, path: Path, stamp: _FileStamp, parse: ParseFile | None) -> _ScannedFile:
        limit = self._limits.archive_size if path.suffix == ARCHIVE_SUFFIX else self._limits.file_size
        if not stat.S_ISREG(stamp.mode) or stamp.size > limit:  # it will be rejected: no need to read it
            return _ScannedFile(stamp, f"unread {stamp}", None)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            raise
        except OSError as error:
            return _ScannedFile(stamp, f"unreadable: {error}", None)
        return _ScannedFile(stamp, _sha256(content), parse(content, path) if parse else None)

    # -- folders to watch

    def _add_watched_folder(self, folder: str) -> None:
        with suppress(OSError, UnicodeEncodeError):  # the watcher only takes names that are valid text
            folder.encode()
            self._folders[folder] = os.stat(folder).st_ino

    def _watch_nearest_parent(self) -> None:
        """Watch the nearest existing parent, in which the missing folder would appear."""
        for folder in self._parents:
            self._add_watched_folder(folder)
            if self._folders:
                return


def is_ignored(name: str) -> bool:
    """Return whether a file or folder is never part of a package, or is a temporary file of an editor."""
    is_lock = name.startswith("#") and name.endswith("#")
    return is_excluded(name) or name.endswith(_EDITOR_SUFFIXES) or name == _VIM_TEST_FILE or is_lock


def _build_found(
    path: str,
    digest: str,
    files: Mapping[str, str],
    read: Callable[[Path], PackageContents],
    parsed: Manifest | bool | None = None,
) -> FoundPackage:
    found = FoundPackage(path=Path(path), digest=digest, files=files, read=read)
    return replace(found, name=parsed.name, version=str(parsed.version)) if isinstance(parsed, Manifest) else found


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _combined_digest(digests: dict[str, str]) -> str:
    whole = hashlib.sha256()
    for name, digest in sorted(digests.items()):
        whole.update(f"{name}\0{digest}\0".encode(errors="surrogateescape"))
    return whole.hexdigest()


def _parse_manifest(content: bytes, path: Path) -> Manifest | None:
    try:
        return read_manifest(content, str(path))
    except TidemillError:
        return None


# -- Python files


def _is_package_file_name(name: str) -> bool:
    """Return whether a Python file of this name may be a package: not if it is a test, or private."""
    stem = name.removesuffix(".py")
    return not (stem.startswith(("_", "test_")) or stem.endswith("_test") or stem == "conftest")


def _recognize_python_file(content: bytes, path: Path, *, was_package: bool) -> Manifest | bool:
    """Return the manifest of a Python file that is a package; True if it cannot be read, False if it is none."""
    if not (_imports_tidemill(content, path) or (was_package and _is_broken(content, path))):
        return False
    try:
        return read_python_file(path).manifest
    except TidemillError:
        return True


def _imports_tidemill(content: bytes, path: Path) -> bool:
    """Return whether a Python file imports Tidemill; True if it mentions it and cannot be parsed."""
    if b"tidemill" not in content:
        return False
    try:
        tree = ast.parse(content, str(path))
    except _PARSE_ERRORS:
        return True
    return any(name.partition(".")[0] == "tidemill" for name in _imported_modules(tree))


def _imported_modules(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module or ""


def _is_broken(content: bytes, path: Path) -> bool:
    """Return whether a Python file cannot be parsed, or uses names at the top level that it does not define.

    `from x import *` may define any name.
    """
    try:
        symbols = symtable.symtable(decode_source(content), str(path), "exec").get_symbols()
    except _PARSE_ERRORS:
        return True
    if b"import *" in content:
        return False
    return any(
        one.is_referenced() and not (one.is_assigned() or one.is_imported() or one.get_name() in _DEFINED_NAMES)
        for one in symbols
    )
