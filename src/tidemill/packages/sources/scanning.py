"""Which packages lie in a folder, what they are called, and a digest of each that changes when anything of it does.

Nothing is imported. A file is read when it is new or was changed: between two looks only its stamp is compared.
"""

import ast
import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from tidemill.kernel.errors import TidemillError
from tidemill.packages.archive import SUFFIX, Contents, parse_archive, read_archive, read_folder
from tidemill.packages.entries import SIGNATURE, Limits, is_left_out
from tidemill.packages.manifest import MANIFEST, Manifest, read_manifest
from tidemill.packages.sources.plain import contents_of_file

RECENT = 100_000_000  # nanoseconds: a file may change twice within one tick of its file system's clock

_OF_EDITORS = ("~", ".swp", ".swx", "___jb_tmp___", "___jb_old___")
_TRIAL = "4913"  # Vim writes a file of this name to see whether it may


class Sighting(msgspec.Struct, frozen=True, kw_only=True):
    """A package that was found, as far as it is known without reading all of it."""

    path: Path
    digest: str
    files: Mapping[str, str]
    """The digests of its files, by name; of an archive, its own."""

    read: Callable[[Path], Contents]
    name: str | None = None
    """None if it cannot be told: `read` says why."""

    version: str | None = None

    @property
    def place(self) -> str:
        """Return what the folder or the file is called, without what tells its kind."""
        name = os.path.basename(os.path.abspath(self.path))
        return name if self.read is read_folder else name.removesuffix(self.path.suffix)

    def is_of(self, contents: Contents) -> bool:
        """Return whether some contents are what was seen here, and not what the files became later."""
        held = contents.files if contents.raw is None else {self.path.name: contents.raw}
        if contents.signature is not None:
            held = {**held, SIGNATURE: contents.signature}
        return all(name in held and _digest(held[name]) == digest for name, digest in self.files.items())


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What one look at a folder found."""

    sightings: tuple[Sighting, ...] = ()
    folders: tuple[tuple[str, int], ...] = ()
    """Where something may change, each with the number of the folder that had this path then."""

    problem: str | None = None
    """Why it cannot be told what is wanted."""

    is_changing: bool = False
    """Whether something was left as it was before, because it has not come to rest yet."""


class _Stamp(NamedTuple):
    """What changes when a file is written, or when another one takes its place."""

    changed: int
    size: int
    number: int
    mode: int


class _File(NamedTuple):
    """A file that was read."""

    stamp: _Stamp
    digest: str
    tells: Manifest | bool | None
    """What its content says, for the one who asked."""


Tell = Callable[[bytes, Path], Manifest | bool | None]


class Scanner:
    """Looks at one folder, or at one file, again and again. Paths are plain text here: it is done often."""

    def __init__(self, root: Path, limits: Limits) -> None:
        self._root = str(root)
        self._parents = tuple(map(str, root.parents))
        self._limits = limits
        self._files: dict[str, _File] = {}
        self._before: dict[str, _File] = {}
        self._folders: dict[str, int] = {}

    def look(self) -> Look:
        """Return what there is now."""
        self._before, self._files, self._folders = self._files, {}, {}
        sightings: tuple[Sighting, ...] = ()
        problem = None
        try:
            sightings = tuple(self._sightings())
        except FileNotFoundError:
            problem = f"there is no {'file' if self._root.endswith(('.py', SUFFIX)) else 'folder'} {self._root}"
        except OSError as error:
            problem = f"{self._root} could not be read: {error}"
        if not self._folders:
            self._watch_what_is_there()
        self._before = {}
        return Look(sightings=sightings, folders=tuple(self._folders.items()), problem=problem)

    def forget(self, names: set[str]) -> None:
        """Read files of these names again: something was heard of them."""
        self._files = {path: file for path, file in self._files.items() if os.path.basename(path) not in names}

    def doubt(self) -> None:
        """Read again what was written last: if it was written twice in a moment, its stamp may be the same."""
        newest = max((file.stamp.changed for file in self._files.values()), default=0)
        self._files = {path: one for path, one in self._files.items() if one.stamp.changed < newest - RECENT}

    def mark(self, path: Path) -> object:
        """Return what changes when a file at a path or below it is written, also if it holds the same again."""
        own, below = str(path), os.path.join(path, "")
        return {name: file.stamp for name, file in self._files.items() if name == own or name.startswith(below)}

    # -- packages

    def _sightings(self) -> Iterator[Sighting]:
        if not stat.S_ISDIR(os.stat(self._root).st_mode):
            self._watch(self._parents[0])
            yield self._archive(self._root) if self._root.endswith(SUFFIX) else self._python(self._root)
            return
        self._watch(self._root)
        if os.path.lexists(os.path.join(self._root, MANIFEST)):
            yield self._folder(self._root)
            return
        for name in self._entries(self._root):
            with suppress(OSError):  # it is gone since the folder was listed, or leads nowhere
                yield from self._direct(name, os.path.join(self._root, name))

    def _direct(self, name: str, path: str) -> Iterator[Sighting]:
        if stat.S_ISDIR(os.stat(path).st_mode):
            self._watch(path)
            if os.path.lexists(os.path.join(path, MANIFEST)):
                yield self._folder(path)
        elif name.endswith(SUFFIX):
            yield self._archive(path)
        elif name.endswith(".py") and _may_be_package(name) and self._python_file(path).tells:
            yield self._python(path)

    def _folder(self, folder: str) -> Sighting:
        found = self._file(os.path.join(folder, MANIFEST), _manifest)
        if not isinstance(found.tells, Manifest):
            return _sighting(folder, found.digest, {MANIFEST: found.digest}, read_folder)
        digests = {MANIFEST: found.digest}
        for name in self._belonging(folder, found.tells):
            with suppress(OSError):  # gone meanwhile, or reading all of it tells what is wrong
                digests[name] = self._file(os.path.join(folder, name)).digest
        return _sighting(folder, _whole_digest(digests), digests, read_folder, found.tells)

    def _archive(self, path: str) -> Sighting:
        found = self._file(path, self._archived_manifest, is_strict=False)
        return _sighting(path, found.digest, {os.path.basename(path): found.digest}, read_archive, found.tells)

    def _python(self, path: str) -> Sighting:
        found = self._python_file(path)
        return _sighting(path, found.digest, {os.path.basename(path): found.digest}, contents_of_file, found.tells)

    def _python_file(self, path: str) -> _File:
        return self._file(path, _python_manifest, is_strict=False)

    def _archived_manifest(self, content: bytes, path: Path) -> Manifest | None:
        try:
            return parse_archive(content, str(path), self._limits).manifest
        except TidemillError:
            return None

    # -- files

    def _belonging(self, folder: str, manifest: Manifest) -> Iterator[str]:
        """Yield the files of a package but its manifest; of one that has too many, enough for that to be seen."""
        yield SIGNATURE
        yield from (f"{top}.py" for top in manifest.tops)
        left = self._limits.entries
        waiting = list(manifest.tops)
        while waiting and left > 0:
            inside = waiting.pop()
            below = os.path.join(folder, inside)
            if os.path.islink(below) or not os.path.isdir(below):
                continue
            self._watch(below)
            for name in self._entries(below):
                left -= 1
                path = os.path.join(below, name)
                if os.path.isdir(path) and not os.path.islink(path):
                    waiting.append(f"{inside}/{name}")
                else:
                    yield f"{inside}/{name}"

    def _entries(self, folder: str) -> list[str]:
        try:
            return sorted(name for name in os.listdir(folder) if not is_passing(name))
        except OSError:
            if folder == self._root:
                raise
            return []  # one package that cannot be read is no reason to say nothing of the others

    def _file(self, path: str, tell: Tell | None = None, *, is_strict: bool = True) -> _File:
        """Return what is known of a file, which is read if it is not what it was; FileNotFoundError if it is gone."""
        status = os.stat(path, follow_symlinks=not is_strict)
        stamp = _Stamp(status.st_mtime_ns, status.st_size, status.st_ino, status.st_mode)
        file = self._files.get(path) or self._before.get(path)
        if file is None or file.stamp != stamp:
            file = self._read(Path(path), stamp, tell)
        self._files[path] = file
        return file

    def _read(self, path: Path, stamp: _Stamp, tell: Tell | None) -> _File:
        limit = self._limits.archive_size if path.suffix == SUFFIX else self._limits.file_size
        if not stat.S_ISREG(stamp.mode) or stamp.size > limit:  # it will be refused: no need to read it
            return _File(stamp, f"unread {stamp}", None)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            raise
        except OSError as error:
            return _File(stamp, f"unreadable: {error}", None)
        return _File(stamp, _digest(content), tell(content, path) if tell else None)

    # -- folders to watch

    def _watch(self, folder: str) -> None:
        with suppress(OSError, UnicodeEncodeError):  # the watcher knows no names that are not text
            folder.encode()
            self._folders[folder] = os.stat(folder).st_ino

    def _watch_what_is_there(self) -> None:
        """Watch the folder in which the first missing one would appear."""
        for folder in self._parents:
            self._watch(folder)
            if self._folders:
                return


def is_passing(name: str) -> bool:
    """Tell whether a file or folder is no part of any package, or one that an editor keeps for a moment."""
    is_lock = name.startswith("#") and name.endswith("#")
    return is_left_out(name) or name.endswith(_OF_EDITORS) or name == _TRIAL or is_lock


def _sighting(
    path: str,
    digest: str,
    files: Mapping[str, str],
    read: Callable[[Path], Contents],
    tells: Manifest | bool | None = None,
) -> Sighting:
    seen = Sighting(path=Path(path), digest=digest, files=files, read=read)
    return replace(seen, name=tells.name, version=str(tells.version)) if isinstance(tells, Manifest) else seen


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _whole_digest(digests: dict[str, str]) -> str:
    whole = hashlib.sha256()
    for name, digest in sorted(digests.items()):
        whole.update(f"{name}\0{digest}\0".encode(errors="surrogateescape"))
    return whole.hexdigest()


def _manifest(content: bytes, path: Path) -> Manifest | None:
    try:
        return read_manifest(content, str(path))
    except TidemillError:
        return None


def _may_be_package(name: str) -> bool:
    stem = name.removesuffix(".py")
    return not (stem.startswith(("_", "test_")) or stem.endswith("_test") or stem == "conftest")


def _python_manifest(content: bytes, path: Path) -> Manifest | bool:
    """Return the manifest of a file that counts as a package; True if it has none, False if it does not count."""
    if not _uses_tidemill(content, path):
        return False
    try:
        return contents_of_file(path).manifest
    except TidemillError:
        return True


def _uses_tidemill(content: bytes, path: Path) -> bool:
    """Tell whether a Python file imports Tidemill, or would if it could be read as Python."""
    if b"tidemill" not in content:
        return False
    try:
        tree = ast.parse(content, str(path))
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the last two are of code that is nested too deeply
        return True
    return any(name.partition(".")[0] == "tidemill" for name in _imported(tree))


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module or ""
